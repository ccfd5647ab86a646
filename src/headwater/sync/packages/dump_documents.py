"""Dumps: which packages they list (RS-RD, RS-CD), and how they are read where lists are read (DST-D).

A dump has few entries, each of a large package; they are held. For whoever reads lists, a Resource Dump is an index of
Resource Lists and a Change Dump one of Change Lists: the manifests of the packages are the lists. So dumps are read by
the same rules: the earliest `at` is the position (AMB-24), what cannot be read makes a snapshot incomplete, and what
changes while it is read is read again (DST-F13), and a Change Dump applied is the Change List applied. Who is listed
there is all that is taken from manifests; the content comes by the packages, or one by one.
"""

from __future__ import annotations

import msgspec

from headwater.errors import SourceFault
from headwater.spec.kinds import Kind
from headwater.spec.records import Document, Entry
from headwater.sync.connection import Unreachable, WrongDocument
from headwater.sync.lists.documents import (
    DocumentRead,
    Documents,
    EntryConsumer,
    MissingDocument,
    UnchangedDocument,
    read_head,
)
from headwater.sync.packages.package_download import ListedPackage, PackageUnavailable, PackageUnchanged, package_of
from headwater.sync.state import Validators
from headwater.transport.fetch import Objection

MOST_PACKAGES = 100_000
MOST_COMPONENTS = 10_000
"""Bounds on what is held of one dump."""

_DUMPS = (Kind.RESOURCE_DUMP, Kind.CHANGE_DUMP)
_INDEXES = {Kind.RESOURCE_DUMP_INDEX: Kind.RESOURCE_DUMP, Kind.CHANGE_DUMP_INDEX: Kind.CHANGE_DUMP}
"""What an index is one of."""


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


def read_dump(documents: Documents, uri: str, objection: Objection) -> DumpRead:
    """Read the dump at `uri` whole. Raises SourceFault where that cannot be done.

    `objection`: what the scope says of documents and redirects.
    """
    consumer = _DumpEntries()
    kind = _read(documents, uri, consumer, objection)
    packages = consumer.entries
    if kind in _INDEXES:
        if len(packages) > MOST_COMPONENTS:
            raise SourceFault(f"an index of more than {MOST_COMPONENTS:,} dumps", where=uri, rule="DST-P6")
        packages = []
        for component in consumer.entries:
            part = _DumpEntries()
            if _read(documents, component.loc, part, objection) not in _DUMPS:
                raise WrongDocument("an index of dumps in an index of dumps", where=component.loc, rule="RS-RDI-01")
            packages += part.entries
            if len(packages) > MOST_PACKAGES:
                raise SourceFault(f"a dump of more than {MOST_PACKAGES:,} packages", where=uri, rule="DST-P6")
    return DumpRead(kind=_INDEXES.get(kind, kind), packages=tuple(map(package_of, packages)))


def _read(documents: Documents, uri: str, consumer: _DumpEntries, objection: Objection) -> Kind:
    """Read one document of a dump; its kind."""
    read = documents.read(uri, consumer, objection=objection)
    if not isinstance(read, DocumentRead):
        raise Unreachable("the dump that is offered is not there", where=uri, rule="DST-F1")
    if read.document.kind not in (*_DUMPS, *_INDEXES):
        raise WrongDocument(f"it is no dump but {read.document.called}", where=uri, rule="DST-A7")
    return read.document.kind


class _DumpEntries:
    """Holds the entries of a dump, which are few (an `EntryConsumer`). `others` takes those of documents that are none;
    without it all are held."""

    def __init__(self, others: EntryConsumer | None = None) -> None:
        self._others = others
        self.entries: list[Entry] = []

    def begin(self) -> None:
        self.entries = []
        if self._others is not None:
            self._others.begin()

    def take(self, document: Document, entries: list[Entry]) -> None:
        if self._others is not None and document.kind not in _DUMPS:
            self._others.take(as_list(document), entries)
            return
        self.entries += entries
        if len(self.entries) > MOST_PACKAGES:
            raise SourceFault(f"a dump of more than {MOST_PACKAGES:,} packages", rule="DST-P6")


# dumps read as lists

_AS_LISTS = {
    Kind.RESOURCE_DUMP: Kind.RESOURCE_LIST_INDEX,
    Kind.RESOURCE_DUMP_INDEX: Kind.RESOURCE_LIST_INDEX,
    Kind.CHANGE_DUMP: Kind.CHANGE_LIST_INDEX,
    Kind.CHANGE_DUMP_INDEX: Kind.CHANGE_LIST_INDEX,
    Kind.RESOURCE_DUMP_MANIFEST: Kind.RESOURCE_LIST,
    Kind.CHANGE_DUMP_MANIFEST: Kind.CHANGE_LIST,
}
"""What each document of a dump is as a list."""

_BY_HASH = "package with "
"""How the remembered "ETag" of a package begins whose dump states a hash: that tells its states better than HTTP does,
and without a request."""

_GONE = (404, 410)


class _KnownPackage(msgspec.Struct, frozen=True):
    """A package as its dump lists it, and that dump."""

    entry: Entry
    dump: DocumentRead


class DumpLists:
    """The documents of a source, of which those of dumps are read as lists. `temp`: a folder for temporary files."""

    def __init__(self, documents: Documents, temp: str | None = None) -> None:
        self._documents = documents
        self.probe, self.warn = documents.probe, documents.warn
        self._temp = temp
        self._packages: dict[str, _KnownPackage] = {}

    def read(
        self,
        uri: str,
        consumer: EntryConsumer,
        validators: Validators | None = None,
        *,
        fresh: bool = False,
        objection: Objection | None = None,
    ) -> DocumentRead | UnchangedDocument | MissingDocument:
        """`Documents.read`; a dump is an index of its packages, a package the list that its manifest is."""
        if (known := self._packages.get(uri)) is not None:
            return self._package(known, consumer, validators, objection)
        if validators is not None and (validators.etag or "").startswith(_BY_HASH):
            return UnchangedDocument(uri)  # the dump has just said that it is what it was
        parts = _DumpEntries(consumer)
        answer = self._documents.read(uri, parts, validators, fresh=fresh, objection=objection)
        if not isinstance(answer, DocumentRead) or answer.document.kind not in _AS_LISTS:
            return answer
        document = as_list(answer.document)
        if answer.document.kind in _DUMPS:
            entries = [self._component(entry, answer, objection) for entry in parts.entries]
            if entries:
                consumer.take(document, entries)
        return msgspec.structs.replace(answer, document=document, own_kind=answer.document.kind)

    def _component(self, entry: Entry, dump: DocumentRead, objection: Objection | None) -> Entry:
        """A package as a component of an index. What the manifest says of its moment counts, not the dump (DST-P8)."""
        if dump.document.kind is Kind.CHANGE_DUMP and entry.from_ is None and entry.until is None:
            head = self._head(entry, objection)
            entry = msgspec.structs.replace(entry, from_=head.from_, until=head.until) if head is not None else entry
        self._packages[entry.loc] = _KnownPackage(entry, dump)
        return msgspec.structs.replace(entry, at=None, completed=None)

    def _head(self, entry: Entry, objection: Objection | None) -> Document | None:
        """The head of the manifest beside a package whose dump does not say which changes it holds (DST-D)."""
        contents = entry.link("contents")
        if contents is None:
            return None
        try:
            return read_head(self._documents, contents.href, objection)
        except SourceFault:
            return None  # told when the package is read

    def _package(
        self, known: _KnownPackage, consumer: EntryConsumer, held: Validators | None, objection: Objection | None
    ) -> DocumentRead | UnchangedDocument | MissingDocument:
        # imported here: they take long to load, and most sources offer lists
        from headwater.sync.packages.package_content import read_manifest

        package = package_of(known.entry)
        validators = _by_hash(package)
        if held is not None and validators is not None and held == validators:
            return UnchangedDocument(package.uri)
        if held is not None and (validators is not None or (held.etag or "").startswith(_BY_HASH)):
            held = None
        listed = _ManifestAsList(consumer, known)
        try:
            read = read_manifest(
                self._documents, package, known.dump, listed, objection=objection or _nothing_against, held=held,
                temp=self._temp,
            )  # fmt: skip
        except PackageUnchanged:
            return UnchangedDocument(package.uri)
        except PackageUnavailable as fault:
            if fault.status in _GONE:
                return MissingDocument(package.uri, fault.status)
            raise
        read = msgspec.structs.replace(read, document=_list_of(read.document, known))
        if validators is None:
            return read
        return msgspec.structs.replace(read, etag=validators.etag, last_modified=validators.last_modified)


def as_list(document: Document) -> Document:
    """The head of a document of a dump as that of a list."""
    return msgspec.structs.replace(document, kind=_AS_LISTS.get(document.kind, document.kind))


def _list_of(manifest: Document, known: _KnownPackage) -> Document:
    """The head of a manifest as that of a list; what it does not say of its time the dump may say."""
    entry, dump = known.entry, known.dump.document
    if dump.kind is Kind.RESOURCE_DUMP:
        return msgspec.structs.replace(as_list(manifest), at=manifest.at or entry.at or dump.at)
    return msgspec.structs.replace(
        as_list(manifest), from_=manifest.from_ or entry.from_, until=manifest.until or entry.until
    )


def _by_hash(package: ListedPackage) -> Validators | None:
    digest = package.digest
    return None if digest is None else Validators(f"{_BY_HASH}{digest.algorithm}:{digest.hex}")


def _nothing_against(_uri: str) -> None:
    """No scope bounds what is asked for."""


class _ManifestAsList:
    """Passes the entries of a manifest on as those of a list (an `EntryConsumer`)."""

    def __init__(self, consumer: EntryConsumer, known: _KnownPackage) -> None:
        self.begin = consumer.begin
        self._consumer = consumer
        self._known = known

    def take(self, document: Document, entries: list[Entry]) -> None:
        self._consumer.take(_list_of(document, self._known), entries)
