"""The state of one push set: what is published, what is under way, what has failed."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Callable
from typing import Final, Protocol

from headwater.ingest.dit.intake import PATIENCE
from headwater.ingest.push.feed import Feed
from headwater.source.scheduling.work_queue import Priority
from headwater.source.set_health import Failures, SetHealth
from headwater.source.source_context import SourceContext

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
    """One set. `index` makes what is polled every `poll_seconds`, given a callback that tells when to stop.

    Documents wait for their partners up to `patience`.
    """

    def __init__(
        self,
        feed: Feed,
        context: SourceContext,
        index: Callable[[Callable[[], bool]], IndexReader] | None = None,
        poll_seconds: float = 1.0,
        patience: dt.timedelta = PATIENCE,
    ) -> None:
        self.name = feed.name
        self.feed = feed
        self.index = index
        self.poll_seconds = poll_seconds
        self.patience = patience
        self.health = SetHealth(name=feed.name, phase=WAITING)
        self.failures = Failures(self.health, context.clock, context.listener)
        self.is_open = False
        self.is_unsettled = False
        self.is_misdated = False
        """Documents may wait by a clock that was set back since."""
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
