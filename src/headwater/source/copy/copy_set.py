"""One set that publishes a copy: records what the copy holds by now, and publishes it."""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Callable
from typing import Final

from headwater import notices
from headwater.catalog.faults import UnknownSet
from headwater.copies.copy_state import CopyStateReader
from headwater.ingest.copy.comparison import Omission
from headwater.ingest.copy.intake import CopyIntake, CopyOutcome
from headwater.processes.pool import Stopped
from headwater.progress import Notice
from headwater.publish.plan import Refresh
from headwater.publish.publisher import PublishResult
from headwater.source.set_health import Failures, SetHealth
from headwater.source.source_context import SourceContext

TICK_SECONDS: Final = 30.0
"""Between publications without news: pages may be due, documents lost or damaged."""

CODES: Final = {
    Omission.LOOP: notices.COPY_LOOP,
    Omission.CHANGED: notices.COPY_CHANGED,
    Omission.UNCONFIRMED: notices.COPY_UNCONFIRMED,
    Omission.UNUSABLE: notices.COPY_UNUSABLE,
}
"""The notices by which what is left out is told."""


class CopySet:
    """Keeps one set current. Its methods are called by one thread at a time; what fails is shown by `health`."""

    def __init__(self, context: SourceContext, intake: CopyIntake) -> None:
        self.name = intake.name
        self.intake = intake
        self.health = SetHealth(name=intake.name, phase="waiting for the copy")
        self.retry_at = 0.0
        self._context = context
        self._publisher = context.publisher
        self._failures = Failures(self.health, context.clock, context.listener)
        self._at: dt.datetime | None = None
        self._published_seq: int | None = None
        self._pages_left = 0
        self._tick_at = 0.0
        self.is_begun = False

    @property
    def is_open(self) -> bool:
        """Whether the first load is complete."""
        try:
            return self._context.catalog.state(self.name).opened_at is not None
        except UnknownSet:
            return False

    @property
    def is_unsettled(self) -> bool:
        """Whether the set has to look at every state of the copy, whatever the journal says."""
        return not self.is_begun or bool(self._failures) or self.intake.is_partial

    @property
    def due_at(self) -> float:
        """When there is something to do without news of the copy."""
        return max(self.retry_at, time.monotonic() if self._pages_left else self._tick_at)

    def look(self, open_state: Callable[[], CopyStateReader]) -> None:
        """Take what is new in the copy, and publish it."""
        self._attempt("copy", lambda: self._look(open_state()))

    def once(self, state: CopyStateReader, place: Callable[[], None]) -> tuple[CopyOutcome, PublishResult]:
        """Take what the copy holds, have it placed, and publish it. Raises whatever is wrong."""
        if self.is_open:
            self._publisher.reset_history(self.name)
        at = self._context.clock()
        outcome = self.intake.round(state)
        self._at, self.is_begun = at, True
        self._tell(outcome)
        place()
        return outcome, self._publish(at, Refresh.STALE)

    def tick(self) -> None:
        """Publish what is due by time, and what was lost."""
        self._tick_at = time.monotonic() + TICK_SECONDS
        if self.is_open and self.is_begun:
            self._attempt("publication", self._tick)

    def _attempt(self, what: str, work: Callable[[], None]) -> None:
        try:
            pause = self._failures.attempt(what, work)
        except Stopped:
            return
        self.retry_at = 0.0 if pause is None else time.monotonic() + pause
        if pause is None and not self._failures:
            self.health.phase = "following"

    def _look(self, state: CopyStateReader) -> None:
        was_open, first = self.is_open, not self.is_begun
        if first and was_open:
            if not self._publisher.history.is_older_than_documents(self.name):
                self._publish(None, Refresh.REPAIR)  # what a run before has recorded comes first
            self._publisher.reset_history(self.name)
        if not was_open:
            self.health.phase = "loading"
        at = self._context.clock()
        try:
            outcome = self.intake.round(state)
        except Stopped:
            return
        self._at = at
        self.is_begun = True
        self._tell(outcome)
        self.health.scans += 1
        self.health.scanned_at = at
        if first or not was_open:
            self._publish(at, Refresh.DUE)
        elif self._context.catalog.state(self.name).last_seq != self._published_seq:
            self._publish(at, Refresh.CHANGES)

    def _tick(self) -> None:
        at = None
        if not self._failures:  # nothing is known of the time since the copy could be read last
            at = self._publisher.rotate(self.name) or self._context.catalog.mark(self.name, self._context.clock())
        self._publish(at, Refresh.REPAIR)

    def _publish(self, at: dt.datetime | None, refresh: Refresh) -> PublishResult:
        known = at or self._at or self._context.catalog.state(self.name).opened_at
        assert known is not None
        looked_at = None if at is None else self._context.clock()
        published = self._publisher.publish(self.name, known, refresh, looked_at=looked_at)
        self._published_seq, self._pages_left = published.seq, published.pages_left
        now = time.monotonic()
        tick_at = self._tick_at if refresh is Refresh.CHANGES else now + TICK_SECONDS
        self._tick_at = min(tick_at, now + published.due_in_seconds)
        self._context.events.published(published)
        return published

    def _tell(self, outcome: CopyOutcome) -> None:
        told = outcome.left_out
        if outcome.is_compared:
            self.health.remarks = {}
        for why, count in told.counts.items():
            code = CODES[why]
            if code not in self.health.remarks:
                files = "1 file of the copy is" if count == 1 else f"{count:,} files of the copy are"
                text = f"{files} left out: {why.value}"
                self._context.listener(Notice(code, f"{self.name}: {text}", told.examples[why]))
            self.health.remarks[code] = self.health.remarks.get(code, 0) + count
        if outcome.is_held_back and self.health.held_back is None:
            text = f"{self.name}: the copy is being made anew; deletions wait for the end of its baseline"
            self._context.listener(Notice(notices.COPY_INCOMPLETE, text))
        self.health.held_back = "the copy's baseline has not ended" if self.intake.is_partial else None
