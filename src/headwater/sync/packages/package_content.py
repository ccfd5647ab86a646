"""The content of one package: its manifest, read for what it lists, and the members that are wanted, put in place.

The manifest inside the package counts, also where a copy lies beside it (DST-P2). What it says of the package's moment
should be what the dump says of it (DST-P8); of another kind than the dump it makes the package unusable (DST-P7).

What verifies against the list gets its place, and is recorded (DST-P5). A member is given with the work it may be: a
row of `temp.work`, noted before as about to be placed. What does not fit, or finds its place occupied, is left to
single requests, whose rules hold for it (`transfer/resources`).

Many small members are verified and placed by a process beside the run (`transfer/placing_process`), which reads and
records others meanwhile, and places some itself rather than wait for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from typing import NamedTuple

import msgspec

from headwater.errors import SourceFault
from headwater.packages.faults import BadPackage, PackageTooLarge
from headwater.packages.package import PackageFile
from headwater.packages.zip_format import STORED
from headwater.packages.zip_reader import ZipMember
from headwater.processes.pool import ProcessPool
from headwater.spec.records import Entry
from headwater.sync.connection import Scope
from headwater.sync.copy.file_tree import DestinationUnusable
from headwater.sync.lists.entries import EntryFilter, canonical_hash_of
from headwater.sync.packages.dump_documents import tell_moments
from headwater.sync.source_times import micros, mtime_ns
from headwater.sync.transfer.placing_process import (
    DAMAGED,
    PLACED,
    UNUSABLE,
    MemberFile,
    Outcome,
    may_use_processes,
    place_files,
    placer,
    placing_program,
)
from headwater.sync.transfer.results_and_retries import PlacedFile, ResultLog
from headwater.sync.transfer.verification import strongest_of
from headwater.sync.transfer.work_queue import COLUMNS, ELIGIBLE, RunContext, Work

Warn = Callable[[str, str, str | None], None]

_CHUNK = 2_000
"""So many files are noted as about to be placed at a time: each note waits for the disk, and a run after a kill looks
at them all."""

MOST_STATED_OCTETS = 1 << 28
"""What the entries of one manifest may take in memory (DST-P6): that of a million usual ones, whose members are in
memory too."""

_STATED_OCTETS = 160
"""What one of them takes beside its URI and hash."""

_WANTED = (
    f"SELECT {', '.join(f'w.{name}' for name in COLUMNS)} FROM json_each(?) u CROSS JOIN temp.work w"  # noqa: S608
    f" ON w.uri = u.value WHERE {ELIGIBLE}"
)


class StatedMember(NamedTuple):
    """What the manifest says of a resource, and the member with its octets."""

    member: ZipMember
    hash: str | None
    length: int | None
    lastmod: int | None
    at: int | None

    def contradicts(self, work: Work) -> bool:
        """Whether the manifest itself says that this is another state than the listed one."""
        if self.hash is None or work.hash is None or self.hash == work.hash:
            return False
        return self.hash.partition(":")[0] == work.hash.partition(":")[0]


class PackageContent:
    """The content of one package, of which some is wanted."""

    def __init__(
        self,
        package: PackageFile,
        listed: Entry | None,
        scope: Scope,
        warn: Warn,
        failed: Callable[[SourceFault], None],
        is_list: Callable[[], bool] = lambda: False,
    ) -> None:
        """`listed`: what a dump says of the package; None: it was made on demand. `failed` is called where a member is
        not what the package says of it. `is_list`: whether this very manifest lists what is wanted of it (DST-D).
        Raises BadPackage."""
        self._package = package
        self._listed = listed
        self._objection = scope.objection
        self._failed = failed
        self._is_list = is_list
        self._is_damaged = False
        self._states: dict[str, list[StatedMember]] = {}
        """What the manifest says of each resource, in its order."""

        self._warn = warn
        self._unverifiable = 0
        """How many of those that are wanted have no listed hash."""

        self._read_manifest(EntryFilter(scope))
        if listed is not None:
            tell_moments(warn, listed, package.head)
            for problem in package.problems:
                if problem.rule == "DST-P3":
                    warn(problem.rule, f"an entry of a manifest is left out: {problem.message}", listed.loc)
            missing, undeclared = package.missing_count, len(package.undeclared())
            if missing or undeclared:
                said = f"{missing:,} members that its manifest names are missing, {undeclared:,} are in no entry of it"
                warn("DST-P4", f"a package differs from its manifest: {said}", listed.loc)

    def _read_manifest(self, uris: EntryFilter) -> None:
        octets = 0
        at = micros(self._package.head.at)
        if at is None and self._listed is not None:
            at = micros(self._listed.at)
        for packaged in self._package.entries():
            entry, member = packaged.entry, packaged.member
            if member is not None:
                moment = at if entry.datetime is None else micros(entry.datetime)
                uri, _ = uris.judged(entry.loc)
                lastmod = None if self._listed is None else micros(entry.lastmod)  # it tells nothing more
                stated = StatedMember(member, entry.hash, entry.length, lastmod, moment)
                self._states.setdefault(uri, []).append(stated)
                octets += _STATED_OCTETS + len(uri) + len(entry.hash or "")
                if octets > MOST_STATED_OCTETS:
                    what = f"its manifest has more than {len(self._states):,} entries, and no room for them"
                    raise PackageTooLarge(what)

    def damaged(self, fault: BadPackage) -> None:
        """A member is not what the package says of it: no more are taken."""
        if not self._is_damaged:
            self._is_damaged = True
            self._failed(fault)

    def blocks(self, results: ResultLog, placing: MemberPlacing) -> Iterator[MemberBlock]:
        """The members that are wanted and can be verified, with their work; what is large is placed at once."""
        block, octets, uris = MemberBlock([], [], self.damaged), 0, list(self._states)
        for start in range(0, len(uris), _CHUNK):
            some = msgspec.json.encode(uris[start : start + _CHUNK]).decode()
            works = results.take(_WANTED, some)
            taken = 0
            try:
                for work in works:
                    taken += 1
                    file = None if self._is_damaged else self._file(work, placing.largest)
                    if file is None:
                        results.left(work)
                    elif not isinstance(file[3], bytes):
                        placing.place_now(MemberBlock([work], [file], self.damaged))
                    else:
                        block.works.append(work)
                        block.files.append(file)
                        octets += len(file[3])
                    if len(block.files) >= _BLOCK_FILES or octets >= _BLOCK_OCTETS:
                        yield block
                        block, octets = MemberBlock([], [], self.damaged), 0
            finally:
                for work in works[taken:]:
                    results.left(work)
            if self._is_damaged:
                break
        if block.works:
            yield block
        if self._unverifiable and self._listed is not None and strongest_of(self._listed.hash) is None:
            said = f"neither {self._unverifiable:,} resources nor their package have a hash: only CRCs verify them"
            self._warn("DST-P1", said, self._listed.loc)

    def _file(self, work: Work, largest: int) -> MemberFile | None:
        """The member that a resource is, to be placed; None: there is none.

        Of several states of a resource the last one counts that can be the one listed.
        """
        digest = strongest_of(work.hash)
        is_other = StatedMember.contradicts if digest is not None else self._differs
        states = [one for one in self._states[work.uri] if not is_other(one, work)]
        if not states or (work.tries is not None and self._objection(work.loc) is not None):
            return None
        stated, member = states[-1], states[-1].member
        self._unverifiable += work.hash is None
        if member.octets > largest or work.length not in (None, member.octets):
            return None
        if digest is None:  # then what the manifest states counts (DST-P5)
            if stated.length not in (None, member.octets) or canonical_hash_of(work.extra) is not None:
                return None  # it is damaged, or to be verified by what it says, which a transfer does
            digest = strongest_of(stated.hash)
        demanded = ("sha-256", None) if digest is None else (digest.algorithm, digest.hex)
        directory = self._package.directory
        try:
            packed = directory.packed(member) if member.is_small else directory.blocks(member)
        except BadPackage as fault:
            self.damaged(fault)
            return None
        said = member.octets, member.crc, member.method != STORED
        return f"{work.n}-member", work.path, mtime_ns(work.lastmod), packed, *said, *demanded

    def _differs(self, stated: StatedMember, work: Work) -> bool:
        """Whether the manifest, of a dump, may speak of another state than the listed one, as far as times tell."""
        if self._listed is None or stated.contradicts(work):
            return True
        if stated.lastmod is not None and work.lastmod is not None:
            is_same = stated.lastmod == work.lastmod
        else:
            is_same = stated.at is not None and stated.at == work.known_at
        if not self._is_list():
            return not is_same
        said, listed = (stated.lastmod, stated.length, stated.hash), (work.lastmod, work.length, work.hash)
        return said != listed or not (is_same or work.changed_at is None or stated.at is None)


# the placing of members

PROCESS_FROM = 3_000
"""For fewer members, a process that places them costs more than it saves."""

_BLOCK_FILES, _BLOCK_OCTETS, _AHEAD = 64, 1 << 20, 8
"""Members of one block and their octets, and blocks that are in the hands of the process: of 4 KiB each, that is what a
pipe holds, so that the run seldom waits in it and places members itself instead."""


class MemberBlock(NamedTuple):
    """Members that are placed together, with the work that each may be. `damaged` is called where a member is not what
    its package says of it."""

    works: list[Work]
    files: list[MemberFile]
    damaged: Callable[[BadPackage], None]


class MemberPlacing:
    """Verifies members and gives them their places."""

    def __init__(self, context: RunContext, results: ResultLog) -> None:
        assert context.tree is not None
        self._context = context
        self._tree = context.tree
        self._results = results
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
                self._settle(block, outcomes)

    def place_now(self, block: MemberBlock) -> None:
        """Place members of which one is large: it is written while it is read."""
        self._settle(block, place_files(self._tree, block.files))

    def _settle(self, block: MemberBlock, outcomes: list[Outcome]) -> None:
        for work, (outcome, size, time_ns, said) in zip(block.works, outcomes, strict=True):
            if outcome == PLACED:
                self.placed_count += 1
                self._results.placed(work, PlacedFile(work.path, size, time_ns, said), size)
                continue
            self._results.left(work)
            if outcome == DAMAGED:
                block.damaged(BadPackage(said))
            elif outcome == UNUSABLE:
                raise DestinationUnusable(said, where=self._context.destination)
