"""The evidence of a set's past: reads the Resource Lists and Change Lists that tell of a moment into one table.

A row of `stated` is what one list states of one URI, and when: a Resource List that it was so at some moment from `low`
to `high`, a Change List that it was changed then.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import msgspec

from headwater.errors import SourceFault
from headwater.spec.kinds import Kind
from headwater.storage.transaction import Transaction
from headwater.sync.lists.archives import (
    ARCHIVES,
    CHANGE_DUMP_ARCHIVE,
    CHANGE_LIST_ARCHIVE,
    RESOURCE_DUMP_ARCHIVE,
    RESOURCE_LIST_ARCHIVE,
    ListedDocument,
    ToldPeriods,
    read_archive,
    touching,
)
from headwater.sync.lists.documents import DocumentRead
from headwater.sync.lists.entries import STAGED_COLUMNS, ChangeListStaging, EntryFilter, ListContext
from headwater.sync.lists.position import IndexedList, Position
from headwater.sync.lists.resource_lists import ListedPart, ResourceListRead, ResourceListReader
from headwater.sync.source_times import SECOND, format_micros, last_micros, micros
from headwater.sync.state import LISTED, Offer

_TABLES = f"""
CREATE TEMP TABLE IF NOT EXISTS stated(
  n INTEGER PRIMARY KEY, document INTEGER, change TEXT, low INTEGER, high INTEGER, {LISTED}, refused INTEGER
);
DROP INDEX IF EXISTS temp.stated_uri;
DELETE FROM temp.stated;
"""  # noqa: S608  our own names
"""`document` is the number of a snapshot (a Resource List of some moment) where there is no `change`, else that of a
Change List, whose rows are in its order."""

_STATE_LISTED = (
    f"INSERT INTO temp.stated(document, low, high, {STAGED_COLUMNS}) SELECT ?, ?, ?, {STAGED_COLUMNS}"  # noqa: S608
    " FROM temp.listed WHERE n > ? AND n <= ?"
)
_NEVER = 1 << 62
_STATE_CHANGED = (
    f"INSERT INTO temp.stated(document, change, low, high, {STAGED_COLUMNS})"  # noqa: S608
    f" SELECT list, change, coalesce(at, {-_NEVER}), iif(exact, at, coalesce(latest, {_NEVER})), {STAGED_COLUMNS}"
    " FROM temp.changed WHERE list = ? ORDER BY ordinal"
)

PRESENT = 0
"""The number of the snapshot that is the present Resource List."""

_MOST_LAG = 3 * SECOND
"""By how much the clock of `Date`, which has whole seconds and may be a second old, is behind that of lists at most."""

_PAUSE_SECONDS, _READ_AGAIN = 0.5, 8

_DEEPEST = 2  # an index in an index: one extra level (AMB-65)


def latest_before(snapshots: Sequence[ListedDocument], moment: int) -> ListedDocument | None:
    """The snapshot with the greatest `at` that is not later than the moment."""
    known = [one for one in snapshots if one.at is not None and one.at <= moment]
    return max(known, key=lambda one: one.at or 0, default=None)


def first_after(snapshots: Sequence[ListedDocument], moment: int) -> ListedDocument | None:
    """The snapshot with the smallest `at` that is later than the moment."""
    known = [one for one in snapshots if one.at is not None and one.at > moment]
    return min(known, key=lambda one: one.at or 0, default=None)


def span_of(moment: int, at: int, through: int) -> tuple[int, int]:
    """The period in which nothing may have changed if a snapshot is to tell of the moment: later than, up to.

    A change at the very `at` of a snapshot may be in it or not; a snapshot of the moment itself is taken at its word.
    """
    return at - 1 if at < moment else moment, max(through, moment)


class SnapshotRead(msgspec.Struct, frozen=True):
    """A snapshot in `stated`: its number, between which moments it was so, and whether it lists all there was."""

    number: int
    at: int
    through: int
    is_whole: bool


class Evidence(msgspec.Struct, kw_only=True):
    """What was read into `stated`, and what it covers."""

    moment: int
    archived: dict[str, tuple[ListedDocument, ...]] = {}
    """What each kind of archive that the source offers lists."""

    snapshots: list[SnapshotRead] = []
    coverage: ToldPeriods = ToldPeriods()
    skipped: list[tuple[str, int]] = []
    """Documents with entries that name no resource, and how many (DST-F5)."""

    unread: list[str] = []
    """Lists and archives that cannot be read: nobody knows what they tell."""

    @property
    def proof(self) -> SnapshotRead | None:
        """A snapshot that lists all there was, from which, or to which, every change is told."""
        for one in self.snapshots:
            if one.is_whole and self.coverage.tells(*span_of(self.moment, one.at, one.through)):
                return one
        return None

    @property
    def begins(self) -> int | None:
        """The earliest moment of which anything is told."""
        moments = [begin for begin, _ in self.coverage.periods] + [one.at for one in self.snapshots]
        return min(moments, default=None)

    def lack(self) -> str:
        """The sentence that says what is not told of the moment, where there is no proof."""
        hole = self._hole()
        told = f": nothing tells of changes from {format_micros(hole[0])} to {format_micros(hole[1])}" if hole else ""
        return f"no document of the source tells all that the set had at {format_micros(self.moment)}{told}"

    def _hole(self) -> tuple[int, int] | None:
        """The period without a word that is in the way of the nearest snapshot: after the one, up to the other."""
        holes = [
            hole
            for one in self.snapshots
            if (hole := self.coverage.hole(*span_of(self.moment, one.at, one.through))) is not None
        ]
        return min(holes, key=lambda hole: abs(hole[0] - self.moment), default=None)


def _moment_told(moment: int, begins: int | None) -> int:
    """The moment that is meant: the beginning of all that is told, for a whole second in which that lies.

    HTTP, and who reads a time from it, knows whole seconds; the second as such would be before all (AMB-26).
    """
    in_its_second = begins is not None and moment % SECOND == 0 and moment < begins < moment + SECOND
    return begins if begins is not None and in_its_second else moment


class EvidenceReader:
    """Reads the lists of one set that tell of a moment: those that lead up to it, and all others where they do not."""

    def __init__(self, context: ListContext, offer: Offer, moment: int) -> None:
        self._context = context
        self._offer = offer
        self._moment = moment
        self._intake = EntryFilter(context.scope)
        self._visited: set[str] = set()
        self._named: list[IndexedList] = []
        self._covered: list[tuple[int, int]] = []
        self._found = Evidence(moment=moment)

    def read(self) -> Evidence:
        """Read as much as is needed. A list that cannot be read is noted in `unread`, and tells nothing."""
        found, moment = self._found, self._moment
        with self._context.database.write() as t:
            t.run(_TABLES)
            t.run("DELETE FROM temp.changed")
        if self._offer.baseline_document is not None:
            self._snapshot(self._offer.baseline_document, PRESENT)
        found.archived = {capability: self._archived(capability) for capability in ARCHIVES}
        snapshots = found.archived[RESOURCE_LIST_ARCHIVE] or found.archived[RESOURCE_DUMP_ARCHIVE]
        before = latest_before(snapshots, moment)
        if before is not None:
            self._snapshot(before.uri, 1)
        self._named = [*(found.archived[CHANGE_LIST_ARCHIVE] or found.archived[CHANGE_DUMP_ARCHIVE])]
        if self._offer.changes_document is not None:
            self._named += self._read(self._offer.changes_document, 0)
        starts = [one.at for one in found.snapshots if one.at <= moment]
        if starts:
            self._changes(max(starts), moment)
        if found.proof is None:
            after = first_after(snapshots, moment)
            if after is not None:
                self._snapshot(after.uri, 2)
            spans = [span_of(moment, one.at, one.through) for one in found.snapshots]
            self._changes(min([moment, *(low for low, _ in spans)]), max([moment, *(high for _, high in spans)]))
        found.moment = _moment_told(moment, found.begins)
        with self._context.database.write() as t:
            t.run("CREATE INDEX temp.stated_uri ON stated(uri)")
        return found

    def read_back(self) -> None:
        """Read the changes of before as well: they tell when the states were made that a snapshot has."""
        self._changes(0, self._moment)

    def _archived(self, capability: str) -> tuple[ListedDocument, ...]:
        context, uri = self._context, self._offer.documents.get(capability)
        if uri is None:
            return ()
        try:
            return read_archive(context.documents, uri, capability, context.scope.objection)
        except SourceFault as fault:
            self._cannot_read("an archive", uri, fault)
            return ()

    def _cannot_read(self, what: str, uri: str, fault: SourceFault) -> None:
        self._context.documents.warn(fault.rule or fault.code, f"{what} cannot be read: {fault.what}", uri)
        self._found.unread.append(uri)

    def _snapshot(self, uri: str, number: int) -> None:
        context = self._context
        try:
            read = ResourceListReader(context, sitemap=self._offer.is_sitemap).read(uri)
        except SourceFault as fault:
            self._cannot_read("a list", uri, fault)
            return
        if not isinstance(read, ResourceListRead):
            context.documents.warn("DST-A7", "this is no Resource List that can be read: it is passed over", uri)
            return
        self._found.skipped += read.skipped
        with context.database.write() as t:
            _state_listed(t, number, read.parts)
        moments = [read.at, *(part.at for part in read.parts)]
        ends = [part.through for part in read.parts if part.through is not None]
        at = min((one for one in moments if one is not None), default=None)
        if at is None:
            return
        whole = read.complete and read.settled and None not in moments and not read.skipped
        self._found.snapshots.append(SnapshotRead(number, at, max([at, *ends]), whole))

    def _changes(self, after: int, until: int) -> None:
        for one in touching(self._named, after, until):
            for part in touching(self._read(one.uri, 1), after, until):
                self._read(part.uri, _DEEPEST)
        self._found.coverage = ToldPeriods.of(self._covered)

    def _read(self, uri: str, depth: int) -> list[IndexedList]:
        """Stage one Change List, once; returns the parts of an index of such."""
        if uri in self._visited:
            return []
        self._visited.add(uri)
        documents, found = self._context.documents, self._found
        number = len(self._visited)
        staged = ChangeListStaging(self._context, self._intake, Position(), Position(), number, uri)
        try:
            answer = documents.read(uri, staged, objection=self._context.scope.objection)
            for _ in range(_READ_AGAIN):
                if not self._is_early(answer):
                    break
                time.sleep(_PAUSE_SECONDS)
                answer = documents.read(uri, staged, objection=self._context.scope.objection)
        except SourceFault as fault:
            self._cannot_read("a Change List", uri, fault)
            return []
        if not isinstance(answer, DocumentRead):
            documents.warn("DST-C5", "a Change List that is named is not there", uri)
            found.unread.append(uri)
        elif answer.document.kind is Kind.CHANGE_LIST_INDEX and depth < _DEEPEST:
            return staged.parts
        elif answer.document.kind is not Kind.CHANGE_LIST:
            documents.warn("DST-A7", f"this is {answer.document.called}, not a Change List", uri)
        else:
            if answer.skipped:
                found.skipped.append((uri, answer.skipped))
            self._state_changed(staged, answer, number)
        return []

    def _state_changed(self, staged: ChangeListStaging, answer: DocumentRead, number: int) -> None:
        """Keep the staged changes with their times, and the period of which the list tells all, where it says so.

        An open list tells all up to when it was read, by the source's clock.
        """
        document = answer.document
        from_, until, clock = micros(document.from_), micros(document.until), micros(answer.read_at) or 0
        with self._context.database.write() as t:
            staged.mark(t, staged.stated.changes(from_, clock).intervals, ())
            t.run(_STATE_CHANGED, (number,))
            t.run("DELETE FROM temp.changed")
        if document.from_ is None:
            return
        if until is None or until > clock + _MOST_LAG:  # a list cannot tell of what is to come (DST-C7)
            until = clock
        self._covered.append((last_micros(document.from_), until))

    def _is_early(self, answer: object) -> bool:
        """Whether an open list tells less than the present list has, because `Date` has whole seconds."""
        if not isinstance(answer, DocumentRead) or answer.document.until is not None:
            return False
        now = [one.through for one in self._found.snapshots if one.number == PRESENT]
        lag = max(now, default=0) - (micros(answer.read_at) or 0)
        return answer.document.kind is Kind.CHANGE_LIST and 0 < lag < _MOST_LAG


def _state_listed(t: Transaction, number: int, parts: tuple[ListedPart, ...]) -> None:
    """Keep the list in `temp.listed` as a snapshot; rows of a document without a moment tell nothing."""
    rows = [(number, part.at, part.through, part.before, part.last) for part in parts if part.at is not None]
    t.many(_STATE_LISTED, rows)
