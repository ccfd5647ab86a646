"""External merge sort of lines: runs that are sorted in memory, kept in files, merged in bounded memory."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

from headwater.rdf.faults import BOUNDS, RdfBounds

_MOST_RUNS = 64
_BUFFER = 1 << 18


class LineSorter:
    """Takes lines in blocks, gives them sorted bytewise, each once. Runs lie in the folder `scratch`, which the caller
    removes."""

    def __init__(self, scratch: Path, bounds: RdfBounds = BOUNDS) -> None:
        self._scratch = scratch
        self._most = bounds.run_octets
        self._blocks: list[bytes] = []
        self._octets = 0
        self._runs: list[Path] = []
        self._numbers = 0

    def add(self, block: bytes) -> None:
        """Take whole lines, each ended by LF."""
        if block:
            self._blocks.append(block)
            self._octets += len(block)
            if self._octets >= self._most:
                self._end_run()

    def lines(self) -> Iterator[bytes]:
        """All lines that were taken, each with its LF, sorted, each once. Once only."""
        if not self._runs:
            yield from self._sorted()
            return
        self._end_run()
        while len(self._runs) > _MOST_RUNS:
            some, self._runs = self._runs[:_MOST_RUNS], self._runs[_MOST_RUNS:]
            self._write(_merged(some))
            for path in some:
                path.unlink()
        yield from _merged(self._runs)

    def _sorted(self) -> list[bytes]:
        lines = _split(b"".join(self._blocks))
        self._blocks, self._octets = [], 0
        return sorted(set(lines))

    def _end_run(self) -> None:
        if self._blocks:
            self._write(self._sorted())

    def _write(self, lines: Iterable[bytes]) -> None:
        path = self._scratch / f"run-{self._numbers}"
        self._numbers += 1
        with path.open("xb", _BUFFER) as file:
            file.writelines(lines)
        self._runs.append(path)


def _split(lines: bytes) -> list[bytes]:
    """Lines with their LF; other line ends of `splitlines` are content."""
    return [line + b"\n" for line in lines.split(b"\n")[:-1]]


def _merged(paths: list[Path]) -> Iterator[bytes]:
    files: list[BinaryIO] = []
    try:
        for path in paths:
            files.append(path.open("rb", _BUFFER))  # noqa: PERF401 - those that are open are closed
        last = b""
        for line in heapq.merge(*files):
            if line != last:
                yield line
                last = line
    finally:
        for file in files:
            file.close()
