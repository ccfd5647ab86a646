"""The scheduler of push sets: keeps all of a source current with a few threads, however many sets there are.

One thread looks at them all, by one cheap question to the catalog; a few publish what it has found, a few others follow
indexes. News go first: pages, and sets of which nothing new is known, have a lower priority. A set has one
publication and one look at its index under way at a time. Whatever fails in a set is shown by its `health`, tried again
after a pause that grows, and holds up no other set.
"""

from __future__ import annotations

import datetime as dt
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from typing import Final

from headwater.catalog.interface import Catalog, UnknownSet
from headwater.catalog.set_snapshot import read_snapshot
from headwater.ingest.dit.intake import settle
from headwater.ingest.push.ingest_state import unsettled
from headwater.progress import Listener, Notice, silent
from headwater.publish.publisher import Publisher
from headwater.source.publication import Publication
from headwater.source.push.push_set import LOADING, READING, PushSet
from headwater.source.push.work_queue import Job, Priority, WorkQueue
from headwater.source.set_health import SetHealth

TICK_SECONDS: Final = 30.0
"""Between publications of a set without news: what is due by time, and whatever was lost in the store …"""
TICK_SHARE: Final = 0.01
"""… but no more than this share of one processor's time, over all sets."""
TICK_SLICE: Final = TICK_SHARE / 2
"""Seconds of work on them at once."""
LOOK_SECONDS: Final = 0.25
"""Between looks at what others have recorded, and at documents that wait for their partner …"""
LOOK_SHARE: Final = 0.02
"""… but no more than this share of the time."""
NAME_SECONDS: Final = 5.0
"""Sets that are published while another is not are named when nothing else is to be published, or after so long."""
NAME_SHARE: Final = 0.05

PUBLISHING_THREADS: Final = 8
"""Threads, at most: publishing a change is mostly waiting for the disk …"""
INDEX_THREADS: Final = 16
"""… and following an index for the network. A first load takes one for as long as it lasts."""


class PushScheduler:
    """Serves push sets until stopped.

    `name_others` is called while a set cannot be shown, so that it does not hide the others; it may raise what the
    catalog and the store raise.
    """

    def __init__(
        self,
        catalog: Catalog,
        publisher: Publisher,
        sets: Sequence[PushSet],
        *,
        clock: Callable[[], dt.datetime],
        listener: Listener = silent,
        announce: Callable[[Publication], None] = lambda _one: None,
        name_others: Callable[[], None] = lambda: None,
    ) -> None:
        self._catalog = catalog
        self._publisher = publisher
        self._sets = {push_set.name: push_set for push_set in sets}
        self._indexed = [push_set for push_set in sets if push_set.index is not None]
        self._clock = clock
        self._listener = listener
        self._announce = announce
        self._name_others = name_others
        self._stopping = threading.Event()
        self._wake = threading.Condition()
        self._by_age: OrderedDict[str, None] = OrderedDict()
        """The sets that were published, the longest ago first."""
        self._is_naming = self._is_ticking = self._is_blind = False
        self._open_count = 0
        self._look_at = self._tick_at = self._name_at = self._look_took = 0.0
        self._to_publish = WorkQueue(min(PUBLISHING_THREADS, len(self._sets)))
        self._to_follow: SimpleQueue[Job | None] = SimpleQueue()
        self._threads = [threading.Thread(target=self._run, name="headwater-push", daemon=True)]
        for work, most, what in (
            (self._work, min(PUBLISHING_THREADS, len(self._sets)), "publish"),
            (self._work_on_indexes, min(INDEX_THREADS, len(self._indexed)), "index"),
        ):
            self._threads += [
                threading.Thread(target=work, name=f"headwater-{what}-{number}", daemon=True) for number in range(most)
            ]

    def start(self) -> None:
        """Begin. What is published already stays as it is until there is something newer."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Ask to end; work under way ends at its next step."""
        self._stopping.set()
        self._to_publish.close()
        for _ in self._threads:
            self._to_follow.put(None)
        with self._wake:
            self._wake.notify_all()

    def join(self, timeout: float) -> bool:
        """Wait for the end; False when it has not come in time."""
        until = time.monotonic() + timeout
        for thread in self._threads:
            if thread.ident is not None:
                thread.join(max(0.0, until - time.monotonic()))
        return not any(thread.is_alive() for thread in self._threads)

    @property
    def healths(self) -> list[SetHealth]:
        """How the sets are."""
        return [push_set.health for push_set in self._sets.values()]

    def news(self, name: str) -> None:
        """Something was recorded in the set: publish it, also while a look at all sets waits for the catalog."""
        self._want(self._sets[name], Priority.HIGH)

    # Deciding what is to be done: one thread

    def _run(self) -> None:
        while not self._stopping.is_set():
            now = time.monotonic()
            if now >= self._look_at:
                self._look(now)
            for push_set in self._indexed:
                if now >= push_set.poll_at and not push_set.is_polled:
                    push_set.is_polled = True
                    self._to_follow.put(lambda push_set=push_set: self._poll(push_set))  # type: ignore[misc]
            self._tick(now)
            with self._wake:
                if not self._stopping.is_set():
                    self._wake.wait(self._wait_seconds(time.monotonic()))
        for push_set in self._sets.values():
            push_set.health.phase = "stopped"

    def _wait_seconds(self, now: float) -> float:
        polls = [push_set.poll_at for push_set in self._indexed if not push_set.is_polled]
        return max(0.01, min([self._look_at, now + LOOK_SECONDS, *polls]) - now)

    def _look(self, now: float) -> None:
        """What is recorded and not published, and what has waited long enough; asked of all sets at once."""
        began = time.thread_time()
        try:
            newest = self._catalog.newest()
            waited = unsettled(self._catalog, self._clock())
        except Exception as fault:  # noqa: BLE001 - shown with every set: none can be brought up to date
            self._is_blind = True
            for number, push_set in enumerate(self._sets.values()):
                push_set.failed("catalog", fault, self._clock(), silent if number else self._listener)
            self._look_at = time.monotonic() + next(iter(self._sets.values())).paused("catalog")
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
            push_set.seen_seq = seq
        # What waits in a set that follows an index is let go when the index has been read, and not by the clock alone.
        for push_set in [self._sets[name] for name in waited if name in self._sets and self._sets[name].index is None]:
            push_set.is_unsettled = True
            self._want(push_set, Priority.HIGH, now)
        took = time.thread_time() - began
        dear, self._look_took = min(took, self._look_took), took  # once may be chance: the collector of garbage
        self._look_at = time.monotonic() + max(LOOK_SECONDS, dear / LOOK_SHARE)

    def _want(self, push_set: PushSet, priority: Priority, now: float | None = None) -> None:
        """Have a set published: in its turn, or once the publication under way has ended, or its pause is over."""
        if now is not None and now < push_set.retry_at:
            return  # the next look finds it again
        with self._wake:
            if push_set.is_worked:
                push_set.wanted = Priority.HIGH if Priority.HIGH in (priority, push_set.wanted) else priority
                return
            if push_set.priority in (priority, Priority.HIGH):
                return
            push_set.priority = priority  # a job with the other priority does nothing
        self._to_publish.put(lambda: self._publish_from(push_set, priority), priority)

    def _tick(self, now: float) -> None:
        with self._wake:
            name = next(iter(self._by_age), None)
        if name is None or self._is_ticking or now < self._tick_at:
            return
        if now - self._sets[name].published_at >= TICK_SECONDS:
            self._is_ticking = True
            self._to_publish.put(self._check_oldest, Priority.LOW)

    def _oldest(self) -> PushSet | None:
        """The set that was published the longest ago, for whoever asks alone; None when none is due."""
        now = time.monotonic()
        with self._wake:
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
        if not self._to_publish.is_empty and now < self._name_at + NAME_SECONDS:
            return
        self._name_at = now + LOOK_SECONDS
        if self._open_count < len(self._sets) or any(push_set.failing for push_set in self._sets.values()):
            self._is_naming = True
            self._to_publish.put(self._name_published, Priority.LOW)

    # Doing it: a few threads

    def _work(self) -> None:
        while (taken := self._to_publish.take()) is not None:
            job, priority = taken
            self._do(job)
            self._to_publish.done(priority)

    def _work_on_indexes(self) -> None:
        while (job := self._to_follow.get()) is not None and not self._stopping.is_set():
            self._do(job)

    def _do(self, job: Job) -> None:
        try:
            job()
        except Exception as fault:  # noqa: BLE001 - a thread's last frame: what is not told here is never heard of
            self._listener(Notice("HW-000", f"{type(fault).__name__}: {fault}"))

    def _publish_from(self, push_set: PushSet, priority: Priority) -> None:
        with self._wake:
            if push_set.priority is not priority:
                return
            push_set.priority = None
            push_set.is_worked = True
        self._publish(push_set, pages=priority is Priority.LOW)

    def _publish(self, push_set: PushSet, *, pages: bool, check: bool = False) -> None:
        """Publish a set; a failure is kept for `health`."""
        try:
            self._follow(push_set, pages=pages, check=check)
        except Exception as fault:  # noqa: BLE001 - a thread's last frame: what is not shown here is never seen
            push_set.failed("publication", fault, self._clock(), self._listener)
            push_set.retry_at = time.monotonic() + push_set.paused("publication")
        else:
            push_set.retry_at = 0.0
            push_set.worked("publication")
        with self._wake:
            push_set.is_worked = False
            priority, push_set.wanted = push_set.wanted or (Priority.LOW if push_set.pages_left else None), None
        if priority is not None and not push_set.retry_at:
            self._want(push_set, priority)

    def _check_oldest(self) -> None:
        """Publish sets without news, as many as a slice of the time has room for."""
        began = time.thread_time()
        while (used := time.thread_time() - began) < TICK_SLICE and (push_set := self._oldest()) is not None:
            self._publish(push_set, pages=True, check=True)
        self._tick_at = time.monotonic() + used / TICK_SHARE
        self._is_ticking = False

    def _follow(self, push_set: PushSet, *, pages: bool, check: bool) -> None:
        """Bring one set up to date; without `pages`, its changes."""
        name = push_set.name
        if push_set.is_unsettled:
            push_set.is_unsettled = False
            settle(push_set.feed, self._clock())
        try:
            # What the last look has found is enough: the catalog is asked for the pages' `at`, and when it knows less.
            newest = None if check else push_set.seen_seq or 0
            state = read_snapshot(self._catalog, name, newest).state
        except UnknownSet:
            return
        if state.opened_at is None:
            return
        push_set.is_open = True
        if state.last_seq == push_set.published_seq and not (check or (pages and push_set.pages_left)):
            return
        at = self._clock()
        if pages:  # what is recorded later gets a time after `at`
            at = self._publisher.rotate(name) or self._catalog.mark(name, at)
        published = self._publisher.publish(name, at, pages=pages, check=check, newest=max(newest or 0, state.last_seq))
        with self._wake:
            if pages or name not in self._by_age:
                push_set.published_at = time.monotonic()
                self._by_age[name] = None
                self._by_age.move_to_end(name)
        push_set.published_seq, push_set.pages_left = published.seq, published.pages_left
        if push_set.announced_seq != published.seq:
            before, push_set.announced_seq = push_set.announced_seq, published.seq
            self._announce(
                Publication(
                    name=name, first=before is None, resources=state.count, changes=published.seq - (before or 0)
                )
            )

    def _poll(self, push_set: PushSet) -> None:
        """Take what is new in a set's index."""
        push_set.health.phase = READING if push_set.is_open else LOADING
        try:
            found = push_set.poll(self._stopping.is_set)
        except Exception as fault:  # noqa: BLE001 - a thread's last frame: what is not shown here is never seen
            push_set.failed("index", fault, self._clock(), self._listener)
            push_set.poll_at = time.monotonic() + push_set.paused("index")
        else:
            push_set.worked("index")
            push_set.poll_at = 0.0 if found else time.monotonic() + push_set.poll_seconds
            push_set.health.scans += 1
            push_set.health.scanned_at = self._clock()
            if found:
                self.news(push_set.name)
        push_set.is_polled = False
        with self._wake:
            self._wake.notify_all()

    def _name_published(self) -> None:
        began = time.thread_time()
        try:
            self._name_others()
        finally:
            took = time.thread_time() - began
            self._name_at = time.monotonic() + max(LOOK_SECONDS, took / NAME_SHARE)
            self._is_naming = False
