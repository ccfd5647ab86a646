"""Keeps a fed set current: a thread that publishes what is announced, and follows an index where there is one.

Whatever fails is shown by `health`, and tried again after a pause that grows.
"""

from __future__ import annotations

import datetime as dt
import threading
import time
from collections.abc import Callable
from typing import Protocol

from headwater.catalog.interface import Catalog
from headwater.errors import HeadwaterError
from headwater.ingest.dit_intake import settle
from headwater.ingest.feed import Feed
from headwater.progress import Listener, Notice, silent
from headwater.publish.publisher import Publisher
from headwater.server.following import Health
from headwater.server.set_source import Publication

TICK_SECONDS = 30.0
"""Between publications without news: what is due by time, and whatever was lost in the store."""
SETTLE_SECONDS = 0.5
"""Between looks at documents that wait for their partner, and at what another process has recorded."""
WAITING = "waiting for its first records"
_LONGEST_PAUSE = 60.0
_FIRST_PAUSE = 0.5


class Polled(Protocol):
    """An index that is followed."""

    def poll(self) -> int:
        """Take what is new; how many documents were looked at."""
        ...


class Feeder:
    """Serves one fed set until stopped. `index` makes what is polled every `poll_seconds`, given a stop callback.

    `name_others` is called while the set cannot be shown, so that it does not hide the others.
    """

    def __init__(
        self,
        catalog: Catalog,
        publisher: Publisher,
        feed: Feed,
        *,
        clock: Callable[[], dt.datetime],
        index: Callable[[Callable[[], bool]], Polled] | None = None,
        poll_seconds: float = 1.0,
        listener: Listener = silent,
        announce: Callable[[Publication], None] = lambda _one: None,
        name_others: Callable[[], None] = lambda: None,
    ) -> None:
        self.health = Health(name=feed.name, phase=WAITING)
        self.feed = feed
        self._catalog = catalog
        self._publisher = publisher
        self._clock = clock
        self._index = index
        self._poll_seconds = poll_seconds
        self._listener = listener
        self._announce = announce
        self._name_others = name_others
        self._stopping = threading.Event()
        self._woken = threading.Event()
        self._published_seq: int | None = None
        self._announced_seq: int | None = None
        self._pages_left = 0
        self._published_at = 0.0
        self._settled_at = 0.0
        self._poll_at = 0.0
        self._poll_pause = _FIRST_PAUSE
        self._index_fails = False
        self._polled: Polled | None = None
        self._thread = threading.Thread(target=self._run, name=f"headwater-feed-{feed.name}", daemon=True)

    def start(self) -> None:
        """Begin. What is published already stays as it is until there is something newer."""
        self._thread.start()

    def stop(self) -> None:
        """Ask to end; work under way ends at its next step."""
        self._stopping.set()
        self._woken.set()

    def join(self, timeout: float) -> bool:
        """Wait for the end; False when it has not come in time."""
        if self._thread.ident is not None:
            self._thread.join(max(0.0, timeout))
        return not self._thread.is_alive()

    def news(self) -> None:
        """Something was recorded: publish it."""
        self._woken.set()

    def once(self) -> None:
        """One round: what is waiting is taken, what is recorded is published."""
        self._round(time.monotonic())

    def _run(self) -> None:
        pause = _FIRST_PAUSE
        while not self._stopping.is_set():
            self._woken.clear()
            if self._try():
                pause = _FIRST_PAUSE
                self._woken.wait(self._wait_seconds())
            else:
                self._name_others()
                self._woken.wait(pause)
                pause = min(2 * pause, _LONGEST_PAUSE)
        self.health.phase = "stopped"

    def _wait_seconds(self) -> float:
        if self._pages_left:
            return 0.01
        if self._index is None:
            return SETTLE_SECONDS
        return min(max(0.01, self._poll_at - time.monotonic()), SETTLE_SECONDS)

    def _try(self) -> bool:
        """One round; a failure is kept for `health`."""
        try:
            self._round(time.monotonic())
        except Exception as fault:  # noqa: BLE001 - a thread's last frame: what is not shown here is never seen
            self._failed(fault)
            return False
        if not self._index_fails:  # what failed there is shown until it has been read again
            self.health.failures = 0
            self.health.error = self.health.error_code = None
        return True

    def _round(self, now: float) -> None:
        """What waits in the index is taken, what is recorded is published; an index that fails holds up nothing."""
        failed: HeadwaterError | None = None
        if self._index is not None and now >= self._poll_at:
            try:
                self._poll(self._index)
            except HeadwaterError as fault:
                failed, self._index_fails = fault, True
        if self.feed.is_open:
            self._follow(now)
        elif self._index is None:
            self.health.phase = WAITING
        if not self.feed.is_open:
            self._name_others()
        if failed is not None:
            self._poll_pause = min(2 * self._poll_pause, _LONGEST_PAUSE)
            self._poll_at = time.monotonic() + self._poll_pause
            raise failed

    def _poll(self, index: Callable[[Callable[[], bool]], Polled]) -> None:
        self.health.phase = "reading the index" if self.feed.is_open else "loading"
        self._polled = self._polled or index(self._stopping.is_set)
        found = self._polled.poll()
        self._index_fails = False
        self._poll_pause = _FIRST_PAUSE
        self._poll_at = 0.0 if found else time.monotonic() + self._poll_seconds
        self.health.scans += 1
        self.health.scanned_at = self._clock()

    def _follow(self, now: float) -> None:
        if now - self._settled_at >= SETTLE_SECONDS:
            settle(self.feed, self._clock())
            self._settled_at = now
        tick = now - self._published_at >= TICK_SECONDS
        is_behind = self._catalog.state(self.feed.name).last_seq != self._published_seq
        if is_behind or tick or self._pages_left:
            self._publish(check=tick)
        self.health.phase = "following"

    def _publish(self, *, check: bool) -> None:
        """Publish all that was announced until now; when a rotation is due, as of the end of the closed list."""
        name = self.feed.name
        with self.feed.turn:  # what is recorded later gets a time after `at`
            at = self._publisher.rotate(name) or self._catalog.mark(name, self._clock())
        published = self._publisher.publish(name, at, check=check)
        self._published_at = time.monotonic()
        self._published_seq, self._pages_left = published.seq, published.pages_left
        before, self._announced_seq = self._announced_seq, published.seq
        if before != published.seq:
            count = self._catalog.state(name).count
            self._announce(
                Publication(name=name, first=before is None, resources=count, changes=published.seq - (before or 0))
            )

    def _failed(self, fault: Exception) -> None:
        health = self.health
        what = f"{type(fault).__name__}: {fault}"
        if isinstance(fault, HeadwaterError):
            what = fault.what + (f" ({fault.where})" if fault.where else "")
        code = fault.code if isinstance(fault, HeadwaterError) else "HW-000"
        if what != health.error:
            self._listener(Notice(code, f"the set {health.name!r} cannot be brought up to date: {what}"))
        health.failures += 1
        health.phase = "failing"
        health.error, health.error_code, health.error_at = what, code, self._clock()
