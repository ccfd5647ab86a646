"""Octets of RDF files as blocks of whole lines: gzip is sniffed and inflated, sizes are bounded."""

from __future__ import annotations

import io
import stat
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from headwater.rdf.faults import BOUNDS, BadRdf, RdfBounds, RdfTooCostly

BLOCK: int = 1 << 20
MEMBER_OCTETS = 4096
"""Where members of gzip have less on the average, their number is bounded; those of tools have more."""

_GZIP = b"\x1f\x8b"
_BOM = b"\xef\xbb\xbf"


def octets(stream: BinaryIO, where: str, bounds: RdfBounds = BOUNDS) -> Iterator[bytes]:
    """The content of a stream in pieces of at most `BLOCK` octets, inflated where it begins as gzip does, without a
    leading byte order mark. Raises BadRdf for damaged or truncated gzip, RdfTooCostly beyond `bounds.octets`."""
    head = _exactly(stream, len(_BOM))
    pieces = _inflated(stream, head, where, bounds.gzip_members) if head.startswith(_GZIP) else _plain(stream, head)
    left = bounds.octets
    first = True
    for piece in pieces:
        content = piece
        if first and piece:
            content, first = piece.removeprefix(_BOM), False
        left -= len(content)
        if left < 0:
            raise RdfTooCostly(f"the file has more than {bounds.octets:,} octets", where=where)
        if content:
            yield content


def _exactly(stream: BinaryIO, count: int) -> bytes:
    found = b""
    while len(found) < count and (piece := stream.read(count - len(found))):
        found += piece
    return found


def _plain(stream: BinaryIO, head: bytes) -> Iterator[bytes]:
    yield head + stream.read(BLOCK - len(head))
    while piece := stream.read(BLOCK):
        yield piece


def _inflated(stream: BinaryIO, head: bytes, where: str, most: int) -> Iterator[bytes]:
    """All members of a gzip file (RFC 1952, 2.2): at most so many that have next to no content."""
    members = content = 0
    data = head + stream.read(BLOCK >> 2)
    pending = b""
    while data:
        inflater = zlib.decompressobj(wbits=31)
        members += 1
        if members > most and content < members * MEMBER_OCTETS:
            raise RdfTooCostly(f"more than {most:,} gzip members with next to no content", where=where)
        while not inflater.eof:
            if not data and not (data := stream.read(BLOCK >> 2)):
                raise BadRdf("the gzip file ends before its end: it was cut off", where=where)
            try:
                piece = inflater.decompress(data, BLOCK)
            except zlib.error as error:
                raise BadRdf(f"the gzip file is damaged: {error}", where=where) from error
            data = inflater.unconsumed_tail
            content += len(piece)
            pending += piece
            if len(pending) >= len(_BOM):  # the first piece decides on a byte order mark
                yield pending
                pending = b""
        data = inflater.unused_data or stream.read(BLOCK >> 2)
        while data and not (data := data.lstrip(b"\0")):  # what fills up the last block
            data = stream.read(BLOCK >> 2)
    if pending:
        yield pending


def is_plain(path: Path) -> bool:
    """Whether a file is an ordinary one that is neither gzip nor begins with a byte order mark."""
    if not stat.S_ISREG(path.stat().st_mode):
        return False
    with path.open("rb") as file:
        head = _exactly(file, len(_BOM))
    return not head.startswith(_GZIP) and head != _BOM


@contextmanager
def inflated_file(path: Path, target: Path, bounds: RdfBounds = BOUNDS) -> Iterator[Path]:
    """A file as it is, or inflated and without a byte order mark at `target` for the time of the context."""
    if is_plain(path):
        yield path
        return
    try:
        with path.open("rb") as file, target.open("xb") as content:
            content.writelines(octets(file, str(path), bounds))
        yield target
    finally:
        target.unlink(missing_ok=True)


def line_blocks(pieces: Iterator[bytes], where: str, bounds: RdfBounds = BOUNDS) -> Iterator[bytes]:
    """The content as blocks of whole lines, each of which ends with LF (`ended`: the last one too).

    Raises RdfTooCostly for a line of more than `bounds.line_octets`.
    """
    lines = 0
    rest: list[bytes] = []
    length = 0
    for piece in pieces:
        end = piece.rfind(b"\n") + 1
        if not end:
            rest.append(piece)
            length += len(piece)
        else:
            _bound(length + piece.find(b"\n"), lines, where, bounds)
            rest.append(piece[:end] if rest or end < len(piece) else piece)
            block = b"".join(rest) if len(rest) > 1 else rest[0]
            lines += block.count(b"\n")
            yield block
            rest, length = ([piece[end:]], len(piece) - end) if end < len(piece) else ([], 0)
        _bound(length, lines, where, bounds)
    if rest:
        yield ended(b"".join(rest))


def ended(lines: bytes) -> bytes:
    """Lines with an LF behind the last one too; behind a CR it stands after a space: it must not make a CRLF of it."""
    if lines.endswith(b"\n"):
        return lines
    return lines + (b" \n" if lines.endswith(b"\r") else b"\n")


def _bound(length: int, lines: int, where: str, bounds: RdfBounds) -> None:
    if length > bounds.line_octets:
        raise RdfTooCostly(f"the line has more than {bounds.line_octets:,} octets", where=where, line=lines + 1)


class OctetStream(io.RawIOBase):
    """Pieces of octets as a file to read from, for a parser that wants one."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces
        self._rest = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: object) -> int:
        view = memoryview(buffer)  # type: ignore[arg-type]
        if not self._rest:
            self._rest = memoryview(next(filter(None, self._pieces), b""))
        count = min(len(view), len(self._rest))
        view[:count] = self._rest[:count]
        self._rest = self._rest[count:]
        return count


def utf8_checked(block: bytes, line: int, raised: Callable[[str, int], BadRdf]) -> None:
    """Raise what `raised` makes of a message and a line number where a block is not UTF-8. `line` is its first."""
    if block.isascii():
        return
    try:
        block.decode()
    except UnicodeDecodeError as error:
        raise raised("the line is not UTF-8", line + block.count(b"\n", 0, error.start)) from error
