"""Keeps one set current, whatever it is made of: one life for folders, copies, datasets, push sets, and one schedule.

What a run before has recorded is published first. Then the whole of what the set is made of is looked at, what is found
is recorded and published; that comes again after a pause, sooner where hints say where to look. For a push set others
record, and it is told. However busy or quiet a set is, its documents are published anew every 30 seconds: pages may be
due, documents lost or damaged. Whatever fails is shown by `health`, and tried again after a pause that grows; then the
whole is looked at again.

What is due when is decided by plain functions of state and time, without a clock. Hints only say where to look first;
the look at the whole is the truth.
"""

from __future__ import annotations

import datetime as dt
import enum
import math
import threading
import time
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from headwater.catalog.interface import Catalog, RowKey, StateRow, StateUpdate, UnknownSet
from headwater.errors import HeadwaterError
from headwater.ingest.folder.comparison import ScanResult
from headwater.ingest.folder.static_tree import SetTree
from headwater.processes.pool import Stopped
from headwater.progress import Listener, Notice, of_set, silent
from headwater.publish.plan import Refresh
from headwater.publish.publisher import Publisher, PublishResult
from headwater.publish.site import Site
from headwater.quantities import human_seconds
from headwater.retry import TimeShare
from headwater.source.scheduler import Urgency
from headwater.source.set_health import Failures, PublicationEvents, SetHealth, fault_words

TICK_SECONDS = 30.0  # between publications, however busy or quiet the set is: documents may be lost or damaged …
TICKS: Final = TimeShare(0.01)  # … but they take no more than this share of a processor's time, over all sets
HELD_SECONDS = 5.0  # between looks at the whole while deletions are held back: what is gone may be back
ECHO_SECONDS: Final = 1.0  # until a file is looked at again that changed while it was read
SETTLED_SECONDS: Final = 2.2
"""A file read at once after a change is read again when even a coarse clock has moved on: its tag is strong then."""
SURGE: Final = 5_000  # with more hints than this a look at the whole is quicker
HINTED_LOOKS: Final = TimeShare(1 / 3)  # how much of the time looks at the whole may take that hints have asked for
AT_ONCE: Final = 0.0
_CATCH_UP_SECONDS: Final = 1.0


class SourceContext(msgspec.Struct, frozen=True, kw_only=True):
    """The parts of a source that its sets work with.

    `state` is its state folder. `may_record` is called before anything is placed or recorded, and raises when this
    process must not any more.
    """

    catalog: Catalog
    publisher: Publisher
    site: Site
    clock: Callable[[], dt.datetime]
    state: Path
    events: PublicationEvents = msgspec.field(default_factory=PublicationEvents)
    listener: Listener = silent
    may_record: Callable[[], None] = lambda: None


class SetResult(msgspec.Struct, frozen=True, kw_only=True):
    """What one round of work on a set did."""

    name: str
    scanned: ScanResult
    published: PublishResult | None
    placed: int = 0
    removed: int = 0

    @property
    def is_incomplete(self) -> bool:
        """Whether deletions were held back, or something could not be read: not all that is there is published."""
        # unreadable, changed while read, incomplete, records that were not harvested
        left_out = ("HW-ING-20", "HW-CPY-12", "HW-CPY-15", "HW-DSP-06", "HW-OAI-13")
        scanned = self.scanned
        return bool(scanned.held_back or scanned.unsettled or any(map(scanned.warnings.get, left_out)))


class Looked(msgspec.Struct, frozen=True, kw_only=True):
    """What a look has found and recorded.

    `at`: all that had happened until then is recorded (None: not known to be so). `is_changed`: there is something to
    publish. `held_back` says why deletions wait; `scanned` are the counts, and the paths to look at again.
    """

    at: dt.datetime | None = None
    is_changed: bool = False
    held_back: str | None = None
    scanned: ScanResult = msgspec.field(default_factory=ScanResult)


class Intake:
    """What a set is made of, as its worker sees it; one thread at a time."""

    refresh: Refresh = Refresh.DUE  # which pages a look refreshes that has found something
    is_told = False
    """Whether others record, so that hints say that there is something to publish, and looks only ask the catalog."""
    breathe: Callable[[], None] = staticmethod(lambda: None)
    """To be called in the middle of a look: does what is urgent."""
    is_dated_by_looks = False
    """Whether only a look at the whole knows a moment of which all is recorded: a rotation comes before one."""
    waiting_phase = "starting"
    looking_phase: str | None = None  # what health says during a look
    fault_key: RowKey | None = None
    """The row of the catalog that keeps what is wrong with the set, where `headwater status` is to say it."""
    most_retry_seconds = math.inf
    """A look that has failed is repeated so soon at the latest: one that knows when to raise its fault again."""

    def __init__(self, context: SourceContext, name: str, stop: Callable[[], bool] = lambda: False) -> None:
        """`stop` tells a look to end (Stopped)."""
        self.name = name
        self._context = context
        self._catalog = context.catalog
        self._stop = stop
        self._tree: SetTree | None = None  # the static tree with the set's files, where there is one

    @property
    def is_open(self) -> bool:
        """Whether the first load is complete."""
        try:
            return self._catalog.state(self.name).opened_at is not None
        except UnknownSet:
            return False

    @property
    def phase(self) -> str:
        """What health says while nothing fails."""
        return "following"

    def begin(self) -> None:
        """Get ready; called before anything is published, until it has gone well."""

    def look(self) -> Looked:
        """Record what is there by now. Raises whatever is wrong."""
        raise NotImplementedError

    def look_at(self, paths: Collection[bytes]) -> Looked:
        """Record what is at these paths by now."""
        raise NotImplementedError

    def pause_after(self, looked_seconds: float, health: SetHealth) -> float:
        """How long after a look the next one is due, where nothing hints at one; others may tell when there is news."""
        return math.inf

    def known_at(self) -> dt.datetime | None:
        """All that has happened until then is recorded, as is known without a look; None: only looks tell."""
        return None

    def may_publish(self) -> bool:
        """Whether what is recorded may be published. Raises what is wrong with it."""
        return True

    def place(self, looked: Looked) -> int:
        """Place files that are about to be published in a static tree; how many."""
        return 0

    def withdraw(self) -> int:
        """Remove the files from it that are published no longer, after a look at the whole; how many."""
        return 0 if self._tree is None else self._tree.sweep()

    def note(self, fault: str | None) -> None:
        """Have `headwater status` say what is wrong, or that nothing is. Raises faults of the catalog."""
        if self.fault_key is None or (fault is None and not self._catalog.rows(self.name, [self.fault_key])):
            return
        self._context.may_record()
        put = [] if fault is None else [StateRow(*self.fault_key, fault.encode("utf-8", "replace")[:2000])]
        update = StateUpdate(put=put, delete=[self.fault_key] if fault is None else [])
        if self._catalog.create(self.name).opened_at is None:
            self._catalog.load(self.name, (), state=update)
        else:
            self._catalog.record(self.name, (), self._context.clock(), state=update)

    def _pause(self) -> None:
        if self._stop():
            raise Stopped


class SetWork(enum.Enum):
    """BEGIN: publish what a run before has recorded. LOOK: at the whole. PUBLISH: what is due by time.

    HINTS: look where hints say.
    """

    BEGIN = enum.auto()
    LOOK = enum.auto()
    PUBLISH = enum.auto()
    HINTS = enum.auto()


class Schedule(msgspec.Struct, kw_only=True):
    """When what is due in one set; times are seconds of a clock that never goes back, infinite for never.

    `hints` are relative paths to look at now, `later` those to look at at a time. The last look at the whole ended at
    `look_ended_at` and took `look_seconds`. Before `retry_at` nothing is done.
    """

    is_begun: bool = False
    look_at: float = 0.0
    look_ended_at: float = 0.0
    look_seconds: float = 0.0
    publish_at: float = 0.0
    hints: set[bytes] = msgspec.field(default_factory=set)
    later: list[tuple[float, bytes]] = msgspec.field(default_factory=list)
    retry_at: float = 0.0

    def next_work(self, now: float) -> tuple[SetWork, float]:
        """What is to be done next, and when; a time that is not after `now` stands for at once.

        Of what is due, a look at the whole comes first: it sees what hints hint at. Then hints, but however many come,
        what is due by time is not put off for more than TICK_SECONDS.
        """
        if not self.is_begun:
            return SetWork.BEGIN, self.retry_at
        hints_at = AT_ONCE if self.hints else min((due for due, _path in self.later), default=math.inf)
        work = (
            (SetWork.LOOK, self.look_at),
            (SetWork.PUBLISH, self.publish_at + (TICK_SECONDS if self.hints else 0.0)),
            (SetWork.HINTS, hints_at),
            (SetWork.PUBLISH, self.publish_at),
        )
        chosen, at = next((one for one in work if one[1] <= now), None) or min(work, key=lambda one: one[1])
        return chosen, max(at, self.retry_at)

    def take_hints(self, now: float) -> set[bytes]:
        """The paths to look at now; they are no longer due."""
        taken = self.hints | {path for due, path in self.later if due <= now}
        self.hints = set()
        self.later = [one for one in self.later if one[0] > now]
        return taken

    def look_by(self, at: float) -> None:
        """Look at the whole at this time, unless that is due sooner."""
        self.look_at = min(self.look_at, at)

    def look_for_hints(self) -> None:
        """Look at the whole as soon as looks that hints ask for may take the time."""
        self.look_by(self.look_ended_at + HINTED_LOOKS.pause_after(self.look_seconds))


class SetWorker:
    """Keeps one set current, as a task of the scheduler; `wake` has that ask anew when it is due."""

    def __init__(
        self,
        context: SourceContext,
        intake: Intake,
        wake: Callable[[SetWorker], None] = lambda _worker: None,
        watched_seconds: float = 0.0,
    ) -> None:
        """It begins when it is watched, or after `watched_seconds`: what changes during the first look is hinted at."""
        self.name = intake.name
        self.intake = intake
        self.health = SetHealth(name=intake.name, phase=intake.waiting_phase)
        self.has_looked = False  # whether the whole was looked at in this process
        self.published_seq: int | None = None  # the newest change that this process has published
        self.failures = Failures(self.health, context.clock, of_set(context.listener, intake.name))
        self._context = context
        self._publisher = context.publisher
        self._wake = wake
        intake.breathe = self.breathe
        self._noted: str | None = ""  # the fault that the intake has noted; empty: not known
        self._lock = threading.Lock()
        now = time.monotonic()
        self._schedule = Schedule(publish_at=now + TICK_SECONDS, retry_at=now + watched_seconds)
        if intake.is_told:
            self._schedule = Schedule(is_begun=True, look_at=math.inf, publish_at=math.inf)
        self._is_ahead = False  # whether it was told that the clock was set back
        self._is_older = False
        """Whether more was published than the catalog knows: nothing is published before the whole was looked at."""
        self._at: dt.datetime | None = None  # all that had happened until then is recorded …
        self._looked_at: dt.datetime | None = None  # … as was seen then, by a clock that may have been set back since
        self._caught_up_at = 0.0
        self._repair_seconds = 0.0

    @property
    def is_unsettled(self) -> bool:
        """Whether it has to look at the whole whenever there may be news: it fails, holds deletions back or begins."""
        return not self.has_looked or bool(self.failures) or self.health.held_back is not None

    # What is told from outside

    def hint(self, paths: Iterable[bytes]) -> None:
        """Something may have changed at these relative paths; the empty path stands for everything."""
        with self._lock:
            schedule = self._schedule
            schedule.hints.update(paths)
            if b"" in schedule.hints or len(schedule.hints) > SURGE:
                schedule.hints.discard(b"")
                schedule.look_for_hints()
            if len(schedule.hints) > SURGE:
                schedule.hints.clear()
        self._wake(self)

    def tell(self, *, is_news: bool = True) -> None:
        """Changes were recorded in the set; without news it may wait for its turn."""
        with self._lock:
            if is_news:
                self._schedule.hints.add(b"")
            if self._schedule.publish_at == math.inf:
                self._schedule.publish_at = time.monotonic()
        self._wake(self)

    def worked(self, what: str) -> None:
        """Something of the set goes well that may have failed."""
        self.failures.worked(what)
        if not self.failures:
            self.health.phase = self.intake.phase

    def watch_changed(self) -> None:
        """It is watched from now on, or no longer."""
        with self._lock:
            if not self._schedule.is_begun:
                self._schedule.retry_at = 0.0
            elif not self.health.watching:
                self._schedule.look_by(self._regular_look_at())
        self._wake(self)

    def look_now(self, *, is_other_input: bool = False) -> None:
        """Look at the whole; what has failed waits for its pause, unless its input is another one by now."""
        with self._lock:
            self._schedule.look_at = 0.0
            if is_other_input:
                self._schedule.retry_at = 0.0
        self._wake(self)

    # As a task

    @property
    def due_at(self) -> float:
        """When there is something to do."""
        with self._lock:
            return self._schedule.next_work(time.monotonic())[1]

    @property
    def urgency(self) -> Urgency:
        """Whether there is news, whether only what is recorded is to be published, or the whole may be looked at."""
        with self._lock:
            work, _at = self._schedule.next_work(time.monotonic())
        if work is SetWork.HINTS:
            return Urgency.NEWS
        return Urgency.UPKEEP if work is SetWork.PUBLISH or self.intake.is_told else Urgency.LONG

    def run(self) -> None:
        """Do what is due; after a failure, look at the whole when its pause is over."""
        pause = self.failures.attempt(self.name, self._round)
        if pause is not None:
            with self._lock:
                pause = min(pause, self.intake.most_retry_seconds)
                self._schedule.retry_at, self._schedule.look_at = time.monotonic() + pause, 0.0
        elif not self.failures and (self.has_looked or self.intake.is_told):
            self.health.phase = self.intake.phase
        self.note(self.health.error)

    def once(self) -> SetResult:
        """Look at the whole and publish what is stale. Raises whatever is wrong, and has it noted."""
        try:
            self.intake.begin()
            if self.intake.is_open:
                self._publisher.reset_history(self.name)
            done = self._finish(self._look(), Refresh.STALE)
        except HeadwaterError as fault:
            self.note(fault_words(fault))
            raise
        self.note(None)
        return done

    def look_again(self, paths: Collection[bytes]) -> SetResult:
        """Look at these paths and publish what has changed there. Raises whatever is wrong."""
        return self._finish(self.intake.look_at(paths), Refresh.DUE)

    def note(self, fault: str | None) -> None:
        """Have `headwater status` say what fails, or that nothing does."""
        if self._noted != fault:
            try:
                self.intake.note(fault)
            except HeadwaterError:
                return  # the health has it, and the catalog has it the next time
            self._noted = fault

    def _round(self) -> None:
        """Do what is due.

        What a run before recorded and did not publish, or published for another base URL, comes first. A catalog that
        is older than what was published knows nothing of the time between: then the whole is looked at first.
        """
        now, schedule = time.monotonic(), self._schedule
        with self._lock:
            work, _at = schedule.next_work(now)
            paths = schedule.take_hints(now) if work is SetWork.HINTS else set()
        with suppress(Stopped):
            if work is SetWork.LOOK:
                self._look_and_publish()
            elif work is SetWork.HINTS:
                self._follow(paths)
            elif work is SetWork.PUBLISH:
                self._repair()
            else:
                self.intake.begin()
                if self.intake.is_open:
                    self.health.phase = "publishing"
                    self._is_older = self._publisher.history.is_older_than_documents(self.name)
                    self._publisher.reset_history(self.name)
                    self._repair()
                schedule.is_begun = True

    def _repair(self) -> None:
        """Publish what is due by time, and restore documents; the next time is later where that takes long."""
        began, pause = time.thread_time(), TICKS.pause_after(self._repair_seconds) * len(self._context.site.sets)
        with self._lock:
            self._schedule.publish_at = time.monotonic() + max(TICK_SECONDS, pause)
        self._publish(Refresh.REPAIR)
        self._repair_seconds = time.thread_time() - began

    def _look_and_publish(self) -> None:
        is_loading = not self.intake.is_open
        self.health.phase = "loading" if is_loading else self.intake.looking_phase or self.health.phase
        began = time.monotonic()
        with self._lock:
            self._schedule.hints.clear()  # whatever they hint at, this look comes by later
            self._schedule.look_at = math.inf
        looked = self._look()
        self._finish(looked, self.intake.refresh)
        took = time.monotonic() - began
        with self._lock:
            self._schedule.look_ended_at = began + took
            self._schedule.look_seconds = 0.0 if is_loading else took  # a load reads everything; later looks do not
            self._schedule.look_by(self._regular_look_at())
        self.health.scan_seconds = took
        self._look_later(looked)

    def _look(self) -> Looked:
        """Look at the whole; the first look, and one after a failure, lead to a publication, whatever they find."""
        turned = None
        if self.intake.is_dated_by_looks and self.intake.is_open:
            turned = self._publisher.rotate(self.name)
        began = self._context.clock()
        looked = self.intake.look()
        if looked.at is not None:
            self._at = turned or looked.at
        if looked.at is not None or looked.scanned.held_back is not None:
            self._looked_at = began
        self.health.held_back = looked.held_back
        self.health.scans += 1
        self.health.scanned_at = self._at
        self.health.remarks = looked.scanned.warnings
        is_first, self.has_looked, self._is_older = not self.has_looked, True, False
        return msgspec.structs.replace(looked, is_changed=True) if is_first or self.failures else looked

    def _follow(self, paths: set[bytes]) -> None:
        if self.intake.is_told:
            self._publish(Refresh.CHANGES)
            return
        looked = self.intake.look_at(paths)
        if looked.held_back:
            self.health.held_back = self.health.held_back or looked.held_back
            with self._lock:
                self._schedule.look_by(max(time.monotonic() + HELD_SECONDS, self._regular_look_at()))
        self._finish(looked, Refresh.DUE)
        self._look_later(looked)

    def _look_later(self, looked: Looked) -> None:
        now, scanned = time.monotonic(), looked.scanned
        with self._lock:
            self._schedule.later += [(now + ECHO_SECONDS, path) for path in scanned.unsettled]
            self._schedule.later += [(now + SETTLED_SECONDS, path) for path in scanned.racy]

    def _regular_look_at(self) -> float:
        return self._schedule.look_ended_at + self.intake.pause_after(self._schedule.look_seconds, self.health)

    def _finish(self, looked: Looked, refresh: Refresh) -> SetResult:
        """Publish what a look has found, unless it has found nothing."""
        if not looked.is_changed or self._is_older:
            return SetResult(name=self.name, scanned=looked.scanned, published=None)
        placed = self.intake.place(looked)
        published = self._publish(refresh)
        removed = self.intake.withdraw()
        return SetResult(name=self.name, scanned=looked.scanned, published=published, placed=placed, removed=removed)

    def _publish(self, refresh: Refresh) -> PublishResult | None:
        """Publish what is recorded, and with REPAIR restore documents that are lost or damaged."""
        if self._is_older or not self.intake.is_open or not self.intake.may_publish():
            return None
        catalog = self._context.catalog
        if refresh is not Refresh.CHANGES and not self.failures and (known := self.intake.known_at()) is not None:
            self._at, self._looked_at = self._publisher.rotate(self.name) or catalog.mark(self.name, known), known
        # Before the first look of this process nothing newer is known than the opening; the publisher never goes back
        # behind what it has stated before.
        at = self._at or catalog.state(self.name).opened_at
        assert at is not None
        published = self._publisher.publish(self.name, at, refresh, looked_at=self._looked_at)
        self.published_seq = published.seq
        if published.ahead_seconds and not self._is_ahead:
            text = f"changes get times {human_seconds(published.ahead_seconds)} ahead of the clock, which was set back"
            of_set(self._context.listener, self.name)(Notice("HW-PUB-19", text))
        self._is_ahead = published.ahead_seconds > 0
        with self._lock:
            due_at = time.monotonic() + (0.0 if published.pages_left else published.due_in_seconds)
            self._schedule.publish_at = min(self._schedule.publish_at, due_at)
        self._context.events.published(published)
        return published

    # What an intake asks for in the middle of a look at the whole

    def breathe(self) -> None:
        """Do what is urgent: hints do not wait for the end of the look, nor do changes that it has recorded."""
        if not self._schedule.is_begun or not self.intake.is_open:
            return
        now = time.monotonic()
        with self._lock:
            paths = self._schedule.take_hints(now)
        if paths:
            self._follow(paths)
        elif now - self._caught_up_at > _CATCH_UP_SECONDS:
            self._caught_up_at = now
            if self._context.catalog.state(self.name).last_seq != self.published_seq:
                self._publish(Refresh.REPAIR)
