"""Precedence of what is announced over what is read: the event loop gives way to threads that record, in one process.

They share one interpreter, which those threads release at each statement of a batch: where readers ask without a pause,
each statement waited for a response, and a batch took five to ten times as long as without them (decision 077).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final, TypeVar

T = TypeVar("T")

PAUSE_SECONDS: Final = 0.0003
"""For so long the event loop stands still with a request while something is recorded: about what a batch needs to have
three quarters of the time."""


class Precedence:
    """Counts the threads that record at this moment."""

    def __init__(self, sleep: Callable[[float], None] = time.sleep) -> None:
        self._lock = threading.Lock()
        self._count = 0
        self._sleep = sleep

    def during(self, work: Callable[[], T]) -> T:
        """Do work that takes precedence. Returns and raises what it does."""
        with self._lock:
            self._count += 1
        try:
            return work()
        finally:
            with self._lock:
                self._count -= 1

    def give_way(self) -> None:
        """Let those threads run for a moment, where there are any: for the event loop, with each request."""
        if self._count:
            self._sleep(PAUSE_SECONDS)
