"""Sorted lines: any number of them sorted (few in memory, more by sort(1)), and files of them cut alike into ranges."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import weakref
from bisect import bisect_left
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from headwater.errors import UsageFault
from headwater.processes.pool import widen
from headwater.rdf.faults import BOUNDS, RdfBounds, RdfTooCostly
from headwater.rdf.statements import BLOCK, line_blocks

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


_PLACES = "/usr/bin:/bin"
"""Where sort(1) is looked for, whatever PATH says."""
_MEMORY = "64M"
"""What sort(1) holds in memory; of long lines, one for each of the files that it merges."""
_DISK_FAULTS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EMFILE, errno.EACCES)


class LineSorter:
    """Takes lines in blocks, and gives them sorted bytewise, each once. The caller closes it.

    What does not fit into memory lies in the folder `scratch`, which the caller removes. Raises OSError as writing to a
    file there does.
    """

    def __init__(self, scratch: Path, bounds: RdfBounds = BOUNDS) -> None:
        self._scratch = scratch
        self._bounds = bounds
        self._held: list[bytes] = []
        self._octets = 0
        self._process: subprocess.Popen[bytes] | None = None

    def add(self, block: bytes) -> None:
        """Take whole lines, each ended by LF, without CR."""
        if self._process is not None:
            self._send(block)
        elif block:
            self._held.append(block)
            self._octets += len(block)
            if self._octets > self._bounds.run_octets:
                self._process = self._started()
                while self._held:
                    self._send(self._held.pop())

    def blocks(self) -> Iterator[bytes]:
        """All lines that were taken, sorted, each once, in blocks. Once only."""
        if self._process is None:
            lines = sorted(set(b"".join(self._held).splitlines(keepends=True)))
            if lines:
                yield b"".join(lines)
            return
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        with suppress(BrokenPipeError):
            process.stdin.close()
        unbounded = replace(self._bounds, line_octets=self._bounds.octets)
        yield from line_blocks(iter(lambda: process.stdout.read(BLOCK), b""), "", unbounded)  # type: ignore[union-attr]
        if process.wait():
            raise self._fault(process)

    def lines(self) -> Iterator[bytes]:
        """The same line by line, each with its LF."""
        for block in self.blocks():
            yield from block.splitlines(keepends=True)

    def close(self) -> None:
        """End the process, whatever it still does."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            for stream in (process.stdin, process.stdout, process.stderr):
                with suppress(OSError):
                    stream.close()  # type: ignore[union-attr]
            process.wait()

    def _started(self) -> subprocess.Popen[bytes]:
        """The process: it ends with this one, since it then reads its end and has nobody to write to."""
        program = shutil.which("sort", path=_PLACES)
        if program is None:
            raise UsageFault(f"sort(1) is not in {_PLACES}", advice="Install coreutils.")
        process = subprocess.Popen(
            [program, "-u", "-S", _MEMORY, "-T", os.fspath(self._scratch)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={"LC_ALL": "C", "PATH": _PLACES, "TMPDIR": os.fspath(self._scratch)},
        )
        assert process.stdin is not None
        assert process.stdout is not None
        widen(process.stdin)
        widen(process.stdout)
        return process

    def _send(self, block: bytes) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(block)
        except BrokenPipeError as cause:
            raise self._fault(self._process) from cause

    def _fault(self, process: subprocess.Popen[bytes]) -> OSError:
        """What sort(1) says that has stopped it, as the system's own error."""
        assert process.stderr is not None
        said = process.stderr.read().decode(errors="replace").strip()
        number = next((one for one in _DISK_FAULTS if os.strerror(one) in said), errno.EIO)
        return OSError(number, said[-300:] or "sort(1) was ended", os.fspath(self._scratch))
