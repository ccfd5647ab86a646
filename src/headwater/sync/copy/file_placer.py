"""Verifies small files and gives them their places: what the process beside a run does, and the run itself.

The process imports this module and little else, so that it is there when the first file comes.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from enum import IntEnum
from itertools import groupby
from pathlib import Path

from headwater.files.hashing import HASHERS
from headwater.files.whole_writes import Room
from headwater.packages.faults import BadPackage
from headwater.packages.inflation import small_content
from headwater.sync.copy.file_tree import FileTree, PathOccupied, printable_path
from headwater.sync.faults import DestinationUnusable

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


_TOGETHER = 4
"""From so many files on, a new folder is filled aside and gets its place as a whole: a rename costs as much as making
a file."""


def file_placer(settings: tuple[bytes, bytes, int]) -> Callable[[list[NewFile]], list[PlacementOutcome]]:
    """What the process does: place a block of files, as long as its owner lives. `settings`: the folders of the copy
    and of its temporary files, and what it keeps free."""
    root, temp, keep_free = settings
    tree = FileTree(Path(os.fsdecode(root)), Path(os.fsdecode(temp)), room=Room(root, keep_free))
    owner = os.getppid()

    def check_owner() -> None:
        if os.getppid() != owner:
            raise SystemExit

    return lambda files: place_files(tree, files, check_owner)


def place_files(
    tree: FileTree, files: list[NewFile], before_each: Callable[[], None] = lambda: None
) -> list[PlacementOutcome]:
    """Verify files and give them their places; what came of each is in its outcome. `before_each` may end it."""
    outcomes: list[PlacementOutcome] = []
    for folder, some in groupby(files, lambda file: folder_of(file[1])):
        group = list(some)
        outcomes += _placed_together(tree, folder, group, before_each) or [
            _place_one(tree, file, before_each) for file in group
        ]
    return outcomes


def folder_of(path: bytes) -> bytes:
    """The folder of a relative path, empty for the uppermost."""
    return path.rpartition(b"/")[0]


def _placed_together(
    tree: FileTree, folder: bytes, files: list[NewFile], before_each: Callable[[], None]
) -> list[PlacementOutcome]:
    """What came of the files of a folder that is new, and filled before it gets its place; empty where it is not new,
    or anything at all is in the way: then nothing was placed."""
    new = tree.new_folder(f"{files[0][0]}-folder", folder) if len(files) >= _TOGETHER else None
    if new is None:
        return []
    outcomes: list[PlacementOutcome] = []
    is_placed = False
    try:
        for file in files:
            before_each()
            content, outcome = _verify(file)
            if outcome is None:
                size, kept_ns = new.write(file[1].rpartition(b"/")[2], content, file[2])
                outcome = _PLACED, size, kept_ns, ""
            outcomes.append(outcome)
        is_placed = any(outcome[0] == _PLACED for outcome in outcomes) and tree.place_folder(new)
    except OSError:
        pass
    finally:
        if not is_placed:
            tree.discard_folder(new)
    return outcomes if is_placed else []


def _verify(file: NewFile) -> tuple[bytes, PlacementOutcome | None]:
    """The content of a file, and what came of it where it is not what it should be."""
    _temp, path, _mtime_ns, packed, plain_octets, crc, is_deflated, algorithm, digest = file
    try:
        content = small_content(printable_path(path), packed, plain_octets, crc, is_deflated=is_deflated)
    except BadPackage as fault:
        return b"", (_DAMAGED, 0, 0, fault.what)
    if algorithm is not None and HASHERS[algorithm](content).hexdigest() != digest:
        return b"", _DIFFERENT
    return content, None


def _place_one(tree: FileTree, file: NewFile, before: Callable[[], None]) -> PlacementOutcome:
    """Verify one file, write it aside and rename it to its place."""
    before()
    content, outcome = _verify(file)
    if outcome is not None:
        return outcome
    temp, path, mtime_ns = file[:3]
    try:
        size, kept_ns = tree.write(temp, content, mtime_ns)
        tree.place(temp, path)
    except PathOccupied:
        tree.discard(temp)
        return _OCCUPIED
    except DestinationUnusable as fault:
        return _UNUSABLE, 0, 0, fault.what
    return _PLACED, size, kept_ns, ""
