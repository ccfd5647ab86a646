"""A process that verifies small files and gives them their places, while the run reads and records the next ones.

To inflate, digest, write and rename is more than half of what a small file costs. The process has the run's lock of the
folder open as well: when the run is killed, no other can begin before the process has ended, which it does at the next
file.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import IntEnum
from pathlib import Path
from typing import Generic, TypeVar

from headwater.packages.faults import BadPackage
from headwater.packages.inflation import PackedBody
from headwater.processes.pool import JobQueue, WorkerProgram
from headwater.sync.copy.file_tree import FileTree, PathOccupied, printable_path
from headwater.sync.faults import DestinationUnusable
from headwater.sync.network.response import HASHERS

_BLOCK_FILES = 50
_BLOCK_OCTETS = 1 << 18
_FOLDER = "placing"
"""The folder of its temporary files: in one folder, two processes that make and rename files wait for each other."""

_AHEAD = 64
"""So many blocks are in its hands at most; what comes meanwhile the run places itself, and of these the last."""

T = TypeVar("T")

FileContent = tuple[bytes, int, int, bool, "str | None", "str | None"]
"""The content of a file as it has come: octets, how many they are inflated, their CRC-32, whether they are deflated;
algorithm and hex of the digest by which it is verified, None where it was verified before."""

NewFile = tuple[str, bytes, "int | None", bytes, int, int, bool, "str | None", "str | None"]
"""A file to be written, as a plain tuple, which goes between the processes as it is: its temporary name, its place, its
modification time (ns), then its `FileContent`."""

PlacementOutcome = tuple[int, int, int, str]
"""What came of a file: a `Placement`; where it is PLACED, size and time (ns) there; else perhaps why it is not."""


class Placement(IntEnum):
    """What may come of a file. Of all but PLACED nothing is left."""

    PLACED = 0
    OCCUPIED = 1
    DIFFERENT = 2
    DAMAGED = 3
    """It is not what its package says of it."""
    UNUSABLE = 4
    """The copy cannot be written at all."""


_OCCUPIED, _DIFFERENT = (Placement.OCCUPIED.value, 0, 0, ""), (Placement.DIFFERENT.value, 0, 0, "")
_PLACED, _DAMAGED, _UNUSABLE = Placement.PLACED.value, Placement.DAMAGED.value, Placement.UNUSABLE.value


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
        program = WorkerProgram(
            function=file_placer, settings=(tree.root, os.fsencode(self._temp)), libraries=True, descriptors=(lock,)
        )
        self._queue: JobQueue[list[T]] = JobQueue(program, self._place_here, processes=1, ahead=_AHEAD)
        self._files: list[tuple[T, NewFile]] = []
        self._octets = 0

    def give(self, files: Sequence[tuple[T, NewFile]]) -> Iterable[tuple[T, PlacementOutcome]]:
        """Have files placed; gives what has come of earlier ones. Raises DestinationUnusable."""
        self._files += files
        self._octets += sum([len(file[3]) for _, file in files])
        if len(self._files) >= _BLOCK_FILES or self._octets >= _BLOCK_OCTETS:
            return self._send()
        return ()

    def take(self) -> Iterable[tuple[T, PlacementOutcome]]:
        """What has come of files meanwhile; to be asked now and then, so that the process does not run out of them."""
        return self._told(self._queue.take())

    def help(self) -> Iterator[tuple[T, PlacementOutcome]]:
        """Place what the process has not got yet; gives what has come of files. Raises DestinationUnusable."""
        if self._files:
            yield from self._send()
        yield from self._told(self._queue.help())

    def rest(self) -> Iterator[tuple[T, PlacementOutcome]]:
        """What has come of all files that were given. Raises DestinationUnusable."""
        yield from self.help()
        yield from self._told(self._queue.rest())

    def close(self) -> None:
        """End the process; what it still has in hand is given up."""
        self._queue.close()
        shutil.rmtree(self._temp, ignore_errors=True)

    def _send(self) -> Iterator[tuple[T, PlacementOutcome]]:
        items, files = [item for item, _ in self._files], [file for _, file in self._files]
        self._files, self._octets = [], 0
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
        return [_placed(self._tree, file) for file in files]


def file_placer(settings: tuple[bytes, bytes]) -> Callable[[list[NewFile]], list[PlacementOutcome]]:
    """What the process does: place a block of files, as long as its owner lives. `settings`: the folders of the copy
    and of its temporary files."""
    root, temp = settings
    tree = FileTree(Path(os.fsdecode(root)), Path(os.fsdecode(temp)))
    owner = os.getppid()

    def place(files: list[NewFile]) -> list[PlacementOutcome]:
        found = []
        for file in files:
            if os.getppid() != owner:
                raise SystemExit
            found.append(_placed(tree, file))
        return found

    return place


def _placed(tree: FileTree, file: NewFile) -> PlacementOutcome:
    temp, path, mtime_ns, packed, plain_octets, crc, is_deflated, algorithm, digest = file
    try:
        content = PackedBody(packed, plain_octets, crc, is_deflated).octets(printable_path(path))
    except BadPackage as fault:
        return _DAMAGED, 0, 0, fault.what
    if algorithm is not None and HASHERS[algorithm](content).hexdigest() != digest:
        return _DIFFERENT
    try:
        size, kept_ns = tree.write(temp, content, mtime_ns)
        tree.place(temp, path)
    except PathOccupied:
        tree.discard(temp)
        return _OCCUPIED
    except DestinationUnusable as fault:
        return _UNUSABLE, 0, 0, fault.what
    return _PLACED, size, kept_ns, ""
