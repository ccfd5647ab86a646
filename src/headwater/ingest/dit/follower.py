"""Follows a harvester's index into a fed set: the snapshot first, then everything that happens, each document once."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Final

from msgspec.structs import replace

from headwater.errors import UsageFault
from headwater.ingest.dit.documents import DitDocument, read_document
from headwater.ingest.dit.exports import Wrapped
from headwater.ingest.dit.index import Found, Index, Shard
from headwater.ingest.dit.intake import PATIENCE, settle, take_documents
from headwater.ingest.dit.positions import ShardPosition, read_position, write_position
from headwater.ingest.dit.tally import Tally
from headwater.ingest.fed.feed import Feed, Outcome
from headwater.ingest.fed.intake import refusal
from headwater.progress import Listener, Progress, silent

MOST_PAGES: Final = 5
"""Of one shard in one poll."""
PASS_EVERY: Final = 60
"""In one of so many polls, what belongs to other sets is passed over: or every search would look at more of it."""


class DitFollower:
    """One index followed into one set. `resource_sets` are the set's names in the documents, None for any."""

    def __init__(
        self,
        feed: Feed,
        index: Index,
        resource_sets: frozenset[str] | None,
        *,
        patience: dt.timedelta = PATIENCE,
        listener: Listener = silent,
        stop: Callable[[], bool] = lambda: False,
    ) -> None:
        self.feed = feed
        self.tally = Tally()
        self.index = index
        self.resource_sets = resource_sets
        self._polls = 0
        self._patience = patience
        self._listener = listener
        self._stop = stop

    def poll(self) -> int:
        """Take what is new, the snapshot first when the set is loading; returns how many documents were looked at.

        Once the set is open, a poll takes some pages of each shard at most, so that what is recorded can be published
        in between: poll until nothing is found. May be ended at any moment and called again. Raises what the search
        server, the catalog and the memory raise.
        """
        shards = self.index.shards()
        before = self.tally.documents
        if not self.feed.is_open:
            self._load(shards)
        if self.feed.is_open:
            for shard in shards:
                self._read(shard, most=MOST_PAGES)
                if self._polls % PASS_EVERY == 0:
                    self._pass_over(shard)
            self._polls += 1
            settle(self.feed, self.feed.clock())
        return self.tally.documents - before

    @property
    def waits(self) -> bool:
        """Whether a document waits for its partner, from this run or one before."""
        return bool(self.feed.memory.due(self.feed.name, self.feed.clock() + self._patience, 1))

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

    def _read(self, shard: Shard, until: int | None = None, most: int | None = None) -> None:
        position = read_position(self.feed.position(shard.feed))
        for found in islice(self.index.pages(shard, position, until, self.resource_sets), most):
            second = int(self.feed.clock().timestamp())
            position.take((one.number for one in found), second)
            position.forget(second)
            self._take(shard, found, position)
            self._listener(Progress("documents", self.tally.documents))
            if self._stop():
                return

    def _pass_over(self, shard: Shard) -> None:
        """Move on past documents of other sets, which no page shows."""
        position = read_position(self.feed.position(shard.feed))
        newest = self.index.newest_of_others(shard, position, self.resource_sets)
        if position.is_far_behind(newest):
            position.pass_over(newest)
            take_documents(self.feed, [], positions={shard.feed: write_position(position)})

    def documents(self, found: Sequence[Found]) -> list[tuple[int, DitDocument]]:
        """The documents of the set among those found."""
        return sort_out([one.wrapped for one in found], self.resource_sets)[0]

    def _take(self, shard: Shard, found: Sequence[Found], position: ShardPosition) -> None:
        documents, refused, foreign = sort_out([one.wrapped for one in found], self.resource_sets)
        positions = {shard.feed: write_position(position)}
        taken = take_documents(self.feed, documents, positions=positions, patience=self._patience)
        outcomes = [*refused, *taken.outcomes]
        self.tally.count(outcomes, foreign=foreign)
        self.tally.complain(_named(outcomes, found), self._listener)
        self.tally.notice(taken, self._listener)


def _named(outcomes: Sequence[Outcome], found: Sequence[Found]) -> list[Outcome]:
    """The refused ones with the ids by which the index knows the documents."""
    return [
        replace(one, reason=f"{one.reason} (_id {found[one.line - 1].wrapped.id!a:.80})")
        for one in outcomes
        if one.status >= 400
    ]


def sort_out(
    wrapped: Sequence[Wrapped], resource_sets: frozenset[str] | None
) -> tuple[list[tuple[int, DitDocument]], list[Outcome], int]:
    """The documents of a set with their lines, the outcomes of those that are none, and how many are of other sets."""
    documents: list[tuple[int, DitDocument]] = []
    refused: list[Outcome] = []
    foreign = 0
    for line, one in enumerate(wrapped, 1):
        try:
            document = read_document(one.source, one.kind, one.stored_at)
        except UsageFault as fault:
            refused.append(refusal(line, fault))
            continue
        if resource_sets is None or document.resource_set is None or document.resource_set in resource_sets:
            documents.append((line, document))
        else:
            foreign += 1
    return documents, refused, foreign
