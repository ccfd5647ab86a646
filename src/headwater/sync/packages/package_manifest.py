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
from headwater.spec.records import Document, Entry
from headwater.sync.lists.documents import DocumentRead, Documents, EntryConsumer
from headwater.sync.packages.dump_documents import ListedPackage
from headwater.sync.packages.package_content import MANIFESTS, tell_moments
from headwater.sync.packages.package_download import PackageDownload
from headwater.sync.state.validators import Validators
from headwater.transport.fetch import Objection

MOST_UNDECIDED = 20_000
"""Entries that come before the root's rs:md, against schema order, and must wait for it."""


class ManifestRead(msgspec.Struct, frozen=True, kw_only=True):
    """A manifest that was read to its end, and what tells this state of its package from another."""

    document: Document
    count: int
    skipped: int
    octets: int
    """Octets of the package that were fetched for it."""

    digest: str
    validators: Validators


def read_manifest(
    documents: Documents,
    package: ListedPackage,
    kind: Kind,
    consumer: EntryConsumer,
    *,
    objection: Objection,
    held: Validators | None = None,
    temp: str | None = None,
) -> ManifestRead:
    """Give the entries of the manifest of a package, of a dump of this kind, to `consumer`.

    `held`: validators of the package's state that is known. `temp`: a folder in which the package may be kept for the
    transfer that follows. Raises PackageUnchanged where it is still in that state, and a SourceFault where there is no
    manifest to be believed; entries of the copy beside it may have been given all the same, and tell what might be
    there.
    """
    consumer.begin()
    beside = None if package.contents is None else _read_beside(documents, package.contents, kind, consumer, objection)
    with tempfile.TemporaryDirectory(prefix="headwater-") if temp is None else nullcontext(temp) as folder:
        download = PackageDownload(documents.transport, package, folder, objection, held)
        try:
            download.fetch()
            inside = _read_inside(documents, download, package, kind, None if beside else consumer)
            if beside is not None and inside.digest != beside:
                told = "the manifest beside a package differs from the one inside, which counts"
                documents.warn("DST-P2", told, package.uri)
                inside = _read_inside(documents, download, package, kind, consumer)
            download.remove_if_large()
        except SourceFault:
            download.remove()
            raise
        finally:
            documents.requests += download.requests
            documents.octets += download.octets
    return inside


def _read_beside(
    documents: Documents, uri: str, kind: Kind, consumer: EntryConsumer, objection: Objection
) -> str | None:
    """Take the entries of the copy; a digest of them, or None where it cannot be read as a manifest of its kind."""
    entries = _Digested(consumer, MANIFESTS[kind])
    try:
        read = documents.read(uri, entries, objection=objection)
    except SourceFault as fault:
        documents.warn("DST-P2", f"the manifest beside a package cannot be read: {fault.what}", uri)
        consumer.begin()
        return None
    if not isinstance(read, DocumentRead) or read.document.kind is not MANIFESTS[kind]:
        documents.warn("DST-P2", "there is no manifest beside a package, where its dump says", uri)
        consumer.begin()
        return None
    return entries.digest(read.document)


def _read_inside(
    documents: Documents, download: PackageDownload, listed: ListedPackage, kind: Kind, consumer: EntryConsumer | None
) -> ManifestRead:
    """Take the entries of the manifest inside; without a consumer, only digest them. Raises BadPackage."""
    digested = _Digested(consumer, MANIFESTS[kind])
    digested.begin()
    waiting: list[Entry] = []
    try:
        with open(download.path, "rb") as file:
            package = read_package(file, kind=MANIFESTS[kind], base_uri=listed.uri)
            for entries in package.listed():
                waiting += entries
                if package.document is not None:
                    digested.take(package.document, waiting)
                    waiting = []
                elif len(waiting) > MOST_UNDECIDED:
                    raise SourceFault("the root's rs:md comes after too many entries", rule="AMB-04")
    except SourceFault:
        digested.begin()
        raise
    document = package.document
    assert document is not None
    tell_moments(documents.warn, listed, document)
    return ManifestRead(
        document=document,
        count=package.reader.entry_count,
        skipped=package.reader.skipped_count,
        octets=download.octets,
        digest=digested.digest(document),
        validators=download.validators,
    )


class _Digested:
    """Passes the entries of one manifest on, and digests them (an `EntryConsumer`)."""

    def __init__(self, consumer: EntryConsumer | None, kind: Kind) -> None:
        self._consumer = consumer
        self._kind = kind
        self._digest = blake2b(digest_size=16)

    def begin(self) -> None:
        self._digest = blake2b(digest_size=16)
        if self._consumer is not None:
            self._consumer.begin()

    def take(self, document: Document, entries: list[Entry]) -> None:
        if document.kind is not self._kind:
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
