"""Publishes the push sets of a source, however many there are, with the threads of its scheduler.

A task looks at them all, by one cheap question to the catalog, and puts what it has found in the work queue. News go
first: pages, and sets of which nothing new is known, have a lower priority. A set has one publication under way at a
time. Whatever fails in a set is shown by its `health`, tried again after a pause that grows, and holds up no other set.
A set that follows an index has a task of its own, which takes what is new there and asks again after a pause.
"""

from __future__ import annotations

import datetime as dt
import math
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final, Protocol

from headwater.catalog.faults import UnknownSet
from headwater.ingest.dit.intake import settle
from headwater.ingest.push.feed import Feed
from headwater.ingest.push.ingest_state import unsettled
from headwater.ingest.set_problems import DeletionsHeld
from headwater.progress import silent
from headwater.publish.plan import Refresh
from headwater.retry import TimeShare
from headwater.source.scheduler import Priority, Scheduler
from headwater.source.set_health import Failures, SetHealth
from headwater.source.worker import SourceContext

WAITING: Final = "waiting for its first records"
LOADING: Final = "loading"
READING: Final = "reading the index"
FOLLOWING: Final = "following"


class IndexReader(Protocol):
    """An index that is followed."""

    def poll(self) -> int:
        """Take what is new; how many documents were looked at."""
        ...


class PushSet:
    """One set. `index` makes what is polled every `poll_seconds`, given a callback that tells when to stop."""

    def __init__(
        self,
        feed: Feed,
        context: SourceContext,
        index: Callable[[Callable[[], bool]], IndexReader] | None = None,
        poll_seconds: float = 1.0,
    ) -> None:
        self.name = feed.name
        self.feed = feed
        self.index = index
        self.poll_seconds = poll_seconds
        self.health = SetHealth(name=feed.name, phase=WAITING)
        self.failures = Failures(self.health, context.clock, context.listener)
        self.is_open = False
        self.is_unsettled = False
        self.priority: Priority | None = None
        """With which priority the set waits for its publication."""
        self.is_worked = False
        """Its publication is under way …"""
        self.wanted: Priority | None = None
        """… and another one is wanted when it has ended."""
        self.seen_seq: int | None = None
        """The newest change at the last look: another number is news."""
        self.published_seq: int | None = None
        self.published_at = 0.0
        self.pages_left = 0
        self.refresh_at = math.inf
        """When pages that do not show everything are due."""
        self.retry_at = 0.0
        self._polled: IndexReader | None = None

    def poll(self, stop: Callable[[], bool]) -> int:
        """Take what is new in the index; how many documents were looked at."""
        assert self.index is not None
        self._polled = self._polled or self.index(stop)
        return self._polled.poll()

    def attempt(self, what: str, work: Callable[[], None]) -> float | None:
        """Do some work; None when it went well, else how many seconds to wait before it is tried again."""
        pause = self.failures.attempt(what, work)
        self._show_phase()
        return pause

    def worked(self, what: str) -> None:
        """Something that had failed goes well again."""
        self.failures.worked(what)
        self._show_phase()

    def _show_phase(self) -> None:
        if not self.failures:
            self.health.phase = FOLLOWING if self.is_open else WAITING if self.index is None else LOADING


class IndexPoll:
    """One set's. `stop` tells a look under way to end, `news` is called when something was recorded."""

    def __init__(
        self,
        push_set: PushSet,
        clock: Callable[[], dt.datetime],
        stop: Callable[[], bool],
        news: Callable[[str], None],
    ) -> None:
        self._set = push_set
        self._clock = clock
        self._stop = stop
        self._news = news
        self._poll_at = 0.0
        self._has_failed = False

    def due_at(self) -> float:
        """When the index is to be asked again."""
        return self._poll_at

    def is_long(self) -> bool:
        """A first load takes as long as it takes, and an index that does not answer until it is given up."""
        return not self._set.is_open or self._has_failed

    def run(self) -> None:
        """Take what is new; a failure is kept for `health`."""
        self._set.health.phase = READING if self._set.is_open else LOADING
        pause = self._set.attempt("index", self._poll)
        self._has_failed = pause is not None
        if pause is not None:
            self._poll_at = time.monotonic() + pause

    def _poll(self) -> None:
        found = self._set.poll(self._stop)
        self._poll_at = 0.0 if found else time.monotonic() + self._set.poll_seconds
        self._set.health.scans += 1
        self._set.health.scanned_at = self._clock()
        if found:
            self._news(self._set.name)


TICK_SECONDS: Final = 30.0
"""Between publications of a set without news: what is due by time, and whatever was lost in the store …"""
TICKS: Final = TimeShare(0.01)
"""… but no more than this share of one processor's time, over all sets."""
TICK_SLICE: Final = 0.005
"""Seconds of work on them at once."""
LOOK_SECONDS: Final = 0.25
"""Between looks at what others have recorded, and at documents that wait for their partner …"""
LOOKS: Final = TimeShare(0.02)
"""… but no more than this share of the time."""
NAMING: Final = TimeShare(0.05)
"""How much of the time it may take to name sets that are published while another is not."""


class PushPublisher:
    """Publishes these sets."""

    def __init__(self, context: SourceContext, scheduler: Scheduler, sets: Sequence[PushSet]) -> None:
        self._context = context
        self._catalog = context.catalog
        self._clock = context.clock
        self._scheduler = scheduler
        self._sets = {push_set.name: push_set for push_set in sets}
        self._lock = threading.Lock()
        self._by_age: OrderedDict[str, None] = OrderedDict()
        """The sets that were published, the longest ago first."""
        self._is_naming = self._is_ticking = self._is_blind = False
        self._open_count = 0
        self._look_at = self._tick_at = self._name_at = 0.0

    def news(self, name: str) -> None:
        """Something was recorded in the set: publish it, also while a look at all sets waits for the catalog."""
        self._want(self._sets[name], Priority.HIGH)

    # Deciding what is to be done, as a task

    def due_at(self) -> float:
        """When all sets are to be looked at."""
        return self._look_at

    def is_long(self) -> bool:
        """It is one question."""
        return False

    def run(self) -> None:
        """Have published what others have recorded, and what is due by time."""
        now = time.monotonic()
        self._tick(now)
        self._look(now)

    def _look(self, now: float) -> None:
        """What is recorded and not published, and what has waited long enough; asked of all sets at once."""
        began = time.thread_time()
        try:
            newest = self._catalog.newest()
            waited = unsettled(self._catalog, self._clock())
        except Exception as fault:  # noqa: BLE001 - shown with every set: none can be brought up to date
            self._is_blind = True
            for number, push_set in enumerate(self._sets.values()):
                pause = push_set.failures.add("catalog", fault, silent if number else None)
            self._look_at = time.monotonic() + pause
            return
        if self._is_blind:
            for push_set in self._sets.values():
                push_set.worked("catalog")
            self._is_blind = False
        found = [(self._sets[name], seq) for name, seq in newest.items() if name in self._sets]
        self._open_count = len(found)
        self._name(now)  # what an earlier run has published is not hidden while other sets are published
        for push_set, seq in found:
            if seq != push_set.published_seq:
                push_set.is_open = True
                is_news = push_set.published_seq is not None or push_set.seen_seq not in (None, seq)
                self._want(push_set, Priority.HIGH if is_news else Priority.LOW, now)
            elif now >= push_set.refresh_at:
                self._want(push_set, Priority.LOW, now)
            push_set.seen_seq = seq
        for push_set in [self._sets[name] for name in waited if name in self._sets]:
            push_set.is_unsettled = True
            self._want(push_set, Priority.HIGH, now)
        took = time.thread_time() - began
        self._look_at = time.monotonic() + max(LOOK_SECONDS, LOOKS.pause_after(took))

    def _want(self, push_set: PushSet, priority: Priority, now: float | None = None) -> None:
        """Have a set published: in its turn, or once the publication under way has ended, or its pause is over."""
        if now is not None and now < push_set.retry_at:
            return  # the next look finds it again
        with self._lock:
            if push_set.is_worked:
                push_set.wanted = Priority.HIGH if Priority.HIGH in (priority, push_set.wanted) else priority
                return
            if push_set.priority in (priority, Priority.HIGH):
                return
            push_set.priority = priority  # a job with the other priority does nothing
        self._scheduler.put(lambda: self._publish_from(push_set, priority), priority)

    def _tick(self, now: float) -> None:
        with self._lock:
            name = next(iter(self._by_age), None)
        if name is None or self._is_ticking or now < self._tick_at:
            return
        if now - self._sets[name].published_at >= TICK_SECONDS:
            self._is_ticking = True
            self._scheduler.put(self._check_oldest, Priority.LOW)

    def _oldest(self) -> PushSet | None:
        """The set that was published the longest ago, for whoever asks alone; None when none is due."""
        now = time.monotonic()
        with self._lock:
            while (name := next(iter(self._by_age), None)) is not None:
                push_set = self._sets[name]
                if now - push_set.published_at < TICK_SECONDS:
                    return None
                push_set.published_at = now
                self._by_age.move_to_end(name)
                if not push_set.is_worked and push_set.priority is None and now >= push_set.retry_at:
                    push_set.is_worked = True
                    return push_set
        return None

    def _name(self, now: float) -> None:
        if self._is_naming or now < self._name_at:
            return
        self._name_at = now + LOOK_SECONDS
        if self._open_count < len(self._sets) or any(push_set.failures for push_set in self._sets.values()):
            self._is_naming = True
            self._scheduler.put(self._name_published, Priority.LOW)

    # Doing it, as jobs

    def _publish_from(self, push_set: PushSet, priority: Priority) -> None:
        with self._lock:
            if push_set.priority is not priority:
                return
            push_set.priority = None
            push_set.is_worked = True
        self._publish(push_set, Refresh.DUE if priority is Priority.LOW else Refresh.CHANGES)

    def _publish(self, push_set: PushSet, refresh: Refresh) -> None:
        """Publish a set; a failure is kept for `health`."""
        pause = push_set.attempt("publication", lambda: self._follow(push_set, refresh))
        push_set.retry_at = 0.0 if pause is None else time.monotonic() + pause
        with self._lock:
            push_set.is_worked = False
            priority, push_set.wanted = push_set.wanted or (Priority.LOW if push_set.pages_left else None), None
        if priority is not None and not push_set.retry_at:
            self._want(push_set, priority)

    def _check_oldest(self) -> None:
        """Publish sets without news, as many as a slice of the time has room for."""
        began = time.thread_time()
        while (used := time.thread_time() - began) < TICK_SLICE and (push_set := self._oldest()) is not None:
            self._publish(push_set, Refresh.REPAIR)
        self._tick_at = time.monotonic() + TICKS.pause_after(used)
        self._is_ticking = False

    def _follow(self, push_set: PushSet, refresh: Refresh) -> None:
        """Bring one set up to date, as far as it is to be refreshed."""
        name, pages, check = push_set.name, refresh is not Refresh.CHANGES, refresh is Refresh.REPAIR
        if push_set.is_unsettled:
            push_set.is_unsettled = False
            with suppress(DeletionsHeld):  # they wait on; `status` says so
                settle(push_set.feed, self._clock())
        try:
            # What the last look has found is enough: the catalog is asked for the pages' `at`, and when it knows less.
            newest = None if check else push_set.seen_seq or 0
            state = self._catalog.snapshot_of(name, newest).state
        except UnknownSet:
            return
        if state.opened_at is None:
            return
        push_set.is_open = True
        is_due = bool(push_set.pages_left) or time.monotonic() >= push_set.refresh_at
        if state.last_seq == push_set.published_seq and not (check or (pages and is_due)):
            return
        at = self._clock()
        if pages:  # what is recorded later gets a time after `at`
            at = self._context.publisher.rotate(name) or self._catalog.mark(name, at)
        looked_at = self._clock() if push_set.index is None else push_set.health.scanned_at
        newest = max(newest or 0, state.last_seq)
        published = self._context.publisher.publish(name, at, refresh, newest=newest, looked_at=looked_at)
        with self._lock:
            if pages or name not in self._by_age:
                push_set.published_at = time.monotonic()
                self._by_age[name] = None
                self._by_age.move_to_end(name)
        push_set.published_seq, push_set.pages_left = published.seq, published.pages_left
        due_at = time.monotonic() + published.due_in_seconds
        push_set.refresh_at = due_at if pages else min(push_set.refresh_at, due_at)
        self._context.events.published(published)

    def _name_published(self) -> None:
        began = time.thread_time()
        try:
            self._context.name_published()
        finally:
            took = time.thread_time() - began
            self._name_at = time.monotonic() + max(LOOK_SECONDS, NAMING.pause_after(took))
            self._is_naming = False
