"""The push sets of a source: what others record in them is found by one cheap question for all, and published.

A set that follows an index has a task of its own besides, which takes what is new there and asks again after a pause.
"""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from headwater.ingest.deletion_guard import FEED_FAULT
from headwater.ingest.folder.comparison import ScanResult
from headwater.progress import silent
from headwater.retry import TimeShare
from headwater.source.scheduler import Urgency
from headwater.source.worker import Intake, Looked, SetWorker, SourceContext
from headwater.time_windows import Windows, open_seconds, opens_at

if TYPE_CHECKING:
    from headwater.ingest.harvested import Harvester

LOOK_SECONDS: Final = 0.25  # between looks at what others have recorded …
LOOKS: Final = TimeShare(0.05)  # … but no more than this share of the time


class PublishedFeed(Intake):
    """What is announced to a set, or taken from its index: it is in the catalog by now."""

    is_told = True

    def __init__(
        self,
        context: SourceContext,
        name: str,
        *,
        has_index: bool,
        harvester: Callable[[], Harvester] | None = None,
    ) -> None:
        """`harvester` makes what a look has harvested; without it others record."""
        super().__init__(context, name)
        self._harvester = harvester
        self.seen_seq: int | None = None  # the newest change that was seen in the catalog: another number is news
        self.polled_at: dt.datetime | None = None  # all that its index had then is recorded
        self._has_index = has_index
        self.fault_key = FEED_FAULT if has_index else None
        self._was_open = False
        self.waiting_phase = "loading" if has_index else "waiting for its first records"

    @property
    def is_open(self) -> bool:
        """Whether the first load is complete."""
        self._was_open = self._was_open or super().is_open
        return self._was_open

    @property
    def phase(self) -> str:
        """What health says while nothing fails."""
        return "following" if self._was_open else self.waiting_phase

    def look(self) -> Looked:
        """What a harvest has found; else nothing: others have recorded it."""
        if self._harvester is None:
            return Looked()
        at = self._context.clock()
        harvester = self._harvester()
        tally = harvester.harvest()
        self.polled_at = at
        counts = {name: getattr(tally, name) for name in ("created", "updated", "deleted", "unchanged")}
        warnings = {harvester.fault_code: tally.faults} if tally.faults else {}
        scanned = ScanResult(**counts, held_back=tally.held_back, warnings=warnings)
        held_back = None if tally.held_back is None else str(tally.held_back)
        return Looked(is_changed=True, held_back=held_back, scanned=scanned)

    def known_at(self) -> dt.datetime | None:
        """Now, or when its index was asked last."""
        return self.polled_at if self._has_index else self._context.clock()


class Follower(Protocol):
    """Reads an index or a repository into a set."""

    def poll(self) -> object:
        """Record some of what is new. Returns something true when there may be more: then it is asked again at once."""


@dataclass(eq=False)
class IndexPoll:
    """The poll of one set's index or repository, as a task: every `poll_seconds` within `windows`.

    `index` makes the reader, at the first poll and again when a window opens.
    """

    worker: SetWorker
    clock: Callable[[], dt.datetime]
    index: Callable[[], Follower]
    poll_seconds: float
    is_slow: bool = False  # whether an answer may be waited for, as a repository's
    windows: Windows = ()

    def __post_init__(self) -> None:
        assert isinstance(self.worker.intake, PublishedFeed)
        self._feed = self.worker.intake
        self._reader: Follower | None = None
        self.due_at = 0.0
        self._has_failed = False

    @property
    def urgency(self) -> Urgency:
        """A first load takes as long as it takes, and an index that does not answer until it is given up."""
        return Urgency.LONG if self.is_slow or self._has_failed or not self._feed.is_open else Urgency.NEWS

    def run(self) -> None:
        """Take what is new; a failure is kept for `health`."""
        health, now = self.worker.health, self.clock()
        if not open_seconds(now, self.windows):
            health.phase, self._reader = "waiting for its window", None  # what it knows is old when the window opens
            self.due_at = time.monotonic() + (opens_at(now, [self.windows]) - now).total_seconds()
            return
        reading = "reading the repository" if self.is_slow else "reading the index"
        health.phase = reading if self._feed.is_open else "loading"
        pause = self.worker.failures.attempt("index", self._poll)
        self._has_failed = pause is not None
        if pause is not None:
            self.due_at = time.monotonic() + pause
        else:
            self.worker.worked("index")
        self.worker.note(health.error)

    def _poll(self) -> None:
        self._reader = self._reader or self.index()
        at = self.clock()
        found = self._reader.poll()
        self.due_at = time.monotonic() + (0.0 if found else self.poll_seconds)
        self.worker.health.scans += 1
        self.worker.health.scanned_at = self._feed.polled_at = at
        if found and self._feed.is_open:
            self.worker.tell()


@dataclass(eq=False)
class HostPolls:
    """The polls of one host, as a task: one at a time, in turns."""

    polls: list[IndexPoll]

    @property
    def due_at(self) -> float:
        """When the first one is due."""
        return self._next.due_at

    @property
    def urgency(self) -> Urgency:
        """That of the next one."""
        return self._next.urgency

    def run(self) -> None:
        """Take what is new in the set whose turn it is."""
        self._next.run()

    @property
    def _next(self) -> IndexPoll:
        return min(self.polls, key=lambda one: one.due_at)


class FeedWatch:
    """Tells the workers of these sets what was recorded by anybody, as a task: one question for all."""

    urgency = Urgency.NEWS

    def __init__(self, context: SourceContext, workers: Sequence[SetWorker]) -> None:
        self._context = context
        self._workers = {one.name: one for one in workers}
        self._feeds = {one.name: one.intake for one in workers if isinstance(one.intake, PublishedFeed)}
        self.due_at = 0.0
        self._is_blind = False

    def run(self) -> None:
        """Have published what others have recorded."""
        began, catalog = time.thread_time(), self._context.catalog
        try:
            newest = catalog.newest()
        except Exception as fault:  # noqa: BLE001 - shown with every set: none can be brought up to date
            self._is_blind = True
            for number, worker in enumerate(self._workers.values()):
                pause = worker.failures.add("catalog", fault, silent if number else None)
            self.due_at = time.monotonic() + pause
            return
        if self._is_blind:
            for worker in self._workers.values():
                worker.worked("catalog")
            self._is_blind = False
        found = {name: seq for name, seq in newest.items() if name in self._workers}
        for name, seq in found.items():
            worker, feed = self._workers[name], self._feeds[name]
            is_first, is_other = feed.seen_seq is None, seq != feed.seen_seq
            feed.seen_seq = seq
            if is_other and seq != worker.published_seq:
                worker.tell(is_news=not is_first)
        took = time.thread_time() - began
        self.due_at = time.monotonic() + max(LOOK_SECONDS, LOOKS.pause_after(took))
