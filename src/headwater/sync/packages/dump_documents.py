"""The reader of Resource Dumps and Change Dumps: which packages there are, with what is listed of each (RS-RD, RS-CD).

A dump has few entries, each of a large package; they are held. An index is read with all its components.
"""

from __future__ import annotations

import datetime as dt

import msgspec

from headwater.errors import SourceFault
from headwater.spec.hashes import Digest
from headwater.spec.kinds import Kind
from headwater.spec.records import Document, Entry
from headwater.sync.faults import Unreachable, WrongDocument
from headwater.sync.lists.documents import DocumentRead, Documents
from headwater.sync.source_times import micros
from headwater.sync.transfer.verification import strongest_of
from headwater.transport.fetch import Objection

MOST_PACKAGES = 100_000
MOST_COMPONENTS = 10_000
"""Bounds on what is held of one dump."""

_LEAVES = (Kind.RESOURCE_DUMP, Kind.CHANGE_DUMP)
_INDEXES = (Kind.RESOURCE_DUMP_INDEX, Kind.CHANGE_DUMP_INDEX)


class ListedPackage(msgspec.Struct, frozen=True, kw_only=True):
    """One entry of a dump: a package, and what the dump says of it. Times are microseconds of the source's clock."""

    uri: str
    length: int | None = None
    hash: str | None = None
    type: str | None = None
    at: int | None = None
    from_: int | None = None
    until: int | None = None
    contents: str | None = None
    """The copy of its manifest beside it (RS-RD-08, RS-CD-08)."""

    @property
    def digest(self) -> Digest | None:
        """The strongest digest that is listed and can be computed."""
        return strongest_of(self.hash)


class DumpRead(msgspec.Struct, frozen=True, kw_only=True):
    """What a dump, with the components of its index, said."""

    uri: str
    kind: Kind
    """`RESOURCE_DUMP` or `CHANGE_DUMP`, whether there was an index or not."""

    packages: tuple[ListedPackage, ...]
    at: int | None = None
    """The earliest `at` of index and components (AMB-24)."""

    from_: int | None = None
    until: int | None = None

    @property
    def octets(self) -> int | None:
        """Of all packages together; None where one has no listed length."""
        lengths = [package.length for package in self.packages]
        return None if None in lengths else sum(length for length in lengths if length is not None)


class _Entries:
    """Holds the entries of one document (an `EntryConsumer`)."""

    def __init__(self, most: int) -> None:
        self._most = most
        self.entries: list[Entry] = []

    def begin(self) -> None:
        self.entries = []

    def take(self, document: Document, entries: list[Entry]) -> None:
        if document.kind not in (*_LEAVES, *_INDEXES):
            raise WrongDocument(f"it is no dump but {document.called}", rule="DST-A7")
        self.entries += entries
        if len(self.entries) > self._most:
            raise SourceFault(f"a dump of more than {self._most:,} entries", rule="DST-P6")


def read_dump(documents: Documents, uri: str, objection: Objection) -> DumpRead:
    """Read the dump at `uri` whole. Raises SourceFault where that cannot be done.

    `objection`: what the scope says of documents and redirects.
    """
    read, entries = _read(documents, uri, objection)
    document = read.document
    if document.kind in _LEAVES:
        return _dump(read.final, document, [document], entries)
    parts: list[Document] = []
    packages: list[Entry] = []
    for component in entries:
        part, found = _read(documents, component.loc, objection)
        if part.document.kind not in _LEAVES:
            raise WrongDocument("an index of dumps in an index of dumps", where=component.loc, rule="RS-RDI-01")
        parts.append(part.document)
        packages += found
        if len(packages) > MOST_PACKAGES:
            raise SourceFault(f"a dump of more than {MOST_PACKAGES:,} packages", where=uri, rule="DST-P6")
    return _dump(read.final, document, [document, *parts], packages)


def _read(documents: Documents, uri: str, objection: Objection) -> tuple[DocumentRead, list[Entry]]:
    consumer = _Entries(MOST_PACKAGES)
    read = documents.read(uri, consumer, objection=objection)
    if not isinstance(read, DocumentRead):
        raise Unreachable("the dump that is offered is not there", where=uri, rule="DST-F1")
    if read.document.kind not in (*_LEAVES, *_INDEXES):
        raise WrongDocument(f"it is no dump but {read.document.called}", where=uri, rule="DST-A7")
    if read.document.kind in _INDEXES and len(consumer.entries) > MOST_COMPONENTS:
        raise SourceFault(f"an index of more than {MOST_COMPONENTS:,} dumps", where=uri, rule="DST-P6")
    return read, consumer.entries


def _dump(uri: str, head: Document, parts: list[Document], entries: list[Entry]) -> DumpRead:
    moments = [at for part in parts if (at := _moment(part.at)) is not None]
    is_changes = head.kind in (Kind.CHANGE_DUMP, Kind.CHANGE_DUMP_INDEX)
    return DumpRead(
        uri=uri,
        kind=Kind.CHANGE_DUMP if is_changes else Kind.RESOURCE_DUMP,
        packages=tuple(map(package_of, entries)),
        at=min(moments, default=None),
        from_=_moment(head.from_),
        until=_moment(head.until),
    )


def package_of(entry: Entry) -> ListedPackage:
    """What an entry of a dump says of its package."""
    contents = entry.link("contents")
    return ListedPackage(
        uri=entry.loc,
        length=entry.length,
        hash=entry.hash,
        type=entry.type,
        at=_moment(entry.at),
        from_=_moment(entry.from_),
        until=_moment(entry.until),
        contents=contents.href if contents is not None else None,
    )


def _moment(at: dt.datetime | None) -> int | None:
    return None if at is None else micros(at)
