"""Waiting with a deadline that only guards against hanging, and a clock that only the test moves."""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Callable

DEADLINE = 60.0
"""For what comes at once where nothing else is to be done."""


def until(met: Callable[[], object], seconds: float = DEADLINE, what: str = "it", pause: float | None = None) -> None:
    """Return as soon as `met` says so; fails after so many seconds.

    It looks every `pause` seconds; without, every 20 ms, and less often where looking takes long: whoever is waited for
    needs the processor.
    """
    end = time.monotonic() + seconds
    while True:
        began = time.monotonic()
        if met():
            return
        now = time.monotonic()
        assert now < end, f"{what} did not come about within {seconds} s"
        time.sleep(max(0.02, 2 * (now - began)) if pause is None else pause)


def settle() -> None:
    """Wait until files written so far are no longer in the tick of the clock in which they were written."""
    time.sleep(0.11)


def settle_second() -> None:
    """Wait until what was written so far is of a second that is over: a date in HTTP tells it from what comes next."""
    now = time.time()
    until(lambda: int(time.time()) > int(now), what="the next second")


START = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)


class Clock:
    """Time that passes when it is slept through or set, and by a millisecond when it is called as a clock of UTC."""

    def __init__(self) -> None:
        self.now = START
        self.slept: list[float] = []

    def __call__(self) -> dt.datetime:
        self.now += dt.timedelta(milliseconds=1)
        return self.now

    def seconds(self) -> float:
        """The same time as a number: seconds since the start, which come to nothing by being asked for."""
        return (self.now - START).total_seconds()

    def set(self, seconds: float) -> None:
        """Let it be so many seconds after the start."""
        self.now = START + dt.timedelta(seconds=seconds)

    def sleep(self, seconds: float) -> None:
        """Let time pass: a microsecond more, so that nothing is due a little later for being rounded."""
        assert seconds >= 0
        self.slept.append(seconds)
        self.now += dt.timedelta(seconds=seconds + 1e-6)
