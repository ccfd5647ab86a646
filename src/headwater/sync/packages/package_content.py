"""The content of one package: its manifest, read for what it lists, and the members that are wanted.

The manifest inside the package counts, also where a copy lies beside it (DST-P2). What it says of the package's moment
should be what the dump says of it (DST-P8); of another kind than the dump it makes the package unusable (DST-P7). As a
list it is taken only when the package is whole and what the dump states of it: a list that is believed may say what is
to be deleted (DST-P1, DST-P2).
"""

from __future__ import annotations

import datetime as dt
import tempfile
from collections import deque
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, nullcontext
from functools import partial
from hashlib import blake2b
from typing import NamedTuple

import msgspec

from headwater.errors import SourceFault
from headwater.packages.faults import BadPackage, PackageTooLarge
from headwater.packages.package import PackageFile, read_package
from headwater.packages.zip_format import STORED
from headwater.packages.zip_reader import ZipMember, is_small
from headwater.spec.kinds import Kind
from headwater.spec.reader import Reader
from headwater.spec.records import Document, Entry
from headwater.storage.transaction import Transaction
from headwater.sync.connection import Scope
from headwater.sync.lists.documents import DocumentRead, Documents, EntryConsumer
from headwater.sync.lists.entries import EntryFilter, canonical_hash_of
from headwater.sync.packages.package_download import ListedPackage, PackageDownload
from headwater.sync.packages.placing import MemberBlock, MemberFile, MemberPlacing
from headwater.sync.source_times import micros, mtime_ns
from headwater.sync.state import Validators
from headwater.sync.transfer.result_log import ResultLog
from headwater.sync.transfer.verification import strongest_of
from headwater.sync.transfer.work_queue import COLUMNS, ELIGIBLE, Work
from headwater.transport.fetch import Objection

Warn = Callable[[str, str, str | None], None]

MANIFESTS = {
    Kind.RESOURCE_DUMP: Kind.RESOURCE_DUMP_MANIFEST,
    Kind.CHANGE_DUMP: Kind.CHANGE_DUMP_MANIFEST,
}
"""The kind of the manifests in the packages of a dump (DST-P7)."""

_CHUNK = 2_000
"""So many files are noted as about to be placed at a time: each note waits for the disk, and a run after a kill looks
at them all."""

MOST_STATED_OCTETS = 1 << 28
"""What the entries of one manifest may take in memory (DST-P6): that of a million usual ones, whose members are in
memory too."""

_STATED_OCTETS = 160
"""What one of them takes beside its URI and hash."""

_WANTED = (
    f"SELECT {', '.join(f'w.{name}' for name in COLUMNS)} FROM json_each(?) u CROSS JOIN temp.work w"  # noqa: S608
    f" ON w.uri = u.value WHERE {ELIGIBLE}"
)


class StatedMember(NamedTuple):
    """What the manifest says of a resource, and the member with its octets."""

    member: ZipMember
    hash: str | None
    length: int | None
    lastmod: int | None
    at: int | None

    def contradicts(self, work: Work) -> bool:
        """Whether the manifest itself says that this is another state than the listed one."""
        if self.hash is None or work.hash is None or self.hash == work.hash:
            return False
        return self.hash.partition(":")[0] == work.hash.partition(":")[0]

    def is_state_of(self, work: Work, *, as_listed: bool) -> bool:
        """Whether the manifest speaks of the very state that is listed, as far as times tell.

        `as_listed`: this very manifest is what lists it.
        """
        if self.lastmod is not None and work.lastmod is not None:
            is_same = self.lastmod == work.lastmod
        else:
            is_same = self.at is not None and self.at == work.known_at
        if not as_listed:
            return is_same
        said, listed = (self.lastmod, self.length, self.hash), (work.lastmod, work.length, work.hash)
        return said == listed and (is_same or work.changed_at is None or self.at is None)


class PackageContent:
    """The content of one package, of which some is wanted."""

    def __init__(
        self,
        package: PackageFile,
        listed: ListedPackage | None,
        scope: Scope,
        warn: Warn,
        failed: Callable[[SourceFault], None],
        is_list: Callable[[], bool] = lambda: False,
    ) -> None:
        """`listed`: what a dump says of the package; None: it was made on demand. `failed` is called where a member is
        not what the package says of it. `is_list`: whether this very manifest lists what is wanted of it (DST-D).
        Raises BadPackage."""
        self._package = package
        self._listed = listed
        self._objection = scope.objection
        self._failed = failed
        self._is_list = is_list
        self._is_damaged = False
        self._states = self._read(EntryFilter(scope))
        self.unverifiable = 0
        """How many of those that are wanted have no listed hash."""

        if listed is not None:
            assert package.document is not None
            tell_moments(warn, listed, package.document)
            self._tell_problems(warn, listed)

    def _read(self, uris: EntryFilter) -> dict[str, list[StatedMember]]:
        """What the manifest says of each resource, in its order."""
        states: dict[str, list[StatedMember]] = {}
        octets = 0
        at: int | None = None
        for packaged in self._package.entries():
            if at is None:
                head = self._package.document
                at = micros(head.at) if head is not None else None
                at = self._listed.at if at is None and self._listed is not None else at
            entry, member = packaged.entry, packaged.member
            if member is not None:
                moment = at if entry.datetime is None else micros(entry.datetime)
                uri = uris.uri(entry.loc)
                stated = StatedMember(member, entry.hash, entry.length, micros(entry.lastmod), moment)
                states.setdefault(uri, []).append(stated)
                octets += _STATED_OCTETS + len(uri) + len(entry.hash or "")
                if octets > MOST_STATED_OCTETS:
                    raise PackageTooLarge(f"its manifest has more than {len(states):,} entries, and no room for them")
        return states

    def _tell_problems(self, warn: Warn, listed: ListedPackage) -> None:
        """What the manifest names and the package has not, and the other way round (DST-P4)."""
        for problem in self._package.problems:
            if problem.rule == "DST-P3":
                warn(problem.rule, f"an entry of a manifest is left out: {problem.message}", listed.uri)
        if missing := self._package.missing_count:
            warn("DST-P4", f"{missing:,} members that its manifest names are missing from a package", listed.uri)
        if undeclared := len(self._package.undeclared()):
            said = f"{undeclared:,} members of a package are in no entry of its manifest: they are ignored"
            warn("DST-P4", said, listed.uri)

    def damaged(self, fault: BadPackage) -> None:
        """A member is not what the package says of it: no more are taken."""
        if not self._is_damaged:
            self._is_damaged = True
            self._failed(fault)

    def blocks(self, results: ResultLog, placing: MemberPlacing) -> Iterator[MemberBlock]:
        """The members that are wanted and can be verified, with their work; what is large is placed at once."""
        block = MemberBlock(self.damaged)
        with closing(self._wanted(results)) as all_wanted:
            for work, stated in all_wanted:
                member, demanded = stated.member, self._demanded(work, stated)
                self.unverifiable += work.hash is None
                if demanded is None or member.octets > placing.largest or work.length not in (None, member.octets):
                    results.left(work)
                    continue
                try:
                    if is_small(member):
                        block.add(work, self._file(work, member, demanded))
                    else:
                        placing.place_large(work, self._package.directory.blocks(member), *demanded)
                except BadPackage as fault:
                    results.left(work)
                    self.damaged(fault)
                if self._is_damaged:
                    break
                if block.is_full:
                    yield block
                    block = MemberBlock(self.damaged)
        if block.works:
            yield block

    def _file(self, work: Work, member: ZipMember, demanded: tuple[str, str | None]) -> MemberFile:
        record = member.record
        packed = self._package.directory.packed(member)
        said = record.plain, record.crc, record.method != STORED
        return f"{work.n}-member", work.path, mtime_ns(work.lastmod), packed, *said, *demanded

    def _wanted(self, results: ResultLog) -> Generator[tuple[Work, StatedMember], None, None]:
        """What is wanted of the package, taken from the work; what is not yielded is left."""
        uris = list(self._states)
        for start in range(0, len(uris), _CHUNK):
            some = msgspec.json.encode(uris[start : start + _CHUNK]).decode()
            works = deque(results.take(partial(Transaction.fetch, sql=_WANTED, values=(some,))))
            try:
                while works:
                    work = works.popleft()
                    stated = self._stated_of(work)
                    if stated is None or (work.tries is not None and self._objection(work.loc) is not None):
                        results.left(work)
                    else:
                        yield work, stated
            finally:
                for work in works:
                    results.left(work)

    def _stated_of(self, work: Work) -> StatedMember | None:
        """Of several states of a resource the last one counts, of those that agree with what is listed if any do."""
        states = [one for one in self._states[work.uri] if not one.contradicts(work)]
        if len(states) > 1:
            states = [one for one in states if self._agrees(work, one)] or states
        return states[-1] if states else None

    def _agrees(self, work: Work, stated: StatedMember) -> bool:
        return self._listed is not None and stated.is_state_of(work, as_listed=self._is_list())

    def _demanded(self, work: Work, stated: StatedMember) -> tuple[str, str | None] | None:
        """Algorithm and hex of the digest that a member must have, None for one that may have any; None where it cannot
        be verified. Where no digest is listed that can be computed, what is stated by the manifest counts (DST-P5)."""
        digest = strongest_of(work.hash)
        if digest is None:
            if not self._agrees(work, stated) or stated.length not in (None, stated.member.octets):
                return None
            if canonical_hash_of(work.extra) is not None:
                return None  # to be verified by what it says, which a transfer does
            digest = strongest_of(stated.hash)
        return ("sha-256", None) if digest is None else (digest.algorithm, digest.hex)


def tell_moments(warn: Warn, package: ListedPackage, manifest: Document) -> None:
    """What the dump says of the package's moment, the manifest should say: a difference is told (DST-P8)."""
    pairs = (("at", package.at, manifest.at), ("from", package.from_, manifest.from_))
    for name, listed, said in (*pairs, ("until", package.until, manifest.until)):
        if listed is not None and said is not None and micros(said) != listed:
            warn("DST-P8", f"the manifest of a package has another `{name}` than the dump gives for it", package.uri)


# the manifest, read as a list

_MOST_UNDECIDED = 20_000
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
            elif len(waiting) > _MOST_UNDECIDED:
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
