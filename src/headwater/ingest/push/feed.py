"""Ingest of a push set: records what is announced so that each happens exactly once, and links it both ways.

What is remembered of a batch is written in its transaction, and only over the state of the set by which it was decided
(optimistic concurrency control): when another process has written meanwhile, it is decided anew.
"""

import datetime as dt
import itertools
import random
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from enum import StrEnum
from typing import Final, TypeVar

import msgspec

from headwater.catalog.interface import (
    Catalog,
    Delete,
    Event,
    Metadata,
    Moved,
    SetState,
    StateUpdate,
    Unacceptable,
    UnknownSet,
    Upsert,
)
from headwater.catalog.page_filling import weight
from headwater.errors import StoreFault
from headwater.ingest.deletion_guard import DeletionGuard
from headwater.ingest.push.ingest_state import MOST_LINKS, Effects, IngestState, Statement, TakenRequest, sweep
from headwater.ingest.push.resource_locations import Locations
from headwater.ingest.recording import ChangeRecorder
from headwater.spec.records import Link

# Links both ways (DIT-24, RS-REL), decided over values
#
# When one resource of a set says `describedby` of another, the other says `describes` of it, and the reverse, whether
# or not its own record does. What each resource says itself is kept as its *statements*; a link that only follows from
# the statement of another goes when that statement goes.

INVERSE: Final = {"describedby": "describes", "describes": "describedby"}


class Draft(msgspec.Struct, kw_only=True, gc=False):
    """One event before it is recorded: `metadata` None is a deletion. `statements` None: as they are.

    `at` is when it happened, None for now.
    """

    uri: str
    metadata: Metadata | None
    memo: bytes = b""
    statements: tuple[Statement, ...] | None = None
    at: dt.datetime | None = None


def statements_of(links: Iterable[Link], name: Callable[[str], str]) -> tuple[Statement, ...]:
    """What links say of other resources of the set; `name` gives the catalog's URI of an address."""
    return tuple(dict.fromkeys((link.rel, name(link.href)) for link in links if link.rel in INVERSE))


def with_links(metadata: Metadata, implied: Iterable[Link]) -> Metadata:
    """The metadata with these links as well."""
    links = metadata.links
    for link in implied:
        if len(links) < MOST_LINKS and not any((one.rel, one.href) == (link.rel, link.href) for one in links):
            links = (*links, link)
    return metadata if links is metadata.links else msgspec.structs.replace(metadata, links=links)


# The feed

BATCH = 1_000  # records of one transaction
BUSY_SECONDS: Final = 60.0  # how long a batch is tried while others go first …
_LONGEST_PAUSE: Final = 0.1  # … with pauses up to this in between
SWEEP_EVERY = 64  # in one of so many batches, of all sets, what is too old to matter is taken away

_batches = itertools.count(1)
T = TypeVar("T")


class Line(msgspec.Struct, frozen=True, gc=False):
    """One line that is not blank: its number, counted from 1 with the blank ones; None in place of one too long."""

    number: int
    text: bytes | None


class OutcomeKind(StrEnum):
    """What an outcome counts as."""

    TAKEN = "taken"
    IGNORED = "ignored"
    REJECTED = "rejected"


class Outcome(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What became of one line or document: an HTTP status, the change's number, or a code and the reason.

    `item` is which of several documents in one line it is about, counted from 1. `left_out` says what of a document
    that was taken could not be read, `notice` what of a line that was taken is probably meant otherwise.
    """

    line: int
    item: int | None = None
    status: int
    seq: int | None = None
    code: str | None = None
    reason: str | None = None
    left_out: tuple[str, ...] = ()
    notice: str | None = None

    @property
    def kind(self) -> OutcomeKind:
        """What it counts as: refused, no news, or else taken."""
        if self.status >= 400:
            return OutcomeKind.REJECTED
        return OutcomeKind.TAKEN if self.reason is None else OutcomeKind.IGNORED


class Feed(ChangeRecorder):
    """The set `name`. Its methods may be called from several threads and processes."""

    def __init__(self, catalog: Catalog, name: str, locations: Locations, clock: Callable[[], dt.datetime]) -> None:
        super().__init__(catalog, name, clock)
        self.state = IngestState(catalog, name)
        self.locations = locations
        self.lock = threading.RLock()  # threads of one process take turns instead of overtaking each other
        self.guard: DeletionGuard | None = None  # holds back a mass of deletions; None: all are taken
        self._seen: SetState | None = None  # the set as it is while a batch is decided
        self._opened = False

    @property
    def is_open(self) -> bool:
        """Whether the first load is complete: what comes now is logged as changes."""
        return self._opened or self._look().opened_at is not None

    def open(self) -> None:
        """End the load. No effect on a set that is open."""
        with self.lock:
            self.catalog.create(self.name)
            self.catalog.open(self.name, self.clock())
            if self.kept.history is not None:
                self.kept.history.begin()

    def attempt(self, work: Callable[[], T]) -> T:
        """Let `work` decide and `write` by one state of the set; again, when another process has written meanwhile.

        Raises what `work` raises; StoreFault when others have gone first for longer than we wait.
        """
        with self.lock:
            until, pause = time.monotonic() + BUSY_SECONDS, 0.001
            while True:
                self._seen = self._look()
                try:
                    return work()
                except Moved as fault:
                    if time.monotonic() > until:
                        raise StoreFault(fault.what, code="HW-ING-52", where=self.name) from fault
                finally:
                    self._seen = None
                time.sleep(pause * random.random())
                pause = min(2 * pause, _LONGEST_PAUSE)

    def implied_by(self, about: dict[str, tuple[Statement, ...]]) -> dict[str, tuple[Link, ...]]:
        """The links that follow from what others say of resources (DIT-24; `IngestState.about`)."""
        address = self.locations.absolute
        return {
            uri: tuple(Link(rel=INVERSE[rel], href=address(other)) for rel, other in said if other != uri)
            for uri, said in about.items()
        }

    def check(self, uri: str, metadata: Metadata) -> None:
        """Raise Unacceptable for what no document can hold; one of a batch must not cost the others theirs."""
        limits = self.catalog.limits
        octets, largest = weight(uri, metadata), min(limits.page_octets, limits.segment_octets)
        if octets > largest:
            raise Unacceptable(f"an entry of up to {octets} octets: a document has room for {largest}", where=uri[:200])

    def next_seq(self) -> int | None:
        """The number that the next draft's change will get; the others follow. None while the set is loading."""
        state = self._seen or self._look()
        return None if state.opened_at is None else state.last_seq + 1

    def write(self, drafts: Sequence[Draft], effects: Effects) -> int:
        """Record the drafts and remember the effects, all or nothing; call it in `attempt`, once. The newest change.

        The changes are numbered as `next_seq` says. What the links of these resources imply for others is recorded
        after them. Without either, it makes sure that what was seen stays: a node of a cluster may show what it loses.

        Raises DeletionsHeld, and records nothing, where the set would lose more than its guard lets go.
        """
        seen = self._seen or self._look()
        made = [*drafts, *self._reciprocal(drafts, effects)]
        events: list[Event] = [
            Delete(one.uri, one.at) if one.metadata is None else Upsert(one.uri, one.metadata, one.memo, at=one.at)
            for one in made
        ]
        update = self.state.update(effects, self.clock())
        if seen.opened_at is not None and self.guard is not None:
            latest = {one.uri: isinstance(one, Delete) for one in events}
            counted = self.guard.announced(sum(latest.values()), seen.count)
            update = StateUpdate([*update.put, *counted.put], [*update.delete, *counted.delete])
        newest = self.record(events, update, seen)
        if next(_batches) % SWEEP_EVERY == 0:
            self.sweep()
        return newest

    def sweep(self) -> None:
        """Take away what is too old to matter, of all sets; where that fails, the next time will do."""
        with suppress(StoreFault):
            sweep(self.catalog, self.clock())

    def request(self, key: str) -> tuple[TakenRequest, tuple[bytes, ...]] | None:
        """How far the request with this idempotency key got, and the parts of its answer."""

        def look() -> tuple[TakenRequest, tuple[bytes, ...]] | None:
            found = self.state.request(key)
            if found is not None:
                self.write([], Effects())
            return found

        return self.attempt(look)

    def _look(self) -> SetState:
        """The set as it is, made when it is new. What is open stays open."""
        try:
            seen = self.catalog.state(self.name)
        except UnknownSet:
            seen = self.catalog.create(self.name)
        self._opened = seen.opened_at is not None
        return seen

    def _reciprocal(self, drafts: Sequence[Draft], effects: Effects) -> list[Draft]:
        """Give the other side its links, in its own draft where the batch has one; the drafts that come in addition."""
        latest = {one.uri: one.statements for one in drafts if one.statements is not None}
        before = self.state.statements(latest) if latest else {}
        changed = {uri: made for uri, made in latest.items() if set(made) != set(before.get(uri, ()))}
        if not changed:
            return []
        effects.statements |= changed
        anew = [(uri, *one) for uri, made in changed.items() for one in made if one not in before.get(uri, ())]
        no_longer = [(uri, *one) for uri, made in changed.items() for one in before.get(uri, ()) if one not in made]
        others = dict.fromkeys(other for _, _, other in (*anew, *no_longer))
        own = self.state.statements(others) | changed  # as they are after the batch
        made_of, extra = {one.uri: one for one in drafts}, dict[str, Draft]()
        held = self.held(uri for uri in others if uri not in made_of)
        for uri in others:
            if (one := held.get(uri)) is not None:  # what follows from the batch happened with it
                extra[uri] = made_of[uri] = Draft(uri=uri, metadata=one.metadata, memo=one.memo, at=drafts[-1].at)
        address = self.locations.absolute
        for uri, rel, other in no_longer:
            draft = made_of.get(other)
            if draft is not None and draft.metadata is not None and (INVERSE[rel], uri) not in own.get(other, ()):
                gone = (INVERSE[rel], address(uri))
                links = tuple(link for link in draft.metadata.links if (link.rel, link.href) != gone)
                draft.metadata = msgspec.structs.replace(draft.metadata, links=links)
        for uri, rel, other in anew:
            draft = made_of.get(other) if other != uri else None
            if draft is not None and draft.metadata is not None:
                draft.metadata = with_links(draft.metadata, [Link(rel=INVERSE[rel], href=address(uri))])
        return [one for one in extra.values() if one.metadata != held[one.uri].metadata]
