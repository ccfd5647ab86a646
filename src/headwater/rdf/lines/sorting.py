"""Lines of any number, taken in blocks and given sorted: in memory while they are few, else by sorted runs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from headwater.rdf.faults import BOUNDS, RdfBounds
from headwater.rdf.lines.runs import SortedRun, merged, write_run


class LineSorter:
    """Takes lines in blocks, gives them sorted bytewise, each once. Runs lie in the folder `scratch`, which the caller
    removes."""

    def __init__(self, scratch: Path, bounds: RdfBounds = BOUNDS) -> None:
        self._scratch = scratch
        self._bounds = bounds
        self._blocks: list[bytes] = []
        self._octets = 0
        self._runs: list[SortedRun] = []

    def add(self, block: bytes) -> None:
        """Take whole lines, each ended by LF, without CR."""
        if block:
            self._blocks.append(block)
            self._octets += len(block)
            if self._octets >= self._bounds.run_octets:
                self._end_run()

    def lines(self) -> Iterator[bytes]:
        """All lines that were taken, each with its LF, sorted, each once. Once only."""
        if not self._runs:
            yield from sorted(set(self._taken()))
            return
        self._end_run()
        for _number, block in merged(self._runs, self._bounds):
            yield from block.splitlines(keepends=True)

    def _taken(self) -> list[bytes]:
        lines = b"".join(self._blocks).splitlines(keepends=True)
        self._blocks, self._octets = [], 0
        return lines

    def _end_run(self) -> None:
        run = write_run(self._scratch / f"run-{len(self._runs)}", self._taken())
        if run is not None:
            self._runs.append(run)
