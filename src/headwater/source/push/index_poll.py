"""Follows the index of a push set, as a task of the scheduler: takes what is new, and asks again after a pause."""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Callable

from headwater.source.push.push_set import LOADING, READING, PushSet


class IndexPoll:
    """One set's. `stop` tells a look under way to end, `news` is called when something was recorded."""

    def __init__(
        self,
        push_set: PushSet,
        clock: Callable[[], dt.datetime],
        stop: Callable[[], bool],
        news: Callable[[str], None],
    ) -> None:
        self._set = push_set
        self._clock = clock
        self._stop = stop
        self._news = news
        self._poll_at = 0.0
        self._has_failed = False

    def due_at(self) -> float:
        """When the index is to be asked again."""
        return self._poll_at

    def is_long(self) -> bool:
        """A first load takes as long as it takes, and an index that does not answer until it is given up."""
        return not self._set.is_open or self._has_failed

    def run(self) -> None:
        """Take what is new; a failure is kept for `health`."""
        self._set.health.phase = READING if self._set.is_open else LOADING
        pause = self._set.attempt("index", self._poll)
        self._has_failed = pause is not None
        if pause is not None:
            self._poll_at = time.monotonic() + pause

    def _poll(self) -> None:
        found = self._set.poll(self._stop)
        self._poll_at = 0.0 if found else time.monotonic() + self._set.poll_seconds
        self._set.health.scans += 1
        self._set.health.scanned_at = self._clock()
        if found:
            self._news(self._set.name)
