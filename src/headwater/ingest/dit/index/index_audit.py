"""Compares a harvester's whole index with the set, and repairs what the two say differently (DIT-A11, DIT-03).

The `resource` documents are the snapshot. Whatever way a mismatch came about (a post that failed, a change that was
never written), the set is brought to it: what is missing or other is recorded as it is now, what the index no longer
has is deleted, unless that is so much that somebody should look first.
"""

from __future__ import annotations

import hashlib
from array import array
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from headwater.ingest.dit.documents import DitDocument, ResourceDocument
from headwater.ingest.dit.index.follower import DitFollower
from headwater.ingest.dit.index.shard_positions import ShardPosition
from headwater.ingest.dit.intake import settle, take_documents
from headwater.ingest.held_deletions import DeletionGuard, DeletionHold
from headwater.ingest.push.feed import BATCH, Feed
from headwater.ingest.push.ingest_state import Effects
from headwater.ingest.push.inverse_links import Draft
from headwater.ingest.push.resource_locations import BadLocation
from headwater.spec.timestamps import to_microseconds

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
        while found := follower.index.page(shard, position, until, follower.resource_sets):
            position = ShardPosition(found[-1].number + 1)  # in one look at what is there, nothing is under way
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
