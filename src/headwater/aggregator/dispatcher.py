"""The loop of a service: it leases sources that are due, has the template run them, and ends what runs too long.

All that is remembered is in the store. After a kill the next service ends the leases of the last one and goes on: a run
is never "running" because somebody once began it.
"""

from __future__ import annotations

import datetime as dt
import math
import os
import select
import signal
import threading
import time
from collections.abc import Callable
from typing import Final

import msgspec

from headwater.aggregator.audits import is_audit_due
from headwater.aggregator.configuration import AggregatorConfig
from headwater.aggregator.life import RunOutcome
from headwater.aggregator.schedule import RunPlace, begins_long, give_way, starts, turn_of
from headwater.aggregator.source_run import RunOrder, end_run, windows_for
from headwater.aggregator.status import LOCK
from headwater.aggregator.store import AggregatorStore, LeaseLost, RunRecord, SourceState, broken_off
from headwater.aggregator.template_process import TemplateProcess
from headwater.errors import Exit, HeadwaterError, StoreFault, as_fault, disk_fault
from headwater.files.file_copies import Room
from headwater.progress import Notice
from headwater.quantities import human_octets, human_seconds
from headwater.storage.lock import LockHeld, lock_exclusive, waited_for
from headwater.sync.run import utcnow
from headwater.time_windows import open_seconds

LOOK_SECONDS: Final = 0.5
"""How soon is seen what other processes have changed in the store, and what is due."""

GRACE_SECONDS: Final = 30.0
"""So long after its deadline, or after it was asked to stop, a run is killed."""

STOP_SECONDS: Final = 6.0
"""How long runs may take to stop when the service ends."""

_LEASE_MORE_SECONDS: Final = 600.0
_LOCK_SECONDS: Final = 5.0
_SET_BACK_SECONDS: Final = 3_600.0

Told = Notice | RunRecord
"""What the service tells of: runs that have ended, and what has to be known besides."""


class _Running(msgspec.Struct, kw_only=True):
    order: RunOrder
    place: RunPlace
    deadline: float
    """When it is killed, by the clock that only goes forward."""

    killed_for: str | None = None
    code: int | None = None
    """How its process has ended, which is not recorded yet: an exit status, or the negative number of a signal."""


def lock_state(config: AggregatorConfig) -> int:
    """Hold the state of a service, which no other may use meanwhile; closing the descriptor ends that.

    Raises StoreFault where another service has it.
    """
    config.home.mkdir(parents=True, exist_ok=True)
    try:
        return waited_for(lock_exclusive, config.home / LOCK, _LOCK_SECONDS)
    except LockHeld as cause:
        raise StoreFault("another service works on this state", code="HW-OWN-01", where=str(config.state)) from cause


class Dispatcher:
    """Runs sources when they are due. Single-threaded; `close` it."""

    def __init__(
        self,
        config: AggregatorConfig,
        store: AggregatorStore,
        tell: Callable[[Told], None],
        *,
        grace_seconds: float = GRACE_SECONDS,
        now: Callable[[], dt.datetime] = utcnow,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`tell` hears of runs that end, and of faults of the service itself."""
        self._store, self._tell, self._grace = store, tell, grace_seconds
        self._now, self._clock = now, clock
        self._worker = os.uname().nodename
        self._running: dict[int, _Running] = {}
        self._states: list[SourceState] = []
        self._seen: int | None = None
        self._fault: str | None = None
        self._has_room = True
        store.release(self._worker, now())
        self.template = TemplateProcess()
        """The process that forks runs."""

        self.use(config)

    def use(self, config: AggregatorConfig) -> None:
        """Work by this configuration from now on; what runs ends as it has begun."""
        self._store.enrol([(one.name, one.url) for one in config.sources], self._now())
        self._config = config
        self._sources = {one.name: one for one in config.sources if one.enabled}
        self._seen = None

    def work(self, stopped: threading.Event, looked: Callable[[], None] = lambda: None) -> None:
        """Run what is due until the event; `looked` is called at each look."""
        while not stopped.is_set():
            self.look()
            looked()
            self._wait(LOOK_SECONDS)

    def once(self, stopped: threading.Event, looked: Callable[[], None] = lambda: None) -> None:
        """Run each source that is not paused once, whenever it is due, and return when all runs have ended."""
        left = {one.name for one in self._store.sources() if one.name in self._sources}
        while not stopped.is_set() and (self._running or (left and self._has_room)):
            left &= {one.name for one in self._changed_states() if _may_run(one)}
            left -= self._step(left)
            looked()
            self._wait(LOOK_SECONDS)

    def look(self) -> None:
        """Hear which runs have ended, begin what is due, and end what has run too long."""
        try:
            self._step()
            self._fault = None
        except (HeadwaterError, OSError) as error:  # a full disk, say: it is looked again
            if str(error) != self._fault:
                self._fault = str(error)
                fault = as_fault(error) if isinstance(error, HeadwaterError) else disk_fault(error) or as_fault(error)
                self._tell(Notice(fault.code, f"no run can begin, and it is tried again: {fault.what}", fault.where))

    def _step(self, wanted: set[str] | None = None) -> set[str]:
        """Take note of what has ended, and begin what is due, or what is `wanted`; returns the names of what has begun.

        What is wanted gives way to nothing. Raises StoreFault, and OSError where no process is to be had.
        """
        self._hear()
        if self.template.has_ended:
            following = TemplateProcess()
            self.template.close()
            self.template = following
        self._record_ends()
        now, running = self._now(), {one.order.run.name for one in self._running.values()}
        due = [one for one in self._changed_states() if one.name not in running]
        due = [one for one in due if (self._is_due(one, now) if wanted is None else one.name in wanted)]
        begun, waiting = starts(due, [one.place for one in self._running.values()], self._config.parallel)
        if begun and not self._is_room():
            begun = []
        found = {state.name for state in begun if self._start(state, turn_of(state) if wanted is None else math.inf)}
        self._watch(waiting)
        return found

    def _changed_states(self) -> list[SourceState]:
        changed = self._store.changed()
        if changed != self._seen:
            self._states, self._seen = self._store.sources(), changed
        return self._states

    def _is_due(self, state: SourceState, now: dt.datetime) -> bool:
        source = self._sources.get(state.name)
        if source is None or not _may_run(state):
            return False
        if state.is_wanted_now:
            return True
        if _is_early(state, now) and not is_audit_due(state, source, now):
            return False
        windows = windows_for(source, self._config.hosts, state.hosts)
        return all(open_seconds(now, one) for one in windows)

    def _is_room(self) -> bool:
        """Whether the disk has room for runs; that it has none is told once."""
        room = Room(os.fsencode(self._config.state), self._config.keep_free)
        has_room = room.left() > 0
        if not has_room and self._has_room:
            told = f"less than {human_octets(room.keep_free)} are free on the disk: no run begins"
            told = told if room.keep_free else "the disk is full: no run begins"
            self._tell(Notice("HW-AGG-23", told, str(self._config.state)))
        self._has_room = has_room
        return has_room

    def _start(self, state: SourceState, turn: float) -> bool:
        source = self._sources[state.name]
        lease = source.deadline + self._grace + _LEASE_MORE_SECONDS
        now = self._now()
        is_audit = _is_early(state, now) and not state.is_wanted_now and is_audit_due(state, source, now)
        run = self._store.lease(source.name, "audit" if is_audit else "sync", self._worker, now, lease)
        if run is None:
            return False
        moment = self._clock()
        place = RunPlace(name=source.name, number=run.number, began=moment, turn=turn, is_long=begins_long(state))
        order = RunOrder(run=run, source=source, state=str(self._config.state), hosts=self._config.hosts)
        self._running[run.number] = _Running(order=order, place=place, deadline=moment + source.deadline + self._grace)
        self.template.send(run.number, order=msgspec.json.encode(order))
        return True

    def _watch(self, waiting: int) -> None:
        """Ask runs to stop that have to give way to so many others, and kill those that do not end."""
        now = self._clock()
        for place in give_way([one.place for one in self._running.values()], waiting, self._config.parallel, now):
            place.is_stopping = True
            one = self._running[place.number]
            one.deadline = min(one.deadline, now + self._grace)
            one.killed_for = ""
            self.template.send(place.number, signal.SIGTERM)
        for one in self._running.values():
            if now >= one.deadline:
                one.deadline = now + self._grace
                if one.killed_for is None:
                    deadline = human_seconds(one.order.source.deadline)
                    one.killed_for = f"the run was killed: it did not end by its deadline of {deadline}"
                self.template.send(one.order.run.number, signal.SIGKILL)

    def _wait(self, seconds: float) -> None:
        select.select([self.template], [], [], seconds)

    def _hear(self) -> None:
        """Take note of runs whose processes have ended: all of them, where the template has."""
        ended = self.template.hear()
        for number, one in self._running.items():
            if one.code is None:
                one.code = ended.get(number, -signal.SIGKILL if self.template.has_ended else None)

    def _record_ends(self) -> None:
        """Record all ends; what a store that takes nothing refuses stays for the next time. Raises StoreFault."""
        for number, one in list(self._running.items()):
            if one.code is not None:
                self._record_end(one)
                del self._running[number]

    def _record_end(self, one: _Running) -> None:
        record = self._store.run(one.order.run.number)
        if record is None:
            record = self._record(one)
            state = self._store.source(one.order.run.name)
            if state is None:
                return
            try:
                end_run(one.order, self._store, state, RunOutcome(record=record))
            except LeaseLost:
                return
        self._tell(record)

    def _record(self, one: _Running) -> RunRecord:
        """The record of a run whose process has left none."""
        record = broken_off(one.order.run, self._now())
        if one.place.is_stopping:
            reason = "the run was asked to stop"
            return msgspec.structs.replace(record, exit_status=Exit.INTERRUPTED, reason=reason, code=None)
        if one.killed_for is not None:
            return msgspec.structs.replace(record, exit_status=Exit.SOURCE, reason=one.killed_for, code="HW-NET-02")
        code = one.code or 0
        how = f"by signal {-code}" if code < 0 else f"with status {code}"
        return msgspec.structs.replace(record, reason=f"{record.reason} ({how})")

    def close(self, seconds: float = STOP_SECONDS) -> None:
        """Ask all runs to stop, kill those that have not ended in time, and end the template."""
        until = self._clock() + seconds
        for one in self._running.values():
            one.place.is_stopping = True
            self.template.send(one.order.run.number, signal.SIGTERM)
        while any(one.code is None for one in self._running.values()) and (left := until - self._clock()) > 0:
            self._wait(min(left, LOOK_SECONDS))
            self._hear()
        self.template.close()
        self._hear()
        try:
            self._record_ends()
        except HeadwaterError as fault:  # the next service ends the leases
            self._tell(Notice(fault.code, f"the end of a run cannot be recorded: {fault.what}", fault.where))


def _may_run(state: SourceState) -> bool:
    return not state.is_paused and state.retirement is None


def _is_early(state: SourceState, now: dt.datetime) -> bool:
    """Whether the next run is to come later: not by a plan of a clock that was set back by an hour or more since."""
    is_of_now = state.planned_at is None or (state.planned_at - now).total_seconds() < _SET_BACK_SECONDS
    return state.next_at is not None and state.next_at > now and is_of_now
