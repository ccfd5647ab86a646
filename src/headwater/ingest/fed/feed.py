"""One set that is fed with announced records: writes them into catalog and memory so that each happens exactly once."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum

import msgspec

from headwater.catalog.interface import (
    Catalog,
    Delete,
    Event,
    Metadata,
    Moved,
    Resource,
    SetState,
    Unacceptable,
    Upsert,
)
from headwater.catalog.weights import weight
from headwater.ingest.fed.locations import Locations
from headwater.ingest.fed.memory import Effects, Intent, Memory, Request
from headwater.ingest.fed.reciprocity import Draft, differences, implied_by, reciprocate
from headwater.spec.records import Link

BATCH = 1_000
"""Records of one transaction."""


class OutcomeKind(StrEnum):
    """What an outcome counts as."""

    TAKEN = "taken"
    WAITING = "waiting"
    IGNORED = "ignored"
    REJECTED = "rejected"


class Outcome(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What became of one line or document: an HTTP status, the change's number, or a code and the reason.

    `item` is which of several documents in one line it is about, counted from 1. `left_out` says what of a document
    that was taken could not be read.
    """

    line: int
    item: int | None = None
    status: int
    seq: int | None = None
    code: str | None = None
    reason: str | None = None
    left_out: tuple[str, ...] = ()

    @property
    def kind(self) -> OutcomeKind:
        """What it counts as: refused, waiting for a partner, no news, or else taken."""
        if self.status >= 400:
            return OutcomeKind.REJECTED
        if self.status == 202:
            return OutcomeKind.WAITING
        return OutcomeKind.TAKEN if self.reason is None else OutcomeKind.IGNORED


class Feed:
    """The set `name`. Its methods may be called from several threads and processes; each batch has its turn."""

    def __init__(
        self, catalog: Catalog, memory: Memory, name: str, locations: Locations, clock: Callable[[], dt.datetime]
    ) -> None:
        self.name = name
        self.catalog = catalog
        self.memory = memory
        self.locations = locations
        self.clock = clock
        self.turn = memory.turn(name)
        self._created = False
        self._opened = False

    @property
    def is_open(self) -> bool:
        """Whether the first load is complete: what comes now is logged as changes."""
        return self._opened or self._state().opened_at is not None

    def open(self) -> None:
        """End the load. No effect on a set that is open."""
        with self.turn:
            self.catalog.create(self.name)
            self.catalog.open(self.name, self.clock())

    def held(self, uris: Iterable[str]) -> dict[str, Resource]:
        """The live resources among these."""
        return self.catalog.get(self.name, list(dict.fromkeys(uris)))

    def implied(self, uris: Iterable[str]) -> dict[str, tuple[Link, ...]]:
        """The links that follow from what others say of these resources (DIT-24), where there are any."""
        about = self.memory.about(self.name, dict.fromkeys(uris))
        address = self.locations.absolute
        return {uri: implied_by((one for one in said if one[1] != uri), address) for uri, said in about.items()}

    def check(self, uri: str, metadata: Metadata) -> None:
        """Raise Unacceptable for what no document can hold; one of a batch must not cost the others theirs."""
        limits = self.catalog.limits
        octets, largest = weight(uri, metadata), min(limits.page_octets, limits.segment_octets)
        if octets > largest:
            raise Unacceptable(f"an entry of up to {octets} octets: a document has room for {largest}", where=uri[:200])

    def next_seq(self) -> int | None:
        """The number that the next draft's change will get; the others follow. None while the set is loading."""
        state = self._state()
        return None if state.opened_at is None else state.last_seq + 1

    def write(self, drafts: Sequence[Draft], effects: Effects) -> None:
        """Record the drafts and keep the effects in mind, all or nothing; call it in `turn`, after `recover`.

        The changes are numbered as `next_seq` says. What the links of these resources imply for others is recorded
        after them.
        """
        extra = self._reciprocal(drafts, effects)
        events = [_event(one) for one in (*drafts, *extra)]
        state = self._state()
        if not events:
            self.memory.commit(self.name, effects, self.clock())
            return
        if state.opened_at is None:  # to load is idempotent: a batch that is repeated does no harm
            self.catalog.load(self.name, events)
            self.memory.commit(self.name, effects, self.clock())
            return
        self.memory.begin(self.name, Intent(state.last_seq, len(events), effects))
        try:
            self.catalog.record(self.name, events, self.clock(), after=state)
        except Moved:  # somebody has had the turn while we were silent
            self.memory.abandon(self.name)
            raise
        self.memory.commit(self.name, effects, self.clock())

    def request(self, key: str) -> Request | None:
        """What became of the request with this idempotency key, a batch that was cut in two included."""
        with self.turn:
            self.recover()
            return self.memory.request(self.name, key)

    def position(self, feed: str) -> bytes | None:
        """How far a feed was read, a batch that was cut in two included."""
        with self.turn:
            self.recover()
            return self.memory.position(self.name, feed)

    def recover(self) -> None:
        """Finish what a crash has cut in two, here or in another process: call it first in a `turn`.

        The catalog tells whether the batch under way was recorded. One that was not will not be: who began it may only
        have been paused. And what is seen of one that was stays: a node of a cluster may show what it then loses.
        """
        if not self._created:
            self._state()
        intent = self.memory.intent(self.name)
        if intent is None:
            return
        self.memory.shut_out(self.name)
        if self._state().last_seq > intent.before:
            self.memory.commit(self.name, intent.effects, self.clock())
        else:
            self.memory.abandon(self.name)

    def _state(self) -> SetState:
        """The set as it is, made when it is new. What is open stays open."""
        state = self.catalog.state(self.name) if self._created else self.catalog.create(self.name)
        self._created, self._opened = True, state.opened_at is not None
        return state

    def _reciprocal(self, drafts: Sequence[Draft], effects: Effects) -> list[Draft]:
        making = dict.fromkeys(one.uri for one in drafts if one.statements is not None)
        if not making:
            return []
        before = self.memory.statements(self.name, making)
        changed, anew, no_longer = differences(drafts, before)
        if not changed:
            return []
        effects.statements |= changed
        others = dict.fromkeys(other for _, _, other in (*anew, *no_longer))
        mine = {one.uri for one in drafts}
        held = self.held(uri for uri in others if uri not in mine)
        own = self.memory.statements(self.name, others) | changed
        return reciprocate(drafts, anew, no_longer, held, own, self.locations.absolute)


def _event(draft: Draft) -> Event:
    if draft.metadata is None:
        return Delete(draft.uri, draft.at)
    return Upsert(draft.uri, draft.metadata, draft.memo, at=draft.at)
