"""Sinks get the events of the journal: what a sink is, and the loop that delivers to one.

Each sink has a thread and a position of its own in the journal, so one that fails stops neither another nor a copy. A
batch is delivered at least once: after a kill it comes again, with the same numbers. A sink that cannot be reached is
waited for without an end. A batch that a sink refuses, or has failed with, is delivered event by event. One that is
refused alone becomes a dead letter; one that fails `tries` times does when the sink then takes a later one: else it is
the sink that fails, and is waited for.
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

from headwater.aggregator.configuration import AggregatorConfig, SinkConfig, faults_in
from headwater.aggregator.events import Quarantine, held_event
from headwater.aggregator.store import AggregatorStore, DeadLetter, Event, SinkState, UnknownSource
from headwater.errors import StoreFault, as_fault
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
_AHEAD: Final = 100  # later events, at least, with which a sink may show that it is at work
_LONGEST_ASKED_SECONDS: Final = 3_600.0  # a sink that says years is asked again all the same
_FAULT_SECONDS: Final = 5.0  # after which a store is asked again that could not be read or written


def wants_source(sink: SinkConfig, name: str) -> bool:
    """Whether a sink wants events of the source, as far as its name decides; patterns as in a shell."""
    return not sink.sources or any(fnmatchcase(name, one) for one in sink.sources)


def wants(sink: SinkConfig, event: Event, tags: Sequence[str] | None) -> bool:
    """Whether a sink gets the event of a source with these tags.

    Deletions come also where the type, or (None) the tags of a source that is no longer followed, are unknown.
    """
    deleted = event.action == "deleted"
    if not wants_source(sink, event.source):
        return False
    if sink.tags and not (deleted and tags is None) and not set(sink.tags) & set(tags or ()):
        return False
    if not sink.types or (deleted and event.type is None):
        return True
    plain = (event.type or "").partition(";")[0].strip().lower()
    return any(fnmatchcase(plain, one.lower()) for one in sink.types)


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
        self._tags = {one.name: one.tags for one in config.sources}
        self._quarantine = Quarantine.of(self._config.quarantine)
        self._sink, self._store = sink, store
        self._listener, self._now = listener, now
        self._stopped = threading.Event()
        self._failures: dict[int, int] = {}  # of events alone, since one was taken; 0: only in a batch

    def run(self, stopped: threading.Event) -> None:
        """Deliver until `stopped` is set; then the sink is closed."""
        self._stopped = stopped
        try:
            while not stopped.is_set():
                try:
                    seconds = self.step()
                except Exception as error:  # noqa: BLE001  of the store, whose disk is full, or of a sink of others
                    fault = as_fault(error)
                    self._tell(fault.what, fault.code)
                    seconds = _FAULT_SECONDS
                stopped.wait(seconds)
        finally:
            self._sink.close()

    def step(self) -> float:
        """Deliver one batch, if there is one and it is time; returns in how many seconds to look again."""
        state, now = self._store.sink(self._config.name), self._now()
        if state.next_at is not None and now < state.next_at:
            return min(_POLL_SECONDS, (state.next_at - now).total_seconds())
        batch = self._next(state, max(self._config.batch, _AHEAD) if self._failures else self._config.batch)
        if batch is None:
            return _POLL_SECONDS
        singles = [[one] for one in batch.wanted]
        parts = singles if self._failures else [batch.wanted]
        fault = self._deliver(batch, parts, state.acknowledged)
        if fault is not None and fault.failure is Failure.REFUSED and parts is not singles:
            fault = self._deliver(batch, singles, state.acknowledged)
        reasons = [one.reason for one in batch.dead if one.tries]
        if self._stopped.is_set():  # which may be why a sink has not taken a batch
            return 0.0
        if fault is not None:
            self._tell(f"the sink has not taken a batch: {fault.what}")
            asked = min(fault.wait_seconds or 0.0, _LONGEST_ASKED_SECONDS)
            again_at = self._now() + dt.timedelta(seconds=max(_PAUSES.seconds(state.failures + 1), asked))
            self._store.refused(self._config.name, fault.what[:1_000], again_at)
        elif reasons:
            self._tell(
                f"the sink has refused {len(reasons):,} of {len(batch.wanted):,} events, the first: {reasons[0]}"
            )
        return 0.0

    def _deliver(self, batch: _Batch, parts: Sequence[list[Event]], after: int) -> SinkFault | None:
        """Deliver a batch in parts; returns the fault that ends it, after which it goes on later.

        A single event that is refused becomes a dead letter; so does one that fails for the last time, once a later one
        is taken.
        """
        failed: SinkFault | None = None
        for part in parts:
            if self._stopped.is_set():
                return failed
            fault, refused = self._apply(part)
            has_failed, tries = False, 1
            if fault is not None:
                number, is_alone, has_failed = part[0].number, len(part) == 1, fault.failure is Failure.FAILED
                tries = self._failures.get(number, 0) + 1
                if has_failed:
                    self._failures[number] = tries if is_alone else 0
                if not is_alone or fault.failure is Failure.UNAVAILABLE or (has_failed and tries < self._config.tries):
                    return fault
                refused = {number: fault.what}
            batch.dead += [self._letter(one, reason, tries) for one, reason in refused.items()]
            if has_failed:
                failed = fault
            elif failed is None or fault is None:  # all up to here is taken, or a dead letter
                failed = None
                if part is not parts[-1]:
                    after = self._acknowledge(batch, part[-1].number, after)
        if failed is None:
            self._acknowledge(batch, batch.end, after)
        return failed

    def _acknowledge(self, batch: _Batch, number: int, after: int) -> int:
        dead = [one for one in batch.dead if after < one.number <= number]
        self._store.acknowledge(self._config.name, number, dead, after=after)
        self._failures.clear()
        return number

    def _apply(self, events: Sequence[Event]) -> tuple[SinkFault | None, Mapping[int, str]]:
        """Why the sink has not taken the events, if so; those that it has refused by their numbers."""
        try:
            return None, (self._sink.apply(events) if events else None) or {}
        except SinkFault as fault:
            return fault, {}
        except Exception as error:  # noqa: BLE001  whatever else a sink raises is its own
            return SinkFault(as_fault(error).what), {}

    def _next(self, state: SinkState, most: int) -> _Batch | None:
        """The events after the position that the sink wants, as many as go into a batch."""
        last = self._store.last_number()
        if last <= state.acknowledged:
            return None
        events = self._store.events(state.acknowledged, max(most, _READ), sink=self._config.name)
        end = events[-1].number if events else last
        batch = _Batch([], [], end if len(events) >= max(most, _READ) else max(end, last))
        for event in events:
            if not wants(self._config, event, self._tags.get(event.source)):
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

    def _letter(self, number: int, reason: str, tries: int) -> DeadLetter:
        return DeadLetter(sink=self._config.name, number=number, at=self._now(), reason=reason[:1_000], tries=tries)

    def _tell(self, what: str, code: str = SinkFault.code) -> None:
        self._listener(Notice(code, what, self._config.name))


def configured(config: AggregatorConfig, name: str) -> SinkConfig:
    """The sink of this name. Raises UnknownSource."""
    for one in config.sinks:
        if one.name == name:
            return one
    raise UnknownSource("there is no such sink", where=name)


class SinkThreads:
    """A thread for each sink of a configuration, from `start` to `close`.

    `opened` makes a sink of its configuration, the folder of copies, and the event that is set by `close`. Raises
    UsageFault for a sink that cannot be as it is configured, and StoreFault.
    """

    def __init__(
        self,
        config: AggregatorConfig,
        store: AggregatorStore,
        opened: Callable[[SinkConfig, Path, threading.Event], Sink],
        listener: Listener = silent,
    ) -> None:
        self._stopped = threading.Event()
        self._threads: list[threading.Thread] = []
        for one in config.sinks:
            with faults_in(config.path):
                sink = opened(one, config.state, self._stopped)
            delivery = Delivery(config, one.name, sink, store, listener=listener)
            name = f"headwater-sink-{one.name}"
            self._threads.append(threading.Thread(target=delivery.run, args=(self._stopped,), name=name, daemon=True))
        for left in store.enrol_sinks([one.name for one in config.sinks], dt.datetime.now(dt.UTC)):
            what = f"the sink is no longer configured: its place after event {left.acknowledged} is kept for a while"
            listener(Notice("HW-AGG-12", what, left.name))

    def start(self) -> None:
        """Begin to deliver."""
        for thread in self._threads:
            thread.start()

    def close(self, seconds: float = 10.0) -> None:
        """Stop all. A delivery that takes longer than this is not waited for: it comes again."""
        self._stopped.set()
        until = time.monotonic() + seconds
        for thread in self._threads:
            thread.join(max(0.0, until - time.monotonic()))


# replay

_HELD_BATCH: Final = 500
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
    wanted = configured(config, sink)
    store.sink(sink)
    told = 0
    for source in store.sources():
        folder = config.state / source.name
        if not folder.is_dir() or not wants_source(wanted, source.name):
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
    numbers = [one.number for one in store.dead_letters(configured(config, sink).name, _ALL)[::-1]]
    kept = [one for number in numbers for one in store.events(number - 1, 1, sink=sink) if one.number == number]
    store.append_held(sink, kept, dt.datetime.now(dt.UTC), dead=[one.number for one in kept])
    return len(kept)
