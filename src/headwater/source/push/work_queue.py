"""Two waiting lines before a few threads: what somebody waits for, and what only has to be done some time.

A publication of changes takes milliseconds, most of them spent waiting for the disk; pages, and the first look at
thousands of sets, take the processor for as long as there is one. So those never have all threads, and only one at a
time while there are news: threads of one process share one interpreter.
"""

from __future__ import annotations

import enum
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Final

BUSY_SECONDS: Final = 2.0
"""There are news for so long after one was put in line."""
LOW_EVERY: Final = 16
"""Of so many jobs one is of the later ones, however many of the others wait."""

Job = Callable[[], None]


class Priority(enum.Enum):
    """Which line to stand in."""

    SOON = enum.auto()
    LATER = enum.auto()


class WorkQueue:
    """The jobs of `workers` threads. Jobs of a line begin in the order in which they were put there."""

    def __init__(self, workers: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._most_later = max(1, workers - 2)
        self._clock = clock
        self._soon: deque[Job] = deque()
        self._later: deque[Job] = deque()
        self._later_busy = 0
        self._since_later = 0
        self._busy_until = 0.0
        self._change = threading.Condition()
        self._closed = False

    def put(self, job: Job, line: Priority) -> None:
        """Let a thread do this when it is its turn."""
        with self._change:
            if line is Priority.SOON:
                self._soon.append(job)
                self._busy_until = self._clock() + BUSY_SECONDS
            else:
                self._later.append(job)
            self._change.notify()

    def take(self) -> tuple[Job, Priority] | None:
        """The next job, waited for; None at the end. Say `done` of its line afterwards."""
        with self._change:
            while not self._closed:
                line = self._next()
                if line is Priority.SOON:
                    self._since_later += 1
                    return self._soon.popleft(), line
                if line is Priority.LATER:
                    self._since_later = 0
                    self._later_busy += 1
                    return self._later.popleft(), line
                self._change.wait(BUSY_SECONDS if self._later else None)
            return None

    def _next(self) -> Priority | None:
        may_later = bool(self._later) and self._later_busy < self._room
        if self._soon and not (may_later and not self._later_busy and self._since_later >= LOW_EVERY):
            return Priority.SOON
        return Priority.LATER if may_later else None

    @property
    def _room(self) -> int:
        """How many of the later ones may be under way."""
        return self._most_later if self._clock() >= self._busy_until else 1

    def done(self, line: Priority) -> None:
        """A job of this line has ended."""
        if line is Priority.LATER:
            with self._change:
                self._later_busy -= 1
                self._change.notify()

    @property
    def is_empty(self) -> bool:
        """Whether nothing waits."""
        return not self._soon and not self._later

    def close(self) -> None:
        """End: what waits is not done any more."""
        with self._change:
            self._closed = True
            self._change.notify_all()
