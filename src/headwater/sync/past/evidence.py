"""The evidence of a set's past: reads the snapshots and the Change Lists that tell of a moment into staging tables."""

from __future__ import annotations

import time
from collections.abc import Sequence

import msgspec

from headwater.errors import SourceFault
from headwater.spec.kinds import Kind
from headwater.sync.archives.archive_documents import (
    CHANGE_DUMP_ARCHIVE,
    CHANGE_LIST_ARCHIVE,
    RESOURCE_DUMP_ARCHIVE,
    RESOURCE_LIST_ARCHIVE,
    read_archive,
)
from headwater.sync.archives.coverage import ListedDocument
from headwater.sync.lists.documents import DocumentRead
from headwater.sync.lists.entries import EntryFilter, ListContext
from headwater.sync.lists.position import IndexedList, is_past
from headwater.sync.lists.resource_lists import ResourceListRead, ResourceListReader
from headwater.sync.past import staging
from headwater.sync.past.staging import MOST_LAG, ToldChanges
from headwater.sync.past.state_at import ToldPeriods, span_of
from headwater.sync.source_times import SECOND, micros
from headwater.sync.state.set_rows import Offer


class PastDocuments(msgspec.Struct, frozen=True, kw_only=True):
    """Archived snapshots and Change Lists, and those of dumps, each in the order of its archive."""

    snapshots: tuple[ListedDocument, ...] = ()
    changes: tuple[IndexedList, ...] = ()
    resource_dumps: tuple[ListedDocument, ...] = ()
    change_dumps: tuple[IndexedList, ...] = ()
    unread: tuple[str, ...] = ()
    """Archives that cannot be read: what they tell nobody knows."""


def latest_before(snapshots: Sequence[ListedDocument], moment: int) -> ListedDocument | None:
    """The snapshot with the greatest `at` that is not later than the moment."""
    known = [one for one in snapshots if one.at is not None and one.at <= moment]
    return max(known, key=lambda one: one.at or 0, default=None)


def first_after(snapshots: Sequence[ListedDocument], moment: int) -> ListedDocument | None:
    """The snapshot with the smallest `at` that is later than the moment."""
    known = [one for one in snapshots if one.at is not None and one.at > moment]
    return min(known, key=lambda one: one.at or 0, default=None)


def touching(lists: Sequence[IndexedList], after: int, until: int) -> list[IndexedList]:
    """The Change Lists whose interval can hold changes of a period, or that state none (DST-5.1, AMB-11)."""
    return [one for one in lists if _may_hold(one, after, until)]


def _may_hold(one: IndexedList, after: int, until: int) -> bool:
    if one.from_ is not None and one.from_ > until:
        return False
    return one.until is None or not is_past(one.until, after)


def past_documents(context: ListContext, offer: Offer) -> PastDocuments:
    """What the archives that a source offers list; one that cannot be read is told of, and tells nothing."""
    unread: list[str] = []
    lists, dumps, changes, change_dumps = (
        _archived(context, offer, capability, unread)
        for capability in (RESOURCE_LIST_ARCHIVE, RESOURCE_DUMP_ARCHIVE, CHANGE_LIST_ARCHIVE, CHANGE_DUMP_ARCHIVE)
    )
    return PastDocuments(
        snapshots=lists or dumps,
        changes=_indexed(changes or change_dumps),
        resource_dumps=dumps,
        change_dumps=_indexed(change_dumps),
        unread=tuple(unread),
    )


def _archived(context: ListContext, offer: Offer, capability: str, unread: list[str]) -> tuple[ListedDocument, ...]:
    uri = offer.documents.get(capability)
    if uri is None:
        return ()
    try:
        return read_archive(context.documents, uri, capability, context.scope.objection).documents
    except SourceFault as fault:
        context.documents.warn(fault.rule or fault.code, f"an archive cannot be read: {fault.what}", uri)
        unread.append(uri)
        return ()


def _indexed(documents: Sequence[ListedDocument]) -> tuple[IndexedList, ...]:
    return tuple(IndexedList(one.uri, one.from_, one.until) for one in documents)


PRESENT = 0
"""The number of the snapshot that is the present Resource List."""

_PAUSE_SECONDS, _READ_AGAIN = 0.5, 8

_DEEPEST = 2  # an index in an index: one extra level (AMB-65)


class SnapshotRead(msgspec.Struct, frozen=True):
    """A snapshot in `temp.seen`: its number, between which moments it was so, and whether it lists all there was."""

    number: int
    at: int
    through: int
    is_whole: bool


class Evidence(msgspec.Struct, kw_only=True):
    """What was read, in staging tables, and what it covers."""

    moment: int
    documents: PastDocuments
    snapshots: list[SnapshotRead] = []
    coverage: ToldPeriods = ToldPeriods()
    skipped: list[tuple[str, int]] = []
    """Documents with entries that name no resource, and how many (DST-F5)."""

    unread: list[str] = []
    """Documents that cannot be read: what they tell nobody knows."""

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

    def hole(self) -> tuple[int, int] | None:
        """The period without a word that is in the way of the nearest snapshot: after the one, up to the other."""
        holes = [
            hole
            for one in self.snapshots
            if (hole := self.coverage.hole(*span_of(self.moment, one.at, one.through))) is not None
        ]
        return min(holes, key=lambda hole: abs(hole[0] - self.moment), default=None)


def moment_told(moment: int, begins: int | None) -> int:
    """The moment that is meant: the beginning of all that is told, for a whole second in which that lies.

    HTTP, and who reads a time from it, knows whole seconds; the second as such would be before all (AMB-26).
    """
    in_its_second = begins is not None and moment % SECOND == 0 and moment < begins < moment + SECOND
    return begins if begins is not None and in_its_second else moment


class EvidenceReader:
    """Reads what tells of one set at a moment: first what leads up to it, and all the rest where that has a hole."""

    def __init__(self, context: ListContext, offer: Offer, moment: int) -> None:
        self._context = context
        self._offer = offer
        self._moment = moment
        self._intake = EntryFilter(context.scope)
        self._visited: set[str] = set()
        self._lists = 0
        self._named: list[IndexedList] = []
        self._covered: list[tuple[int, int]] = []
        self._found = Evidence(moment=moment, documents=PastDocuments())

    def read(self) -> Evidence:
        """Read as much as is needed. What cannot be read is told of, and tells nothing."""
        found, moment = self._found, self._moment
        with self._context.database.write() as t:
            t.run(staging.TABLES)
            staging.clear(t)
        if self._offer.baseline_document is not None:
            self._snapshot(self._offer.baseline_document, PRESENT)
        found.documents = past_documents(self._context, self._offer)
        found.unread += found.documents.unread
        before = latest_before(found.documents.snapshots, moment)
        if before is not None:
            self._snapshot(before.uri, 1)
        lists = [*found.documents.changes]
        if self._offer.changes_document is not None:
            lists += self._current_lists(self._offer.changes_document)
        self._named = lists
        starts = [one.at for one in found.snapshots if one.at <= moment]
        if starts:
            self._changes(lists, max(starts), moment)
        if found.proof is None:
            after = first_after(found.documents.snapshots, moment)
            if after is not None:
                self._snapshot(after.uri, 2)
            spans = [span_of(moment, one.at, one.through) for one in found.snapshots]
            self._changes(lists, min([moment, *(low for low, _ in spans)]), max([moment, *(high for _, high in spans)]))
        found.moment = moment_told(moment, found.begins)
        self._index()
        return found

    def read_back(self) -> None:
        """Read the changes of before as well: they tell when the states were made that a snapshot has."""
        self._changes(self._named, 0, self._moment)

    def _snapshot(self, uri: str, number: int) -> None:
        context = self._context
        try:
            read = ResourceListReader(context, sitemap=self._offer.is_sitemap).read(uri)
        except SourceFault as fault:
            context.documents.warn(fault.rule or fault.code, f"a list cannot be read: {fault.what}", uri)
            self._found.unread.append(uri)
            return
        if not isinstance(read, ResourceListRead):
            context.documents.warn("DST-A7", "this is no Resource List that can be read: it is passed over", uri)
            return
        self._found.skipped += read.skipped
        with context.database.write() as t:
            staging.keep_snapshot(t, number, read.parts)
        moments = [read.at, *(part.at for part in read.parts)]
        ends = [part.through for part in read.parts if part.through is not None]
        at = min((one for one in moments if one is not None), default=None)
        if at is None:
            return
        whole = read.complete and read.settled and None not in moments and not read.skipped
        self._found.snapshots.append(SnapshotRead(number, at, max([at, *ends]), whole))

    def _current_lists(self, top: str) -> list[IndexedList]:
        """The Change Lists that are offered now; one alone is read at once."""
        return self._read(top, 0)

    def _changes(self, lists: list[IndexedList], after: int, until: int) -> None:
        for one in touching(lists, after, until):
            for part in touching(self._read(one.uri, 1), after, until):
                self._read(part.uri, _DEEPEST)
        self._found.coverage = ToldPeriods.of(self._covered)

    def _read(self, uri: str, depth: int) -> list[IndexedList]:
        """Stage one Change List, once; of an index the parts."""
        if uri in self._visited:
            return []
        self._visited.add(uri)
        self._lists += 1
        documents = self._context.documents
        told = ToldChanges(self._context, self._intake, self._lists)
        try:
            answer = documents.read(uri, told, objection=self._context.scope.objection)
            for _ in range(_READ_AGAIN):
                if not self._is_early(answer):
                    break
                time.sleep(_PAUSE_SECONDS)
                told.begin()
                answer = documents.read(uri, told, objection=self._context.scope.objection)
        except SourceFault as fault:
            told.begin()
            documents.warn(fault.rule or fault.code, f"a Change List cannot be read: {fault.what}", uri)
            self._found.unread.append(uri)
            return []
        if not isinstance(answer, DocumentRead):
            documents.warn("DST-C5", "a Change List that is named is not there", uri)
            self._found.unread.append(uri)
        elif answer.document.kind is Kind.CHANGE_LIST_INDEX and depth < _DEEPEST:
            return told.parts
        elif answer.document.kind is not Kind.CHANGE_LIST:
            documents.warn("DST-A7", f"this is {answer.document.called}, not a Change List", uri)
        else:
            if answer.skipped:
                self._found.skipped.append((uri, answer.skipped))
            if (period := told.conclude(answer)) is not None:
                self._covered.append(period)
        return []

    def _is_early(self, answer: object) -> bool:
        """Whether an open list tells less than the present list has, because `Date` has whole seconds."""
        if not isinstance(answer, DocumentRead) or answer.document.until is not None:
            return False
        now = [one.through for one in self._found.snapshots if one.number == PRESENT]
        lag = max(now, default=0) - (micros(answer.read_at) or 0)
        return answer.document.kind is Kind.CHANGE_LIST and 0 < lag < MOST_LAG

    def _index(self) -> None:
        with self._context.database.write() as t:
            t.run("CREATE INDEX IF NOT EXISTS temp.seen_uri ON seen(uri)")
            t.run("CREATE INDEX IF NOT EXISTS temp.told_uri ON told(uri)")
