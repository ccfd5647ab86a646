"""Verifies small files and gives them their places: what the process beside a run does, and the run itself.

The process imports this module and little else, so that it is there when the first file comes.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from enum import IntEnum
from pathlib import Path

from headwater.files.hash_functions import HASHERS
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
            found.append(place_file(tree, file))
        return found

    return place


def place_file(tree: FileTree, file: NewFile) -> PlacementOutcome:
    """Verify one file, write it aside and rename it to its place. Raises nothing: what came of it is in the outcome."""
    temp, path, mtime_ns, packed, plain_octets, crc, is_deflated, algorithm, digest = file
    try:
        content = small_content(printable_path(path), packed, plain_octets, crc, is_deflated=is_deflated)
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
