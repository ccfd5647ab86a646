"""Writer of ZIP files as a stream of octets: the same octets from the same members, ZIP64 where it is needed.

`pays` tells which members are worth deflating.
"""

import struct
from array import array
from collections.abc import Iterable, Iterator
from functools import lru_cache
from struct import Struct
from typing import NamedTuple

from headwater.deflate import (
    BLOCK,
    FAST_LEVEL,
    FULL_FLUSH,
    MOST_STORED,
    crc32,
    deflate_whole,
    raw_deflater,
    stored_block,
)
from headwater.packages import zip_format as zf
from headwater.packages.faults import BadMemberName, MemberChanged

_DATE = 0x0021
"""1980-01-01, the earliest that the format knows: times of files would make the same content another package."""

_ATTRIBUTES = 0o100644 << 16
"""A regular file that all may read (external attributes as Unix has them)."""

_VERSION = 20
_VERSION64 = 45
_MADE_BY = 3 << 8 | _VERSION64
"""Unix, so that the attributes are understood as they are meant."""

_MADE_BY_OCTETS = _MADE_BY.to_bytes(2, "little")

_SAFE_32 = zf.MOST_32 - (1 << 26)
"""A known length up to here stays below 4 GiB, even if deflating makes it longer."""

_RATIO, _RATIO_OCTETS = 100, 2 << 20
"""How much deflated content may grow by inflating, once so much of it has come: half of what readers bear."""

_COMMON = Struct("<HHHHHIIIHH")
"""What a local header and a record of the central directory have in common: all that a `LOCAL` has but its signature.
"""

_PLACE = Struct("<HHHII")
"""What follows it in the record: length of the comment, disk, internal and external attributes, offset."""


class ZipWriter:
    """Makes the octets of one ZIP file, from its beginning to its end; the caller appends what each method gives, in
    order. Deterministic: fixed date, fixed attributes, UTF-8 names (bit 11, RS-EXT-07), ZIP64 where sizes, offsets or
    the number of members ask for it, and for streamed members of unknown length.

    A member is recorded when its last octets have been given. If it fails before, the caller throws away what came
    of it (the file ends at `octets` again) and goes on. Names are written as they are given: make them by
    `member_paths`, which also tells collisions.
    """

    def __init__(self, start: int = 0) -> None:
        """`start`: octets that precede the first member in the file."""
        self._start = start
        self._members: list[_Member] = []
        self._offsets = array("Q")
        self.octets = 0
        """Octets given so far, without `start`."""

    @property
    def members(self) -> int:
        """Members written so far."""
        return len(self._members)

    def member(self, name: str, content: bytes, *, deflate: bool) -> bytes:
        """A whole member: sizes and CRC stand in its local header. With `deflate` it is deflated, unless that makes
        it no shorter. Raises BadMemberName."""
        member, octets = _whole(name, content, deflate=deflate)
        self._members.append(member)
        self._offsets.append(self.octets)
        self.octets += len(octets)
        return octets

    def insert_first(self, name: str, content: bytes) -> bytes:
        """A whole member, deflated where that pays, to be put before all that was given so far (a manifest that is made
        of what was packed): the other members move behind it. Raises BadMemberName."""
        member, octets = _whole(name, content, deflate=True)
        self._members.insert(0, member)
        self._offsets = array("Q", [0, *(offset + len(octets) for offset in self._offsets)])
        self.octets += len(octets)
        return octets

    def stream(
        self, name: str, blocks: Iterable[bytes], *, octets: int | None = None, deflate: bool
    ) -> Iterator[bytes]:
        """A member whose content comes in blocks, with a data descriptor behind it.

        `octets` is its length where that is known: MemberChanged is raised when another one came. So that a reader
        finds the end of the member while it arrives, a length that is known stands in the local header of a stored
        member, and one of unknown length is deflated without compression (RFC 1951 3.2.4) rather than stored.
        Raises BadMemberName.
        """
        method = zf.STORED if octets is not None and not deflate else zf.DEFLATED
        large = octets is None or octets > _SAFE_32
        said = octets if octets is not None and method == zf.STORED else 0
        member = _Member(_encoded(name), zf.UTF8 | zf.DESCRIPTOR, method, 0, said, said)
        head = _local(member, large=large)
        yield head
        content = _Counted(blocks, octets)
        written = 0
        for block in _body(content, method, deflate=deflate):
            written += len(block)
            yield block
        content.check()
        tail = zf.DESCRIPTORS[large][0].pack(zf.DESCRIPTOR_SIGNATURE, content.crc, written, content.octets)
        self._members.append(member._replace(crc=content.crc, packed=written, plain=content.octets))
        self._offsets.append(self.octets)
        self.octets += len(head) + written + len(tail)
        yield tail

    def end(self) -> bytes:
        """The central directory and the end of the file."""
        places = (self._start + offset for offset in self._offsets)
        directory = b"".join(map(_central, self._members, places))
        at = self._start + self.octets
        count, size = len(self._members), len(directory)
        parts = [directory]
        if count >= zf.MOST_16 or size >= zf.MOST_32 or at >= zf.MOST_32:
            rest = zf.END64.size - 12
            parts.append(zf.END64.pack(zf.END64_SIGNATURE, rest, _MADE_BY, _VERSION64, 0, 0, count, count, size, at))
            parts.append(zf.LOCATOR64.pack(zf.LOCATOR64_SIGNATURE, 0, at + size, 1))
        few, small = min(count, zf.MOST_16), min(size, zf.MOST_32)
        parts.append(zf.END.pack(zf.END_SIGNATURE, 0, 0, few, few, small, min(at, zf.MOST_32), 0))
        octets = b"".join(parts)
        self.octets += len(octets)
        return octets


class _Member(NamedTuple):
    """What the headers of a member say; `packed`: its octets in the file, `plain`: those of the content."""

    name: bytes
    flags: int
    method: int
    crc: int
    packed: int
    plain: int
    fields: bytes = b""  # what a local header and the record have in common, where it is the same in both


class _Counted:
    """Blocks of one size, with the CRC and the length of what passed."""

    def __init__(self, blocks: Iterable[bytes], expected: int | None) -> None:
        self._blocks = blocks
        self._expected = expected
        self.crc = 0
        self.octets = 0

    def __iter__(self) -> Iterator[bytes]:
        """Blocks of `BLOCK` octets and a shorter last one: what is written must not depend on how content came."""
        waiting = bytearray()
        for block in self._blocks:
            self.crc = crc32(block, self.crc)
            self.octets += len(block)
            if self._expected is not None and self.octets > self._expected:
                raise MemberChanged(f"more than the {self._expected:,} octets that were said")
            if not waiting and len(block) == BLOCK:
                yield block
                continue
            waiting += block
            while len(waiting) >= BLOCK:
                yield bytes(waiting[:BLOCK])
                del waiting[:BLOCK]
        if waiting:
            yield bytes(waiting)

    def check(self) -> None:
        """Raises MemberChanged when the content was shorter than said."""
        if self._expected is not None and self.octets != self._expected:
            raise MemberChanged(f"{self.octets:,} octets instead of {self._expected:,}")


def _body(content: Iterable[bytes], method: int, *, deflate: bool) -> Iterator[bytes]:
    if method == zf.STORED:
        yield from content
    elif deflate:
        yield from _deflated(content)
    else:
        for block in content:
            yield b"".join(_stored_blocks(block))
        yield b"\x01\x00\x00\xff\xff"


def _deflated(content: Iterable[bytes]) -> Iterator[bytes]:
    """Deflate that never grows so much by inflating that a reader takes it for a bomb (DST-P6): of zeros, as sparse
    files have them, a block is stored now and then."""
    deflater = raw_deflater(FAST_LEVEL)
    plain = packed = 0
    for block in content:
        plain += len(block)
        if plain > _RATIO_OCTETS and plain > _RATIO * packed:
            ready = deflater.flush(FULL_FLUSH) + b"".join(_stored_blocks(block))
        else:
            ready = deflater.compress(block)
        if ready:
            packed += len(ready)
            yield ready
    yield deflater.flush()


def _stored_blocks(block: bytes) -> Iterator[bytes]:
    return (stored_block(block[start : start + MOST_STORED]) for start in range(0, len(block), MOST_STORED))


def _encoded(name: str) -> bytes:
    try:
        octets = name.encode()
    except UnicodeEncodeError as error:
        raise BadMemberName(f"{name!a} cannot be written as UTF-8") from error
    if not octets or len(octets) > zf.MOST_16:
        raise BadMemberName(f"a member's name has 1 to {zf.MOST_16:,} octets, not {len(octets):,}")
    return octets


def _whole(name: str, content: bytes, *, deflate: bool) -> tuple[_Member, bytes]:
    encoded, body, method = _encoded(name), content, zf.STORED
    if deflate:
        if len(content) > _RATIO_OCTETS:
            blocks = (content[start : start + BLOCK] for start in range(0, len(content), BLOCK))
            packed = b"".join(_deflated(blocks))
        else:
            packed = deflate_whole(content, FAST_LEVEL)
        if len(packed) < len(content):
            body, method = packed, zf.DEFLATED
    member = _Member(encoded, zf.UTF8, method, crc32(content), len(body), len(content))
    if len(content) >= zf.MOST_32:
        return member, _local(member, large=True) + body
    fields = _fields(member, ())
    return _Member(*member[:6], fields), b"".join((zf.LOCAL_SIGNATURE, fields, encoded, body))


def _local(member: _Member, *, large: bool) -> bytes:
    """The local header of a member; with `large` its lengths stand in a ZIP64 field."""
    wide = (member.plain, member.packed) if large else ()
    said = member._replace(packed=zf.MOST_32, plain=zf.MOST_32) if large else member
    return zf.LOCAL_SIGNATURE + _fields(said, wide) + member.name + _field64(wide)


def _central(member: _Member, place: int) -> bytes:
    """The record of a member in the central directory; what needs 64 bits stands in a ZIP64 field."""
    if member.fields and place < zf.MOST_32:
        place_fields = _PLACE.pack(0, 0, 0, _ATTRIBUTES, place)
        return b"".join((zf.CENTRAL_SIGNATURE, _MADE_BY_OCTETS, member.fields, place_fields, member.name))
    wide = tuple(number for number in (member.plain, member.packed, place) if number >= zf.MOST_32)
    begin = zf.CENTRAL_SIGNATURE + _MADE_BY_OCTETS + _fields(member, wide)
    return begin + _PLACE.pack(0, 0, 0, _ATTRIBUTES, min(place, zf.MOST_32)) + member.name + _field64(wide)


def _fields(member: _Member, wide: tuple[int, ...]) -> bytes:
    """What both have in common; so many numbers stand in a ZIP64 field."""
    name, flags, method, crc, packed, plain, _ = member
    version, extra = (_VERSION64, 4 + 8 * len(wide)) if wide else (_VERSION, 0)
    lengths = min(packed, zf.MOST_32), min(plain, zf.MOST_32)
    return _COMMON.pack(version, flags, method, 0, _DATE, crc, *lengths, len(name), extra)


def _field64(numbers: tuple[int, ...]) -> bytes:
    return struct.pack(f"<HH{len(numbers)}Q", zf.ZIP64_FIELD, 8 * len(numbers), *numbers) if numbers else b""


# which members are deflated

_SMALLEST = 64
"""Octets below which deflating gains nothing: the ZIP headers of a member are longer."""

_APPLICATIONS = """
ecmascript graphql javascript json ld+json marc mbox n-quads n-triples octet-stream postscript rtf
sparql-query sql tei+xml toml trig wasm x-javascript x-ndjson x-sh x-tar x-tex x-yaml xml xml-dtd
yaml
"""
_OTHERS = """
image/bmp image/svg+xml image/x-portable-bitmap image/x-portable-graymap image/x-portable-pixmap
audio/midi audio/wav audio/x-wav font/otf font/ttf message/http message/rfc822
"""
_TEXT = frozenset((*(f"application/{name}" for name in _APPLICATIONS.split()), *_OTHERS.split()))
"""Media types of which content is not compressed already, beside `text/*` and what ends in `+xml`, `+json`, `+yaml`."""


def pays(media_type: str | None, octets: int | None) -> bool:
    """Whether a resource of this media type and length is worth deflating. Unknown types are; most images, sound,
    films, PDF, office documents and archives are compressed already. A length that is not known counts as large."""
    is_tiny = octets is not None and octets < _SMALLEST
    return not is_tiny and (not media_type or _is_of_text(media_type))


@lru_cache(256)
def _is_of_text(media_type: str) -> bool:
    """Whether content of this type is not compressed already; a set has few types, and a package many members."""
    kind = media_type.partition(";")[0].strip().lower()
    return kind.startswith("text/") or kind.endswith(("+xml", "+json", "+yaml")) or kind in _TEXT
