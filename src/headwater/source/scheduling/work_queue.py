"""A work queue with two priorities: changes that somebody waits for, and work that only has to be done some time.

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
"""Changes are taken to go on for so long after one was put in the queue."""
LOW_EVERY: Final = 16
"""Of so many jobs one is of low priority, however many of the others wait."""

Job = Callable[[], None]


class Priority(enum.Enum):
    """HIGH: somebody waits for it. LOW: it only has to be done some time."""

    HIGH = enum.auto()
    LOW = enum.auto()


class WorkQueue:
    """The jobs of `workers` threads. Jobs of one priority begin in the order in which they were put."""

    def __init__(self, workers: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.workers = workers
        self._most_low = max(1, workers - 2)
        self._clock = clock
        self._high: deque[Job] = deque()
        self._low: deque[Job] = deque()
        self._low_busy = 0
        self._since_low = 0
        self._busy_until = 0.0
        self._change = threading.Condition()
        self._closed = False

    def put(self, job: Job, priority: Priority) -> None:
        """Put a job in the queue."""
        with self._change:
            if priority is Priority.HIGH:
                self._high.append(job)
                self._busy_until = self._clock() + BUSY_SECONDS
            else:
                self._low.append(job)
            self._change.notify()

    def take(self) -> tuple[Job, Priority] | None:
        """The next job, waited for; None at the end. Say `done` of its priority afterwards."""
        with self._change:
            while not self._closed:
                priority = self._next()
                if priority is Priority.HIGH:
                    self._since_low += 1
                    return self._high.popleft(), priority
                if priority is Priority.LOW:
                    self._since_low = 0
                    self._low_busy += 1
                    return self._low.popleft(), priority
                self._change.wait(BUSY_SECONDS if self._low else None)
            return None

    def _next(self) -> Priority | None:
        may_low = bool(self._low) and self._low_busy < self._room
        if self._high and not (may_low and not self._low_busy and self._since_low >= LOW_EVERY):
            return Priority.HIGH
        return Priority.LOW if may_low else None

    @property
    def _room(self) -> int:
        """How many of low priority may be under way."""
        return self._most_low if self._clock() >= self._busy_until else 1

    def done(self, priority: Priority) -> None:
        """A job of this priority has ended."""
        if priority is Priority.LOW:
            with self._change:
                self._low_busy -= 1
                self._change.notify()

    @property
    def is_empty(self) -> bool:
        """Whether nothing waits."""
        return not self._high and not self._low

    def close(self) -> None:
        """End: what waits is not done any more."""
        with self._change:
            self._closed = True
            self._change.notify_all()
