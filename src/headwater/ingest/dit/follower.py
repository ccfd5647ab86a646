"""Follows a harvester's index into a push set: the snapshot first, then everything that happens, each document once."""

from __future__ import annotations

import datetime as dt
import hashlib
from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import Final

import msgspec

from headwater.errors import UsageFault
from headwater.ingest.dit.documents import ChangeDocument, DitDocument, ResourceDocument, read_document
from headwater.ingest.dit.index import PAGE, Index, IndexDocument, Shard, ShardPosition, read_position, write_position
from headwater.ingest.dit.intake import settle, take_documents, tell
from headwater.ingest.dit.texts import Wrapped
from headwater.ingest.push.events import refusal
from headwater.ingest.push.feed import BATCH, Feed, Outcome, OutcomeKind
from headwater.ingest.push.ingest_state import Effects
from headwater.ingest.push.inverse_links import Draft
from headwater.ingest.push.lines import Account
from headwater.ingest.push.resource_locations import BadLocation
from headwater.ingest.set_problems import DeletionGuard, DeletionHold
from headwater.progress import Listener, Notice, Progress, silent
from headwater.spec.times import to_microseconds

_SHARE: Final = 0.9
"""Of a full page: writers at work at the same time are a little out of order, also across its end."""
_FIRST: Final = dt.datetime.min.replace(tzinfo=dt.UTC)
_LAST: Final = dt.datetime.max.replace(tzinfo=dt.UTC)
MOST_PAGES: Final = 5
"""Of one shard in one poll …"""
_FEWEST: Final = 50
"""… and so many documents of it at least, however many shards share a page."""


class ShardPage(msgspec.Struct, frozen=True, kw_only=True):
    """What one shard shows beyond its position: numbers of documents and, of changes, when they happened.

    Numbers below `next` were late to be seen. `is_full`: there may be more after them.
    """

    numbers: Sequence[int]
    times: Sequence[dt.datetime | None]
    next: int
    is_full: bool

    @property
    def end(self) -> dt.datetime:
        """The time up to which most of its changes lie: what comes after the page is hardly earlier."""
        times = sorted(at for at in self.times if at is not None)
        return times[max(0, int(_SHARE * len(times)) - 1)] if times else _FIRST


def ready(pages: Sequence[ShardPage]) -> list[int]:
    """How many documents of each page are taken, from its beginning, to merge the shards in the order of time."""
    full = [page for page in pages if page.is_full]
    end = min((page.end for page in full), default=_LAST)
    counts = [_until(page, end) for page in pages]
    if full and not any(counts):  # the first change of every page is out of order
        first = min(full, key=lambda page: page.end)
        return [len(page.numbers) if page is first else 0 for page in pages]
    return counts


def _until(page: ShardPage, end: dt.datetime) -> int:
    """How many documents come before the first new change after `end`; a resource has no place in the order."""
    found = enumerate(zip(page.numbers, page.times, strict=True))
    later = (place for place, (number, at) in found if number >= page.next and at is not None and at > end)
    return next(later, len(page.numbers))


class DitFollower:
    """One index followed into one set. `resource_sets` are the set's names in the documents, None for any."""

    def __init__(
        self,
        feed: Feed,
        index: Index,
        resource_sets: frozenset[str] | None,
        *,
        listener: Listener = silent,
        stop: Callable[[], bool] = lambda: False,
    ) -> None:
        self.feed = feed
        self.tally = Account()
        self.index = index
        self.resource_sets = resource_sets
        self._listener = listener
        self._stop = stop

    def poll(self) -> int:
        """Take what is new, the snapshot first when the set is loading; returns how many documents were taken.

        Once the set is open, a poll takes some pages of each shard at most, so that what is recorded can be published
        in between: poll until nothing is found. May be ended at any moment and called again. Raises what the search
        server and the catalog raise.
        """
        shards = self.index.shards()
        before = self.tally.lines
        if not self.feed.is_open:
            self._load(shards)
        if self.feed.is_open:
            self._follow(shards)
        return self.tally.lines - before

    def read_to_end(self) -> None:
        """Poll until everything is taken that can be seen now."""
        while self.poll() and not self._stop():
            pass
        settle(self.feed, self.feed.clock())

    def _load(self, shards: Sequence[Shard]) -> None:
        """The resources as of now. What is written meanwhile has higher numbers and is followed afterwards (DIT-03)."""
        ends = [self._until(shard) for shard in shards]  # as near to one moment as can be: pairs lie across shards
        for shard, until in zip(shards, ends, strict=True):
            self._read(shard, until)
            if self._stop():
                return
        self.feed.open()

    def _until(self, shard: Shard) -> int:
        """Where the snapshot of a shard ends: fixed when it begins, for a load that is interrupted to go on there."""
        feed = f"{shard.feed} snapshot"
        known = self.feed.position(feed)
        if known is not None:
            return int(known)
        until = self.index.newest(shard)
        take_documents(self.feed, [], positions={feed: b"%d" % until})
        return until

    def _read(self, shard: Shard, until: int) -> None:
        """Take a shard's part of the snapshot."""
        position = read_position(self.feed.position(shard.feed))
        for found in self.index.pages(shard, position, until, self.resource_sets):
            self._take([_Read(shard, position, found)], [len(found)])
            if self._stop():
                return

    def _follow(self, shards: Sequence[Shard]) -> None:
        """Take what is new from all shards, in the order of `datetime` as far as they show it."""
        most = max(_FEWEST, PAGE // max(1, len(shards)))
        positions = {shard: read_position(self.feed.position(shard.feed)) for shard in shards}
        for _ in range(MOST_PAGES):
            read = [self._look(shard, position, most) for shard, position in positions.items()]
            pages = [one.page() for one in read]
            if any(page.numbers for page in pages):
                self._take(read, ready(pages))
            if self._stop() or not any(page.is_full for page in pages):
                return

    def _look(self, shard: Shard, position: ShardPosition, most: int) -> _Read:
        """What a shard has beyond its position; the position moves when it is taken."""
        found, is_full = self.index.look(shard, position, self.resource_sets, most=most)
        return _Read(shard, position, found, is_full=is_full)

    def documents(self, found: Sequence[IndexDocument]) -> list[tuple[int, DitDocument]]:
        """The documents of the set among those found."""
        return sort_out([parse(one.wrapped) for one in found], self.resource_sets)[0]

    def _take(self, read: Sequence[_Read], counts: Sequence[int]) -> None:
        """Take so many documents of each shard as one batch."""
        second = int(self.feed.clock().timestamp())
        positions: dict[str, bytes] = {}
        chosen: list[IndexDocument] = []
        parsed: list[DitDocument | UsageFault] = []
        for one, count in zip(read, counts, strict=True):
            if not count:
                continue
            one.position.take((found.number for found in one.found[:count]), second)
            one.position.forget(second)
            positions[one.shard.feed] = write_position(one.position)
            chosen += one.found[:count]
            parsed += one.parsed[:count]
        documents, refused, foreign = sort_out(parsed, self.resource_sets)
        taken = take_documents(self.feed, documents, positions=positions, in_order=len(read) == 1)
        outcomes = [*refused, *taken.outcomes]
        self.tally.count(outcomes, foreign=foreign)
        for outcome in outcomes:
            if outcome.kind is OutcomeKind.REJECTED:
                where, known = f"line {outcome.line}", chosen[outcome.line - 1].wrapped.id
                text = f"a line was refused: {outcome.reason} (_id {known!a:.80})"
                self._listener(Notice(outcome.code or "HW-ING-50", text, where))
        tell(taken, self._listener)
        self._listener(Progress("documents", self.tally.lines))


class _Read:
    """What one shard has shown, beyond the position that was read before."""

    def __init__(
        self, shard: Shard, position: ShardPosition, found: list[IndexDocument], *, is_full: bool = False
    ) -> None:
        self.shard = shard
        self.position = position
        self.found = found
        self.is_full = is_full

    @cached_property
    def parsed(self) -> list[DitDocument | UsageFault]:
        """The documents, or why they are none."""
        return [parse(one.wrapped) for one in self.found]

    def page(self) -> ShardPage:
        """As those see it who decide how much of it to take."""
        return ShardPage(
            numbers=[one.number for one in self.found],
            times=[one.at if isinstance(one, ChangeDocument) else None for one in self.parsed],
            next=self.position.next,
            is_full=self.is_full and bool(self.found),
        )


def parse(wrapped: Wrapped) -> DitDocument | UsageFault:
    """The document, or why it is none."""
    try:
        return read_document(wrapped.source, wrapped.kind, wrapped.stored_at)
    except UsageFault as fault:
        return fault


def sort_out(
    parsed: Sequence[DitDocument | UsageFault], resource_sets: frozenset[str] | None
) -> tuple[list[tuple[int, DitDocument]], list[Outcome], int]:
    """The documents of a set with their lines, the outcomes of those that are none, and how many are of other sets."""
    documents: list[tuple[int, DitDocument]] = []
    refused: list[Outcome] = []
    foreign = 0
    for line, one in enumerate(parsed, 1):
        if isinstance(one, UsageFault):
            refused.append(refusal(line, one))
        elif resource_sets is None or one.resource_set is None or one.resource_set in resource_sets:
            documents.append((line, one))
        else:
            foreign += 1
    return documents, refused, foreign


_ROWS: Final = 10_000


class IndexAuditResult(msgspec.Struct, frozen=True, kw_only=True):
    """What an audit found: resources in the index, changes that it had to record, deletions among them or held back."""

    resources: int
    repaired: int
    deleted: int
    held_back: DeletionHold | None


def audit(follower: DitFollower, max_delete: float) -> IndexAuditResult:
    """Bring the set to what the index says now. Raises what the search server and the catalog raise.

    More deletions than the share `max_delete` are held back. Eight octets of memory for each resource.
    """
    feed = follower.feed
    follower.read_to_end()
    settle(feed, None)  # what an older version has left
    before = feed.catalog.state(feed.name).last_seq
    found = _compared(follower)
    after = feed.catalog.state(feed.name)
    vanished = [uri for uri in _uris_until(feed, before) if not _has(found, _mark(uri))]
    feed.guard = None  # this one sees all deletions at once
    guard = DeletionGuard(feed.catalog, feed.name, max_delete, feed.clock)
    held_back = guard.judge(after.count, len(vanished), len(found))
    if held_back is None:
        for start in range(0, len(vanished), BATCH):
            _delete(feed, vanished[start : start + BATCH], before)
    recorded = feed.catalog.state(feed.name).last_seq - before
    deleted = 0 if held_back else len(vanished)
    noted = guard.after_scan(held_back, is_whole=True, deleted=deleted)
    if noted is not None and after.opened_at is not None:
        feed.catalog.record(feed.name, (), feed.clock(), state=noted)
    return IndexAuditResult(resources=len(found), repaired=recorded, deleted=deleted, held_back=held_back)


def _compared(follower: DitFollower) -> array[int]:
    """Take every resource of the index once more: what says nothing new does nothing. Returns sorted marks of all."""
    marks = array("Q")
    for shard in follower.index.shards():
        position, until = ShardPosition(), follower.index.newest(shard)
        for found in follower.index.pages(shard, position, until, follower.resource_sets):
            position.next = found[-1].number + 1  # in one look at what is there, nothing is under way
            documents = [one for one in follower.documents(found) if isinstance(one[1], ResourceDocument)]
            take_documents(follower.feed, documents, snapshot=True)
            marks.extend(_marks(follower.feed, documents))
    return array("Q", sorted(set(marks)))


def _marks(feed: Feed, documents: Sequence[tuple[int, DitDocument]]) -> list[int]:
    marks = []
    for _, document in documents:
        try:
            marks.append(_mark(feed.locations.resolve(document.location)))
        except BadLocation:
            continue  # it was refused, and told, when it was taken
    return marks


def _mark(uri: str) -> int:
    return int.from_bytes(hashlib.blake2b(uri.encode(), digest_size=8).digest(), "big")


def _has(marks: array[int], mark: int) -> bool:
    place = bisect_left(marks, mark)
    return place < len(marks) and marks[place] == mark


def _uris_until(feed: Feed, seq: int) -> Iterator[str]:
    """The resources that have not changed since; what has is newer than the audit."""
    after = ""
    while rows := feed.catalog.resources(feed.name, after, _ROWS):
        yield from (row.uri for row in rows if row.seq <= seq)
        after = rows[-1].uri


def _delete(feed: Feed, uris: Sequence[str], seq: int) -> None:
    """Delete those that have not changed since; others may announce meanwhile what was found missing."""
    now_us = to_microseconds(feed.clock())

    def delete() -> None:
        held = feed.held(uris)
        drafts = [Draft(uri=uri, metadata=None, statements=()) for uri in uris if uri in held and held[uri].seq <= seq]
        feed.write(drafts, Effects(gone={one.uri: now_us for one in drafts}))

    feed.attempt(delete)
