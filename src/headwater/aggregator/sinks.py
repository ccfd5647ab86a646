"""Sinks get the events of the journal: what a sink is, and the loop that delivers to one.

Each sink has a thread and a position of its own in the journal, so one that fails stops neither another nor a copy. A
batch is delivered at least once: after a kill it comes again, with the same numbers. A sink that cannot be reached is
waited for without an end. A batch that a sink refuses, or fails with `tries` times, is delivered event by event; one
that is refused, or fails, alone becomes a dead letter, and the rest goes on.
"""

from __future__ import annotations

import datetime as dt
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from fnmatch import fnmatchcase
from itertools import islice
from pathlib import Path
from typing import ClassVar, Final, Protocol

import msgspec

from headwater.aggregator.configuration import AggregatorConfig, SinkConfig
from headwater.aggregator.events import Quarantine, held_event
from headwater.aggregator.store import AggregatorStore, DeadLetter, Event, SinkState, UnknownSource
from headwater.errors import HeadwaterError, StoreFault, as_fault
from headwater.progress import Listener, Notice, silent
from headwater.retry import Backoff
from headwater.sync.copy_status import copy_records


class Failure(Enum):
    """What it means that a sink has not taken a batch."""

    UNAVAILABLE = "unavailable"  # it cannot be reached, or asks for patience: no event is to blame
    FAILED = "failed"  # something is wrong: a few tries show whether it is an event
    REFUSED = "refused"  # it refuses what it was given for good


class SinkFault(StoreFault):
    """A sink has not taken a batch; what of it took effect is delivered again."""

    code: ClassVar[str] = "HW-AGG-10"

    def __init__(
        self,
        what: str,
        *,
        where: str | None = None,
        failure: Failure = Failure.FAILED,
        wait_seconds: float | None = None,
    ) -> None:
        """`wait_seconds`: how long the sink asks to be left alone."""
        super().__init__(what, where=where)
        self.failure = failure
        self.wait_seconds = wait_seconds


class Sink(Protocol):
    """Takes events. Entry points of the group `headwater.sinks` are called with a `SinkConfig` and make one."""

    def apply(self, events: Sequence[Event]) -> Mapping[int, str] | None:
        """Take a batch, in the order of numbers; all that it does is durable when it returns.

        Returns the numbers of events that are refused for good, each with the reason; None: none is. Raises SinkFault;
        any other exception counts as one that `failed`.
        """

    def close(self) -> None:
        """Give up connections; many kinds have none."""


_POLL_SECONDS: Final = 0.5
_READ: Final = 1_000  # events at a time, where filters leave many out
_PAUSES: Final = Backoff(1.0, 300.0)
_FAULT_SECONDS: Final = 5.0  # after which a store is asked again that could not be read or written


class EventFilter(msgspec.Struct, frozen=True):
    """Which events a sink wants; patterns as in a shell. Nothing given: all."""

    sources: tuple[str, ...]
    tags: tuple[str, ...]
    types: tuple[str, ...]
    tags_of: dict[str, tuple[str, ...]]
    """The tags of each source that is followed."""

    @classmethod
    def of(cls, sink: SinkConfig, config: AggregatorConfig) -> EventFilter:
        """The filter of a sink."""
        return cls(sink.sources, sink.tags, sink.types, {one.name: one.tags for one in config.sources})

    def wants_source(self, name: str) -> bool:
        """Whether the sink wants events of the source, as far as its name decides."""
        return not self.sources or any(fnmatchcase(name, one) for one in self.sources)

    def wants(self, event: Event) -> bool:
        """Whether the sink gets the event. Deletions come also where the type, or the source's tags, are unknown."""
        deleted = event.action == "deleted"
        if not self.wants_source(event.source):
            return False
        tags = self.tags_of.get(event.source)
        if self.tags and not (deleted and tags is None) and not set(self.tags) & set(tags or ()):
            return False
        if not self.types or (deleted and event.type is None):
            return True
        plain = (event.type or "").partition(";")[0].strip().lower()
        return any(fnmatchcase(plain, one.lower()) for one in self.types)


class _Batch(msgspec.Struct):
    """What is delivered next: `end` is the number up to which the sink is then."""

    wanted: list[Event]
    dead: list[DeadLetter]
    end: int


class Delivery:
    """Delivers the journal to one sink, for as long as `run` is at work."""

    def __init__(
        self,
        config: AggregatorConfig,
        name: str,
        sink: Sink,
        store: AggregatorStore,
        *,
        listener: Listener = silent,
        now: Callable[[], dt.datetime] = lambda: dt.datetime.now(dt.UTC),
    ) -> None:
        self._config = configured(config, name)
        self._state = config.state
        self._filter = EventFilter.of(self._config, config)
        self._quarantine = Quarantine.of(self._config.quarantine)
        self._sink, self._store = sink, store
        self._listener, self._now = listener, now
        self._alone_until = 0
        """Up to here events are delivered one by one, since a batch was not taken …"""

        self._exhausted_until = 0
        """… and up to here each has only one try, since the batch had all of them."""

    def run(self, stopped: threading.Event) -> None:
        """Deliver until `stopped` is set; then the sink is closed."""
        try:
            while not stopped.is_set():
                try:
                    seconds = self.step()
                except Exception as error:  # noqa: BLE001  of the store, whose disk is full, or of a sink of others
                    self._tell(as_fault(error))
                    seconds = _FAULT_SECONDS
                stopped.wait(seconds)
        finally:
            self._sink.close()

    def step(self) -> float:
        """Deliver one batch, if there is one and it is time; returns in how many seconds to look again."""
        state, now = self._store.sink(self._config.name), self._now()
        if state.next_at is not None and now < state.next_at:
            return min(_POLL_SECONDS, (state.next_at - now).total_seconds())
        batch = self._next(state)
        if batch is None:
            return _POLL_SECONDS
        try:
            refused = self._sink.apply(batch.wanted) if batch.wanted else None
        except Exception as error:  # noqa: BLE001  whatever a sink raises is its own
            fault = as_fault(error)
            self._tell(fault)
            return self._after(fault, state, batch)
        batch.dead += [self._letter(number, reason, 1) for number, reason in (refused or {}).items()]
        self._store.acknowledge(self._config.name, batch.end, batch.dead, after=state.acknowledged)
        return 0.0

    def _next(self, state: SinkState) -> _Batch | None:
        """The events after the position that the sink wants, as many as go into a batch."""
        last = self._store.last_number()
        if last <= state.acknowledged:
            return None
        most = 1 if state.acknowledged < self._alone_until else self._config.batch
        events = self._store.events(state.acknowledged, max(most, _READ), sink=self._config.name)
        batch = _Batch([], [], events[-1].number if len(events) >= max(most, _READ) else last)
        for event in events:
            if not self._filter.wants(event):
                continue
            if len(batch.wanted) == most:
                batch.end = event.number - 1
                break
            reason = self._quarantine.objection(event, self._state / event.source / event.path)
            if reason is None:
                batch.wanted.append(event)
            else:
                batch.dead.append(self._letter(event.number, f"held back: {reason}", 0))
        return batch

    def _after(self, fault: HeadwaterError, state: SinkState, batch: _Batch) -> float:
        """What follows a failed delivery: another try later, or of single events, or a dead letter."""
        failure = fault.failure if isinstance(fault, SinkFault) else Failure.FAILED
        is_alone, tries = len(batch.wanted) == 1, state.failures + 1
        is_last = tries >= self._config.tries or batch.end <= self._exhausted_until
        if is_alone and (failure is Failure.REFUSED or (failure is Failure.FAILED and is_last)):
            letter = self._letter(batch.wanted[0].number, str(fault.what), tries)
            self._store.acknowledge(self._config.name, batch.end, [*batch.dead, letter], after=state.acknowledged)
            return 0.0
        if not is_alone and failure is Failure.REFUSED:
            self._alone_until = batch.end
            return 0.0
        if not is_alone and failure is Failure.FAILED and is_last:
            self._alone_until = self._exhausted_until = batch.end
        asked = min(getattr(fault, "wait_seconds", None) or 0.0, _LONGEST_ASKED_SECONDS)
        pause = max(_PAUSES.seconds(tries), asked)
        self._store.refused(self._config.name, str(fault.what)[:1_000], self._now() + dt.timedelta(seconds=pause))
        return 0.0

    def _letter(self, number: int, reason: str, tries: int) -> DeadLetter:
        return DeadLetter(sink=self._config.name, number=number, at=self._now(), reason=reason[:1_000], tries=tries)

    def _tell(self, fault: HeadwaterError) -> None:
        self._listener(Notice(fault.code, f"the sink has not taken a batch: {fault.what}", self._config.name))


def configured(config: AggregatorConfig, name: str) -> SinkConfig:
    """The sink of this name. Raises UnknownSource."""
    for one in config.sinks:
        if one.name == name:
            return one
    raise UnknownSource("there is no such sink", where=name)


Opened = Callable[[SinkConfig, Path], Sink]
"""Makes a sink of its configuration and the folder of the copies."""


class SinkThreads:
    """A thread for each sink of a configuration. `store` may be used by all of them. Raises UsageFault for a sink that
    cannot be as it is configured: then none is begun."""

    def __init__(
        self, config: AggregatorConfig, store: AggregatorStore, opened: Opened, listener: Listener = silent
    ) -> None:
        self._stopped = threading.Event()
        self._threads: list[threading.Thread] = []
        deliveries = [
            Delivery(config, one.name, opened(one, config.state), store, listener=listener) for one in config.sinks
        ]
        store.enrol_sinks([one.name for one in config.sinks])
        for one, delivery in zip(config.sinks, deliveries, strict=True):
            thread = threading.Thread(
                target=delivery.run, args=(self._stopped,), name=f"headwater-sink-{one.name}", daemon=True
            )
            thread.start()
            self._threads.append(thread)

    def close(self, seconds: float = 10.0) -> None:
        """Stop all. A delivery that takes longer than this is not waited for: it comes again."""
        self._stopped.set()
        until = time.monotonic() + seconds
        for thread in self._threads:
            thread.join(max(0.0, until - time.monotonic()))


# replay

_HELD_BATCH: Final = 500
_LONGEST_ASKED_SECONDS: Final = 3_600.0  # a sink that says years is asked again all the same
_ALL: Final = 1_000_000_000


def replay(store: AggregatorStore, config: AggregatorConfig, sink: str, after: int) -> int:
    """Let a sink begin again after a number; returns how many events it will get. Raises UnknownSource.

    Events that were removed from the journal because of their age (`keep_events`) do not come again: see `replay_held`.
    """
    store.set_position(configured(config, sink).name, max(0, after))
    return store.sink(sink).waiting


def replay_held(store: AggregatorStore, config: AggregatorConfig, sink: str) -> int:
    """Tell a sink, and no other, of all that the copies hold, after what it waits for; returns how many resources.

    Each is a `created` with a number of its own. Raises UnknownSource, and StoreFault for a copy that cannot be read.
    """
    wanted = EventFilter.of(configured(config, sink), config)
    store.sink(sink)
    told = 0
    for source in store.sources():
        folder = config.state / source.name
        if not folder.is_dir() or not wanted.wants_source(source.name):
            continue
        records = copy_records(folder)
        while batch := [held_event(source.name, one) for one in islice(records, _HELD_BATCH)]:
            store.append_held(sink, batch, dt.datetime.now(dt.UTC))
            told += len(batch)
    return told


def replay_dead(store: AggregatorStore, config: AggregatorConfig, sink: str) -> int:
    """Tell a sink once more of what has become dead letters, after what it waits for; returns how many.

    Each event gets a new number; where a resource was changed since, it is told as it is by now. Dead letters of events
    that are no longer kept stay.
    """
    name = configured(config, sink).name
    told = 0
    numbers = sorted({one.number for one in store.dead_letters(name, _ALL)})
    for some in (numbers[start : start + _HELD_BATCH] for start in range(0, len(numbers), _HELD_BATCH)):
        events = [found for number in some for found in store.events(number - 1, 1, sink=name)]
        events = [one for one in events if one.number in some]
        store.append_held(name, events, dt.datetime.now(dt.UTC), dead=[one.number for one in events])
        told += len(events)
    return told
