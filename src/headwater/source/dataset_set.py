"""One set that publishes an RDF dataset, as a task of the scheduler: looks at what it is made of, and publishes.

Before each publication the dataset and its patches are checked: where they do not agree, nothing is published, and the
health of the set says so until they do.
"""

from __future__ import annotations

import datetime as dt
import time
from contextlib import suppress
from typing import Final

from headwater import notices
from headwater.datasets.faults import BrokenSeries
from headwater.datasets.rows import FAULT_KEY, fault_update
from headwater.errors import HeadwaterError
from headwater.ingest.datasets.intake import DatasetIntake, DatasetNews, DatasetOutcome
from headwater.processes.pool import Stopped
from headwater.progress import Notice
from headwater.publish.plan import Refresh
from headwater.publish.publication_state import decode_publication
from headwater.publish.publisher import PublishResult
from headwater.source.set_health import Failures, SetHealth, fault_words
from headwater.source.source_context import SourceContext

SOON_SECONDS: Final = 0.5
"""Until the next look at what has just changed."""
TICK_SECONDS: Final = 30.0
"""Between publications without news: pages may grow old, documents be lost or damaged."""


class DatasetSet:
    """Keeps one set current. One thread at a time; what fails is shown by `health`, and tried again."""

    def __init__(self, context: SourceContext, intake: DatasetIntake, pause_seconds: float) -> None:
        self.name = intake.name
        self.intake = intake
        self.health = SetHealth(name=intake.name)
        self._context = context
        self._publisher = context.publisher
        self._pause_seconds = pause_seconds
        self._failures = Failures(self.health, context.clock, context.listener)
        self._due_at = self._again_at = 0.0
        self._failed: bytes | None = None
        """The input that has failed."""
        self._tick_at = 0.0
        self._is_unsettled = False
        self._is_begun = False
        self._is_continued = False
        self._at: dt.datetime | None = None
        self._noted: str | None = ""
        """The fault that the catalog has; empty: not known."""

    def due_at(self) -> float:
        """When it is to be looked at again."""
        return self._due_at

    def is_long(self) -> bool:
        """A dataset may have any size."""
        return True

    def run(self) -> None:
        """Look, and publish what is new or due. What has failed waits for its pause, or until its input is another."""
        seen = self.intake.present()
        if time.monotonic() < self._again_at and seen == self._failed:
            self._due_at = min(self._again_at, time.monotonic() + self._pause_seconds)
            return
        try:
            pause = self._failures.attempt("dataset", self._run)
        except Stopped:
            return
        if pause is None:
            self.health.phase = "waiting until the dataset is at rest" if self._is_unsettled else "following"
        else:
            self._context.name_published()
            self._failed, self._again_at = seen, time.monotonic() + pause
            self._due_at = time.monotonic() + min(pause, self._pause_seconds)
        if self._noted != self.health.error:
            with suppress(HeadwaterError):  # the health has it, and the catalog has it the next time
                self._note(self.health.error)

    def work(self) -> tuple[DatasetOutcome, PublishResult | None]:
        """Look once, wait until it is at rest, and publish. Raises whatever is wrong, and has it noted."""
        try:
            done = self._work()
        except HeadwaterError as fault:
            with suppress(HeadwaterError):
                self._note(fault_words(fault))
            raise
        self._note(None)
        return done

    def _work(self) -> tuple[DatasetOutcome, PublishResult | None]:
        self._begin()
        self._begin_anew_if_due()
        outcome = self._looked()
        while outcome.news is DatasetNews.UNSETTLED:
            time.sleep(SOON_SECONDS)
            outcome = self._looked()
        return outcome, self._publish(Refresh.STALE)

    def _run(self) -> None:
        self._due_at = time.monotonic() + self._pause_seconds
        self._is_unsettled = False
        is_first = not self._is_begun
        if is_first:
            self.health.phase = "starting"
            self._begin()
        is_anew = self._begin_anew_if_due()
        if is_first or time.monotonic() >= self._tick_at:
            self._publish(Refresh.REPAIR)  # what a run before has recorded, and what others have damaged
        outcome = self._looked()
        if outcome.news is DatasetNews.UNSETTLED:
            self._due_at = time.monotonic() + min(self._pause_seconds, SOON_SECONDS)
            self._is_unsettled = True
        elif outcome.news is DatasetNews.CHANGED or is_first or is_anew:
            self._publish(Refresh.STALE)

    def _begin(self) -> None:
        if not self._is_begun:
            try:
                self.intake.begin()
            except BrokenSeries:
                if not self.intake.folder.restart_note.exists():
                    raise
            self._is_begun = True

    def _looked(self) -> DatasetOutcome:
        at = self._context.clock()
        began = time.monotonic()
        outcome = self.intake.look()
        if outcome.news is not DatasetNews.UNSETTLED:
            self._at = at
            self.health.scans += 1
            self.health.scanned_at = at
            self.health.scan_seconds = time.monotonic() - began
        if outcome.news is DatasetNews.CHANGED:
            text = (
                f"{self.name}: statements added {outcome.added:,}, removed {outcome.removed:,}; now {outcome.quads:,}"
            )
            self._context.listener(Notice(notices.DATASET_CHANGED, text))
        return outcome

    def _begin_anew_if_due(self) -> bool:
        """Let the patches begin anew from nothing where the Change Lists do, or a user asks for it."""
        note, state = self.intake.folder.restart_note, self.intake.state
        is_asked = note.exists()
        if state is None:
            note.unlink(missing_ok=True)
            return False
        if is_asked:
            self._publisher.restart_history(self.name)
        if not is_asked and state.first >= self._history_first():
            return False
        self.intake.begin_anew()
        self._at = self._context.clock()  # a Resource List of before that change would leave a gap to the Change List
        note.unlink(missing_ok=True)
        self._context.listener(Notice(notices.DATASET_ANEW, f"{self.name}: its patches begin anew from nothing"))
        return True

    def _note(self, fault: str | None) -> None:
        """Have `headwater status` say what is wrong, or that nothing is. Raises faults of the catalog."""
        catalog = self._context.catalog
        update = fault_update(fault)
        if fault is not None or catalog.rows(self.name, [FAULT_KEY]):
            self._context.may_record()
            if catalog.create(self.name).opened_at is None:
                catalog.load(self.name, (), state=update)
            else:
                catalog.record(self.name, (), self._context.clock(), state=update)
        self._noted = fault

    def _history_first(self) -> int:
        """The number of the first change that the Change Lists may name."""
        catalog = self._context.catalog
        history = decode_publication(catalog.state(self.name).notes).history
        return next((one.first for one in catalog.segments(self.name) if one.number >= history), 0)

    def _publish(self, refresh: Refresh) -> PublishResult | None:
        """Publish what is recorded, when it has been checked. Raises BrokenSeries and the store's faults."""
        self._tick_at = time.monotonic() + TICK_SECONDS
        if self.intake.state is None:
            return None
        if not self._is_continued:  # once there is something that may not continue what was published before
            self._publisher.reset_history(self.name)
            self._begin_anew_if_due()
            self._is_continued = True
        self.intake.check()
        catalog = self._context.catalog
        at = self._publisher.rotate(self.name)
        if at is None and self._at is not None:
            at = catalog.mark(self.name, self._at)
        known = at or catalog.state(self.name).opened_at
        assert known is not None
        published = self._publisher.publish(self.name, known, refresh, looked_at=self._at)
        self._tick_at = min(self._tick_at, time.monotonic() + published.due_in_seconds)
        self._context.events.published(published)
        return published
