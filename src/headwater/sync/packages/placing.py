"""The placing of members: what verifies against the list gets its place, and is recorded (DST-P5).

A member is given with the work it may be: a row of `temp.work`, noted before as about to be placed. What does not fit,
or finds its place occupied, is left to single requests, whose rules hold for it (`transfer/resources`).

Many small members are verified and placed by a process beside the run, which reads and records others meanwhile. The
process has the run's lock of the folder open as well: when the run is killed, no other can begin before the process has
ended, which it does at the next file.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing
from pathlib import Path

import msgspec

from headwater.files.hashing import HASHERS
from headwater.files.whole_writes import Room, write_all
from headwater.packages.faults import BadPackage
from headwater.packages.zip_directory import ZipDirectory, ZipMember, is_small, unpacked
from headwater.packages.zip_format import STORED
from headwater.processes.pool import ProcessPool, WorkerProgram, processors
from headwater.progress import Done, ignored
from headwater.sync.copy.file_tree import FileTree, PathOccupied, printable_path
from headwater.sync.faults import DestinationUnusable
from headwater.sync.lists.entries import canonical_hash_of
from headwater.sync.run_context import RunContext
from headwater.sync.source_times import mtime_ns
from headwater.sync.transfer.result_log import PlacedWork, ResultLog
from headwater.sync.transfer.verification import strongest_of
from headwater.sync.transfer.work_queue import PlanCounts, Work

PROCESS_FROM = 3_000
"""For fewer members, a process that places them costs more than it saves."""

_BLOCK_FILES, _AHEAD = 64, 32
"""Members of one block, and blocks that are in the hands of the process."""

_FOLDER = "placing"
"""The folder of the process' temporary files."""

MemberFile = tuple[str, bytes, "int | None", bytes, int, int, bool, str, "str | None"]
"""A member to be placed, as it goes to the process: its temporary name, its place, its modification time (ns); its
octets in the package, how many they are unpacked, their CRC-32, whether they are deflated; algorithm and hex of the
digest that it must have, None where whatever it is may stand."""

Outcome = tuple[str, int, int, str]
"""What came of it: PLACED with size and time (ns) there and its digest; else why it is not."""

PLACED, LEFT, DAMAGED, UNUSABLE = "placed", "left", "damaged", "unusable"


class StatedByManifest(msgspec.Struct, frozen=True):
    """What the manifest of a package says of a member, in the state that is listed."""

    hash: str | None = None
    length: int | None = None


class WantedMember(msgspec.Struct, frozen=True, gc=False):
    """A member, the work that it may be, and what its manifest states where that may count."""

    work: Work
    member: ZipMember
    stated: StatedByManifest | None


class MemberPlacing:
    """Verifies members and gives them their places."""

    def __init__(self, context: RunContext, tree: FileTree, results: ResultLog, counts: PlanCounts) -> None:
        self._context = context
        self._tree = tree
        self._results = results
        self._plan = counts
        self._largest = context.options.largest
        self._damage: BadPackage | None = None
        self.placed_count = 0

    def place(self, package: ZipDirectory, members: Iterable[WantedMember], count: int) -> None:
        """Place these `count` members of a package, as far as they are what is listed; the others are left.

        Raises BadPackage where one is not what the package says of it, when those that were read by then are placed.
        """
        with closing(self._answers(self._blocks(package, members), count)) as answers:
            for works, outcomes in answers:
                placed: list[PlacedWork] = []
                for work, (outcome, size, time_ns, said) in zip(works, outcomes, strict=True):
                    if outcome == PLACED:
                        placed.append((work, size, time_ns, said))
                        continue
                    self._results.left(work)
                    if outcome == DAMAGED:
                        self._damage = self._damage or BadPackage(said)
                    elif outcome == UNUSABLE:
                        self._note(placed)
                        raise DestinationUnusable(said, where=os.fsdecode(self._tree.root))
                self._note(placed)
        damage, self._damage = self._damage, None
        if damage is not None:
            raise damage

    def _answers(
        self, blocks: Iterator[tuple[list[Work], list[MemberFile]]], count: int
    ) -> Generator[tuple[list[Work], list[Outcome]], None, None]:
        """What came of each block: by a process where that pays and does no harm, else here."""
        context, tree = self._context, self._tree
        does_harm = context.lock is None or tree.keeps_backup or context.options.max_total is not None
        if does_harm or count < PROCESS_FROM or processors() < 2:
            yield from ((works, place_files(tree, files)) for works, files in blocks)
            return
        temp = f"{context.temp}/{_FOLDER}"
        os.makedirs(temp, exist_ok=True)
        keep_free = tree.room.keep_free if tree.room is not None else 0
        program = WorkerProgram(
            function=placer,
            settings=(tree.root, os.fsencode(temp), keep_free),
            libraries=True,
            descriptors=(context.lock or 0,),
        )
        pool: ProcessPool[list[Work]] = ProcessPool(
            program, lambda files: place_files(tree, files), processes=1, ahead=_AHEAD
        )
        try:
            yield from pool.answers(blocks)
        finally:
            shutil.rmtree(temp, ignore_errors=True)

    def _blocks(
        self, package: ZipDirectory, members: Iterable[WantedMember]
    ) -> Iterator[tuple[list[Work], list[MemberFile]]]:
        works: list[Work] = []
        files: list[MemberFile] = []
        for wanted in members:
            work, member = wanted.work, wanted.member
            demanded = _demanded(wanted)
            if demanded is None or member.octets > self._largest or work.length not in (None, member.octets):
                self._results.left(work)
                continue
            if self._damage is not None:
                self._results.left(work)
                break
            try:
                if not is_small(member):
                    self._place_large(package, wanted, *demanded)
                    continue
                record, packed = member.record, package.packed(member)
            except BadPackage as fault:
                self._damage = fault
                self._results.left(work)
                break
            time_ns = mtime_ns(work.lastmod, None)
            said = record.plain, record.crc, record.method != STORED
            files.append((f"{work.n}-member", work.path, time_ns, packed, *said, *demanded))
            works.append(work)
            if len(files) >= _BLOCK_FILES:
                yield works, files
                works, files = [], []
        if files:
            yield works, files

    def _place_large(self, package: ZipDirectory, wanted: WantedMember, algorithm: str, digest: str | None) -> None:
        """Place a member that is written before it is verified."""
        work, name, tree = wanted.work, f"{wanted.work.n}-member", self._tree
        hasher = HASHERS[algorithm]()
        is_placed = False
        try:
            descriptor = tree.create_temporary(name)
            try:
                for block in package.blocks(wanted.member):
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
                is_placed = True
                self._note([(work, size, time_ns, f"{algorithm}:{hasher.hexdigest()}")])
        except PathOccupied:
            pass
        except BadPackage:
            tree.discard(name)
            raise
        if not is_placed:
            tree.discard(name)
            self._results.left(work)

    def _note(self, placed: list[PlacedWork]) -> None:
        octets = sum([size for _, size, _, _ in placed])
        self.placed_count += len(placed)
        self._plan.octets += octets
        if self._context.each is not ignored:
            for work, size, _, _ in placed:
                kind = "created" if work.held is None else "updated"
                self._context.each(Done(kind, work.uri, printable_path(work.path), size))
        self._results.settled(placed)
        self._results.flush_when_due()


def _demanded(wanted: WantedMember) -> tuple[str, str | None] | None:
    """Algorithm and hex of the digest that a member must have, None for one that may have any; None where it cannot be
    verified. Where no digest is listed that can be computed, what is stated by the manifest counts (DST-P5)."""
    digest = strongest_of(wanted.work.hash)
    if digest is None:
        stated = wanted.stated
        if stated is None or stated.length not in (None, wanted.member.octets):
            return None
        if canonical_hash_of(wanted.work.extra) is not None:
            return None  # to be verified by what it says, which a transfer does
        digest = strongest_of(stated.hash)
    return ("sha-256", None) if digest is None else (digest.algorithm, digest.hex)


def placer(settings: tuple[bytes, bytes, int]) -> Callable[[list[MemberFile]], list[Outcome]]:
    """What the process does: place a block of members, as long as its owner lives. `settings`: the folders of the copy
    and of its temporary files, and what is kept free."""
    root, temp, keep_free = settings
    tree = FileTree(Path(os.fsdecode(root)), Path(os.fsdecode(temp)), room=Room(root, keep_free))
    owner = os.getppid()

    def check_owner() -> None:
        if os.getppid() != owner:
            raise SystemExit

    return lambda files: place_files(tree, files, check_owner)


def place_files(
    tree: FileTree, files: list[MemberFile], before_each: Callable[[], None] = lambda: None
) -> list[Outcome]:
    """Verify members and give them their places; what came of each. `before_each` may end it."""
    outcomes: list[Outcome] = []
    for file in files:
        before_each()
        outcomes.append(_place_file(tree, file))
    return outcomes


def _place_file(tree: FileTree, file: MemberFile) -> Outcome:
    name, path, time_ns, packed, octets, crc, is_deflated, algorithm, wanted = file
    try:
        content = unpacked(printable_path(path), packed, octets, crc, is_deflated=is_deflated)
        digest = HASHERS[algorithm](content).hexdigest()
        if wanted not in (None, digest):
            return LEFT, 0, 0, ""
        size, kept_ns = tree.write(name, content, time_ns)
        tree.place(name, path)
    except BadPackage as fault:
        return DAMAGED, 0, 0, fault.what
    except PathOccupied:
        tree.discard(name)
        return LEFT, 0, 0, ""
    except DestinationUnusable as fault:
        return UNUSABLE, 0, 0, fault.what
    return PLACED, size, kept_ns, f"{algorithm}:{digest}"
