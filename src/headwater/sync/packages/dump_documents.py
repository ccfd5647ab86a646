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

_DUMPS = (Kind.RESOURCE_DUMP, Kind.CHANGE_DUMP)
_INDEXES = {Kind.RESOURCE_DUMP_INDEX: Kind.RESOURCE_DUMP, Kind.CHANGE_DUMP_INDEX: Kind.CHANGE_DUMP}
"""What an index is one of."""


class ListedPackage(msgspec.Struct, frozen=True, kw_only=True):
    """One entry of a dump: a package, and what the dump says of it. Times are microseconds of the source's clock."""

    uri: str
    length: int | None = None
    hash: str | None = None
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
    """The packages of a dump, with those of the components of its index."""

    kind: Kind
    """`RESOURCE_DUMP` or `CHANGE_DUMP`, whether there was an index or not."""

    packages: tuple[ListedPackage, ...]

    @property
    def octets(self) -> int | None:
        """Of all packages together; None where one has no listed length."""
        lengths = [package.length for package in self.packages]
        return None if None in lengths else sum(length for length in lengths if length is not None)


class _Entries:
    """Holds the entries of one document, `MOST_PACKAGES` at most (an `EntryConsumer`)."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []

    def begin(self) -> None:
        self.entries = []

    def take(self, document: Document, entries: list[Entry]) -> None:
        self.entries += entries
        if len(self.entries) > MOST_PACKAGES:
            raise SourceFault(f"a dump of more than {MOST_PACKAGES:,} packages", rule="DST-P6")


def read_dump(documents: Documents, uri: str, objection: Objection) -> DumpRead:
    """Read the dump at `uri` whole. Raises SourceFault where that cannot be done.

    `objection`: what the scope says of documents and redirects.
    """
    consumer = _Entries()
    kind = _read(documents, uri, consumer, objection)
    packages = consumer.entries
    if kind in _INDEXES:
        if len(packages) > MOST_COMPONENTS:
            raise SourceFault(f"an index of more than {MOST_COMPONENTS:,} dumps", where=uri, rule="DST-P6")
        packages = []
        for component in consumer.entries:
            part = _Entries()
            if _read(documents, component.loc, part, objection) not in _DUMPS:
                raise WrongDocument("an index of dumps in an index of dumps", where=component.loc, rule="RS-RDI-01")
            packages += part.entries
            if len(packages) > MOST_PACKAGES:
                raise SourceFault(f"a dump of more than {MOST_PACKAGES:,} packages", where=uri, rule="DST-P6")
    return DumpRead(kind=_INDEXES.get(kind, kind), packages=tuple(map(package_of, packages)))


def _read(documents: Documents, uri: str, consumer: _Entries, objection: Objection) -> Kind:
    """Read one document of a dump; its kind."""
    read = documents.read(uri, consumer, objection=objection)
    if not isinstance(read, DocumentRead):
        raise Unreachable("the dump that is offered is not there", where=uri, rule="DST-F1")
    if read.document.kind not in (*_DUMPS, *_INDEXES):
        raise WrongDocument(f"it is no dump but {read.document.called}", where=uri, rule="DST-A7")
    return read.document.kind


def package_of(entry: Entry) -> ListedPackage:
    """What an entry of a dump says of its package."""
    contents = entry.link("contents")
    return ListedPackage(
        uri=entry.loc,
        length=entry.length,
        hash=entry.hash,
        at=_moment(entry.at),
        from_=_moment(entry.from_),
        until=_moment(entry.until),
        contents=contents.href if contents is not None else None,
    )


def _moment(at: dt.datetime | None) -> int | None:
    return None if at is None else micros(at)
