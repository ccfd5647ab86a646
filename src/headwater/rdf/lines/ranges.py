"""Ranges of files of sorted lines: where a line would stand is found by bisection, so that files are cut alike."""

from __future__ import annotations

import os
import weakref
from bisect import bisect_left
from collections.abc import Iterator
from pathlib import Path

from headwater.rdf.faults import BOUNDS, RdfBounds, RdfTooCostly

_PIECE = 1 << 12
_WINDOW = 1 << 14
"""So many octets are read at once to look for a line among them."""


class LineFile:
    """A file of lines, each ended by LF, that are said to be sorted bytewise. It is closed with the last reference to
    it, if not before. A line beyond the bound raises RdfTooCostly."""

    def __init__(self, path: Path, bounds: RdfBounds = BOUNDS) -> None:
        self.path = path
        self._most = bounds.line_octets
        self._file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self._closed = weakref.finalize(self, os.close, self._file)
        self.octets = os.fstat(self._file).st_size

    def close(self) -> None:
        """Close the file."""
        self._closed()

    def read(self, start: int, end: int) -> bytes:
        """The octets from `start` to `end`; fewer where the file has become shorter."""
        pieces = []
        while start < end and (piece := os.pread(self._file, end - start, start)):
            pieces.append(piece)
            start += len(piece)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def next_line(self, offset: int) -> tuple[int, bytes]:
        """Where the first line begins that does not begin before `offset`, and the line; the end and b"" without one.

        A line that begins at `offset` is the one where what is before it ends with LF.
        """
        start = self._after_line_feed(offset - 1) if offset else 0
        end = self._after_line_feed(start)
        return start, self.read(start, end)

    def head_at(self, offset: int, most: int) -> tuple[int, bytes]:
        """As `next_line`, but of the line no more than `most` octets."""
        start = self._after_line_feed(offset - 1) if offset else 0
        head = self.read(start, min(self.octets, start + most))
        return start, head[: head.find(b"\n") + 1 or most]

    def _after_line_feed(self, offset: int) -> int:
        """The offset after the first LF from `offset` on; the end of the file without one."""
        step, passed = _PIECE, 0
        while offset < self.octets:
            piece = self.read(offset, min(self.octets, offset + step))
            if not piece:
                break
            if (found := piece.find(b"\n")) >= 0:
                return offset + found + 1
            offset += len(piece)
            passed += len(piece)
            if passed > self._most:
                raise RdfTooCostly(f"a line has more than {self._most:,} octets", where=str(self.path))
            step = min(step * 2, 1 << 20)
        return self.octets

    def position(self, line: bytes, low: int, high: int) -> int:
        """Where the first line that is not less than `line` begins, between two beginnings of lines; `high` if none."""
        top = high
        while top - low > _WINDOW:
            middle = (low + top) // 2
            start, found = self.head_at(middle, len(line))
            if start >= top:
                break
            if found < line:
                low = self._after_line_feed(start)
            else:
                top = middle
        end = min(high, self.head_at(top, 0)[0])
        if end - low > 4 * _WINDOW:  # lines are long
            while low < end and self.head_at(low, len(line))[1] < line:
                low = self._after_line_feed(low)
            return low
        lines = self.read(low, end).splitlines(keepends=True)
        return low + sum(map(len, lines[: bisect_left(lines, line)]))


def common_ranges(old: LineFile, new: LineFile, octets: int) -> Iterator[tuple[int, int, int, int, bytes, bytes]]:
    """Both files cut at the same lines, into ranges of about so many octets at most.

    Gives from and to in the old file, from and to in the new one, and the lines that those of the range are not less
    than and less than (b"": no bound). Only as right as the files are sorted: who reads a range has to check it.
    """
    a = b = 0
    low = b""
    while a < old.octets or b < new.octets:
        next_a, line_a = old.next_line(a + octets) if a + octets < old.octets else (old.octets, b"")
        next_b, line_b = new.next_line(b + octets) if b + octets < new.octets else (new.octets, b"")
        if not line_a and not line_b:
            high, to_a, to_b = b"", next_a, next_b
        elif line_a and (not line_b or line_a <= line_b):
            high, to_a, to_b = line_a, next_a, new.position(line_a, b, next_b)
        else:
            high, to_a, to_b = line_b, old.position(line_b, a, next_a), next_b
        yield a, to_a, b, to_b, low, high
        a, b, low = to_a, to_b, high
