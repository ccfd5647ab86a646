"""The state of one push set in the scheduler: what is published, what is under way, what has failed."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from typing import Final, Protocol

from headwater.ingest.push.feed import Feed
from headwater.progress import Listener
from headwater.source.push.work_queue import Priority
from headwater.source.set_health import SetHealth

WAITING: Final = "waiting for its first records"
LOADING: Final = "loading"
READING: Final = "reading the index"
FOLLOWING: Final = "following"
FIRST_PAUSE: Final = 0.5
LONGEST_PAUSE: Final = 60.0


class IndexReader(Protocol):
    """An index that is followed."""

    def poll(self) -> int:
        """Take what is new; how many documents were looked at."""
        ...


class PushSet:
    """One set. `index` makes what is polled every `poll_seconds`, given a callback that tells when to stop."""

    def __init__(
        self, feed: Feed, index: Callable[[Callable[[], bool]], IndexReader] | None = None, poll_seconds: float = 1.0
    ) -> None:
        self.name = feed.name
        self.feed = feed
        self.index = index
        self.poll_seconds = poll_seconds
        self.health = SetHealth(name=feed.name, phase=WAITING)
        self.is_open = False
        self.is_unsettled = False
        self.priority: Priority | None = None
        """With which priority the set waits for its publication."""
        self.is_worked = False
        """Its publication is under way …"""
        self.wanted: Priority | None = None
        """… and another one is wanted when it has ended."""
        self.is_polled = False
        self.seen_seq: int | None = None
        """The newest change at the last look: another number is news."""
        self.published_seq: int | None = None
        self.announced_seq: int | None = None
        self.published_at = 0.0
        self.pages_left = 0
        self.retry_at = 0.0
        self.poll_at = 0.0
        self.failing: dict[str, float] = {}
        """What fails at present, and the pause before it is tried again."""
        self._polled: IndexReader | None = None

    def poll(self, stop: Callable[[], bool]) -> int:
        """Take what is new in the index; how many documents were looked at."""
        assert self.index is not None
        self._polled = self._polled or self.index(stop)
        return self._polled.poll()

    def worked(self, what: str) -> None:
        """Something went well; the health is clear when nothing else fails."""
        self.failing.pop(what, None)
        if self.failing:
            return
        self.health.phase = FOLLOWING if self.is_open else WAITING if self.index is None else LOADING
        self.health.recovered()

    def failed(self, what: str, fault: Exception, at: dt.datetime, listener: Listener) -> None:
        """Something went wrong: shown until it goes well, told when it is new."""
        self.failing[what] = min(2 * self.failing.get(what, FIRST_PAUSE / 2), LONGEST_PAUSE)
        self.health.failed(fault, at, listener)

    def paused(self, what: str) -> float:
        """How many seconds to wait before what fails is tried again."""
        return self.failing.get(what, 0.0)
