"""Dumps: the packages they list (RS-RD, RS-CD), the download of one, and how dumps are read as lists (DST-D).

A dump has few entries, each of a large package; they are held. For whoever reads lists, a Resource Dump is an index of
Resource Lists and a Change Dump one of Change Lists: the manifests inside the packages are the lists. So dumps are read
by the same rules: the earliest `at` is the position (AMB-24), what cannot be read makes a snapshot incomplete, and what
changes while it is read is read again (DST-F13), and a Change Dump applied is the Change List applied. Who is listed
there is all that is taken from manifests; the content comes by the packages, or one by one.
"""

import hashlib
import os
import tempfile
from collections.abc import Callable
from contextlib import nullcontext, suppress

import msgspec

from headwater.errors import SourceFault
from headwater.files.file_copies import free_octets
from headwater.quantities import human_octets
from headwater.spec.kinds import Kind
from headwater.spec.records import Document, Entry
from headwater.sync.lists.archives import MOST_ENTRIES
from headwater.sync.lists.documents import (
    GONE,
    DocumentRead,
    Documents,
    EntryConsumer,
    MissingDocument,
    UnchangedDocument,
)
from headwater.sync.state import Validators
from headwater.sync.transfer.verification import strongest_of
from headwater.transport.fetch import FailureKind, Fetch, Objection
from headwater.transport.transport import Transport

MANIFESTS = {Kind.RESOURCE_DUMP: Kind.RESOURCE_DUMP_MANIFEST, Kind.CHANGE_DUMP: Kind.CHANGE_DUMP_MANIFEST}
"""The kind of the manifests in the packages of a dump (DST-P7)."""

# packages

LARGEST_PACKAGE = 1 << 40
"""Octets of a package whose dump states no length."""

PREFIX = "package-"
"""How the names of packages in the folder for temporary files begin."""

_KEPT_SHARE = 10
"""A package may be kept for a second reading where it takes less than this share of what is free on the disk."""


class PackageUnavailable(SourceFault):
    """A package could not be fetched whole. `status`: what HTTP says, where there was an answer."""

    code = "HW-PKG-11"
    status: int | None = None


class OtherPackage(SourceFault):
    """A package is not the one that the dump lists, by its length or its hash (DST-P1)."""

    code = "HW-PKG-12"


def fetch_package(
    transport: Transport, package: Entry, folder: str, objection: Objection, came: Callable[[int], None]
) -> str:
    """The file of a package in `folder`: as an earlier reading has left it, or fetched and held to what is listed.

    Packages pass the guard of scope as documents do (DST-S12, AMB-60). One without a listed length may take half of
    what is free on the disk, so that none that never ends fills it. `came` is called with the octets of a request.
    Raises PackageUnavailable and OtherPackage; then there is no such file.
    """
    uri, length, digest = package.loc, package.length, strongest_of(package.hash)
    name = hashlib.sha256(f"{uri}\n{length}\n{package.hash}".encode()).hexdigest()[:32]
    path = f"{folder}/{PREFIX}{name}.zip"
    if os.path.exists(path):
        return path
    if reason := objection(uri):
        raise PackageUnavailable(f"a package is not requested: {reason}", where=uri, rule="DST-S12")
    free = free_octets(folder)
    if length is not None and length > free:
        what = f"a package of {human_octets(length)} has no room on the disk"
        raise PackageUnavailable(what, where=uri, rule="DST-P6")
    algorithms = (digest.algorithm,) if digest is not None else ()
    most = length if length is not None else min(LARGEST_PACKAGE, free // 2)
    fetched = transport.one(Fetch(uri, into=path, algorithms=algorithms, max_octets=most, objection=objection))
    came(fetched.octets)
    other = ""
    if fetched.failure is not None:
        if fetched.failure.kind is not FailureKind.TOO_LARGE:
            raise PackageUnavailable(f"a package cannot be fetched: {fetched.failure.text}", where=uri, rule="DST-F1")
        if length is None:
            what = "a package without a listed length has no room on the disk"
            raise PackageUnavailable(what, where=uri, rule="DST-P6")
        other = fetched.failure.text
    elif fetched.status != 200:
        remove_package(path)
        fault = PackageUnavailable(
            f"a package cannot be fetched: HTTP status {fetched.status}", where=uri, rule="DST-F1"
        )
        fault.status = fetched.status
        raise fault
    elif length is not None and fetched.octets != length:
        other = f"{fetched.octets} octets came, {length} are listed"
    elif digest is not None and (found := fetched.digests[digest.algorithm]) != digest.hex:
        other = f"its {digest.algorithm} is {found}, listed is {digest.hex}"
    if other:
        remove_package(path)
        raise OtherPackage(f"a package differs from the list: {other}", where=uri, rule="DST-P1")
    return path


def remove_package(path: str) -> None:
    """Remove the file of a package."""
    with suppress(OSError):
        os.unlink(path)


def remove_kept_packages(folder: str) -> None:
    """Remove the packages whose manifests were read and whose content nobody has asked for."""
    with suppress(FileNotFoundError):
        for name in os.listdir(folder):
            if name.startswith(PREFIX):
                os.unlink(f"{folder}/{name}")


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


class _DumpEntries(msgspec.Struct):
    """Holds the entries of a dump (an `EntryConsumer`). `others` takes those of documents that are none."""

    others: EntryConsumer
    entries: list[Entry] = []

    def begin(self) -> None:
        self.entries = []
        self.others.begin()

    def take(self, document: Document, entries: list[Entry]) -> None:
        if document.kind not in MANIFESTS:
            self.others.take(_as_list(document), entries)
            return
        self.entries += entries
        if len(self.entries) > MOST_ENTRIES:
            raise SourceFault(f"a dump of more than {MOST_ENTRIES:,} packages", rule="DST-P6")


_BY_HASH = "package with "
"""How the remembered "ETag" of a package begins whose dump states a hash: that tells its states better than HTTP does,
and without a request."""


class DumpLists:
    """The documents of a source, of which those of dumps are read as lists. `temp`: a folder for temporary files, in
    which a package may be kept for the transfer that follows."""

    def __init__(self, documents: Documents, temp: str | None = None) -> None:
        self._documents = documents
        self.probe, self.warn = documents.probe, documents.warn
        self._temp = temp
        self._packages: dict[str, tuple[Entry, DocumentRead]] = {}
        """What dumps list: each package, and its dump."""

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
        held = (validators and validators.etag) or ""
        if (known := self._packages.get(uri)) is not None:
            package, dump = known
            digest = strongest_of(package.hash)
            state = None if digest is None else f"{_BY_HASH}{digest}"
            if state is not None and held == state:
                return UnchangedDocument()
            try:
                read = self._read_manifest(package, dump, consumer, objection or (lambda _uri: None))
            except PackageUnavailable as fault:
                if fault.status in GONE:
                    return MissingDocument(fault.status)
                raise
            return msgspec.structs.replace(read, etag=state)
        if held.startswith(_BY_HASH):
            return UnchangedDocument()  # the dump has just said that it is what it was
        parts = _DumpEntries(consumer)
        answer = self._documents.read(uri, parts, validators, fresh=fresh, objection=objection)
        if not isinstance(answer, DocumentRead) or answer.document.kind not in _AS_LISTS:
            return answer
        document = _as_list(answer.document)
        if answer.document.kind in MANIFESTS and parts.entries:
            self._packages |= {entry.loc: (entry, answer) for entry in parts.entries}
            # what the manifest says of its moment counts, not the dump (DST-P8)
            consumer.take(document, [msgspec.structs.replace(one, at=None, completed=None) for one in parts.entries])
        return msgspec.structs.replace(answer, document=document, own_kind=answer.document.kind)

    def _read_manifest(
        self, package: Entry, dump: DocumentRead, consumer: EntryConsumer, objection: Objection
    ) -> DocumentRead:
        """Give the entries of the manifest inside a package to `consumer`, as those of a list.

        As a list it is taken only when the package is whole and what the dump states of it: a list that is believed may
        say what is to be deleted (DST-P1, DST-P2). Raises SourceFault where there is no manifest to be believed.
        """
        from headwater.packages.package import read_package  # loaded here: most sources offer lists

        documents, kind, octets = self._documents, MANIFESTS[dump.document.kind], 0

        def came(count: int) -> None:
            nonlocal octets
            octets += count
            documents.requests += 1
            documents.octets += count

        with (
            tempfile.TemporaryDirectory(prefix="headwater-") if self._temp is None else nullcontext(self._temp) as temp
        ):
            path = fetch_package(documents.transport, package, temp, objection, came)
            try:
                consumer.begin()
                with open(path, "rb") as file:
                    inside = read_package(file, kind=kind, base_uri=package.loc)
                    for entries in inside.listed():
                        consumer.take(_list_of(inside.head, package, dump), entries)
                if os.stat(path).st_size > free_octets(temp) // _KEPT_SHARE:
                    remove_package(path)
            except SourceFault:
                remove_package(path)
                raise
        reader, document = inside.reader, _list_of(inside.head, package, dump)
        tell_moments(documents.warn, package, inside.head)
        return DocumentRead(
            uri=package.loc, final=package.loc, document=document, read_at=dump.read_at,
            count=reader.entry_count, skipped=reader.skipped_count, octets=octets,
            digest=inside.manifest_digest, own_kind=kind,
        )  # fmt: skip


def _as_list(document: Document) -> Document:
    return msgspec.structs.replace(document, kind=_AS_LISTS.get(document.kind, document.kind))


def _list_of(manifest: Document, package: Entry, dump: DocumentRead) -> Document:
    """The head of a manifest as that of a list; what it does not say of its time the dump may say."""
    if dump.document.kind is Kind.RESOURCE_DUMP:
        return msgspec.structs.replace(_as_list(manifest), at=manifest.at or package.at or dump.document.at)
    return msgspec.structs.replace(
        _as_list(manifest), from_=manifest.from_ or package.from_, until=manifest.until or package.until
    )


def tell_moments(warn: Callable[[str, str, str | None], None], package: Entry, manifest: Document) -> None:
    """What the dump says of the package's moment, the manifest should say: a difference is told (DST-P8)."""
    pairs = (("at", package.at, manifest.at), ("from", package.from_, manifest.from_))
    for name, listed, said in (*pairs, ("until", package.until, manifest.until)):
        if listed is not None and said is not None and said != listed:
            warn("DST-P8", f"the manifest of a package has another `{name}` than the dump gives for it", package.loc)
