"""The archives of a source (RS-ARC): which past documents it still offers, and of which periods they tell all changes.

A Change List tells of the changes from its `from` on, up to its `until` (AMB-11): of two lists that follow each other
without a hole the second begins where the first ends, or earlier. Whether that is so only the times tell (RS-ARC-19);
all are the source's, in whole microseconds. An archive is read whole, with the components of its index, within bounds.
Nothing is believed that could lead elsewhere: entries out of scope, open lists and the archive itself are left out, and
a person is told.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeVar

import msgspec

from headwater.errors import SourceFault
from headwater.spec.kinds import RULES, Kind, Root
from headwater.spec.records import Document, Entry
from headwater.sync.connection import Unreachable, WrongDocument
from headwater.sync.lists.documents import DocumentRead, ListDocuments, read_head
from headwater.sync.lists.entries import ListContext
from headwater.sync.lists.position import IndexedList, is_past
from headwater.sync.source_times import format_micros, last_micros, micros
from headwater.transport.fetch import Objection

# the periods of which lists tell


class ListedDocument(IndexedList, frozen=True, kw_only=True):
    """A Resource List, Change List or dump as an archive, an index or its own head tells of it.

    A snapshot has `at`, and `completed` where that is stated; a list of changes has `from_`, and `until` unless it is
    the open one, which is never in an archive (RS-ARC-26).
    """

    at: int | None = None
    completed: int | None = None


class ToldPeriods(msgspec.Struct, frozen=True):
    """The periods of which every change is told: apart from each other, in order, both ends included."""

    periods: tuple[tuple[int, int], ...] = ()

    @classmethod
    def of(cls, lists: Iterable[tuple[int, int]]) -> ToldPeriods:
        """The periods that Change Lists from `from` to `until` cover.

        A change at the very `until` of a list may stand in the next one alone (AMB-11): only where there is none that
        begins later the end belongs to it.
        """
        merged: list[tuple[int, int]] = []
        for begin, end in sorted(lists):
            if merged and begin <= merged[-1][1]:
                merged[-1] = merged[-1][0], max(end, merged[-1][1])
            else:
                merged.append((begin, end))
        whole = [(begin, end - 1) for begin, end in merged[:-1]] + merged[-1:]
        return cls(tuple((begin, end) for begin, end in whole if begin <= end))

    def tells(self, after: int, until: int) -> bool:
        """Whether all changes later than `after`, up to and with `until`, are told."""
        return after >= until or any(begin <= after + 1 and until <= end for begin, end in self.periods)

    def hole(self, after: int, until: int) -> tuple[int, int] | None:
        """The first part of a period of which the changes are not told: later than one moment, up to another."""
        for begin, end in self.periods:
            if begin > after + 1:
                break
            after = max(after, end)
        if after >= until:
            return None
        later = [begin - 1 for begin, _ in self.periods if begin > after]
        return after, min([until, *later])

    @classmethod
    def of_lists(cls, lists: Iterable[IndexedList]) -> ToldPeriods:
        """The periods that these Change Lists cover; one without `from` covers none."""
        return cls.of((one.from_, _NEVER if one.until is None else one.until) for one in lists if one.from_ is not None)


def shortfall(promised: IndexedList, document: Document, parts: Sequence[IndexedList]) -> WrongDocument | None:
    """The fault of an archived list that covers less than its archive `promised` (RS-ARC-27); None if it does not.

    `parts`: the lists that it names, where it is an index.
    """
    own = IndexedList(promised.uri, micros(document.from_), last_micros(document.until) if document.until else None)
    if promised.until is not None and own.until is None:
        return WrongDocument("the archived list is open", where=own.uri, rule="RS-ARC-26")
    is_late = own.from_ is None or promised.from_ is None or own.from_ > promised.from_
    if is_late or (own.until is not None and promised.until is not None and own.until < promised.until):
        return WrongDocument("the archived list tells of less than its archive says", where=own.uri, rule="RS-ARC-27")
    if document.kind is not Kind.CHANGE_LIST_INDEX or promised.from_ is None or promised.until is None:
        return None
    if ToldPeriods.of_lists(parts).hole(promised.from_ - 1, promised.until - 1) is not None:
        return WrongDocument("the archived index leaves out changes", where=own.uri, rule="RS-ARC-19")
    return None


_NEVER = 1 << 62
_List = TypeVar("_List", bound=IndexedList)


def touching(lists: Sequence[_List], after: int, until: int) -> list[_List]:
    """The Change Lists whose interval can hold changes of a period, or that state none (DST-5.1, AMB-11)."""
    return [one for one in lists if _may_hold(one, after, until)]


def _may_hold(one: IndexedList, after: int, until: int) -> bool:
    if one.from_ is not None and one.from_ > until:
        return False
    return one.until is None or not is_past(one.until, after)


# the reader of archives

RESOURCE_LIST_ARCHIVE, CHANGE_LIST_ARCHIVE = "resourcelist-archive", "changelist-archive"
RESOURCE_DUMP_ARCHIVE, CHANGE_DUMP_ARCHIVE = "resourcedump-archive", "changedump-archive"
"""The capabilities of archives, as a Capability List names them (RS-ARC-01)."""

ARCHIVES = (RESOURCE_LIST_ARCHIVE, CHANGE_LIST_ARCHIVE, RESOURCE_DUMP_ARCHIVE, CHANGE_DUMP_ARCHIVE)

MOST_ARCHIVED = 100_000
MOST_COMPONENTS = 1_000
"""Bounds on what is held of one archive, and on what is asked for."""

MOST_HEADS = 500
"""So many documents are looked at whose times the archive does not tell."""

_INDEXES = tuple(kind for kind in Kind if RULES[kind].root is Root.SITEMAPINDEX)
_OF_CHANGES = (CHANGE_LIST_ARCHIVE, CHANGE_DUMP_ARCHIVE)


def read_archive(
    documents: ListDocuments, uri: str, capability: str, objection: Objection
) -> tuple[ListedDocument, ...]:
    """Read the archive of this `capability` at `uri` whole, and return what it lists, each document once.

    Raises SourceFault where that cannot be done. `objection`: what the scope says of an address. Times that the archive
    does not state are looked up in the heads of MOST_HEADS such documents (RS-ARC-19), of more than that of those with
    the latest `lastmod`: a gap is one of late changes. One whose times are unknown then is left out.
    """
    read, entries = _read(documents, _Entries(capability, uri), objection)
    own = {uri, read.final}
    if read.document.kind in _INDEXES:
        entries, parts = _components(documents, (uri, read.final), entries, capability, objection)
        own |= parts
    if len(entries) > MOST_HEADS:
        entries = sorted(entries, key=lambda one: micros(one.lastmod) or 0, reverse=True)
    heads = _Heads(documents, objection)
    found: dict[str, ListedDocument | None] = {}
    for entry in entries:
        if entry.loc in own:
            documents.warn("RS-ARC-13", "an archive lists itself: the entry is left out", entry.loc)
        elif (refused := objection(entry.loc)) is not None:
            documents.warn("DST-S12", f"an archived document is left out: {refused}", entry.loc)
        elif entry.loc not in found:
            found[entry.loc] = _usable(listed(entry), heads, of_changes=capability in _OF_CHANGES)
    return tuple(one for one in found.values() if one is not None)


def _usable(one: ListedDocument, heads: _Heads, *, of_changes: bool) -> ListedDocument | None:
    """The document with its times, those of its own head where the archive does not state them; None without any."""
    if not _is_timed(one, of_changes=of_changes):
        one = heads.with_times(one)
    if not _is_timed(one, of_changes=of_changes):
        what = "an open list is in an archive" if one.from_ is not None else "an archived document has no times"
        heads.documents.warn("RS-ARC-26", f"{what}: it is left out", one.uri)
    elif one.from_ is not None and one.until is not None and one.until < one.from_:
        heads.documents.warn("RS-TIME-10", "an archived list ends before it begins: it is left out", one.uri)
    else:
        return one
    return None


def _is_timed(one: ListedDocument, *, of_changes: bool) -> bool:
    return (one.from_ is not None and one.until is not None) if of_changes else one.at is not None


class _Heads:
    """The heads of archived documents, as many as may be looked at."""

    def __init__(self, documents: ListDocuments, objection: Objection) -> None:
        self.documents = documents
        self._objection = objection
        self._left = MOST_HEADS

    def with_times(self, one: ListedDocument) -> ListedDocument:
        """The document with the times of its own head."""
        if not self._left:
            return one
        self._left -= 1
        try:
            head = read_head(self.documents, one.uri, self._objection)
        except SourceFault:
            return one
        return one if head is None else _with_times(one.uri, head)


def _components(
    documents: ListDocuments, index: tuple[str, str], parts: Sequence[Entry], capability: str, objection: Objection
) -> tuple[list[Entry], set[str]]:
    """The entries of all components, and the addresses of these.

    An index whose first entry is a document itself is the archive: DSpace lists its Change Lists so.
    """
    entries: list[Entry] = []
    seen = set(index)
    for part in parts:
        if part.loc in index:
            raise WrongDocument("an archive index lists itself", where=part.loc, rule="RS-ARC-21")
        if part.loc in seen:
            continue
        consumer = _Entries(capability, part.loc)
        try:
            read, found = _read(documents, consumer, objection)
        except WrongDocument:
            if part is not parts[0] or not consumer.is_listed_document:
                raise
            documents.warn("RS-ARC-21", "an archive index names documents, not archives: read as an archive", index[0])
            return list(parts), set()
        if len(parts) > MOST_COMPONENTS:
            raise SourceFault(
                f"an archive index of more than {MOST_COMPONENTS:,} archives", where=index[0], rule="RS-ARC-20"
            )
        if read.document.kind in _INDEXES:
            raise WrongDocument("an archive index in an archive index", where=part.loc, rule="RS-ARC-21")
        seen |= {part.loc, read.final}
        entries += found
        if len(entries) > MOST_ARCHIVED:
            raise _too_many(index[0])
    return entries, seen


def _read(documents: ListDocuments, consumer: _Entries, objection: Objection) -> tuple[DocumentRead, list[Entry]]:
    read = documents.read(consumer.uri, consumer, objection=objection)
    if not isinstance(read, DocumentRead):
        raise Unreachable("the archive is not there", where=consumer.uri, rule="DST-F1")
    consumer.check(read.document)
    return read, consumer.entries


class _Entries:
    """Holds the entries of one archive document (an `EntryConsumer`)."""

    def __init__(self, capability: str, uri: str) -> None:
        self._capability = capability
        self.uri = uri
        self.entries: list[Entry] = []
        self.is_listed_document = False

    def begin(self) -> None:
        self.entries = []

    def take(self, document: Document, entries: list[Entry]) -> None:
        self.check(document)
        self.entries += entries
        if len(self.entries) > MOST_ARCHIVED:
            raise _too_many(self.uri)

    def check(self, document: Document) -> None:
        """Check that the document is the expected archive. Raises WrongDocument."""
        if RULES[document.kind].capability != self._capability:
            found = document.kind.value
            self.is_listed_document = RULES[document.kind].capability == self._capability.removesuffix("-archive")
            raise WrongDocument(f"it is no {self._capability} but a {found}", where=self.uri, rule="RS-ARC-01")


def _too_many(uri: str) -> SourceFault:
    return SourceFault(f"an archive of more than {MOST_ARCHIVED:,} documents", where=uri, rule="RS-ARC-25")


def listed(entry: Entry) -> ListedDocument:
    """A document with the times that an entry tells of it."""
    return _with_times(entry.loc, entry)


def _with_times(uri: str, told: Entry | Document) -> ListedDocument:
    return ListedDocument(
        uri=uri,
        at=micros(told.at),
        completed=micros(told.completed),
        from_=micros(told.from_),
        until=None if told.until is None else last_micros(told.until),
    )


def lists_over_gap(context: ListContext, uri: str, after: int, begin: int) -> list[ListedDocument] | None:
    """The lists of the archive at `uri` that tell of all changes later than `after` and before `begin`, oldest first.

    None where there are none, or not all; then a person is told why.
    """
    documents = context.documents
    try:
        archived = read_archive(documents, uri, CHANGE_LIST_ARCHIVE, context.scope.objection)
    except SourceFault as fault:
        documents.warn("RS-ARC-34", f"the Change List Archive cannot be used: {fault.what}", uri)
        return None
    hole = ToldPeriods.of_lists(archived).hole(after, begin - 1)
    if hole is not None:
        first, last = format_micros(hole[0]), format_micros(hole[1] + 1)
        documents.warn("RS-ARC-19", f"the Change List Archive has nothing of {first} to {last}", uri)
        return None
    oldest_first = sorted(archived, key=lambda one: (one.from_ or 0, one.until or 0))
    return touching(oldest_first, after, begin)
