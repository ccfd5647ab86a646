"""Follows a harvester's index into a push set: the snapshot first, then everything that happens, each document once."""

import datetime as dt
import hashlib
import math
import time
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass
from typing import Final

import msgspec

from headwater.errors import UsageFault
from headwater.ingest.deletion_guard import DeletionGuard, DeletionHold
from headwater.ingest.dit.documents import DitDocument, read_document
from headwater.ingest.dit.index import PAGE, Index, Shard, ShardPosition, read_position
from headwater.ingest.dit.intake import take_documents, tell
from headwater.ingest.dit.texts import Wrapped
from headwater.ingest.push.events import refusal
from headwater.ingest.push.feed import BATCH, Draft, Feed, Outcome, OutcomeKind
from headwater.ingest.push.ingest_state import ChangeDocument, Effects, ResourceDocument
from headwater.ingest.push.resource_locations import BadLocation
from headwater.ingest.push.submission import Account
from headwater.progress import Listener, Notice, Progress, silent
from headwater.spec.times import to_microseconds
from headwater.versions.retention import DigestSet

_SHARE: Final = 0.9  # of a full page: writers at work at the same time are a little out of order, also across its end
_FIRST: Final = dt.datetime.min.replace(tzinfo=dt.UTC)
MOST_PAGES: Final = 5  # of one shard in one poll …
_FEWEST: Final = 50  # … and so many documents of it at least, however many shards share a page


MARGIN_SECONDS: Final = 1.0
"""Beyond twice the interval at which shards show what is new: an engine with much to do is late with it."""
LONGEST_SECONDS: Final = 60.0  # a change is held back for so long at most, whatever the interval is
_HELD_PAUSE: Final = 0.2
_seconds: Final = time.monotonic
_EVERYTHING: Final = 1 << 63


class ShardPage:
    """What one shard shows beyond the position that was read before, in the order of its operations.

    What has numbers up to `mark` has been to be seen for long enough. `is_full`: there may be more after it.
    """

    def __init__(
        self, shard: Shard, position: ShardPosition, found: Sequence[Wrapped], *, is_full: bool = False
    ) -> None:
        self.shard = shard
        self.position = position
        self.found = found
        self.parsed = [parse(one) for one in found]  # the documents, or why they are none
        times = (one.at if isinstance(one, ChangeDocument) else None for one in self.parsed)
        self.order = list(zip((one.number for one in found), times, strict=True))
        """The number of each and, of a change, when it happened."""
        self.newest = max(position.next - 1, found[-1].number if found else -1)
        self.is_full = is_full and bool(found)
        self.mark = -1

    @property
    def is_cut(self) -> bool:
        """Whether there may be more that has been to be seen for long enough."""
        return self.is_full and self.newest <= self.mark

    @property
    def end(self) -> dt.datetime:
        """The time up to which most of its changes lie: what comes after the page is hardly earlier."""
        times = sorted(at for _, at in self.order if at is not None)
        return times[max(0, int(_SHARE * len(times)) - 1)] if times else _FIRST


def ready(pages: Sequence[ShardPage]) -> list[int]:
    """How many documents of each page are taken, from its beginning, to merge the shards in the order of time."""
    cut = [page for page in pages if page.is_cut]
    old = (at for page in pages for number, at in page.order if number <= page.mark and at is not None)
    until = min((max(old, default=_FIRST), *(page.end for page in cut)))
    counts = _counts(pages, until)
    if cut and not any(counts):  # the first change of every page is out of order
        first = min(cut, key=lambda page: page.end)
        return [len(page.found) if page is first else 0 for page in pages]
    return counts


def _counts(pages: Sequence[ShardPage], until: dt.datetime) -> list[int]:
    """How many documents of each page come up to the last change until then, and old resources after it.

    A resource has no place in the order. Where a change of it has to wait, it waits, too: that may be of before it.
    """
    counts = [0] * len(pages)
    for one, page in enumerate(pages):
        for place, (number, at) in enumerate(page.order, 1):
            if number < page.position.next or (at is not None and at <= until):
                counts[one] = place
            elif at is not None:
                break
    if any(page.is_cut for page in pages):  # a deletion that came before a resource may lie beyond a page
        return counts
    rest = [told for page, count in zip(pages, counts, strict=True) for told in page.parsed[count:]]
    waiting = {told.location for told in rest if isinstance(told, ChangeDocument) and told.at is not None}
    for one, page in enumerate(pages):
        for place in range(counts[one], len(page.found)):
            (number, at), told = page.order[place], page.parsed[place]
            if at is not None or number > page.mark or getattr(told, "location", None) in waiting:
                break
            counts[one] = place + 1
    return counts


def held_seconds(refresh_seconds: Sequence[float]) -> float:
    """How long a change is held back, by the intervals at which the shards show what is new (0: all at once)."""
    longest = max(refresh_seconds, default=0.0)
    if len(refresh_seconds) < 2 or not longest:
        return 0.0
    return min(2 * longest + MARGIN_SECONDS, LONGEST_SECONDS)


@dataclass(eq=False)
class DitFollower:
    """One index followed into one set. `resource_sets` are the set's names in the documents, None for any."""

    feed: Feed
    index: Index
    resource_sets: frozenset[str] | None
    _: KW_ONLY
    listener: Listener = silent
    stop: Callable[[], bool] = lambda: False

    def __post_init__(self) -> None:
        self.tally = Account()
        self._shown: list[tuple[float, dict[Shard, int]]] = []
        """The newest number of each shard at the last looks, and when they were answered (monotonic seconds)."""
        self.read_until = -math.inf  # what could be seen then was taken

    def poll(self) -> int:
        """Take what is new, the snapshot first when the set is loading; returns how many documents were taken.

        Once the set is open, a poll takes some pages of each shard at most, so that what is recorded can be published
        in between: poll until nothing is found. May be ended at any moment and called again. Raises what the search
        server and the catalog raise.
        """
        began, before = _seconds(), self.tally.lines
        try:
            shards = self.index.shards()
            if not self.feed.is_open:
                self._load(shards)
            if self.feed.is_open:
                self._follow(shards, began)
        except BaseException:
            self._shown.clear()  # an engine that stands still shows nothing new meanwhile
            raise
        return self.tally.lines - before

    def read_to_end(self) -> None:
        """Poll until everything is taken that can be seen now."""
        began = _seconds()
        while not self.stop():
            found = self.poll()
            if self.read_until >= began:
                return
            if not found:
                time.sleep(_HELD_PAUSE)

    def _load(self, shards: Sequence[Shard]) -> None:
        """The resources as of now. What is written meanwhile has higher numbers and is followed afterwards (DIT-03)."""
        ends: list[int] = []
        for shard in shards:  # as near to one moment as can be: pairs lie across shards
            feed = f"{shard.feed} snapshot"
            if (known := self.feed.state.position(feed)) is None:  # a load that is interrupted goes on to the same end
                known = b"%d" % self.index.newest(shard)
                take_documents(self.feed, [], positions={feed: known})
            ends.append(int(known))
        for shard, until in zip(shards, ends, strict=True):
            position = read_position(self.feed.state.position(shard.feed))
            for found in self.index.pages(shard, position, until, self.resource_sets):
                self._take([ShardPage(shard, position, found)], [len(found)])
                if self.stop():
                    return
        self.feed.open()

    def _follow(self, shards: Sequence[Shard], began: float) -> None:
        """Take what is new from all shards, in the order of `datetime`.

        Each shows it at moments of its own: a change is held back until all have shown what came before it.
        """
        most = max(_FEWEST, PAGE // max(1, len(shards)))
        positions = {shard: read_position(self.feed.state.position(shard.feed)) for shard in shards}
        held = held_seconds([shard.refresh_seconds for shard in shards])
        shown_at: float = began
        marks: Mapping[Shard, int] = dict.fromkeys(shards, _EVERYTHING)
        for number in range(MOST_PAGES):
            pages = []
            for shard, position in positions.items():  # a position moves when what is found is taken
                found, is_full = self.index.look(shard, position, self.resource_sets, most=most)
                pages.append(ShardPage(shard, position, found, is_full=is_full))
            if held and not number:
                now = {one.shard: self.index.newest(one.shard) if one.is_full else one.newest for one in pages}
                self._shown.append((_seconds(), now))
                place = bisect_right(self._shown, began - held, key=lambda one: one[0])
                self._shown = self._shown[max(0, place - 1) :]
                shown_at, marks = self._shown[0] if place else (-math.inf, {})
            for page in pages:
                page.mark = marks.get(page.shard, -1)
            if any(counts := ready(pages)):
                self._take(pages, counts)
            if self.stop():
                return
            if not any(page.is_cut for page in pages):
                self.read_until = shown_at
                return

    def _take(self, read: Sequence[ShardPage], counts: Sequence[int]) -> None:
        second = int(self.feed.clock().timestamp())
        positions: dict[str, bytes] = {}
        chosen: list[Wrapped] = []
        parsed: list[DitDocument | UsageFault] = []
        for one, count in zip(read, counts, strict=True):
            if not count:
                continue
            one.position.take((found.number for found in one.found[:count]), second)
            positions[one.shard.feed] = msgspec.json.encode(one.position)
            chosen += one.found[:count]
            parsed += one.parsed[:count]
        documents, refused, foreign = sort_out(parsed, self.resource_sets)
        taken = take_documents(self.feed, documents, positions=positions, in_order=len(read) == 1)
        outcomes = [*refused, *taken]
        self.tally.count(outcomes, foreign=foreign)
        for outcome in outcomes:
            if outcome.kind is OutcomeKind.REJECTED:
                where, known = f"line {outcome.line}", chosen[outcome.line - 1].id
                text = f"a line was refused: {outcome.reason} (_id {known!a:.80})"
                self.listener(Notice(outcome.code or "HW-ING-50", text, where))
        tell(taken, self.listener)
        self.listener(Progress("documents", self.tally.lines))


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
    before = feed.catalog.state(feed.name).last_seq
    found = DigestSet(_compared(follower))
    after, vanished, last = feed.catalog.state(feed.name), list[str](), ""
    while rows := feed.catalog.resources(feed.name, last, _ROWS):  # what has changed since is newer than the audit
        vanished += [row.uri for row in rows if row.seq <= before and _digest(row.uri) not in found]
        last = rows[-1].uri
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


def _compared(follower: DitFollower) -> Iterator[str]:
    """Take every resource of the index once more: what says nothing new does nothing. Digests of the URIs of all."""
    for shard in follower.index.shards():
        position, until = ShardPosition(), follower.index.newest(shard)
        for found in follower.index.pages(shard, position, until, follower.resource_sets):
            position.next = found[-1].number + 1  # in one look at what is there, nothing is under way
            told = sort_out([parse(one) for one in found], follower.resource_sets)[0]
            documents = [(line, one) for line, one in told if isinstance(one, ResourceDocument)]
            take_documents(follower.feed, documents, snapshot=True)
            for _line, one in documents:
                with suppress(BadLocation):  # refused, and told, when it was taken
                    yield _digest(follower.feed.locations.resolve(one.location))


def _digest(uri: str) -> str:
    return hashlib.blake2b(uri.encode(), digest_size=8).hexdigest()


def _delete(feed: Feed, uris: Sequence[str], seq: int) -> None:
    """Delete those that have not changed since; others may announce meanwhile what was found missing."""
    now_us = to_microseconds(feed.clock())

    def delete() -> None:
        held = feed.held(uris)
        drafts = [Draft(uri=uri, metadata=None, statements=()) for uri in uris if uri in held and held[uri].seq <= seq]
        feed.write(drafts, Effects(gone={one.uri: now_us for one in drafts}))

    feed.attempt(delete)
