"""The placing of members by a process beside the run, and what processes share that place files of a copy.

A process has the run's lock of the folder open as well: when the run is killed, no other can begin before the process
has ended, which it does at the next file. What the run alone needs is imported where it is used: a process that
imports little is soon at work.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headwater.files.file_copies import Room
from headwater.files.hashing import HASHERS
from headwater.packages.faults import BadPackage
from headwater.sync.copy.file_tree import DestinationUnusable, FileTree, PathOccupied, printable_path

if TYPE_CHECKING:
    from headwater.processes.pool import WorkerProgram
    from headwater.sync.transfer.work_queue import RunContext

MemberFile = tuple[str, bytes, "int | None", "bytes | Iterable[bytes]", int, int, bool, str, "str | None"]
"""A member to be placed, as it goes to the process: its temporary name, its place, its modification time (ns); its
octets in the package (of a large one, which does not go there, blocks of its content), how many they are unpacked,
their CRC-32, whether they are deflated; algorithm and hex of the digest that it must have, None where whatever it is
may stand."""

Outcome = tuple[str, int, int, str]
"""What came of it: PLACED with size and time (ns) there and its digest; else why it is not."""

PLACED, LEFT, DAMAGED, UNUSABLE = "placed", "left", "damaged", "unusable"


def may_use_processes(context: RunContext) -> bool:
    """Whether processes can place files of this copy: who keeps what is replaced, or counts all octets, is alone."""
    from headwater.processes.pool import processors

    tree = context.tree
    assert tree is not None
    counts = tree.room is not None and tree.room.most is not None
    return processors() > 1 and context.lock is not None and not tree.keeps_backup and not counts


@contextmanager
def placing_program(
    context: RunContext, function: Callable[[Any], Callable[[Any], Any]], folder: str, *more: object
) -> Iterator[WorkerProgram]:
    """What a process does that places files of the copy, and holds its lock: `function`, for what `opened_tree` takes,
    and `more`. The process' temporary files are in `folder`, which is removed at the end."""
    from shutil import rmtree

    from headwater.processes.pool import WorkerProgram

    tree = context.tree
    assert tree is not None
    temp = f"{context.temp}/{folder}"
    os.makedirs(temp, exist_ok=True)
    keep_free = tree.room.keep_free if tree.room is not None else 0
    settings = ((tree.root, os.fsencode(temp), keep_free), *more)
    try:
        yield WorkerProgram(function=function, settings=settings, libraries=True, descriptors=(context.lock or 0,))
    finally:
        rmtree(temp, ignore_errors=True)


def opened_tree(place: tuple[bytes, bytes, int]) -> tuple[FileTree, Callable[[], bool]]:
    """In a process: the copy, by its folder, that of temporary files and what is kept free; whether the run is gone."""
    root, temp, keep_free = place
    owner = os.getppid()
    tree = FileTree(Path(os.fsdecode(root)), Path(os.fsdecode(temp)), room=Room(root, keep_free))
    return tree, lambda: os.getppid() != owner


def placer(settings: tuple[tuple[bytes, bytes, int]]) -> Callable[[list[MemberFile]], list[Outcome]]:
    """What the process does: place a block of members, as long as its run lives. `settings`: the copy."""
    tree, is_alone = opened_tree(settings[0])

    def check_owner() -> None:
        if is_alone():
            raise SystemExit

    return lambda files: place_files(tree, files, check_owner)


def place_files(
    tree: FileTree, files: list[MemberFile], before_each: Callable[[], None] = lambda: None
) -> list[Outcome]:
    """Verify members and give them their places; what came of each. `before_each` may end it."""
    from headwater.packages.zip_reader import unpacked  # a run by lists reads no package

    outcomes: list[Outcome] = []
    for name, path, time_ns, packed, octets, crc, is_deflated, algorithm, wanted in files:
        before_each()
        outcome: Outcome = LEFT, 0, 0, ""
        try:
            content: bytes | Iterable[bytes]
            if isinstance(packed, bytes):
                content = unpacked(printable_path(path), packed, octets, crc, is_deflated=is_deflated)
                hasher = HASHERS[algorithm](content)
            else:
                hasher = HASHERS[algorithm]()
                content = _hashed(packed, hasher.update)
            size, kept_ns = tree.write(name, content, time_ns)
            if wanted in (None, found := hasher.hexdigest()):
                tree.place(name, path)
                outcome = PLACED, size, kept_ns, f"{algorithm}:{found}"
        except BadPackage as fault:
            outcome = DAMAGED, 0, 0, fault.what
        except PathOccupied:
            pass
        except DestinationUnusable as fault:
            outcome = UNUSABLE, 0, 0, fault.what
        if outcome[0] != PLACED:
            tree.discard(name)
        outcomes.append(outcome)
    return outcomes


def _hashed(blocks: Iterable[bytes], update: Callable[[bytes], None]) -> Iterator[bytes]:
    for block in blocks:
        update(block)
        yield block
