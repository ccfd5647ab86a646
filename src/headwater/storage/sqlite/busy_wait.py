"""The busy handler of SQLite connections: waits for a locked database in many short pauses.

SQLite's own waiting grows to pauses of 100 ms within a few attempts. A transaction lasts a few milliseconds, so where
several processes write all the time (a hundred announcements a second, each of them published) most of the time would
be slept away, and the threads of a process would sleep one after another.
"""

from __future__ import annotations

import time
from collections.abc import Callable

LEAST_SECONDS = 0.000_5
MOST_SECONDS = 0.01


class BusyWait:
    """A busy handler for one connection: True as long as it is worth trying again, for `seconds` altogether."""

    def __init__(
        self,
        seconds: float,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._seconds = seconds
        self._clock = clock
        self._sleep = sleep
        self._until = 0.0

    def __call__(self, attempts: int) -> bool:
        """Wait a little, after so many attempts; False when the time is over."""
        now = self._clock()
        if attempts == 0:
            self._until = now + self._seconds
        left = self._until - now
        if left <= 0:
            return False
        self._sleep(min(LEAST_SECONDS * (attempts + 1), MOST_SECONDS, left))
        return True
