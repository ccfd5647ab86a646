"""Builds events from files that are new or may have changed: hash, length, `lastmod`, and media type."""

from __future__ import annotations

import datetime as dt
import os
from collections.abc import Callable, Container, Iterable, Iterator
from contextlib import ExitStack, closing
from dataclasses import KW_ONLY, dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import msgspec

from headwater.catalog.interface import Catalog, Event, Metadata, Resource, Upsert
from headwater.catalog.verify import Discrepancy
from headwater.errors import StoreFault
from headwater.files import hashing
from headwater.files.hash_pool import HashPool
from headwater.files.hashing import HashRequest, HashResult, read_file
from headwater.files.media_types import media_type
from headwater.files.nofollow import FileState
from headwater.ingest.folder.comparison import (
    COPIED,
    RACY,
    RACY_MOST,
    TICK_NS,
    Candidate,
    ScanResult,
    is_noted,
    pack,
    rules_mark,
    settled_note,
)
from headwater.ingest.folder.walk import Folder, Warn, path_of
from headwater.ingest.recording import NOTHING_KEPT, KeptChanges
from headwater.progress import Listener, Progress
from headwater.spec.records import parse_hash, sha256_of
from headwater.spec.times import SECOND, from_microseconds
from headwater.versions.keeping import BatchVersions
from headwater.versions.store import SetAside

if TYPE_CHECKING:
    from headwater.ingest.folder.canonical_hashes import DocumentHashes

_EARLIEST = dt.datetime.min.replace(tzinfo=dt.UTC)
_LATEST = dt.datetime.max.replace(tzinfo=dt.UTC)


def describe(
    uri: str, state: FileState, digests: str, held: Metadata | None, now: dt.datetime, given: str | None = None
) -> Metadata:
    """The metadata of a file that was read in this state; `held` is what the set says of it so far, `given` its type by
    the settings.

    `digests` is the text of `hash`, `type` is an essence (AMB-09), `lastmod` has whole seconds as HTTP's Last-Modified
    has.
    """
    size, mtime_ns, digest = state[0], state[1], digests or None
    try:
        lastmod = from_microseconds(mtime_ns // 1_000_000_000 * SECOND)
    except OverflowError:
        lastmod = _EARLIEST if mtime_ns < 0 else _LATEST
    if lastmod > now:  # never in the future (AMB-27; RFC 9110 8.8.2.1): then the time at which it was found so
        is_same = held is not None and held.hash == digest
        lastmod = ((held.lastmod if held is not None and is_same else None) or now).replace(microsecond=0)
    return Metadata(lastmod=lastmod, hash=digest, length=size, type=given or media_type(uri))


BATCH = 2_000
"""Events of one transaction: enough to be fast, few enough that a change is seen soon."""

RULES = "1"
"""Raise it when the metadata of the same file become others: every file is then read again."""

T = TypeVar("T")


def mark_of(folder: Folder, kept: KeptChanges) -> int:
    """The mark of what metadata depend on; where a set has a history, the present state of all is kept as well."""
    rules = [*folder.algorithms, *(["versions"] if kept.history is not None else [])]
    if folder.canonical is not None:
        rules.append("canonical instead" if folder.canonical.replaces else "canonical")
    return rules_mark(RULES, *rules)


def place_fault(place: bytes, error: int) -> StoreFault:
    """The fault of the file at this place in a static tree, not of the file that is published. `error`: an errno."""
    what = f"cannot be put into the published tree: {os.strerror(error)}"
    return StoreFault(what, code="HW-ING-30", where=os.fsdecode(place))


class EventBatch(msgspec.Struct, kw_only=True):
    """What came of some files: events to record, and notes to remember."""

    events: list[Event] = msgspec.field(default_factory=list)
    memos: list[tuple[str, bytes]] = msgspec.field(default_factory=list)
    replaced: list[tuple[Metadata, Upsert]] = msgspec.field(default_factory=list)
    """Updates, each with what was stated before."""
    versions: BatchVersions | None = None
    """None: octets were not set aside."""


@dataclass(eq=False)
class EventBuilder:
    """Reads the files of one pass with the folder's digests, and gives each its place in a static tree, if any.

    They are counted in `result`. What is `overtaken` when its batch is made was recorded by somebody who has looked
    later, and is left alone. Which versions are needed follows from `kept`.
    """

    folder: Folder
    clock: Callable[[], dt.datetime]
    result: ScanResult
    _: KW_ONLY
    stop: Callable[[], bool]
    warn: Warn
    overtaken: Container[str] = ()
    kept: KeptChanges = NOTHING_KEPT

    def __post_init__(self) -> None:
        self.mark = mark_of(self.folder, self.kept)
        """That of files whose type the settings do not give: those of which they do have one by that type, so that no
        other file is read again when types change."""
        self._documents: DocumentHashes | None = None

    def given(self, uri: str) -> tuple[str | None, int]:
        """The type that the settings give a file, if they do, and its mark."""
        assert self.folder.types is not None
        kind = self.folder.types.given(path_of(uri))
        return kind, self.mark if kind is None else rules_mark(str(self.mark), kind)

    def batches(
        self,
        candidates: Iterable[Candidate],
        held: Callable[[list[str]], dict[str, Resource]],
        size: int = BATCH,
        aside: bytes | None = None,
    ) -> Iterator[EventBatch]:
        """The files in batches of `size` or a little more, in order.

        `held` tells what the set says of some URIs. With `aside`, octets are set aside in that folder; the batch says
        which are needed. Raises Stopped, HW-ING-30.
        """
        pool = HashPool(
            self.folder.place_mode if self.folder.place is not None else None,
            aside=aside,
            processes=self.folder.processes,
            stop=self.stop,
            settle_ns=round(self.folder.settle_seconds * 1e9),
        )
        items: list[Candidate] = []
        results: list[HashResult] = []

        def request(one: Candidate) -> HashRequest:
            place = self.folder.place
            return one.path, self.folder.algorithms, place and os.path.join(place, path_of(one.uri)), one.rewritten

        def refused(path: bytes, why: str) -> None:
            self.warn("HW-ING-24", f"it is published without a canonical hash: {why}", path)

        with ExitStack() as stack:
            if self.folder.canonical is not None:
                from headwater.ingest.folder.canonical_hashes import DocumentHashes  # with it come the parsers

                self._documents = stack.enter_context(closing(DocumentHashes(self.folder.canonical, refused)))
            for block, found in pool.read(candidates, request):
                items += block
                results += found
                if len(items) >= size:
                    yield self._batch(items, results, held, keeps=aside is not None)
                    items, results = [], []
            if items:
                yield self._batch(items, results, held, keeps=aside is not None)

    def _batch(
        self,
        items: list[Candidate],
        results: list[HashResult],
        held: Callable[[list[str]], dict[str, Resource]],
        *,
        keeps: bool,
    ) -> EventBatch:
        known = held([one.uri for one in items])
        now = self.clock()
        batch = EventBatch(versions=BatchVersions() if keeps else None)
        if batch.versions is not None:
            batch.versions.names = [found[6] for found in results if found[6]]
        for one, found in zip(items, results, strict=True):
            if one.uri in self.overtaken:
                self.result.kept += one.uri in known
                self.result.unsettled.append(path_of(one.uri))
            elif found[0] != hashing.READ:
                self._not_read(one, found, is_known=one.uri in known)
            else:
                self._take(one, found, known.get(one.uri), batch, now)
        return batch

    def _take(
        self, one: Candidate, found: HashResult, known: Resource | None, batch: EventBatch, now: dt.datetime
    ) -> None:
        result = self.result
        _outcome, _error, state, read_at_ns, changed_ns, digests, _aside = found
        result.read += 1
        result.octets += state[0]
        kind, mark = (None, self.mark) if self.folder.types is None else self.given(one.uri)
        mark ^= COPIED * (one.rewritten and self.folder.place is not None)
        memo = settled_note(mark, state, read_at_ns, changed_ns)
        if memo == RACY and changed_ns < read_at_ns + TICK_NS and len(result.racy) < RACY_MOST:
            result.racy.append(path_of(one.uri))  # a time in the future would never settle
        if memo == RACY and self.folder.place is not None:  # matches nothing either, and tells what is written in place
            memo = pack(mark, state[0], state[1], 0, state[3])
        was = known.metadata if known is not None else None
        metadata = describe(one.uri, state, digests, was, now, kind)
        if self._documents is not None:
            metadata = self._documents.stated(one.path, one.uri, metadata)
        event = Upsert(one.uri, metadata, memo)
        if known is None:
            result.created += 1
        elif known.metadata != event.metadata:
            result.updated += 1
            batch.replaced.append((known.metadata, event))
        else:
            result.unchanged += 1
            if known.memo != event.memo:
                batch.memos.append((event.uri, event.memo))
                if self.kept.history is not None:  # versions are kept from now on: this one as well
                    self._keep(one, found, event, batch)
            return
        batch.events.append(event)
        self._keep(one, found, event, batch)

    def _keep(self, one: Candidate, found: HashResult, event: Upsert, batch: EventBatch) -> None:
        if batch.versions is None or not self.kept.keeps(event.metadata):
            return
        error, digest = found[1], sha256_of(found[5])
        if error:
            batch.versions.lost.append((one.path, error, digest))
        elif digest:
            batch.versions.needed.append(SetAside(digest, found[6], found[2][0]))

    def _not_read(self, one: Candidate, found: HashResult, *, is_known: bool) -> None:
        outcome, error, result = found[0], found[1], self.result
        result.kept += is_known
        if outcome == hashing.UNPLACED:
            raise place_fault(os.path.join(self.folder.place or b"", path_of(one.uri)), error)
        if outcome == hashing.UNREADABLE:
            result.unreadable.add(one.uri, 1)
            self.warn(*unreadable(one.path, os.strerror(error)))
        elif outcome == hashing.UNFINISHED:
            text = "somebody is writing it: Headwater waits until it is closed, or unchanged for a while"
            self.warn("HW-ING-22", text, one.path)
        elif outcome == hashing.CHANGED:
            self.warn("HW-ING-22", "changed while it was read: it is read again", one.path)
        if outcome in (hashing.UNFINISHED, hashing.CHANGED) or (is_known and outcome != hashing.UNREADABLE):
            result.unsettled.append(path_of(one.uri))  # one that has gone since it was found: a deletion is judged anew


def unreadable(path: bytes, error: str) -> tuple[str, str, bytes]:
    """The remark on a file or folder that cannot be looked at."""
    return "HW-ING-20", f"cannot be read ({error}): its published state stays", path


def batched(items: Iterable[T], size: int) -> Iterator[list[T]]:
    """The items in lists of up to `size`."""
    source = iter(items)
    while batch := list(islice(source, size)):
        yield batch


# fixity: files that a disk has altered, of which no scan takes notice


def altered_files(
    catalog: Catalog, name: str, folder: Path, listener: Listener, counts: dict[str, int]
) -> Iterator[Discrepancy]:
    """The files of a set whose octets are not those that are published, although size, times and inode are as noted.

    So are those that cannot be read, or are gone. One that has changed otherwise is left to the next scan. Nothing is
    recorded. All are counted in `counts`, as hashed, gone or changed.
    """
    counts |= dict.fromkeys(("hashed", "gone", "changed"), 0)
    root, done, rows = os.path.realpath(os.fsencode(folder)), 0, catalog.resources(name)
    while rows:
        for one in rows:
            listed = {digest.algorithm: str(digest) for digest in parse_hash(one.metadata.hash or "").digests}
            request = os.path.join(root, path_of(one.uri)), tuple(listed), None
            outcome, error, state, _, _, text, _ = read_file(request)
            is_same = outcome == hashing.READ and set(listed.values()) == set(text.split())
            if outcome == hashing.UNREADABLE:
                yield Discrepancy(one.uri, f"cannot be read: {os.strerror(error)}")
            elif outcome in (hashing.VANISHED, hashing.SPECIAL):
                counts["gone"] += 1
                yield Discrepancy(one.uri, f"is gone: there is no file {os.fsdecode(request[0])}")
            elif listed and (is_same or (outcome == hashing.READ and is_noted(one.memo, *state))):
                counts["hashed"] += 1
                if not is_same:
                    said = f"is {text}, published is {' '.join(listed.values())}"
                    yield Discrepancy(one.uri, f"{said}; size and times are as they were: the disk has altered it")
            else:
                counts["changed"] += 1
        done += len(rows)
        listener(Progress("hashing", done))
        rows = catalog.resources(name, rows[-1].uri)
    if done and not (counts["hashed"] or counts["gone"]):
        yield Discrepancy(os.fsdecode(root), "no file here is as it was published: nothing was compared")
