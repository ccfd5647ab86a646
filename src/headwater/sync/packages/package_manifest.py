"""The manifest of one package, read for what it lists: the one inside counts, also where a copy lies beside it.

It is taken only when the package is whole and what the dump states of it: a list that is believed may say what is to be
deleted (DST-P1, DST-P2).
"""

from __future__ import annotations

import datetime as dt
import tempfile
from contextlib import nullcontext
from hashlib import blake2b

import msgspec

from headwater.errors import SourceFault
from headwater.packages.package import read_package
from headwater.spec.kinds import Kind
from headwater.spec.reader import Reader
from headwater.spec.records import Document, Entry
from headwater.sync.lists.documents import DocumentRead, Documents, EntryConsumer
from headwater.sync.packages.dump_documents import ListedPackage
from headwater.sync.packages.package_content import MANIFESTS, tell_moments
from headwater.sync.packages.package_download import PackageDownload
from headwater.sync.state import Validators
from headwater.transport.fetch import Objection

MOST_UNDECIDED = 20_000
"""Entries that come before the root's rs:md, against schema order, and must wait for it."""


def read_manifest(
    documents: Documents,
    package: ListedPackage,
    dump: DocumentRead,
    consumer: EntryConsumer,
    *,
    objection: Objection,
    held: Validators | None = None,
    temp: str | None = None,
) -> DocumentRead:
    """Give the entries of the manifest of a package, which `dump` lists, to `consumer`.

    `held`: validators of the package's state that is known. `temp`: a folder in which the package may be kept for the
    transfer that follows. Raises PackageUnchanged where it is still in that state, and a SourceFault where there is no
    manifest to be believed; entries of the copy beside it may have been given all the same, and tell what might be
    there.
    """
    kind = MANIFESTS[dump.document.kind]
    with tempfile.TemporaryDirectory(prefix="headwater-") if temp is None else nullcontext(temp) as folder:
        download = PackageDownload(documents.transport, package, folder, objection, held)
        try:
            download.fetch()
            document, reader, digest = _read_inside(documents, download.path, package, _Digested(consumer, kind))
            download.remove_if_large()
        except SourceFault:
            download.remove()
            consumer.begin()
            _read_beside(documents, package, _Digested(consumer, kind), objection)
            raise
        finally:
            documents.requests += download.requests
            documents.octets += download.octets
    if _read_beside(documents, package, _Digested(None, kind), objection) not in (None, digest):
        documents.warn("DST-P2", "the manifest beside a package differs from the one inside, which counts", package.uri)
    return DocumentRead(
        uri=package.uri,
        final=package.uri,
        document=document,
        etag=download.validators.etag,
        last_modified=download.validators.last_modified,
        read_at=dump.read_at,
        count=reader.entry_count,
        skipped=reader.skipped_count,
        octets=download.octets,
        moved_to=None,
        digest=digest,
        own_kind=kind,
    )


def _read_beside(documents: Documents, package: ListedPackage, entries: _Digested, objection: Objection) -> str | None:
    """Take the entries of the copy beside a package; a digest of them, or None where there is none to be read."""
    if package.contents is None:
        return None
    try:
        read = documents.read(package.contents, entries, objection=objection)
    except SourceFault as fault:
        documents.warn("DST-P2", f"the manifest beside a package cannot be read: {fault.what}", package.contents)
        entries.begin()
        return None
    if not isinstance(read, DocumentRead) or read.document.kind is not entries.kind:
        documents.warn("DST-P2", "there is no manifest beside a package, where its dump says", package.contents)
        entries.begin()
        return None
    return entries.digest(read.document)


def _read_inside(
    documents: Documents, path: str, listed: ListedPackage, digested: _Digested
) -> tuple[Document, Reader, str]:
    """Take the entries of the manifest inside: its head, the reader that has counted them, their digest.

    Raises BadPackage.
    """
    digested.begin()
    waiting: list[Entry] = []
    with open(path, "rb") as file:
        package = read_package(file, kind=digested.kind, base_uri=listed.uri)
        for entries in package.listed():
            waiting += entries
            if package.document is not None:
                digested.take(package.document, waiting)
                waiting = []
            elif len(waiting) > MOST_UNDECIDED:
                raise SourceFault("the root's rs:md comes after too many entries", rule="AMB-04")
    document = package.document
    assert document is not None
    tell_moments(documents.warn, listed, document)
    return document, package.reader, digested.digest(document)


class _Digested:
    """Passes the entries of one manifest on, and digests them (an `EntryConsumer`)."""

    def __init__(self, consumer: EntryConsumer | None, kind: Kind) -> None:
        self._consumer = consumer
        self.kind = kind
        self._digest = blake2b(digest_size=16)

    def begin(self) -> None:
        self._digest = blake2b(digest_size=16)
        if self._consumer is not None:
            self._consumer.begin()

    def take(self, document: Document, entries: list[Entry]) -> None:
        if document.kind is not self.kind:
            return  # told when it has been read
        self._digest.update(_LINES.encode_lines([_listed(entry) for entry in entries]))
        if self._consumer is not None:
            self._consumer.take(document, entries)

    def digest(self, document: Document) -> str:
        """Of the entries and the times of the head."""
        digest = self._digest.copy()
        moments = (document.at, document.completed, document.from_, document.until)
        digest.update(" ".join(map(str, moments)).encode())
        return digest.hexdigest()


def _listed(entry: Entry) -> tuple[object, ...]:
    """What an entry lists; where the octets lie in the package, only the manifest inside can tell."""
    about = (entry.loc, entry.hash, entry.length, entry.type, entry.encoding, entry.lastmod)
    return (
        *about,
        entry.change and entry.change.value,
        entry.datetime,
        [(link.rel, link.href) for link in entry.links],
    )


def _as_text(value: object) -> str:
    if isinstance(value, dt.datetime):
        return value.isoformat()
    raise NotImplementedError


_LINES = msgspec.json.Encoder(enc_hook=_as_text)
