"""The reader of Resource Lists: stages a list, or an index with all components (DST-F13).

The set is the union of the components. What cannot be read makes the snapshot incomplete; what changes while it is read
is read again, and what then still does not fit together makes it unsettled. That index and components are of one moment
is known by asking for them again: what is the same before and after the last one was read was so when that was read.
"""

from __future__ import annotations

import time
from hashlib import blake2b
from typing import NamedTuple

import msgspec

from headwater.errors import SourceFault
from headwater.progress import Listener, Progress
from headwater.spec.kinds import Kind
from headwater.spec.records import Document, Entry
from headwater.storage.database import Database
from headwater.storage.transaction import Transaction
from headwater.sync.connection import Unreachable, WrongDocument
from headwater.sync.lists.documents import DocumentRead, MissingDocument, UnchangedDocument, is_union
from headwater.sync.lists.entries import DEEPEST_INDEX, STAGE_LISTED, EntryFilter, ListContext
from headwater.sync.source_times import SECOND, believed_at, last_micros, micros
from headwater.sync.state import Validators


class Component(msgspec.Struct, frozen=True, array_like=True):
    """The index itself, or one component as it was read: what asks for it again, and the digest of its octets."""

    uri: str
    etag: str | None
    last_modified: str | None
    digest: str
    is_timed: bool = False
    """Whether the index states the time that the component has: while the index is what it was, so is that."""

    @property
    def validators(self) -> Validators | None:
        """The validators of this state of the document, if it has any."""
        return Validators(self.etag, self.last_modified) if self.etag or self.last_modified else None


class CompletedBaseline(msgspec.Struct, frozen=True):
    """The list of the last completed baseline: its `at`, the digest of its octets, and its components."""

    at: int | None
    print: str | None
    components: tuple[Component, ...] = ()


def is_completed(at: int | None, print_: str, done: CompletedBaseline) -> bool:
    """Whether it is the list of that `at` with the same octets: with others it was mended, or `at` means nothing."""
    return at is not None and (at, print_) == (done.at, done.print)


class _Unread:
    """Takes a document only to see, by the digest of its octets, whether it has changed (an `EntryConsumer`)."""

    def begin(self) -> None:
        """Nothing is kept."""

    def take(self, document: Document, entries: list[Entry]) -> None:
        """Nothing is kept."""


_LISTS = (Kind.RESOURCE_LIST, Kind.SITEMAP)
_INDEXES = (Kind.RESOURCE_LIST_INDEX, Kind.SITEMAP_INDEX)
_MOST_LISTS = 100_000
_READINGS = 3
_PAUSE_SECONDS = 0.5
_TOLD_LAG = 5 * 60 * SECOND
"""How far an `at` may be ahead of its `Date` without a word: a `Date` may come from a cache."""


class ListedPart(msgspec.Struct, frozen=True):
    """The rows of one document in `temp.listed`, after `before` up to `last`, and when they were so."""

    before: int
    last: int
    at: int | None
    through: int | None


class ResourceListRead(msgspec.Struct, frozen=True, kw_only=True):
    """What a Resource List said, staged in `temp.listed`.

    `at`: the earliest `at` of index and components (AMB-24), None when there is none; instead of one that is ahead of
    the source's clock, the time of the answer. `complete`: all of it was read. `settled`: index and components belong
    together. `faults`: why not.
    """

    uri: str
    at: int | None
    claimed_at: int | None = None
    """The earliest `at` as it is stated, whatever the time of the answer is: from there on Change Lists may tell."""

    stated_at: int | None = None
    """The `at` of the document itself, as it stands there: what tells it from the next one (DST-B1)."""

    complete: bool = True
    settled: bool = True
    skipped: tuple[tuple[str, int], ...] = ()  # documents with entries that name no resource, and how many (DST-F5)
    print: str = ""  # a digest of the octets of all documents that were read, in their order
    etag: str | None = None
    last_modified: str | None = None
    components: tuple[Component, ...] = ()
    parts: tuple[ListedPart, ...] = ()  # the document, or the components, with rows in `temp.listed`, in their order
    faults: tuple[str, ...] = ()
    title: str = "Resource List"  # what the document is: a Resource Dump may stand for a Resource List


class UnchangedList(msgspec.Struct, frozen=True):
    """The list is the one of the last completed baseline, by its validators or by `at` and octets (DST-B1)."""

    uri: str
    etag: str | None = None
    last_modified: str | None = None


class OtherDocument(msgspec.Struct, frozen=True):
    """The document is ResourceSync of another kind (DST-A7)."""

    kind: Kind
    called: str


class _IndexPart(NamedTuple):
    """One component of an index: the time that the index states of its list, and how deep it lies in other indexes."""

    uri: str
    stated: int | None
    is_timed: bool  # whether the index states a time for it
    depth: int


class ResourceListReader(msgspec.Struct, frozen=True):
    """Reads one set's Resource List into `temp.listed`. `reached`: up to which time changes are known."""

    context: ListContext
    sitemap: bool
    reached: int | None = None

    def read(
        self, uri: str, validators: Validators | None = None, done: CompletedBaseline | None = None
    ) -> ResourceListRead | UnchangedList | OtherDocument | MissingDocument:
        """Read the list behind `uri`. `done`: the list for which there would be nothing to do (DST-B1).

        `validators` are those of `done`; where that is an index, it says nothing of what its components are by now.
        """
        components = done.components if done is not None else ()
        documents = self.context.documents
        for reading in range(_READINGS):
            found = self._once(uri, validators, components if reading == 0 else ())
            asked = (one for one in components if one.uri != uri and not one.is_timed)
            if isinstance(found, UnchangedList) and any(map(self._differs, asked)):
                found = self._once(uri, None)
            if not isinstance(found, ResourceListRead):
                return found
            if done is not None and is_completed(found.stated_at, found.print, done):
                return UnchangedList(uri, found.etag, found.last_modified)
            if found.settled:
                return found  # a component that is broken is not in motion: reading all again would not help
            validators = None
            if reading < _READINGS - 1:
                documents.warn("DST-F13", "the Resource List changed while it was read; reading it again", uri)
                time.sleep(_PAUSE_SECONDS * (reading + 1))
        return found

    def _once(
        self, uri: str, validators: Validators | None, known: tuple[Component, ...] = ()
    ) -> ResourceListRead | UnchangedList | OtherDocument | MissingDocument:
        with self.context.database.write() as t:
            t.run("DROP INDEX IF EXISTS temp.listed_uri")
            t.run("DELETE FROM temp.listed")
        intake = EntryFilter(self.context.scope)
        head = _ListHead(self.context.database, intake, self.context.listener)
        answer = self.context.documents.read(uri, head, validators, objection=self.context.scope.objection)
        if isinstance(answer, UnchangedDocument):
            return UnchangedList(uri)
        if isinstance(answer, MissingDocument):
            return answer
        if answer.document.kind not in _LISTS + _INDEXES:
            return OtherDocument(answer.document.kind, answer.document.called)
        if answer.document.kind in (Kind.SITEMAP, Kind.SITEMAP_INDEX) and not self.sitemap:
            self.context.documents.warn("AMB-02", "a Resource List without rs:md: taken as a plain Sitemap", answer.uri)
        at = self._believed_at(answer)
        if answer.document.kind in _LISTS:
            stated = micros(answer.document.at)
            snapshot = ResourceListRead(
                uri=uri,
                at=at,
                claimed_at=stated,
                stated_at=stated,
                print=answer.digest,
                etag=answer.etag,
                last_modified=answer.last_modified,
                skipped=_skipped(answer),
                parts=(_part(answer, at, head),),
            )
        elif any((one.uri, one.digest) == (uri, answer.digest) for one in known):
            return UnchangedList(uri, answer.etag, answer.last_modified)
        else:
            snapshot = self._components(answer, at, intake, list(head.parts.values()))
        with self.context.database.write() as t:
            t.run("CREATE INDEX IF NOT EXISTS temp.listed_uri ON listed(uri)")
            doubled = int(t.value("SELECT count(*) - count(DISTINCT uri) FROM temp.listed"))
            if doubled:
                what = "1 entry lists a URI" if doubled == 1 else f"{doubled:,} entries list URIs"
                self.context.documents.warn("AMB-89", f"{what} that a later entry repeats: the later one counts", uri)
                t.run(
                    "DELETE FROM temp.listed WHERE EXISTS"
                    " (SELECT 1 FROM temp.listed AS later WHERE later.uri = listed.uri AND later.n > listed.n)"
                )
        return snapshot

    def _believed_at(self, answer: DocumentRead) -> int | None:
        """The latest moment of which a document can be: its `at`, unless the source's clock does not say so (DST-C8).

        Changes of a time that is ahead of `Date` prove that the clock by which `at` was made is ahead too (AMB-27).
        """
        at, clock, warn = micros(answer.document.at), micros(answer.read_at) or 0, self.context.documents.warn
        if is_union(answer.uri):
            return None
        if at is not None and at > clock + _TOLD_LAG:
            ahead = (at - clock) // (60 * SECOND)
            warn("AMB-27", f"`at` is {ahead:,} minutes ahead of the answer's `Date`", answer.final)
        return believed_at(at, clock, self.reached)

    def _components(
        self, index: DocumentRead, at: int | None, intake: EntryFilter, parts: list[_IndexPart]
    ) -> ResourceListRead:
        documents, scope, indexes = self.context.documents, self.context.scope, {index.uri, index.final}
        known = {part.uri for part in parts}
        read = [Component(index.uri, index.etag, index.last_modified, index.digest)]
        times, claims = [at], [None if at is None else micros(index.document.at)]
        skipped, rows = _skipped(index), []
        faults: list[str] = []
        for part in parts:
            uri = part.uri
            try:
                if uri in indexes:
                    raise WrongDocument("an index lists itself", where=uri, rule="AMB-65")
                head = _ListHead(self.context.database, intake, self.context.listener, part.depth)
                component = documents.read(uri, head, objection=scope.objection)
                if not isinstance(component, DocumentRead):
                    status = component.status if isinstance(component, MissingDocument) else 304
                    raise Unreachable(f"a component is missing: HTTP status {status}", where=uri, rule="DST-B2")
                if component.document.kind not in _LISTS + _INDEXES:
                    raise WrongDocument(f"a component is {component.document.called}", where=uri, rule="DST-A7")
                if len(parts) + len(head.parts) > _MOST_LISTS:
                    raise _too_many()
            except SourceFault as fault:
                faults.append(str(fault))
                documents.warn(fault.rule or fault.code, f"a component cannot be read: {fault.what}", uri)
                continue
            if component.document.kind in _INDEXES:
                indexes.update((uri, component.final))
                parts += [one for name, one in head.parts.items() if name not in known]  # they are read after the rest
                known.update(head.parts)
            latest = self._believed_at(component)
            own = None if latest is None else micros(component.document.at)
            is_timed = part.is_timed and (own is None or part.stated in (None, own))
            read.append(Component(uri, component.etag, component.last_modified, component.digest, is_timed))
            times.append(part.stated if own is None else latest)
            claims.append(part.stated if own is None else own)
            skipped += _skipped(component)
            rows.append(_part(component, latest, head))
        if not parts and index.own_kind is not Kind.RESOURCE_DUMP:  # without packages it is an empty set (DST-B4)
            faults.append("an index without components")
            documents.warn("DST-B2", faults[0], index.uri)
        misfits = [index.uri] if parts and self._differs(read[0]) else []
        if not misfits and not faults:  # the last one needs no question (DST-F13)
            misfits = [one.uri for one in read[1:-1] if self._differs(one)]
        stated = {one for one in times if one is not None}
        claimed = claims[1:] if None not in claims[1:] else claims  # the index itself is of no resource
        if len(stated) > 1:
            documents.warn("AMB-95", "index and components have different `at`: the earliest counts", index.uri)
        return ResourceListRead(
            uri=index.uri,
            at=min(stated, default=None),
            claimed_at=min((one for one in claimed if one is not None), default=None),
            stated_at=micros(index.document.at),
            print=blake2b("\n".join(one.digest for one in read).encode(), digest_size=16).hexdigest(),
            complete=not faults,
            settled=not misfits,
            etag=index.etag,
            last_modified=index.last_modified,
            components=tuple(read),
            parts=tuple(rows),
            faults=tuple(faults[:20]) + tuple(f"{one} does not fit its index" for one in misfits[:20]),
            title="Resource List" if index.own_kind is None else "Resource Dump",
            skipped=skipped,
        )

    def _differs(self, known: Component) -> bool:
        """Whether a document that was read has other octets by now, or cannot be read."""
        try:
            answer = self.context.documents.read(
                known.uri, _Unread(), known.validators, objection=self.context.scope.objection
            )
        except SourceFault as fault:
            self.context.documents.warn(fault.rule or fault.code, f"cannot be read again: {fault.what}", known.uri)
            return True
        return not isinstance(answer, UnchangedDocument) and (
            isinstance(answer, MissingDocument) or answer.digest != known.digest
        )


def _part(answer: DocumentRead, at: int | None, head: _ListHead) -> ListedPart:
    document = answer.document
    completed = None if document.completed is None else last_micros(document.completed)
    ends = [end for end in (at, completed, micros(document.at)) if end is not None]
    through = None if at is None else max(ends)  # of a list of the future nobody knows of which moment it is
    return ListedPart(head.before or 0, head.last, at, through)


def _skipped(answer: DocumentRead) -> tuple[tuple[str, int], ...]:
    return ((answer.uri, answer.skipped),) if answer.skipped else ()


class _ListHead(msgspec.Struct):
    """Stages the entries of one document: resources of a list, components of an index."""

    database: Database
    intake: EntryFilter
    listener: Listener
    depth: int = 0
    before: int | None = None
    last: int = 0  # the last row that was there before, and the last that it has brought
    parts: dict[str, _IndexPart] = {}  # the components of an index, by their URIs

    def begin(self) -> None:
        """Forget what an earlier try has brought."""
        self.parts = {}
        with self.database.write() as t:
            if self.before is None:
                self.before = _last_listed(t)
            self.last = self.before
            t.run("DELETE FROM temp.listed WHERE n > ?", (self.before,))

    def take(self, document: Document, entries: list[Entry]) -> None:
        """Take the next entries, in document order. Raises WrongDocument for an index beyond all bounds."""
        if document.kind in _INDEXES:
            if self.depth >= DEEPEST_INDEX:
                raise WrongDocument("indexes are nested too deeply", rule="AMB-65")
            if len(self.parts) + len(entries) > _MOST_LISTS:
                raise _too_many()
            for entry in entries:
                is_timed = entry.at is not None or entry.lastmod is not None
                self.parts.setdefault(entry.loc, _IndexPart(entry.loc, micros(entry.at), is_timed, self.depth + 1))
        elif document.kind in _LISTS:
            with self.database.write() as t:
                t.many(STAGE_LISTED, map(self.intake.row, entries))
                self.last = _last_listed(t)
            self.listener(Progress("listing", self.last))


def _too_many() -> WrongDocument:
    return WrongDocument("an index of too many Resource Lists", rule="RS-LIM-04")


def _last_listed(t: Transaction) -> int:
    return int(t.value("SELECT coalesce(max(n), 0) FROM temp.listed"))
