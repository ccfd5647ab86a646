"""The archives of a source (RS-ARC): which past documents it still offers, and of which periods they tell all changes;
and how archives and dumps are read, which have few entries.

A Change List tells of the changes from its `from` on, up to its `until` (AMB-11): of two lists that follow each other
without a hole the second begins where the first ends, or earlier. Whether that is so only the times tell (RS-ARC-19);
all are the source's, in whole microseconds. An archive is read whole, with the components of its index, within bounds.
Nothing is believed that could lead elsewhere: entries out of scope, open lists and the archive itself are left out, and
a person is told.
"""

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
        return WrongDocument("the archived list covers less than its archive says", where=own.uri, rule="RS-ARC-27")
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

MOST_ENTRIES = 100_000
MOST_COMPONENTS = 10_000
"""Bounds on what is held of one archive or dump, and on what is asked for."""

MOST_HEADS = 500
"""So many documents are looked at whose times the archive does not tell."""


def read_archive(documents: ListDocuments, uri: str, capability: str, objection: Objection) -> tuple[IndexedList, ...]:
    """Read the archive of this `capability` at `uri` whole, and return what it lists, each document once, at its first
    place.

    Raises SourceFault where that cannot be done. `objection`: what the scope says of an address. Times that the archive
    does not state are looked up in the heads of MOST_HEADS such documents (RS-ARC-19), of more than that of those with
    the latest `lastmod`: a gap is one of late changes. One whose times are unknown then is left out.
    """
    entries, own = read_whole(documents, uri, capability, objection)
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


# documents of few entries, which are held: archives and dumps


def read_whole(
    documents: ListDocuments, uri: str, capability: str, objection: Objection
) -> tuple[list[Entry], set[str]]:
    """The entries of the document of this `capability` at `uri`, or of all components of its index; and the addresses
    of what was read. Raises SourceFault where one of them cannot be read.

    An index of archives whose first entry is a document itself is the archive: DSpace lists its Change Lists so.
    """
    entries, own, is_index = _read(documents, uri, capability, objection)
    if not is_index:
        return entries, own
    parts, entries, index = entries, [], set(own)
    for part in parts:
        if part.loc in index:
            raise WrongDocument("an index lists itself", where=part.loc, rule="AMB-65")
        if part.loc in own:
            continue
        try:
            found, addresses, is_index = _read(documents, part.loc, capability, objection)
        except _ArchivedDocument:
            if part is not parts[0]:
                raise
            documents.warn("RS-ARC-21", "an archive index names documents, not archives: read as an archive", uri)
            return parts, index
        if len(parts) > MOST_COMPONENTS:
            raise WrongDocument(f"an index of more than {MOST_COMPONENTS:,} documents", where=uri, rule="RS-LIM-04")
        if is_index:
            raise WrongDocument("an index in an index", where=part.loc, rule="AMB-65")
        own |= addresses
        entries += found
        if len(entries) > MOST_ENTRIES:
            raise _too_many(uri)
    return entries, own


def _read(
    documents: ListDocuments, uri: str, capability: str, objection: Objection
) -> tuple[list[Entry], set[str], bool]:
    """The entries of one document, its addresses, and whether it is an index."""
    consumer = _Entries(uri)
    read = documents.read(uri, consumer, objection=objection)
    if not isinstance(read, DocumentRead):
        raise Unreachable("the offered document is missing", where=uri, rule="DST-F1")
    found = RULES[read.document.kind].capability
    if found != capability:
        wrong = _ArchivedDocument if found is not None and capability == f"{found}-archive" else WrongDocument
        raise wrong(f"it is no {capability} but {read.document.called}", where=uri, rule="DST-A7")
    return consumer.entries, {uri, read.final}, RULES[read.document.kind].root is Root.SITEMAPINDEX


class _ArchivedDocument(WrongDocument):
    """What was taken for an archive is one of the documents that archives list."""


class _Entries(msgspec.Struct):
    """Holds the entries of one document (an `EntryConsumer`)."""

    uri: str
    entries: list[Entry] = []

    def begin(self) -> None:
        self.entries = []

    def take(self, _document: Document, entries: list[Entry]) -> None:
        self.entries += entries
        if len(self.entries) > MOST_ENTRIES:
            raise _too_many(self.uri)


def _too_many(uri: str) -> SourceFault:
    return SourceFault(f"more than {MOST_ENTRIES:,} entries", where=uri, rule="RS-LIM-04")
