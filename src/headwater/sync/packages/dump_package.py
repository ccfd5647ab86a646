"""The reading of one package of a dump: its members matched with the work by the manifest, and placed in batches."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence

from headwater.errors import SourceFault
from headwater.packages.zip_stream import WholeMember
from headwater.storage.sqlite.transaction import Row, Transaction
from headwater.sync.packages.large_member import LargeMember
from headwater.sync.packages.manifests import WORK_OF_MEMBERS, StagedManifest
from headwater.sync.packages.placing import (
    MemberPlacing,
    StatedByManifest,
    UnsettledPackage,
    algorithms_for,
    temporary_name,
)
from headwater.sync.packages.planned_members import TAKEN_AHEAD, PlannedMembers
from headwater.sync.transfer.result_log import ResultLog
from headwater.sync.transfer.verification import strongest_of
from headwater.sync.transfer.work_queue import COLUMNS, Work

_BATCH_MEMBERS = 1_000
_BATCH_OCTETS = 4 << 20
_CATCH_UP = 50
"""After so many members it is noted what of those before has got its place."""

_WORK_COLUMNS = ", ".join(f"w.{name}" for name in COLUMNS)
_OF_PLACES = "WHERE p.place > ? AND p.place <= ? ORDER BY p.place"
_OF_NAME = "WHERE p.name = ? AND w.n IS NOT NULL"
_BY_NAME = "CREATE INDEX IF NOT EXISTS temp.packed_name ON packed(name)"
_N = 4 + COLUMNS.index("n")


class NothingWanted(Exception):
    """Nothing of the work is in the package, or too little for its octets: the rest of it need not come."""


class NeedsWholePackage(SourceFault):
    """Resources without a listed hash are wanted of a package, which has to be verified as a whole before (DST-P1)."""

    code = "HW-PKG-13"


class DumpPackage:
    """Takes the members of one package of a dump (a `MemberConsumer`). Call `finish` at its end, `flush` where it
    broke off, `discard` after both.

    `whole`: what is listed of the package itself has been verified, or the package is read to its end without a
    contradiction; only then what has no listed digest may come from it (DST-P1, DST-P5).
    """

    def __init__(
        self,
        manifest: StagedManifest,
        placing: MemberPlacing,
        results: ResultLog,
        objection: Callable[[str], str | None],
        before: UnsettledPackage,
        *,
        whole: bool,
    ) -> None:
        """`before`: the package before this one, settled when the members of this one begin."""
        self._before = before
        self._manifest = manifest
        self._placing = placing
        self._results = results
        self._objection = objection
        self._whole = whole
        columns = f"p.name, p.hash, p.length, {manifest.agrees}, {_WORK_COLUMNS}"
        select = f"SELECT {columns} FROM temp.packed p {WORK_OF_MEMBERS} "  # noqa: S608  our own names
        self._of_places, self._of_name = select + _OF_PLACES, select + _OF_NAME
        self._batch: dict[str, WholeMember] = {}
        self._waiting_octets = 0
        self._place = 0
        self._is_ordered = True
        self._planned: PlannedMembers | None = None
        self._ahead: deque[Work | None] = deque()
        """The work of the next members by the manifest, noted as about to be placed."""

        self._large: tuple[Work, LargeMember, StatedByManifest | None] | None = None
        self._caught_up = 0
        self.members = 0
        """How many there were, the manifest apart."""

    @property
    def declared(self) -> int:
        """How many its manifest names as resources."""
        return self._manifest.declared

    @property
    def linked(self) -> int:
        """How many its manifest names in links of entries."""
        return self._manifest.linked

    @property
    def unverifiable(self) -> int:
        """How many of those that are wanted have no hash that is listed."""
        return self._manifest.unverifiable

    def manifest(self, octets: bytes) -> None:
        """The next octets of the manifest. Raises BadPackage."""
        self._before.catch_up()
        self._manifest.feed(octets, may_wait=not self._before.is_there)

    def manifest_end(self) -> None:
        """Raises NothingWanted, and NeedsWholePackage."""
        self._before.settle()
        self._manifest.end()
        if not self._manifest.is_worth_it:
            self._manifest.read_rest()
            if not self._manifest.is_worth_it:
                raise NothingWanted
        self._check_verifiable()
        self._planned = self._manifest.planned

    def _check_verifiable(self) -> None:
        if self._manifest.unverifiable and not self._whole:
            raise NeedsWholePackage("it has resources without a listed hash")

    def small(self, members: Sequence[WholeMember]) -> None:
        """Whole members. Raises BadPackage where one before them is not what the package says of it."""
        for start in range(0, len(members), _CATCH_UP):
            some = members[start : start + _CATCH_UP]
            self.members += len(some)
            if self.members >= self._caught_up + _CATCH_UP:
                self._caught_up = self.members
                self._placing.catch_up()
                self._results.flush_when_due()
            for member in some[self._place_next(some) :]:
                self._batch[member.name] = member
                self._waiting_octets += len(member.body.packed)
                if len(self._batch) >= _BATCH_MEMBERS or self._waiting_octets >= _BATCH_OCTETS:
                    self._place_batch()

    def _place_next(self, members: Sequence[WholeMember]) -> int:
        """Place as many of these members as are the next ones of the manifest; gives how many."""
        planned = self._planned_to(self._place + len(members))
        if planned is None:
            return 0
        names = [member.name for member in members]
        if planned.names[self._place : self._place + len(names)] == names:
            self._placing.planned(zip(self._next_works(planned, len(names)), members, strict=True))
            return len(names)
        for count, member in enumerate(members):
            if not self._is_next(planned, member.name):
                return count
            self._placing.planned(((self._next_works(planned, 1)[0], member),))
        return len(members)

    def _planned_to(self, count: int) -> PlannedMembers | None:
        """The members that are in the order of the plan, read so far that there are `count`, where the manifest has so
        many; None from where on they are not. Raises BadPackage, and NeedsWholePackage."""
        planned = self._planned
        if planned is None or count <= len(planned.names):
            return planned
        enough = len(planned.names) + min(len(planned.names), TAKEN_AHEAD)  # to be noted at a time
        while self._manifest.has_waiting and len(planned.names) < max(count, enough):
            self._manifest.read_next()
            self._placing.catch_up()
            if self._manifest.planned is None:
                self._look_up()
                return None
        return planned

    def _is_next(self, planned: PlannedMembers, name: str) -> bool:
        """Whether a member is the next one of the manifest. From the first on that is not, members are looked up by
        their names."""
        if self._place < len(planned.names) and planned.names[self._place] == name:
            return True
        self._look_up()
        return False

    def _look_up(self) -> None:
        """From here on members are looked up by their names. Raises BadPackage, and NeedsWholePackage."""
        self._leave_ahead()
        self._planned, self._is_ordered = None, False
        self._manifest.read_rest()
        self._check_verifiable()
        self._manifest.tabulate()

    def _next_works(self, planned: PlannedMembers, count: int) -> list[Work | None]:
        """The work of so many members that are the next ones. Raises BadPackage as `small` does."""
        works: list[Work | None] = []
        while len(works) < count:
            if not self._ahead:
                self._placing.check()
                self._ahead.extend(map(self._unless_refused, planned.take(self._results, self._place)))
            works.append(self._ahead.popleft())
            self._place += 1
        return works

    def _unless_refused(self, work: Work | None) -> Work | None:
        """Work, unless the scope is another by now: then a request's rules say what is told."""
        if work is None or work.tries is None or not self._objection(work.loc):
            return work
        self._results.left(work)
        return None

    def _leave_ahead(self) -> None:
        """Give back the work of members that have not come."""
        while self._ahead:
            work = self._ahead.popleft()
            if work is not None:
                self._results.left(work)

    def begin(self, name: str) -> bool:
        """A large member: whether it is wanted."""
        self.members += 1
        self._place_batch()
        found = self._work_of(name)
        if found is None:
            return False
        work, stated = found
        if self._placing.has_place(work):
            self._results.left(work)
            return False
        member = LargeMember(
            self._placing.tree, temporary_name(work), algorithms_for(work, stated), self._most_octets(work)
        )
        self._large = work, member, stated
        return True

    def _work_of(self, name: str) -> tuple[Work, StatedByManifest | None] | None:
        """The work of one member, and what its manifest states where that may count."""
        planned = self._planned_to(self._place + 1)
        if planned is not None and self._is_next(planned, name):
            work = self._next_works(planned, 1)[0]
            return None if work is None else (work, None)
        found = list(self._taken((name,)))
        for _, work, _ in found[1:]:
            self._results.left(work)
        return found[0][1:] if found else None

    def _most_octets(self, work: Work) -> int:
        largest = self._placing.largest
        return largest if work.length is None else min(work.length, largest)

    def block(self, octets: bytes) -> None:
        """The next octets of a large member."""
        assert self._large is not None
        self._large[1].write(octets)

    def end(self) -> None:
        """A large member is whole."""
        assert self._large is not None
        work, member, stated = self._large
        self._large = None
        self._placing.file(work, member.octets, member.close(), stated)

    def finish(self) -> None:
        """The package is whole. Raises BadPackage where a member or the manifest is not what it has to be."""
        self._manifest.read_rest()
        self.flush()

    def flush(self) -> None:
        """Nothing more comes: place what has come. Raises BadPackage where a member is not what the package says."""
        self._leave_ahead()
        self._place_batch()

    def _place_batch(self) -> None:
        batch, self._batch, self._waiting_octets = self._batch, {}, 0
        if not batch:
            return
        taken = list(self._taken(batch))
        if len({work.n for _, work, _ in taken}) == len(taken):
            for name, work, stated in taken:
                self._placing.member(work, strongest_of(work.hash), batch[name], stated)
        else:
            self._place_states(taken, batch)
        self._placing.check()

    def _place_states(
        self, taken: list[tuple[str, Work, StatedByManifest | None]], batch: dict[str, WholeMember]
    ) -> None:
        """Place members of which several may be one resource, in several states: the first that is what is listed."""
        placed: set[int] = set()
        for name, work, stated in taken:
            if work.n in placed:
                self._results.left(work)
            elif self._placing.content(work, batch[name], stated):
                placed.add(work.n)

    def discard(self) -> None:
        """The reading was ended: leave nothing of a member that is not whole."""
        self._leave_ahead()
        if self._large is not None:
            work, member, _ = self._large
            member.discard()
            self._results.left(work)
            self._large = None

    def _taken(self, names: Collection[str]) -> Iterator[tuple[str, Work, StatedByManifest | None]]:
        """The work of these members, by name, and what its manifest states where that may count."""
        told: list[tuple[str, str | None, int | None, int]] = []

        def select(t: Transaction) -> list[Row]:
            found = self._in_order(t, names) if self._is_ordered else None
            if found is None:
                t.run(_BY_NAME)
                found = list(t.rows_each(self._of_name, ((name,) for name in names)))
            told.extend(row[:4] for row in found)
            return [row[4:] for row in found]

        for work, (name, hash_, length, agrees) in zip(self._results.take(select), told, strict=True):
            if self._unless_refused(work) is None:
                continue
            yield name, work, StatedByManifest(hash_, length) if self._whole and agrees else None

    def _in_order(self, t: Transaction, names: Collection[str]) -> list[Row] | None:
        """The work of members that are the next ones of the manifest, as they mostly are; None where they are not."""
        last = self._place + len(names)
        rows = t.fetch(self._of_places, (self._place, last))
        if len(rows) != len(names) or {row[0] for row in rows} != set(names):
            self._is_ordered = False
            return None
        self._place = last
        return [row for row in rows if row[_N] is not None]
