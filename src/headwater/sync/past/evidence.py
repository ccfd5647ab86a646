"""The evidence of a set's past, and the state of each resource at a moment by what it tells.

`Evidence` reads the lists that tell of the moment into one table, `stated`, and has each resource judged by it;
`state_at` is the plain rule over values that makes of it the state of one resource. An answer is right or it is "not
known". Evidence are snapshots (Resource Lists, each of which was true at some moment from its `at` to its
`completed`), changes, and the periods of which all changes are told. Times are those of the source, in microseconds.
"""

import time
from collections.abc import Sequence
from itertools import groupby
from typing import NamedTuple

import msgspec

from headwater.errors import SourceFault
from headwater.progress import Progress
from headwater.spec.kinds import Kind
from headwater.spec.records import Link
from headwater.storage.transaction import Row, Transaction
from headwater.sync.lists.archives import (
    ARCHIVES,
    CHANGE_DUMP_ARCHIVE,
    CHANGE_LIST_ARCHIVE,
    RESOURCE_DUMP_ARCHIVE,
    RESOURCE_LIST_ARCHIVE,
    read_archive,
)
from headwater.sync.lists.documents import DocumentRead
from headwater.sync.lists.entries import (
    DEEPEST_INDEX,
    STAGE_LISTED,
    STAGED_COLUMNS,
    ChangeListStaging,
    EntryFilter,
    ListContext,
    StagedEntry,
    encode_links,
    links_of,
)
from headwater.sync.lists.position import NEVER, IndexedList, Position, ToldPeriods, effective, touching
from headwater.sync.lists.resource_lists import ResourceListRead, ResourceListReader
from headwater.sync.past.versions import second_before
from headwater.sync.source_times import SECOND, format_micros, last_micros, micros
from headwater.sync.state import LISTED as LISTED_COLUMNS
from headwater.sync.state import Offer
from headwater.typed_decoding import from_json

# the state of one resource


class ToldChange(msgspec.Struct, frozen=True, gc=False):
    """One change of the resource: some time from `low` to `high` (the same where it is known), and its row."""

    low: int
    high: int
    kind: str  # `created`, `updated` or `deleted`
    row: int = 0


class Sighting(msgspec.Struct, frozen=True, gc=False):
    """What a snapshot, which was true at some moment from `at` to `through`, has of the resource: a row, or nothing."""

    at: int
    through: int
    row: int | None = None


ABSENT, UNKNOWN, EXISTED, LISTED, CHANGED = -1, 0, 1, 2, 3
"""States of a resource: it was not there; nobody can tell whether; it was there, and nothing tells in which state; as
the row of a snapshot says; as the row of a change says, which was the last one until then."""


class StateAt(NamedTuple):
    """The state of a resource at a moment, the row that tells it, and when it was changed next, where that is known."""

    kind: int
    row: int | None = None
    changed_after: int | None = None


def state_at(moment: int, changes: Sequence[ToldChange], sightings: Sequence[Sighting], told: ToldPeriods) -> StateAt:
    """The state at `moment`, by the `changes` of one resource in the order in which they were, and by `sightings`.

    1. The last change until then counts, where none after it can be missing.
    2. A snapshot counts, where the resource did not change between the snapshot and the moment.
    3. Where the first change after it is told, and none before that can be missing, it says whether there was anything.
    """
    later = [change for change in changes if change.low > moment]
    earlier = [change for change in changes if change.high <= moment]
    following = later[0].low if later else None
    if len(later) + len(earlier) < len(changes):
        return StateAt(UNKNOWN, None, following)  # a change without a certain time, which may have been before or after
    last = earlier[-1] if earlier else None
    if last is not None and told.tells(last.high, moment):
        return StateAt(ABSENT) if last.kind == "deleted" else StateAt(CHANGED, last.row, following)
    for seen in sightings:
        after, until = span_of(moment, seen.at, seen.through)
        has_changed = any(change.high > after and change.low <= until for change in changes)
        if told.tells(after, until) and not has_changed:
            return StateAt(ABSENT) if seen.row is None else StateAt(LISTED, seen.row, following)
    if later and told.tells(moment, later[0].high):
        return StateAt(ABSENT) if later[0].kind == "created" else StateAt(EXISTED, None, following)
    return StateAt(UNKNOWN, None, following)


def span_of(moment: int, at: int, through: int) -> tuple[int, int]:
    """The period in which nothing may have changed if a snapshot is to tell of the moment: later than, up to.

    A change at the very `at` of a snapshot may be in it or not; a snapshot of the moment itself is taken at its word.
    """
    return at - 1 if at < moment else moment, max(through, moment)


# what lists state, read into one table

_TABLES = f"""
CREATE TEMP TABLE IF NOT EXISTS stated(
  n INTEGER PRIMARY KEY, document INTEGER, change TEXT, low INTEGER, high INTEGER, {LISTED_COLUMNS}, refused INTEGER
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
_STATE_CHANGED = (
    f"INSERT INTO temp.stated(document, change, low, high, {STAGED_COLUMNS})"  # noqa: S608
    f" SELECT list, change, coalesce(at, {-NEVER}), iif(exact, at, coalesce(latest, {NEVER})), {STAGED_COLUMNS}"
    " FROM temp.changed WHERE list = ? ORDER BY ordinal"
)

PRESENT = 0
"""The number of the snapshot that is the present Resource List."""

_MOST_LAG = 3 * SECOND
"""By how much the clock of `Date`, which has whole seconds and may be a second old, is behind that of lists at most."""

_PAUSE_SECONDS, _READ_AGAIN = 0.5, 8


class SnapshotRead(msgspec.Struct, frozen=True):
    """A snapshot in `stated`: its number, between which moments it was so, and whether it lists all there was."""

    number: int
    at: int
    through: int
    is_whole: bool


# the list of a moment: `temp.listed` has what a set had then, `temp.past` what is known of each state

_TABLE = """
CREATE TEMP TABLE IF NOT EXISTS past(
  uri TEXT PRIMARY KEY, state INTEGER, changed_before INTEGER, changed_after INTEGER, is_present INTEGER,
  has_rested INTEGER
) WITHOUT ROWID;
DELETE FROM temp.past;
"""
"""Of a `state` of UNKNOWN or EXISTED `temp.listed` has no metadata. `is_present`: whether `loc` has the state still, as
far as lists tell (the octets decide); `has_rested`: whether no change is told from the beginning of the second of the
moment up to the moment."""

_ALL = (
    f"SELECT n, document, change, low, high, {STAGED_COLUMNS} FROM temp.stated"  # noqa: S608  our own names
    " ORDER BY uri, low, document, n"
)
_KEEP = "INSERT INTO temp.past VALUES (?, ?, ?, ?, ?, ?)"
_COUNTS = f"""
SELECT count(*) FILTER (WHERE state > {EXISTED}), count(*) FILTER (WHERE state <= {EXISTED}),
  max(state <= {EXISTED} AND links IS NOT NULL) FROM temp.past JOIN temp.listed USING (uri)"""  # noqa: S608  our own numbers
_OF_ALL_STATES = ("timegate", "timemap")
"""Links that are the same whatever state of a resource an entry is about (RS-REL-09, RS-REL-10)."""


class ListingResult(NamedTuple):
    """How many resources were there, and of how many nobody can tell in which state, or whether."""

    known: int
    doubtful: int
    linked: bool  # whether some of the doubtful have a TimeGate or a TimeMap
    had_before: bool  # whether anything tells of resources at the moment or before


class _Stated(NamedTuple):
    """A row of `stated`."""

    n: int
    document: int
    change: str | None
    low: int
    high: int
    entry: StagedEntry


def _all_links(own: str | None, rows: list[_Stated]) -> str | None:
    """The links of the state itself, and those to all states that any entry of the resource has."""
    missing = [rel for rel in _OF_ALL_STATES if not links_of(own, rel)]
    for row in sorted(rows, key=lambda row: (row.change is not None, -row.n)) if missing else ():
        more = [link for rel in missing for link in links_of(row.entry.links, rel)]
        if more:
            return encode_links([*from_json(own or "[]", list[Link]), *more])
    return own


# the evidence


def _at(archived: IndexedList) -> int:
    return archived.at or 0


class Evidence:
    """What the lists of one set tell of a moment: those that lead up to it, and all others where they do not."""

    def __init__(self, context: ListContext, offer: Offer, moment: int) -> None:
        self._context = context
        self._offer = offer
        self._intake = EntryFilter(context.scope)
        self._visited: set[str] = set()
        self._named: list[IndexedList] = []
        self._covered: list[tuple[int, int]] = []
        self.moment = moment
        self.archived: dict[str, tuple[IndexedList, ...]] = {}
        """What each kind of archive that the source offers lists."""

        self.snapshots: list[SnapshotRead] = []
        self.coverage = ToldPeriods()
        self.skipped: list[tuple[str, int]] = []
        """Documents with entries that name no resource, and how many (DST-F5)."""

        self.unread: list[str] = []
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
        at = format_micros(self.moment)
        return f"no document tells all that the set had at {at}, and nothing tells of changes since one that does"

    def read(self) -> None:
        """Read as much as is needed. A list that cannot be read is noted in `unread`, and tells nothing."""
        moment = self.moment
        with self._context.database.write() as t:
            t.run(_TABLES)
            t.run("DELETE FROM temp.changed")
        if self._offer.baseline_document is not None:
            self._snapshot(self._offer.baseline_document, PRESENT)
        self.archived = {capability: self._archived(capability) for capability in ARCHIVES}
        snapshots = self.archived[RESOURCE_LIST_ARCHIVE] or self.archived[RESOURCE_DUMP_ARCHIVE]
        before = max((one for one in snapshots if _at(one) <= moment), key=_at, default=None)
        if before is not None:
            self._snapshot(before.uri, 1)
        self._named = [*(self.archived[CHANGE_LIST_ARCHIVE] or self.archived[CHANGE_DUMP_ARCHIVE])]
        if self._offer.changes_document is not None:
            self._named += self._read(self._offer.changes_document, 0)
        starts = [one.at for one in self.snapshots if one.at <= moment]
        if starts:
            self.changes(max(starts), moment)
        if self.proof is None:
            after = min((one for one in snapshots if _at(one) > moment), key=_at, default=None)
            if after is not None:
                self._snapshot(after.uri, 2)
            spans = [span_of(moment, one.at, one.through) for one in self.snapshots]
            self.changes(min([moment, *(low for low, _ in spans)]), max([moment, *(high for _, high in spans)]))
        begins = self.begins
        if begins is not None and moment % SECOND == 0 and moment < begins < moment + SECOND:
            self.moment = begins  # HTTP knows whole seconds: the second as such would be before all (AMB-26)
        with self._context.database.write() as t:
            t.run("CREATE INDEX temp.stated_uri ON stated(uri)")

    def _archived(self, capability: str) -> tuple[IndexedList, ...]:
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
        self.unread.append(uri)

    def _snapshot(self, uri: str, number: int) -> None:
        context = self._context
        try:
            read = ResourceListReader(context, sitemap=self._offer.is_sitemap).read(uri)
        except SourceFault as fault:
            self._cannot_read("a list", uri, fault)
            return
        if not isinstance(read, ResourceListRead):
            context.documents.warn("DST-A7", "Headwater skips this document: it is not a readable Resource List", uri)
            return
        self.skipped += read.skipped
        with context.database.write() as t:
            rows = [(number, one.at, one.through, one.before, one.last) for one in read.parts if one.at is not None]
            t.many(_STATE_LISTED, rows)
        moments = [read.at, *(part.at for part in read.parts)]
        ends = [part.through for part in read.parts if part.through is not None]
        at = min((one for one in moments if one is not None), default=None)
        if at is None:
            return
        whole = read.complete and read.settled and None not in moments and not read.skipped
        self.snapshots.append(SnapshotRead(number, at, max([at, *ends]), whole))

    def changes(self, after: int, until: int) -> None:
        """Read the Change Lists that tell of the period, each once."""
        for one in touching(self._named, after, until):
            for part in touching(self._read(one.uri, 1), after, until):
                self._read(part.uri, DEEPEST_INDEX)
        self.coverage = ToldPeriods.of(self._covered)

    def _read(self, uri: str, depth: int) -> list[IndexedList]:
        """Stage one Change List, once; returns the parts of an index of such."""
        if uri in self._visited:
            return []
        self._visited.add(uri)
        documents = self._context.documents
        number = len(self._visited)
        staged = ChangeListStaging(self._context, self._intake, Position(), Position(), number, uri)
        try:
            for tried in range(_READ_AGAIN):
                answer = documents.read(uri, staged, objection=self._context.scope.objection)
                if not self._is_early(answer):
                    break
                self._context.listener(Progress("waiting for the source's clock", tried + 1, _READ_AGAIN))
                time.sleep(_PAUSE_SECONDS)
        except SourceFault as fault:
            self._cannot_read("a Change List", uri, fault)
            return []
        if not isinstance(answer, DocumentRead):
            documents.warn("DST-C5", "a listed Change List is missing", uri)
            self.unread.append(uri)
        elif answer.document.kind is Kind.CHANGE_LIST_INDEX and depth < DEEPEST_INDEX:
            return staged.parts
        elif answer.document.kind is not Kind.CHANGE_LIST:
            documents.warn("DST-A7", f"this is {answer.document.called}, not a Change List", uri)
        else:
            if answer.skipped:
                self.skipped.append((uri, answer.skipped))
            self._state_changed(staged, answer, number)
        return []

    def _state_changed(self, staged: ChangeListStaging, answer: DocumentRead, number: int) -> None:
        """Keep the staged changes with their times, and the period of which the list tells all, where it says so.

        An open list tells all up to when it was read, by the source's clock.
        """
        document = answer.document
        from_, until, clock = micros(document.from_), micros(document.until), micros(answer.read_at) or 0
        with self._context.database.write() as t:
            staged.mark(t, effective(staged.times, from_, staged.until, clock).intervals, ())
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
        now = [one.through for one in self.snapshots if one.number == PRESENT]
        lag = max(now, default=0) - (micros(answer.read_at) or 0)
        return answer.document.kind is Kind.CHANGE_LIST and 0 < lag < _MOST_LAG

    def fill_listed(self, t: Transaction) -> ListingResult:
        """Fill `temp.listed` and `temp.past` from what lists state."""
        t.run("DROP INDEX IF EXISTS temp.listed_uri")
        t.run("DELETE FROM temp.listed")
        t.run(_TABLE)
        proof = self.proof
        self._first = None if proof is None else proof.number
        self._sightings = {one.number: Sighting(one.at, one.through) for one in self.snapshots if one.is_whole}
        stated = (_Stated._make((*row[:5], StagedEntry(*row[5:]))) for row in t.rows(_ALL))
        for _, rows in groupby(stated, key=lambda row: row.entry.uri):
            if (found := self._judged(list(rows))) is not None:
                t.run(STAGE_LISTED, found[0])
                t.run(_KEEP, found[1])
        t.run("CREATE INDEX temp.listed_uri ON listed(uri)")
        had_before = t.one("SELECT 1 FROM temp.stated WHERE low <= ? LIMIT 1", (self.moment,)) is not None
        seen = any(one.at <= self.moment for one in self.snapshots)
        known, doubtful, is_linked = t.one(_COUNTS) or (0, 0, False)
        return ListingResult(known, doubtful, bool(is_linked), had_before or seen)

    def _judged(self, rows: list[_Stated]) -> tuple[StagedEntry, Row] | None:
        """The entry of a resource as it was, and its row of `past`, by all that is stated; None: it was not there."""
        changes = [row for row in rows if row.change is not None]
        told = [ToldChange(row.low, row.high, row.change or "", row.n) for row in changes]
        seen = self._sightings | {
            row.document: Sighting(row.low, row.high, row.n) for row in rows if row.change is None
        }
        # what proves most comes first; then what is of before the moment, the earliest first
        order = sorted(seen.items(), key=lambda one: (one[0] != self._first, one[1].at > self.moment, one[1].at))
        state = state_at(self.moment, told, [sighting for _, sighting in order], self.coverage)
        if state.kind == ABSENT:
            return None
        if state.kind >= LISTED:
            own = next(row.entry for row in rows if row.n == state.row)
        else:
            refused = max(row.entry.refused for row in changes or rows)
            own = StagedEntry(rows[0].entry.uri, None, None, None, None, None, None, None, None, refused)
        entry = own._replace(links=_all_links(own.links, rows))
        before = max((change.low for change in told if change.high <= self.moment), default=None)
        since = second_before(self.moment)
        has_rested = not any(change.low <= self.moment and change.high > since for change in told)
        is_present = self._is_present(state, entry, rows)
        return entry, (entry.uri, state.kind, before, state.changed_after, is_present, has_rested)

    def _is_present(self, state: StateAt, entry: StagedEntry, rows: list[_Stated]) -> bool:
        """Whether the present list has the state, by its hash, or, where there is none, by all changes since.

        What has no hash, and of which a change may be told nowhere, is asked for as it was.
        """
        now = next((row for row in rows if row.change is None and row.document == PRESENT), None)
        if now is None or state.kind < LISTED:
            return False
        is_told = state.changed_after is None and self._first == PRESENT
        return is_told if entry.hash is None else entry.hash == now.entry.hash
