"""The worker of a set with a folder: a thread that scans now and then, and at once where the system hints at a change.

Hints only say where to look first. The full scan is the truth; it comes every `rescan_seconds`, and later when it takes
long, so that it never costs more than a tenth of the time. Whatever fails is shown by `health`, and tried again after a
pause that grows.
"""

from __future__ import annotations

import datetime as dt
import math
import os
import threading
import time
from collections.abc import Callable, Iterable

from headwater.ingest.folder.hashing.pool import Stopped
from headwater.ingest.folder.watching.hint_paths import outside_state
from headwater.ingest.folder.watching.watch import EVERYTHING, CannotWatch, hints
from headwater.progress import Listener, Notice, silent
from headwater.source.folder.pipeline import FolderPipeline, PipelineResult
from headwater.source.publication import Publication
from headwater.source.set_health import SetHealth

SCAN_SHARE = 0.1
"""Full scans take no more than this share of the time."""
ECHO_SECONDS = 1.0
"""A folder that has just appeared is looked at once more: files may have come before it was watched."""
SETTLED_SECONDS = 2.2
"""A file read at once after a change is read again when even a coarse clock has moved on: its tag is strong then."""
HELD_SECONDS = 5.0
"""Between full scans while deletions are held back: the folder may be back."""
UNWATCHED_SECONDS = 2.0
"""Between full scans of a folder that cannot be watched, when they are quick."""
SURGE = 5_000
"""With more hints than this a full scan is quicker."""
_LONGEST_PAUSE = 60.0
_WATCH_PAUSE = 5.0
_TICK_SECONDS = 30.0
_CATCH_UP_SECONDS = 1.0


class FolderWorker:
    """Follows one set until stopped. `make` builds the set's worker, given a stop and a breathe callback."""

    def __init__(
        self,
        make: Callable[[Callable[[], bool], Callable[[], None]], FolderPipeline],
        name: str,
        *,
        watched: bool,
        rescan_seconds: float,
        clock: Callable[[], dt.datetime],
        listener: Listener = silent,
        announce: Callable[[Publication], None] = lambda _one: None,
        after_failure: Callable[[], None] = lambda: None,
    ) -> None:
        self._announce = announce
        self.health = SetHealth(name=name)
        self._stopping = threading.Event()
        self._set = make(self._stopping.is_set, self._breathe)
        self._watched = watched
        self._rescan_seconds = rescan_seconds
        self._clock = clock
        self._listener = listener
        self._after_failure = after_failure
        self._wake = threading.Condition()
        self._hints: set[bytes] = set()
        self._later: list[tuple[float, bytes]] = []
        self._full_at = 0.0
        self._full_ended = 0.0
        self._full_took = 0.0
        self._caught_up_at = 0.0
        self._tick_at = time.monotonic() + _TICK_SECONDS
        self._threads = [threading.Thread(target=self._follow, name=f"headwater-{name}", daemon=True)]
        self._watch_begun = threading.Event()
        if watched:
            self._threads.append(threading.Thread(target=self._watch, name=f"headwater-watch-{name}", daemon=True))

    def start(self) -> None:
        """Begin. What is published already stays as it is until there is something newer."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Ask to end; work under way ends at its next step."""
        self._stopping.set()
        with self._wake:
            self._wake.notify_all()

    def join(self, timeout: float) -> bool:
        """Wait for the end; False when it has not come in time."""
        until = time.monotonic() + timeout
        for thread in self._threads:
            if thread.ident is not None:
                thread.join(max(0.0, until - time.monotonic()))
        return not any(thread.is_alive() for thread in self._threads)

    # Hints

    def hint(self, paths: Iterable[bytes]) -> None:
        """Something may have changed at these relative paths; the empty path stands for everything."""
        with self._wake:
            self._hints.update(paths)
            if b"" in self._hints or len(self._hints) > SURGE:
                self._hints.discard(b"")
                self._full_at = min(self._full_at, self._full_ended + 2 * self._full_took)
            if len(self._hints) > SURGE:
                self._hints.clear()
            self._wake.notify_all()

    def _watch(self) -> None:
        missed = False
        while not self._stopping.is_set():
            try:
                for found in hints(self._set.folder.root, self._stopping.is_set, self.health):
                    self._watch_begun.set()
                    self.health.watching, self.health.watch_error = True, None
                    if missed:
                        missed = False
                        self.hint(EVERYTHING)
                    self._take_hints(found)
            except CannotWatch as fault:
                if self.health.watch_error is None:
                    self._listener(Notice(fault.code, fault.what, fault.where))
                self.health.watch_error = str(fault)
            missed = True
            self.health.watching, self.health.unwatched = False, 0
            self._watch_begun.set()
            with self._wake:
                self._full_at = min(self._full_at, self._regular_at())
                self._wake.notify_all()
            self._stopping.wait(_WATCH_PAUSE)

    def _take_hints(self, found: frozenset[bytes]) -> None:
        folder = self._set.folder
        root = os.path.realpath(folder.root)
        avoid = tuple(one[len(root) :].strip(b"/") for one in folder.avoid)
        mine = [
            path
            for path in outside_state(found)
            if not any(path == one or path.startswith(one + b"/") for one in avoid)
        ]
        if mine:
            self.hint(mine)
            now = time.monotonic()
            folders = [path for path in mine if path and os.path.isdir(os.path.join(root, path))]
            with self._wake:
                self._later += [(now + ECHO_SECONDS, path) for path in folders[:SURGE]]

    # Work

    def _follow(self) -> None:
        if self._watched:
            self._watch_begun.wait(_WATCH_PAUSE)
        pause = 0.5
        self._retry(self._begin)
        while not self._stopping.is_set():
            if self._retry(self._round):
                pause = 0.5
            else:
                self._after_failure()
                self._stopping.wait(pause)
                pause = min(2 * pause, _LONGEST_PAUSE)
        self.health.phase = "stopped"

    def _retry(self, work: Callable[[], None]) -> bool:
        """Do some work; a failure is kept for `health`, and everything is looked at again after it."""
        try:
            work()
        except Stopped:
            return True
        except Exception as fault:  # noqa: BLE001 - a thread's last frame: what is not shown here is never seen
            self.health.failed(fault, self._clock(), self._listener)
            self._full_at = 0.0
            return False
        self.health.recovered()
        return True

    def _begin(self) -> None:
        """What a run before recorded and did not publish, or published for another base URL, comes first."""
        if self._set.is_open:
            self.health.phase = "publishing"
            self._set.publish()
            self._tell_news()

    def _round(self) -> None:
        paths = self._next()
        if paths is None:
            self._full()
        elif paths:
            self._partial(paths)
        elif not self._stopping.is_set():
            self._tick_at = time.monotonic() + _TICK_SECONDS
            self._set.publish()
        self._tell_news()

    def _tell_news(self) -> None:
        """One line for a pass, however many publications it made."""
        news = self._set.news()
        if news is not None:
            self._announce(news)

    def _next(self) -> set[bytes] | None:
        """Wait for what is due: None for a full scan, paths to look at, nothing for the regular publication."""
        self.health.phase = "following"
        with self._wake:
            while not self._stopping.is_set():
                now = time.monotonic()
                if now >= self._full_at:
                    return None
                self._hints |= {path for due, path in self._later if due <= now}
                self._later = [one for one in self._later if one[0] > now]
                if now >= self._tick_at:  # however busy the folder is: documents may be lost or damaged
                    return set()
                if self._hints:
                    return self._taken()
                if self._set.pages_left:
                    return set()
                next_due = min([self._tick_at, self._full_at, *(due for due, _path in self._later)])
                self._wake.wait(max(0.01, next_due - now))
        return set()

    def _taken(self) -> set[bytes]:
        taken, self._hints = self._hints, set()
        return taken

    def _full(self) -> None:
        loading = not self._set.is_open
        self.health.phase = "loading" if loading else "scanning"
        began = time.monotonic()
        with self._wake:
            self._hints.clear()  # whatever they hint at, this scan comes by later
            self._full_at = math.inf
        worked = self._set.full()
        self.health.held_back = str(worked.scanned.held_back) if worked.scanned.held_back else None
        with self._wake:
            self._full_ended = time.monotonic()
            took = self._full_ended - began
            self._full_took = 0.0 if loading else took  # a load reads every file; later scans do not
            self._full_at = min(self._full_at, self._regular_at())
        self.health.scans += 1
        self.health.scan_seconds = took
        self.health.scanned_at = self._set.at
        self.health.remarks = worked.scanned.warnings
        self._after(worked)

    def _regular_at(self) -> float:
        """When the next full scan is due without a hint."""
        pause = self._rescan_seconds
        if not self.health.watching:
            pause = min(pause, UNWATCHED_SECONDS)
        if self.health.held_back:
            pause = min(pause, HELD_SECONDS)
        return self._full_ended + max(pause, self._full_took * (1 / SCAN_SHARE - 1))

    def _partial(self, paths: set[bytes]) -> None:
        worked = self._set.hinted(paths)
        if worked.scanned.held_back:
            self.health.held_back = str(worked.scanned.held_back)
            with self._wake:
                self._full_at = min(self._full_at, max(time.monotonic() + HELD_SECONDS, self._regular_at()))
        self._after(worked)

    def _after(self, worked: PipelineResult) -> None:
        now = time.monotonic()
        with self._wake:
            self._later += [(now + ECHO_SECONDS, path) for path in worked.scanned.unsettled]
            self._later += [(now + SETTLED_SECONDS, path) for path in worked.scanned.racy]

    def _breathe(self) -> None:
        """In the middle of a full scan: hints do not wait for its end, nor do changes that it has recorded."""
        if not self._set.is_open:
            return
        with self._wake:
            paths = self._taken()
        if paths:
            self._partial(paths)
        elif time.monotonic() - self._caught_up_at > _CATCH_UP_SECONDS:
            self._caught_up_at = time.monotonic()
            if self._set.is_behind:
                self._set.publish()
