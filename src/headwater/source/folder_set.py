"""A set with a folder, as a task of the scheduler: scans now and then, and at once where the system hints at a change.

What is due when is decided by its schedule. Whatever fails is shown by `health`, and tried again after a pause that
grows; then the whole folder is looked at again.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterable
from itertools import islice
from typing import Final

from headwater.ingest.folder.folder_settings import Folder
from headwater.processes.pool import Stopped
from headwater.progress import of_set
from headwater.source.config import SetConfig
from headwater.source.folder_pipeline import FolderPipeline, PipelineResult
from headwater.source.folder_schedule import HELD_SECONDS, TICK_SECONDS, FolderSchedule, FolderWork
from headwater.source.scheduler import Scheduler
from headwater.source.set_health import Failures, SetHealth
from headwater.source.set_watch import WATCH_PAUSE, SetWatch
from headwater.source.source_context import SourceContext

ECHO_SECONDS: Final = 1.0
"""A folder that has just appeared is looked at once more: files may have come before it was watched."""
SETTLED_SECONDS: Final = 2.2
"""A file read at once after a change is read again when even a coarse clock has moved on: its tag is strong then."""
SURGE: Final = 5_000
"""With more hints than this a full scan is quicker."""
_CATCH_UP_SECONDS: Final = 1.0


class FolderSet:
    """Keeps one set current."""

    def __init__(self, context: SourceContext, config: SetConfig, folder: Folder, scheduler: Scheduler) -> None:
        self.health = SetHealth(name=config.name)
        self._context = context
        self._scheduler = scheduler
        self._pipeline = FolderPipeline(context, config.name, folder, self)
        # A rotation is due after a full scan: only that knows the folder as it was at one time.
        self._rescan_seconds = min(config.rescan_seconds, config.rotation_seconds or config.rescan_seconds)
        listener = of_set(context.listener, config.name)
        self._failures = Failures(self.health, context.clock, listener)
        self._lock = threading.Lock()
        now = time.monotonic()
        self._schedule = FolderSchedule(publish_at=now + TICK_SECONDS)
        self._caught_up_at = 0.0
        if config.watch:
            watch = SetWatch(folder, self, self.health, scheduler.stopping, listener)
            scheduler.add_loop(watch.run, watch.end)
            self._schedule.retry_at = now + WATCH_PAUSE  # what changes during the first scan is to be hinted at

    # What the watch tells

    def hint(self, paths: Iterable[bytes]) -> None:
        """Something may have changed at these relative paths; the empty path stands for everything."""
        with self._lock:
            schedule = self._schedule
            schedule.hints.update(paths)
            if b"" in schedule.hints or len(schedule.hints) > SURGE:
                schedule.hints.discard(b"")
                schedule.scan_for_hints()
            if len(schedule.hints) > SURGE:
                schedule.hints.clear()
        self._scheduler.wake()

    def appeared(self, folders: Iterable[bytes]) -> None:
        """These folders have just appeared: they are looked at once more."""
        at = time.monotonic() + ECHO_SECONDS
        later = [(at, path) for path in islice(folders, SURGE)]  # whoever names them looks at the disk, which may hang
        with self._lock:
            self._schedule.later += later
        self._scheduler.wake()

    def watch_changed(self) -> None:
        """The folder is watched from now on, or no longer."""
        with self._lock:
            if not self._schedule.is_begun:
                self._schedule.retry_at = 0.0
            elif not self.health.watching:
                self._schedule.scan_by(self._regular_scan_at())
        self._scheduler.wake()

    # As a task

    def due_at(self) -> float:
        """When there is something to do."""
        with self._lock:
            return self._schedule.next_work(time.monotonic())[1]

    def is_long(self) -> bool:
        """Whether the whole folder, or all documents of the set, may be due."""
        with self._lock:
            return self._schedule.next_work(time.monotonic())[0] not in (FolderWork.HINTS, FolderWork.PUBLISH)

    def run(self) -> None:
        """Do what is due."""
        pause = self._failures.attempt("folder", self._round)
        if pause is not None:
            with self._lock:
                self._schedule.retry_at = time.monotonic() + pause
                self._schedule.scan_at = 0.0
            self._context.name_published()

    def _round(self) -> None:
        now = time.monotonic()
        with self._lock:
            work, _at = self._schedule.next_work(now)
            paths = self._schedule.take_hints(now) if work is FolderWork.HINTS else set()
        try:
            self._do(work, paths)
        except Stopped:
            return
        self._schedule.has_pages_left = self._pipeline.pages_left > 0
        due_at = time.monotonic() + self._pipeline.due_in_seconds
        self._schedule.publish_at = min(self._schedule.publish_at, due_at)
        if work is not FolderWork.BEGIN:
            self.health.phase = "following"

    def _do(self, work: FolderWork, paths: set[bytes]) -> None:
        if work is FolderWork.BEGIN:
            self._begin()
        elif work is FolderWork.SCAN:
            self._scan()
        elif work is FolderWork.HINTS:
            self._look_at(paths)
        elif work is FolderWork.LARGE:
            with self._lock:
                paths, self._schedule.large = self._schedule.large, set()
            self._look_again(self._pipeline.hinted(paths, is_apart=True))
        else:
            self._schedule.publish_at = time.monotonic() + TICK_SECONDS
            self._pipeline.publish()

    def _begin(self) -> None:
        """What a run before recorded and did not publish, or published for another base URL, comes first."""
        self._schedule.is_begun = True
        if self._pipeline.is_open:
            self.health.phase = "publishing"
            self._pipeline.publish()

    def _scan(self) -> None:
        loading = not self._pipeline.is_open
        self.health.phase = "loading" if loading else "scanning"
        began = time.monotonic()
        with self._lock:
            self._schedule.hints.clear()  # whatever they hint at, this scan comes by later
            self._schedule.scan_at = math.inf
        worked = self._pipeline.full()
        self.health.held_back = str(worked.scanned.held_back) if worked.scanned.held_back else None
        took = time.monotonic() - began
        with self._lock:
            self._schedule.scan_ended_at = began + took
            self._schedule.scan_seconds = 0.0 if loading else took  # a load reads every file; later scans do not
            self._schedule.scan_by(self._regular_scan_at())
        self.health.scans += 1
        self.health.scan_seconds = took
        self.health.scanned_at = self._pipeline.at
        self.health.remarks = worked.scanned.warnings
        self._look_again(worked)

    def _regular_scan_at(self) -> float:
        watched, held_back = self.health.watching, self.health.held_back is not None
        return self._schedule.regular_scan_at(self._rescan_seconds, watched=watched, held_back=held_back)

    def _look_at(self, paths: set[bytes]) -> None:
        worked = self._pipeline.hinted(paths)
        if worked.scanned.held_back:
            self.health.held_back = self.health.held_back or str(worked.scanned.held_back)
            with self._lock:
                self._schedule.scan_by(max(time.monotonic() + HELD_SECONDS, self._regular_scan_at()))
        self._look_again(worked)

    def _look_again(self, worked: PipelineResult) -> None:
        now = time.monotonic()
        with self._lock:
            self._schedule.large.update(worked.scanned.large)
            self._schedule.later += [(now + ECHO_SECONDS, path) for path in worked.scanned.unsettled]
            self._schedule.later += [(now + SETTLED_SECONDS, path) for path in worked.scanned.racy]

    # What the pipeline asks for during a full scan

    def is_stopping(self) -> bool:
        """Whether the scan has to end."""
        return self._scheduler.stopping.is_set()

    def breathe(self) -> None:
        """In the middle of a full scan: hints do not wait for its end, nor do changes that it has recorded."""
        if not self._pipeline.is_open:
            return
        now = time.monotonic()
        with self._lock:
            paths = self._schedule.take_hints(now)
        if paths:
            self._look_at(paths)
        elif now - self._caught_up_at > _CATCH_UP_SECONDS:
            self._caught_up_at = now
            if self._pipeline.is_behind:
                self._pipeline.publish()
