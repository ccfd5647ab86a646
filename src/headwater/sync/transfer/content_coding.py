"""Content codings: decodes a file (gzip, deflate) in bounded memory, with a bounded result (AMB-16)."""

from __future__ import annotations

import zlib
from collections.abc import Iterator

from headwater.files.file_copies import Room
from headwater.files.hashing import HASHERS

_CHUNK = 1 << 17
_MOST = 2  # codings of one answer; nobody needs a third
_RATIO = 250
_RATIO_OCTETS = 64 << 20
_MEMBERS, _MEMBER_OCTETS = 200_000, 4096
"""So many members of gzip at most where they have less on the average: of empty ones no octet comes out."""


class CannotDecode(Exception):
    """A body cannot be decoded: its content coding is unknown or damaged, or it grows beyond the bounds."""


def decode_file(
    source: str, target: str, coding: str, algorithm: str, most: int, room: Room | None = None
) -> tuple[int, str]:
    """Decode `source` into the new file `target`; returns its octets and hex digest.

    Raises CannotDecode, and OSError: among others where there is no `room`.
    """
    codings = [name.strip() for name in coding.split(",")]
    if len(codings) > _MOST or any(name not in ("gzip", "x-gzip", "deflate") for name in codings):
        raise CannotDecode("unknown")
    hasher = HASHERS[algorithm]()
    octets = 0
    with open(source, "rb") as coded, open(target, "xb") as decoded:
        pieces = plain = iter(lambda: coded.read(_CHUNK), b"")
        for name in reversed(codings):
            pieces = _decoded(filter(None, pieces), name, is_second=pieces is not plain)
        for piece in pieces:
            octets += len(piece)
            if octets > most or (octets > _RATIO_OCTETS and octets > _RATIO * coded.tell()):
                raise CannotDecode("it grows beyond all measure")
            if room is not None:
                room.check(len(piece), octets)
            hasher.update(piece)
            decoded.write(piece)
    return octets, hasher.hexdigest()


def _decoded(chunks: Iterator[bytes], coding: str, *, is_second: bool) -> Iterator[bytes]:
    wanted = 31 if coding.endswith("gzip") else 15
    inflate = zlib.decompressobj(wanted)
    begun = False
    members, content = 1, 0
    try:
        for chunk in chunks:
            if not begun and is_second and coding.endswith("gzip") and not chunk.startswith(b"\x1f\x8b"):
                yield chunk  # two servers have each written the header, and one has compressed
                yield from chunks
                return
            if not begun and coding == "deflate" and (chunk[0] & 0x0F) != 8:
                inflate = zlib.decompressobj(-15)  # many servers send raw deflate under this name
            begun = True
            data = chunk
            while data:
                if inflate.eof:
                    if coding == "deflate":
                        raise CannotDecode("there is more after its end")
                    inflate = zlib.decompressobj(wanted)
                    members += 1
                    if members > _MEMBERS and content < members * _MEMBER_OCTETS:
                        raise CannotDecode("it has too many members with next to no content")
                piece = inflate.decompress(data, _CHUNK * 8)
                content += len(piece)
                yield piece
                data = inflate.unconsumed_tail or inflate.unused_data
        yield inflate.flush()
    except zlib.error as cause:
        raise CannotDecode("it is damaged") from cause
    if not inflate.eof:
        raise CannotDecode("it ends too early")
