"""The manifest of one package, read for what it lists: the one inside counts, a copy beside it saves its octets.

Where the copy (`contents`) has the same entries as the manifest inside, the package is read no further than that. Else
the manifest inside is taken, and, where the dump states a hash of the package, only after that has been verified: a
list that is believed may say what is to be deleted (DST-P1, DST-P2).
"""

from __future__ import annotations

import contextlib
import datetime as dt
import tempfile
from collections.abc import Callable, Sequence
from hashlib import blake2b
from pathlib import Path

import msgspec

from headwater.errors import SourceFault
from headwater.packages.faults import NeedsDirectory
from headwater.packages.limits import PackageLimits
from headwater.packages.zip_stream import WholeMember
from headwater.spec.kinds import Kind
from headwater.spec.records import Document, Entry
from headwater.sync.lists.documents import DocumentRead, Documents
from headwater.sync.network.fetch import Objection
from headwater.sync.packages.dump_documents import ListedPackage
from headwater.sync.packages.manifests import MANIFESTS, ManifestReader, tell_moments
from headwater.sync.packages.members import read_file, read_stream
from headwater.sync.packages.package_download import PackageDownload, PackageUnavailable
from headwater.sync.state.validators import Validators

MOST_UNDECIDED = 20_000
"""Entries that come before the root's rs:md, against schema order, and must wait for it."""

_FILE = "manifest-package.zip"
"""A file among the temporary ones, which a later run removes should this one be killed."""

Take = Callable[[Document, list[Entry]], None]


class ManifestRead(msgspec.Struct, frozen=True, kw_only=True):
    """A manifest that was read to its end, and what tells this state of its package from another."""

    document: Document
    count: int
    skipped: int
    octets: int
    """Octets of the package that were taken for it."""

    digest: str
    validators: Validators


class ManifestConsumer:
    """Who takes the entries of a manifest; `begin` forgets those of an earlier try."""

    def __init__(self, begin: Callable[[], None], take: Take) -> None:
        self.begin = begin
        self.take = take


class PackageManifest:
    """Reads the manifest of one package of a dump of `kind`. `temp`: a folder for a package that needs a file."""

    def __init__(
        self,
        documents: Documents,
        package: ListedPackage,
        kind: Kind,
        objection: Objection | None,
        temp: str | None = None,
    ) -> None:
        self._documents = documents
        self._package = package
        self._kind = kind
        self._objection = objection
        self._temp = temp

    def read(self, consumer: ManifestConsumer, held: Validators | None = None) -> ManifestRead:
        """Give the entries of the manifest to `consumer`.

        `held`: validators of the package's state that is known. Raises PackageUnchanged where it is still in that
        state, and a SourceFault where there is no manifest to be believed; entries of the copy beside it may have
        been given all the same, and tell what might be there.
        """
        consumer.begin()
        beside = self._beside(consumer) if self._package.contents is not None else None
        if beside is not None:
            inside = self._inside(_Entries(None), held, to_the_end=False)
            if inside.digest == beside:
                return inside
            told = "the manifest beside a package differs from the one inside, which counts"
            self._documents.warn("DST-P2", told, self._package.uri)
            consumer.begin()
        try:
            return self._inside(
                _Entries(consumer.take, consumer.begin), held, to_the_end=self._package.digest is not None
            )
        except SourceFault:
            consumer.begin()
            raise

    def _beside(self, consumer: ManifestConsumer) -> str | None:
        """Take the entries of the copy; a digest of them, or None where it cannot be read as a manifest of its kind."""
        assert self._package.contents is not None
        uri = self._package.contents
        entries = _Entries(consumer.take, consumer.begin, MANIFESTS[self._kind])
        try:
            read = self._documents.read(uri, entries, objection=self._objection)
        except SourceFault as fault:
            self._documents.warn("DST-P2", f"the manifest beside a package cannot be read: {fault.what}", uri)
            consumer.begin()
            return None
        if not isinstance(read, DocumentRead) or read.document.kind is not MANIFESTS[self._kind]:
            self._documents.warn("DST-P2", "there is no manifest beside a package, where its dump says", uri)
            consumer.begin()
            return None
        return entries.digest(read.document)

    def _inside(self, entries: _Entries, held: Validators | None, *, to_the_end: bool) -> ManifestRead:
        """Take the entries of the manifest inside, while the package arrives, or from a file where that cannot be."""
        download = PackageDownload(self._documents.transport, self._package, self._objection, held)
        reading = self._reading(entries, to_the_end=to_the_end)
        try:
            with contextlib.closing(download.chunks()) as chunks:
                read_stream(chunks, reading, PackageLimits(), manifest_first=False)
        except _Enough:
            pass
        except (NeedsDirectory, PackageUnavailable) as fault:
            if isinstance(fault, PackageUnavailable) and not fault.passing:
                raise
            entries.begin()
            download = PackageDownload(self._documents.transport, self._package, self._objection)
            reading = self._reading(entries, to_the_end=False)
            self._from_file(download, reading)
        finally:
            self._documents.requests += download.requests
            self._documents.octets += download.octets
        document = reading.reader.document
        assert document is not None
        tell_moments(self._documents.warn, self._package, document)
        return ManifestRead(
            document=document,
            count=reading.reader.count,
            skipped=reading.reader.skipped,
            octets=download.octets,
            digest=entries.digest(document),
            validators=download.validators,
        )

    def _from_file(self, download: PackageDownload, reading: _ManifestOnly) -> None:
        with contextlib.ExitStack() as stack:
            folder = self._temp or stack.enter_context(tempfile.TemporaryDirectory(prefix="headwater-"))
            path = Path(folder) / _FILE
            stack.callback(path.unlink, missing_ok=True)
            download.into(str(path))
            try:
                read_file(str(path), reading, PackageLimits())
            except _Enough:
                return

    def _reading(self, entries: _Entries, *, to_the_end: bool) -> _ManifestOnly:
        return _ManifestOnly(ManifestReader(self._package.uri, MANIFESTS[self._kind]), entries, to_the_end=to_the_end)


class _Enough(Exception):
    """The manifest is whole, and nothing else of the package is needed."""


class _Entries:
    """Passes the entries of one manifest on, and digests them; also an `EntryConsumer` of the copy beside it."""

    def __init__(self, take: Take | None, begin: Callable[[], None] | None = None, kind: Kind | None = None) -> None:
        self._take = take
        self._begin = begin
        self._kind = kind
        self._digest = blake2b(digest_size=16)

    def begin(self) -> None:
        self._digest = blake2b(digest_size=16)
        if self._begin is not None:
            self._begin()

    def take(self, document: Document, entries: list[Entry]) -> None:
        if self._kind is not None and document.kind is not self._kind:
            return  # told when it has been read
        self._digest.update(_LINES.encode_lines([_listed(entry) for entry in entries]))
        if self._take is not None:
            self._take(document, entries)

    def digest(self, document: Document) -> str:
        """Of the entries and the times of the head."""
        digest = self._digest.copy()
        moments = (document.at, document.completed, document.from_, document.until)
        digest.update(" ".join(map(str, moments)).encode())
        return digest.hexdigest()


class _ManifestOnly:
    """Takes the manifest of a package, and passes over its members (a `MemberConsumer`)."""

    def __init__(self, reader: ManifestReader, entries: _Entries, *, to_the_end: bool) -> None:
        self.reader = reader
        self._entries = entries
        self._to_the_end = to_the_end
        self._waiting: list[Entry] = []

    def manifest(self, octets: bytes) -> None:
        self._pass(self.reader.feed(octets))

    def manifest_end(self) -> None:
        self._pass(self.reader.close())
        if not self._to_the_end:
            raise _Enough

    def _pass(self, entries: list[Entry]) -> None:
        self._waiting += entries
        document = self.reader.document
        if document is None:
            if len(self._waiting) > MOST_UNDECIDED:
                raise SourceFault("the root's rs:md comes after too many entries", rule="AMB-04")
        elif self._waiting:
            waiting, self._waiting = self._waiting, []
            self._entries.take(document, waiting)

    def small(self, members: Sequence[WholeMember]) -> None:
        """Members, which are not wanted here."""

    def begin(self, name: str) -> bool:
        return False

    def block(self, octets: bytes) -> None:
        """Octets of a large member, which is not wanted here."""

    def end(self) -> None:
        """The end of one."""


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
