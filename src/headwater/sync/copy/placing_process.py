"""A process that writes small files and gives them their places, while the run reads and verifies the next ones.

Writing and renaming is a third of what a small file costs. The process has the run's lock of the folder open as well:
when the run is killed, no other can begin before the process has ended, which it does at the next file.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Generic, NamedTuple, TypeVar

from headwater.processes.pool import JobQueue, WorkerProgram
from headwater.sync.copy.file_tree import FileTree, PathOccupied
from headwater.sync.faults import DestinationUnusable

_BLOCK_FILES = 64
_BLOCK_OCTETS = 1 << 18
_AHEAD = 20
"""So many blocks are in hand at most: the process goes on while the run reads and records a batch."""

T = TypeVar("T")

_File = tuple[str, bytes, bytes, "int | None"]
_Outcome = tuple[bool, int, int, str]
"""`NewFile` and `PlacementOutcome` as they go between the processes: plain tuples."""


class NewFile(NamedTuple):
    """A file to be written: its temporary name, its place, its content and its modification time."""

    temp: str
    path: bytes
    octets: bytes
    mtime_ns: int | None


class PlacementOutcome(NamedTuple):
    """What came of a file: its size and time in its place (`is_placed`), or nothing, because the place is occupied."""

    is_placed: bool
    size: int = 0
    mtime_ns: int = 0
    fault: str = ""
    """Why the copy cannot be written at all."""


class PlacingProcess(Generic[T]):
    """Places files of the copy in the order in which they are given. Close it.

    Started with the first block. What a process that has died had in hand is placed here, which is the same again.
    """

    def __init__(self, tree: FileTree, temp: str, lock: int) -> None:
        """`lock`: the open file by which the run holds the folder."""
        self._tree = tree
        self._program = WorkerProgram(
            function=file_placer, settings=(tree.root, os.fsencode(temp)), libraries=True, descriptors=(lock,)
        )
        self._queue: JobQueue[list[T]] | None = None
        self._items: list[T] = []
        self._files: list[_File] = []
        self._octets = 0

    def give(self, item: T, file: NewFile) -> Iterator[tuple[T, PlacementOutcome]]:
        """Have a file placed; gives what has come of earlier ones. Raises DestinationUnusable."""
        self._items.append(item)
        self._files.append((file.temp, file.path, file.octets, file.mtime_ns))
        self._octets += len(file.octets)
        if len(self._files) >= _BLOCK_FILES or self._octets >= _BLOCK_OCTETS:
            yield from self._send()

    def take(self) -> Iterator[tuple[T, PlacementOutcome]]:
        """What has come of files meanwhile; to be asked now and then, so that the process does not run out of them."""
        if self._queue is not None:
            yield from self._told(self._queue.take())

    def rest(self) -> Iterator[tuple[T, PlacementOutcome]]:
        """What has come of all files that were given. Raises DestinationUnusable."""
        if self._files:
            yield from self._send()
        if self._queue is not None:
            yield from self._told(self._queue.rest())

    def close(self) -> None:
        """End the process; what it still has in hand is given up."""
        if self._queue is not None:
            self._queue.close()
            self._queue = None

    def _send(self) -> Iterator[tuple[T, PlacementOutcome]]:
        items, files = self._items, self._files
        self._items, self._files, self._octets = [], [], 0
        if self._queue is None:
            self._queue = JobQueue(self._program, self._place_here, processes=1, ahead=_AHEAD)
        yield from self._told(self._queue.give(items, files))

    def _told(self, answers: Iterator[tuple[list[T], list[_Outcome]]]) -> Iterator[tuple[T, PlacementOutcome]]:
        for items, found in answers:
            for item, values in zip(items, found, strict=True):
                outcome = PlacementOutcome(*values)
                if outcome.fault:
                    raise DestinationUnusable(outcome.fault, where=os.fsdecode(self._tree.root))
                yield item, outcome

    def _place_here(self, files: list[_File]) -> list[_Outcome]:
        for temp, _, _, _ in files:
            self._tree.discard(temp)
        return [_placed(self._tree, NewFile(*file)) for file in files]


def file_placer(
    settings: tuple[bytes, bytes],
) -> Callable[[list[_File]], list[_Outcome]]:
    """What the process does: place a block of files, as long as its owner lives. `settings`: the folders of the copy
    and of its temporary files."""
    root, temp = settings
    tree = FileTree(Path(os.fsdecode(root)), Path(os.fsdecode(temp)))
    owner = os.getppid()

    def place(files: list[_File]) -> list[_Outcome]:
        found = []
        for file in files:
            if os.getppid() != owner:
                raise SystemExit
            found.append(_placed(tree, NewFile(*file)))
        return found

    return place


def _placed(tree: FileTree, file: NewFile) -> _Outcome:
    try:
        size, mtime_ns = tree.write(file.temp, file.octets, file.mtime_ns)
        tree.place(file.temp, file.path)
    except PathOccupied:
        tree.discard(file.temp)
        return False, 0, 0, ""
    except DestinationUnusable as fault:
        return False, 0, 0, fault.what
    return True, size, mtime_ns, ""
