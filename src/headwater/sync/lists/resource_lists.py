"""The reader of Resource Lists: stages a list, or an index with all components (DST-F13).

The set is the union of the components. What cannot be read makes the snapshot incomplete; what changes while it is read
is read again, and what then still does not fit together makes it unsettled. That index and components are of one moment
is known by asking for them again: what is the same before and after the last one was read was so when that was read.
"""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Callable
from hashlib import blake2b
from typing import NamedTuple

import msgspec

from headwater.errors import SourceFault
from headwater.progress import Listener, Progress
from headwater.spec.kinds import Kind
from headwater.spec.records import Document, Entry
from headwater.spec.times import to_microseconds
from headwater.storage.database import Database
from headwater.storage.sqlite.transaction import Transaction
from headwater.sync.alternates import represent_listed
from headwater.sync.faults import Unreachable, WrongDocument
from headwater.sync.lists.documents import DocumentRead, MissingDocument, UnchangedDocument, is_union
from headwater.sync.lists.entries import STAGE_LISTED, EntryFilter, ListContext
from headwater.sync.source_times import FUTURE, SECOND, believed_at, last_micros, micros
from headwater.sync.state.validators import Validators


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
        """What tells this state of it from every other, if anything does."""
        return Validators(self.etag, self.last_modified) if self.etag or self.last_modified else None


class CompletedBaseline(msgspec.Struct, frozen=True):
    """The list of the last completed baseline: its `at`, the digest of its octets, and its components."""

    at: int | None
    print: str | None
    components: tuple[Component, ...] = ()


def is_completed(at: int | None, print_: str, done: CompletedBaseline) -> bool:
    """Whether it is the list of that `at` with the same octets: with others it was mended, or `at` means nothing."""
    return at is not None and (at, print_) == (done.at, done.print)


def digest_of(*digests: str) -> str:
    return blake2b("\n".join(digests).encode(), digest_size=16).hexdigest()


class _Unread:
    """Takes a document only to see, by the digest of its octets, whether it has changed (an `EntryConsumer`)."""

    def begin(self) -> None:
        """Nothing is kept."""

    def take(self, document: Document, entries: list[Entry]) -> None:
        """Nothing is kept."""


_LISTS = (Kind.RESOURCE_LIST, Kind.SITEMAP)
_INDEXES = (Kind.RESOURCE_LIST_INDEX, Kind.SITEMAP_INDEX)
_DEEPEST = 2  # an index in an index: one extra level (AMB-65)
_READINGS = 3
_PAUSE_SECONDS = 0.5
_TOLD_LAG = 5 * 60 * SECOND
"""How far an `at` may be ahead of its `Date` without a word: a `Date` may come from a cache."""


class _IndexPart(NamedTuple):
    """A row of `temp.parts`: one component of an index, and how deep that index lies in another."""

    n: int
    uri: str
    at: int | None
    at_until: int | None
    """The last moment that `at` may mean."""

    is_timed: int
    """Whether the index states a time for it."""

    depth: int


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
    count: int = 0
    skipped: tuple[tuple[str, int], ...] = ()
    """Documents with entries that name no resource, and how many (DST-F5)."""

    print: str = ""
    """A digest of the octets of all documents that were read, in their order."""

    etag: str | None = None
    last_modified: str | None = None
    components: tuple[Component, ...] = ()
    parts: tuple[ListedPart, ...] = ()
    """The document, or the components, with rows in `temp.listed`, in their order."""

    faults: tuple[str, ...] = ()
    title: str = "Resource List"
    """What the document is: a Resource Dump may stand for a Resource List."""


class UnchangedList(msgspec.Struct, frozen=True):
    """The list is the one of the last completed baseline, by its validators or by `at` and octets (DST-B1)."""

    uri: str
    etag: str | None = None
    last_modified: str | None = None


class OtherDocument(msgspec.Struct, frozen=True):
    """The document is ResourceSync of another kind (DST-A7)."""

    uri: str
    kind: Kind
    called: str


class _StatedTime(NamedTuple):
    """An `at` as the moments that it may mean, and the latest of which its document can be."""

    begin: int
    end: int
    believed: int

    def is_one_with(self, other: _StatedTime) -> bool:
        """Whether one is the other, cut to its precision (AMB-95)."""
        return self.begin <= other.begin <= self.end or other.begin <= self.begin <= other.end


def _stated(at: dt.datetime | None, believed: int | None) -> _StatedTime | None:
    return None if at is None or believed is None else _StatedTime(to_microseconds(at), _last_of(at), believed)


def _last_of(at: dt.datetime) -> int:
    """The last moment that a time means; a whole second may be cut."""
    last = last_micros(at)
    return last + SECOND - 1 if last % SECOND == 0 else last


class _WrongKind(Exception):
    def __init__(self, document: Document) -> None:
        super().__init__(document.called)
        self.kind = document.kind
        self.called = document.called


class _IndexRead:
    """What an index and its components say together, component by component."""

    def __init__(self, index: DocumentRead, at: int | None) -> None:
        self._index = index
        self._times = [_stated(index.document.at, at)]
        self._skipped = _skipped(index)
        self._parts: list[ListedPart] = []
        self.components = [_component(index.uri, index)]
        """The index itself, and the components that were read."""

        self.faults: list[str] = []
        self.misfits: list[str] = []
        """The URIs of documents that are not of one state of the list (DST-F13)."""

    def add(self, part: _IndexPart, component: DocumentRead, head: _ListHead, at: int | None) -> None:
        """Take a component that was read; `at`: the latest moment of which it can be."""
        own = _stated(component.document.at, at)
        listed = None if part.at is None else _StatedTime(part.at, part.at_until or part.at, part.at)
        is_timed = bool(part.is_timed) and (own is None or listed is None or own.is_one_with(listed))
        self.components.append(_component(part.uri, component, is_timed=is_timed))
        self._times.append(own or listed)
        self._parts.append(_part(component, at, head))
        self._skipped += _skipped(component)

    def times(self, *, of_components: bool = False) -> list[_StatedTime]:
        """The times that index and components state, but for those that another one states more precisely.

        `of_components`: as far as the components state them, all of them; the index is of no resource.
        """
        stated = self._times[1:] if of_components and None not in self._times[1:] else self._times
        times = sorted({one for one in stated if one is not None}, key=lambda one: one.end - one.begin)
        return [one for n, one in enumerate(times) if not any(one.is_one_with(finer) for finer in times[:n])]

    def snapshot(self) -> ResourceListRead:
        """All of it as one list."""
        index = self._index
        return ResourceListRead(
            uri=index.uri,
            at=min((one.believed for one in self.times()), default=None),
            claimed_at=min((one.begin for one in self.times(of_components=True)), default=None),
            stated_at=micros(index.document.at),
            print=digest_of(*(one.digest for one in self.components)),
            complete=not self.faults,
            settled=not self.misfits,
            etag=index.etag,
            last_modified=index.last_modified,
            components=tuple(self.components),
            parts=tuple(self._parts),
            faults=tuple(self.faults[:20]) + tuple(f"{uri} does not fit its index" for uri in self.misfits[:20]),
            title=_title(index),
            skipped=self._skipped,
        )


class ResourceListReader:
    """Reads one set's Resource List into `temp.listed`."""

    def __init__(
        self,
        context: ListContext,
        *,
        sitemap: bool,
        reached: int | None = None,
        doubt: Callable[[], bool] = lambda: True,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """`doubt`: asked when all is staged, whether a component may cost a second reading to be sure of it.

        What a conditional request can tell is asked in any case. `reached`: up to which time changes are known.
        """
        self._documents = context.documents
        self._database = context.database
        self._scope = context.scope
        self._types = context.types
        self._listener = context.listener
        self._sitemap = sitemap
        self._reached = reached
        self._doubt = doubt
        self._sleep = sleep

    def read(
        self,
        uri: str,
        validators: Validators | None = None,
        done: CompletedBaseline | None = None,
        components: tuple[Component, ...] = (),
    ) -> ResourceListRead | UnchangedList | OtherDocument | MissingDocument:
        """Read the list behind `uri`. `done`: the list for which there would be nothing to do (DST-B1).

        `components`: those of the index that `validators` are of, which says nothing of what they are by now.
        """
        for reading in range(_READINGS):
            found = self._once(uri, validators, components if reading == 0 else ())
            asked = (one for one in components if one.uri != uri and not one.is_timed)
            if isinstance(found, UnchangedList) and any(map(self._differs, asked)):
                validators = None
                found = self._once(uri, None)
            if (
                done is not None
                and isinstance(found, ResourceListRead)
                and is_completed(found.stated_at, found.print, done)
            ):
                return UnchangedList(uri, found.etag, found.last_modified)
            if not isinstance(found, ResourceListRead) or (found.settled and found.complete):
                return found
            if found.settled:
                return found  # a component is broken, not in motion: reading all again would not help
            if reading < _READINGS - 1:
                self._documents.warn("DST-F13", "the Resource List changed while it was read; reading it again", uri)
                self._sleep(_PAUSE_SECONDS * (reading + 1))
                validators = None
        return found

    def _once(
        self, uri: str, validators: Validators | None, known: tuple[Component, ...] = ()
    ) -> ResourceListRead | UnchangedList | OtherDocument | MissingDocument:
        with self._database.write() as t:
            t.run("DROP INDEX IF EXISTS temp.listed_uri")
            t.run("DELETE FROM temp.listed")
            t.run("DELETE FROM temp.parts")
        intake = EntryFilter(self._scope)
        head = _ListHead(self._database, intake, self._listener)
        try:
            answer = self._documents.read(uri, head, validators, objection=self._scope.objection)
        except _WrongKind as wrong:
            return OtherDocument(uri, wrong.kind, wrong.called)
        if isinstance(answer, UnchangedDocument):
            return UnchangedList(uri)
        if isinstance(answer, MissingDocument):
            return answer
        if answer.document.kind not in _LISTS + _INDEXES:
            return OtherDocument(uri, answer.document.kind, answer.document.called)
        self._check_sitemap(answer)
        at = self._believed_at(answer)
        if answer.document.kind in _LISTS:
            stated = micros(answer.document.at)
            return self._finish(
                ResourceListRead(
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
            )
        if any((one.uri, one.digest) == (uri, answer.digest) for one in known):
            return UnchangedList(uri, answer.etag, answer.last_modified)
        return self._components(answer, at, intake)

    def _check_sitemap(self, answer: DocumentRead) -> None:
        if answer.document.kind in (Kind.SITEMAP, Kind.SITEMAP_INDEX) and not self._sitemap:
            self._documents.warn("AMB-02", "a Resource List without rs:md: taken as a plain Sitemap", answer.uri)

    def _believed_at(self, answer: DocumentRead) -> int | None:
        """The latest moment of which a document can be: its `at`, unless the source's clock does not say so (DST-C8).

        Changes of a time that is ahead of `Date` prove that the clock by which `at` was made is ahead too (AMB-27).
        """
        at, clock = micros(answer.document.at), micros(answer.read_at) or 0
        if is_union(answer.uri):
            return None
        if at is not None and at > clock + FUTURE:
            self._documents.warn("AMB-27", "`at` lies in the future; the time of the answer is used", answer.final)
        elif at is not None and at > clock + _TOLD_LAG:
            ahead = (at - clock) // (60 * SECOND)
            self._documents.warn("AMB-27", f"`at` is {ahead:,} minutes ahead of the answer's `Date`", answer.final)
        return believed_at(at, clock, self._reached)

    def _components(self, index: DocumentRead, at: int | None, intake: EntryFilter) -> ResourceListRead:
        read = _IndexRead(index, at)
        done = 0
        indexes = {index.uri, index.final}
        while part := self._next_part(done):
            done, uri = part.n, part.uri
            try:
                if uri in indexes:
                    raise WrongDocument("an index lists itself", where=uri, rule="AMB-65")
                component, head = self._component(uri, part.depth, intake)
            except SourceFault as fault:
                read.faults.append(str(fault))
                self._documents.warn(fault.rule or fault.code, f"a component cannot be read: {fault.what}", uri)
                continue
            if component.document.kind in _INDEXES:
                indexes.update((uri, component.final))
            read.add(part, component, head, self._believed_at(component))
        if not done and index.own_kind is not Kind.RESOURCE_DUMP:  # without packages it is an empty set (DST-B4)
            read.faults.append("an index without components")
        if done and self._differs(read.components[0]):
            read.misfits.append(index.uri)
        elif not read.faults:
            read.misfits.extend(self._changed_components(read.components[1:]))
        if len(read.times()) > 1:
            self._documents.warn("AMB-95", "index and components state different `at`: the earliest counts", index.uri)
        return self._finish(read.snapshot())

    def _next_part(self, done: int) -> _IndexPart | None:
        with self._database.write() as t:
            row = t.one(
                "SELECT n, uri, at, at_until, is_timed, depth FROM temp.parts WHERE n > ? ORDER BY n LIMIT 1", (done,)
            )
        return None if row is None else _IndexPart(*row)

    def _component(self, uri: str, depth: int, intake: EntryFilter) -> tuple[DocumentRead, _ListHead]:
        head = _ListHead(self._database, intake, self._listener, depth)
        try:
            answer = self._documents.read(uri, head, objection=self._scope.objection)
        except _WrongKind as wrong:
            raise WrongDocument(f"a component is {wrong.called}", where=uri, rule="DST-A7") from wrong
        if isinstance(answer, MissingDocument):
            raise Unreachable(f"a component is missing: HTTP status {answer.status}", where=uri, rule="DST-B2")
        if not isinstance(answer, DocumentRead):
            raise Unreachable("a component was answered with 304 unasked", where=uri)
        if answer.document.kind not in _LISTS + _INDEXES:
            raise WrongDocument(f"a component is {answer.document.called}", where=uri, rule="DST-A7")
        return answer, head

    def _changed_components(self, read: list[Component]) -> list[str]:
        """Components that are others by now than when they were read (DST-F13); the last one needs no question."""
        asked = read[:-1]
        if any(one.validators is None for one in asked) and not self._doubt():
            asked = [one for one in asked if one.validators is not None]
        return [one.uri for one in asked if self._differs(one)]

    def _differs(self, known: Component) -> bool:
        """Whether a document that was read has other octets by now, or cannot be read."""
        try:
            answer = self._documents.read(known.uri, _Unread(), known.validators, objection=self._scope.objection)
        except SourceFault as fault:
            self._documents.warn(fault.rule or fault.code, f"cannot be read again: {fault.what}", known.uri)
            return True
        return not isinstance(answer, UnchangedDocument) and (
            isinstance(answer, MissingDocument) or answer.digest != known.digest
        )

    def _finish(self, snapshot: ResourceListRead) -> ResourceListRead:
        with self._database.write() as t:
            t.run("CREATE INDEX IF NOT EXISTS temp.listed_uri ON listed(uri)")
            represent_listed(t, self._types, self._scope)
            total = int(t.value("SELECT count(*) FROM temp.listed"))
            doubled = total - int(t.value("SELECT count(DISTINCT uri) FROM temp.listed"))
            if doubled:
                what = "1 entry lists a URI" if doubled == 1 else f"{doubled:,} entries list URIs"
                self._documents.warn("AMB-89", f"{what} that a later one lists again, which counts", snapshot.uri)
                t.run(
                    "DELETE FROM temp.listed WHERE EXISTS"
                    " (SELECT 1 FROM temp.listed AS later WHERE later.uri = listed.uri AND later.n > listed.n)"
                )
        return msgspec.structs.replace(snapshot, count=total - doubled)


def _part(answer: DocumentRead, at: int | None, head: _ListHead) -> ListedPart:
    document = answer.document
    completed = None if document.completed is None else last_micros(document.completed)
    ends = [end for end in (at, completed, micros(document.at)) if end is not None]
    through = None if at is None else max(ends)  # of a list of the future nobody knows of which moment it is
    return ListedPart(head.before, head.last, at, through)


def _title(answer: DocumentRead) -> str:
    return "Resource List" if answer.own_kind is None else "Resource Dump"


def _skipped(answer: DocumentRead) -> tuple[tuple[str, int], ...]:
    return ((answer.uri, answer.skipped),) if answer.skipped else ()


def _component(uri: str, answer: DocumentRead, *, is_timed: bool = False) -> Component:
    return Component(uri, answer.etag, answer.last_modified, answer.digest, is_timed)


class _ListHead:
    """Stages the entries of one document: resources of a list, components of an index."""

    def __init__(self, database: Database, intake: EntryFilter, listener: Listener, depth: int = 0) -> None:
        self._database = database
        self._intake = intake
        self._listener = listener
        self._depth = depth
        self._start: tuple[int, int] | None = None
        self.before = self.last = 0
        """The last row that was there before, and the last that it has brought."""

    def begin(self) -> None:
        with self._database.write() as t:
            if self._start is None:
                self._start = (_last(t, "listed"), _last(t, "parts"))
            self.before = self.last = self._start[0]
            t.run("DELETE FROM temp.listed WHERE n > ?", (self._start[0],))
            t.run("DELETE FROM temp.parts WHERE n > ?", (self._start[1],))

    def take(self, document: Document, entries: list[Entry]) -> None:
        if document.kind not in _LISTS + _INDEXES:
            raise _WrongKind(document)
        if document.kind in _INDEXES:
            self._take_parts(document, entries)
            return
        rows = self._intake.rows(entries)
        with self._database.write() as t:
            t.many(STAGE_LISTED, rows)
            self.last = _last(t, "listed")
        self._listener(Progress("listing", self.last))

    def _take_parts(self, document: Document, entries: list[Entry]) -> None:
        if self._depth >= _DEEPEST:
            raise WrongDocument("indexes are nested too deeply", rule="AMB-65")
        depth = self._depth + 1
        with self._database.write() as t:
            t.many(
                "INSERT OR IGNORE INTO temp.parts(uri, at, at_until, is_timed, depth) VALUES (?, ?, ?, ?, ?)",
                [
                    (
                        entry.loc,
                        micros(entry.at),
                        None if entry.at is None else _last_of(entry.at),
                        bool(entry.at or entry.lastmod),
                        depth,
                    )
                    for entry in entries
                ],
            )


def _last(t: Transaction, table: str) -> int:
    return int(t.value(f"SELECT coalesce(max(n), 0) FROM temp.{table}"))  # noqa: S608
