"""A process that verifies small files and gives them their places, while the run reads and records the next ones.

To inflate, digest, write and rename is more than half of what a small file costs. The process has the run's lock of the
folder open as well: when the run is killed, no other can begin before the process has ended, which it does at the next
file.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator, Sequence
from typing import Generic, TypeVar

from headwater.processes.pool import JobQueue, WorkerProgram
from headwater.sync.copy.file_placer import NewFile, Placement, PlacementOutcome, file_placer, folder_of, place_files
from headwater.sync.copy.file_tree import FileTree
from headwater.sync.faults import DestinationUnusable

_BLOCK_FILES = 50
"""A block has so many files, and goes on to the end of a folder, which gets its place as a whole where it is new."""

_MOST_FILES, _MOST_OCTETS = 400, 1 << 19
"""However far that end is."""

_FOLDER = "placing"
"""The folder of its temporary files: in one folder, two processes that make and rename files wait for each other."""

_AHEAD = 32
"""So many blocks are in its hands at most; what comes meanwhile the run places itself, and of these the last."""

_UNUSABLE = Placement.UNUSABLE.value

T = TypeVar("T")


class PlacingProcess(Generic[T]):
    """Places files of the copy, in any order. Close it.

    Started at once, so that it is there when the first file comes. What it has no room for is placed here, and so is
    what a process that has died had in hand, which is the same again.
    """

    def __init__(self, tree: FileTree, temp: str, lock: int) -> None:
        """`lock`: the open file by which the run holds the folder."""
        self._tree = tree
        self._temp = f"{temp}/{_FOLDER}"
        try:
            os.makedirs(self._temp, exist_ok=True)
        except OSError as cause:
            raise DestinationUnusable(f"cannot write to the copy: {cause.strerror}", where=self._temp) from cause
        keep_free = tree.room.keep_free if tree.room is not None else 0
        program = WorkerProgram(
            function=file_placer,
            settings=(tree.root, os.fsencode(self._temp), keep_free),
            libraries=True,
            descriptors=(lock,),
        )
        self._queue: JobQueue[list[T]] = JobQueue(program, self._place_here, processes=1, ahead=_AHEAD)
        self._files: list[tuple[T, NewFile]] = []
        self._octets = 0
        self._seen = 0
        """So many of the files are known to be of one block."""

    def give(self, files: Sequence[tuple[T, NewFile]]) -> Iterable[tuple[T, PlacementOutcome]]:
        """Have files placed; gives what has come of earlier ones. Raises DestinationUnusable."""
        self._files += files
        self._octets += sum([len(file[3]) for _, file in files])
        if len(self._files) > _BLOCK_FILES or self._octets >= _MOST_OCTETS:
            return self._send_blocks()
        return ()

    def take(self) -> Iterable[tuple[T, PlacementOutcome]]:
        """What has come of files meanwhile; to be asked now and then, so that the process does not run out of them."""
        return self._told(self._queue.take())

    def help(self) -> Iterator[tuple[T, PlacementOutcome]]:
        """Place what the process has not got yet; gives what has come of files. Raises DestinationUnusable."""
        yield from self._send_blocks()
        if self._files:
            yield from self._send(len(self._files))
        yield from self._told(self._queue.help())

    def rest(self) -> Iterator[tuple[T, PlacementOutcome]]:
        """What has come of all files that were given. Raises DestinationUnusable."""
        yield from self.help()
        yield from self._told(self._queue.rest())

    def close(self) -> None:
        """End the process; what it still has in hand is given up."""
        self._queue.close()
        shutil.rmtree(self._temp, ignore_errors=True)

    def _send_blocks(self) -> Iterator[tuple[T, PlacementOutcome]]:
        while count := self._block():
            yield from self._send(count)

    def _block(self) -> int:
        """How many of the files make the next block; 0 as long as more belong to it."""
        files, known = self._files, max(self._seen, _BLOCK_FILES)
        if len(files) > known:
            folder = folder_of(files[known - 1][1][1])
            for number in range(known, min(len(files), _MOST_FILES)):
                if folder_of(files[number][1][1]) != folder:
                    return number
        self._seen = len(files)
        is_full = len(files) >= _MOST_FILES or self._octets >= _MOST_OCTETS
        return min(len(files), _MOST_FILES) if is_full else 0

    def _send(self, count: int) -> Iterator[tuple[T, PlacementOutcome]]:
        items, files = [item for item, _ in self._files[:count]], [file for _, file in self._files[:count]]
        del self._files[:count]
        self._octets = sum([len(file[3]) for _, file in self._files])
        self._seen = 0
        yield from self._told(self._queue.take())
        if self._queue.has_room:
            yield from self._told(self._queue.give(items, files))
        else:
            yield from self._told(iter([(items, self._place_here(files))]))

    def _told(self, answers: Iterator[tuple[list[T], list[PlacementOutcome]]]) -> Iterator[tuple[T, PlacementOutcome]]:
        for items, found in answers:
            for outcome in found:
                if outcome[0] == _UNUSABLE:
                    raise DestinationUnusable(outcome[-1], where=os.fsdecode(self._tree.root))
            yield from zip(items, found, strict=True)

    def _place_here(self, files: list[NewFile]) -> list[PlacementOutcome]:
        return place_files(self._tree, files)
