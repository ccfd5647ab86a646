"""The archives of a source (RS-ARC): which past documents it still offers, and of which periods they tell all changes.

A Change List tells of the changes from its `from` on, up to its `until` (AMB-11): of two lists that follow each other
without a hole the second begins where the first ends, or earlier. Whether that is so only the times tell (RS-ARC-19);
all are the source's, in whole microseconds. An archive is read whole, with the components of its index, within bounds.
Nothing is believed that could lead elsewhere: entries out of scope, open lists and the archive itself are left out, and
a person is told.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

import msgspec

from headwater.errors import SourceFault
from headwater.spec.kinds import RULES, Kind, Root
from headwater.spec.records import Document, Entry
from headwater.sync.connection import Unreachable, WrongDocument
from headwater.sync.lists.documents import DocumentRead, ListDocuments
from headwater.sync.lists.entries import ListContext
from headwater.sync.lists.position import IndexedList, ToldPeriods, touching
from headwater.sync.source_times import format_micros, micros
from headwater.transport.fetch import Objection


def shortfall(promised: IndexedList, document: Document, parts: Sequence[IndexedList]) -> WrongDocument | None:
    """The fault of an archived list that covers less than its archive `promised` (RS-ARC-27); None if it does not.

    `parts`: the lists that it names, where it is an index.
    """
    own = IndexedList.of(promised.uri, document)
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


def read_archive(documents: ListDocuments, uri: str, capability: str, objection: Objection) -> tuple[IndexedList, ...]:
    """Read the archive of this `capability` at `uri` whole, and return what it lists, each document once, at its first
    place.

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
    heads = MOST_HEADS
    found: list[IndexedList] = []
    seen: set[str] = set()
    for entry in entries:
        if entry.loc in seen:
            continue
        seen.add(entry.loc)
        one, wrong = IndexedList.of(entry.loc, entry), None
        if entry.loc in own:
            wrong = "RS-ARC-13", "an archive lists itself: the entry is left out"
        elif (refused := objection(entry.loc)) is not None:
            wrong = "DST-S12", f"an archived document is left out: {refused}"
        else:
            if not _is_timed(one, capability) and heads:
                heads -= 1
                with suppress(SourceFault):
                    head = documents.probe(one.uri, most_entries=0, objection=objection).document
                    one = one if head is None else IndexedList.of(one.uri, head)
            if not _is_timed(one, capability):
                what = "an open list is in an archive" if one.from_ is not None else "an archived document has no times"
                wrong = "RS-ARC-26", f"{what}: it is left out"
            elif one.from_ is not None and one.until is not None and one.until < one.from_:
                wrong = "RS-TIME-10", "an archived list ends before it begins: it is left out"
        if wrong is None:
            found.append(one)
        else:
            documents.warn(*wrong, entry.loc)
    return tuple(found)


def _is_timed(one: IndexedList, capability: str) -> bool:
    if capability in (CHANGE_LIST_ARCHIVE, CHANGE_DUMP_ARCHIVE):
        return one.from_ is not None and one.until is not None
    return one.at is not None


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


class _Entries(msgspec.Struct):
    """Holds the entries of one archive document (an `EntryConsumer`)."""

    capability: str
    uri: str
    entries: list[Entry] = []
    is_listed_document: bool = False

    def begin(self) -> None:
        self.entries = []

    def take(self, document: Document, entries: list[Entry]) -> None:
        self.check(document)
        self.entries += entries
        if len(self.entries) > MOST_ARCHIVED:
            raise _too_many(self.uri)

    def check(self, document: Document) -> None:
        """Check that the document is the expected archive. Raises WrongDocument."""
        if RULES[document.kind].capability != self.capability:
            found = document.kind.value
            self.is_listed_document = RULES[document.kind].capability == self.capability.removesuffix("-archive")
            raise WrongDocument(f"it is no {self.capability} but a {found}", where=self.uri, rule="RS-ARC-01")


def _too_many(uri: str) -> SourceFault:
    return SourceFault(f"an archive of more than {MOST_ARCHIVED:,} documents", where=uri, rule="RS-ARC-25")


def lists_over_gap(context: ListContext, uri: str, after: int, begin: int) -> list[IndexedList] | None:
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
