"""The placing of members: what verifies against the list gets its place, and is recorded (DST-P5).

A member is given with the work it may be: a row of `temp.work`, noted before as about to be placed. What does not fit,
or finds its place occupied, is left to single requests, whose rules hold for it (`transfer/resources`).

Many small members are verified and placed by a process beside the run, which reads and records others meanwhile, and
places some itself rather than wait for it. The process has the run's lock of the folder open as well: when the run is
killed, no other can begin before the process has ended, which it does at the next file.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, closing

from headwater.files.file_copies import write_all
from headwater.files.hashing import HASHERS
from headwater.packages.faults import BadPackage
from headwater.packages.zip_reader import unpacked
from headwater.processes.pool import ProcessPool
from headwater.progress import Done, ignored
from headwater.sync.copy.file_tree import DestinationUnusable, FileTree, PathOccupied, printable_path
from headwater.sync.reports import SetReport
from headwater.sync.source_times import mtime_ns
from headwater.sync.transfer.request_processes import may_use_processes, opened_tree, placing_program
from headwater.sync.transfer.result_log import PlacedFile, ResultLog
from headwater.sync.transfer.work_queue import RunContext, Work

PROCESS_FROM = 3_000
"""For fewer members, a process that places them costs more than it saves."""

_BLOCK_FILES, _BLOCK_OCTETS, _AHEAD = 64, 1 << 20, 8
"""Members of one block and their octets, and blocks that are in the hands of the process: of 4 KiB each, that is what a
pipe holds, so that the run seldom waits in it and places members itself instead."""

MemberFile = tuple[str, bytes, "int | None", bytes, int, int, bool, str, "str | None"]
"""A member to be placed, as it goes to the process: its temporary name, its place, its modification time (ns); its
octets in the package, how many they are unpacked, their CRC-32, whether they are deflated; algorithm and hex of the
digest that it must have, None where whatever it is may stand."""

Outcome = tuple[str, int, int, str]
"""What came of it: PLACED with size and time (ns) there and its digest; else why it is not."""

PLACED, LEFT, DAMAGED, UNUSABLE = "placed", "left", "damaged", "unusable"


class MemberBlock:
    """Members that are placed together, with the work that each may be."""

    def __init__(self, damaged: Callable[[BadPackage], None]) -> None:
        """`damaged` is called where a member is not what its package says of it."""
        self.damaged = damaged
        self.works: list[Work] = []
        self.files: list[MemberFile] = []
        self._octets = 0

    def add(self, work: Work, file: MemberFile) -> None:
        """Add a member."""
        self.works.append(work)
        self.files.append(file)
        self._octets += len(file[3])

    @property
    def is_full(self) -> bool:
        """Whether it has as many members, or octets, as go to the process at a time."""
        return len(self.files) >= _BLOCK_FILES or self._octets >= _BLOCK_OCTETS


class MemberPlacing:
    """Verifies members and gives them their places."""

    def __init__(self, context: RunContext, results: ResultLog, counts: SetReport) -> None:
        assert context.tree is not None
        self._context = context
        self._tree = context.tree
        self._results = results
        self._counts = counts
        self.largest = context.options.largest
        self.placed_count = 0

    def place(self, blocks: Iterator[MemberBlock], count: int) -> None:
        """Place what is listed of these blocks, of some `count` members; the others are left.

        With a process, blocks are read ahead of those that are placed: the next package is fetched meanwhile.
        """
        tree = self._tree
        with ExitStack() as stack:
            if count >= PROCESS_FROM and may_use_processes(self._context):
                program = stack.enter_context(placing_program(self._context, placer, "placing"))
                pool: ProcessPool[MemberBlock] = ProcessPool(
                    program, lambda files: place_files(tree, files), processes=1, ahead=_AHEAD, helps=True
                )
                answers = pool.answers((block, block.files) for block in blocks)
            else:
                answers = ((block, place_files(tree, block.files)) for block in blocks)
            for block, outcomes in stack.enter_context(closing(answers)):
                for work, (outcome, size, time_ns, said) in zip(block.works, outcomes, strict=True):
                    if outcome == PLACED:
                        self._placed(work, size, time_ns, said)
                        continue
                    self._results.left(work)
                    if outcome == DAMAGED:
                        block.damaged(BadPackage(said))
                    elif outcome == UNUSABLE:
                        raise DestinationUnusable(said, where=self._context.destination)

    def place_large(self, work: Work, blocks: Iterable[bytes], algorithm: str, digest: str | None) -> None:
        """Place a member that is written before it is verified. Raises what `blocks` raises."""
        name, tree = f"{work.n}-member", self._tree
        hasher = HASHERS[algorithm]()
        try:
            descriptor = tree.create_temporary(name)
            try:
                for block in blocks:
                    hasher.update(block)
                    if tree.room is not None:
                        tree.room.check(len(block))
                    write_all(descriptor, block)
            except OSError as cause:
                raise DestinationUnusable(f"cannot write: {cause.strerror}", where=name) from cause
            finally:
                os.close(descriptor)
            if digest in (None, hasher.hexdigest()):
                size, time_ns = tree.stamp(name, mtime_ns(work.lastmod, None))
                tree.place(name, work.path)
                self._placed(work, size, time_ns, f"{algorithm}:{hasher.hexdigest()}")
                return
        except PathOccupied:
            pass
        except BadPackage:
            tree.discard(name)
            raise
        tree.discard(name)
        self._results.left(work)

    def _placed(self, work: Work, size: int, time_ns: int, digest: str) -> None:
        self.placed_count += 1
        self._counts.octets += size
        if self._context.each is not ignored:
            kind = "created" if work.held is None else "updated"
            self._context.each(Done(kind, work.uri, printable_path(work.path), size))
        self._results.placed(work, PlacedFile(work.path, size, time_ns, digest))


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
    outcomes: list[Outcome] = []
    for name, path, time_ns, packed, octets, crc, is_deflated, algorithm, wanted in files:
        before_each()
        outcome: Outcome = LEFT, 0, 0, ""
        try:
            content = unpacked(printable_path(path), packed, octets, crc, is_deflated=is_deflated)
            digest = HASHERS[algorithm](content).hexdigest()
            if wanted in (None, digest):
                size, kept_ns = tree.write(name, content, time_ns)
                tree.place(name, path)
                outcome = PLACED, size, kept_ns, f"{algorithm}:{digest}"
        except BadPackage as fault:
            outcome = DAMAGED, 0, 0, fault.what
        except PathOccupied:
            tree.discard(name)
        except DestinationUnusable as fault:
            outcome = UNUSABLE, 0, 0, fault.what
        outcomes.append(outcome)
    return outcomes
