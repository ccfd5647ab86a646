"""The simulated clock: it runs as many times as fast as ours as is told, or only when it is moved on."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable

from headwater.simulate.settings import LAST_YEAR


class SimulatedClock:
    """Says what time it is in the simulation. `warp` None: time stands still but for `move_to`."""

    def __init__(self, start: dt.datetime, warp: float | None, seconds: Callable[[], float]) -> None:
        self._start = start
        self._warp = warp
        self._seconds = seconds
        self._began = seconds()
        self._moved = 0.0
        self._longest = max(0.0, (dt.datetime(LAST_YEAR, 1, 1, tzinfo=dt.UTC) - start).total_seconds())

    @property
    def elapsed(self) -> float:
        """Seconds of simulated time since the beginning."""
        passed = self._moved if self._warp is None else (self._seconds() - self._began) * self._warp
        return min(passed, self._longest)

    def move_to(self, elapsed: float) -> None:
        """Let so many seconds have passed, where time does not run by itself."""
        self._moved = elapsed

    def wait_for(self, elapsed: float) -> float:
        """How many of our seconds it is until so many of the simulation have passed."""
        return 0.0 if self._warp is None else max(0.0, (elapsed - self.elapsed) / self._warp)

    def __call__(self) -> dt.datetime:
        """The time of the simulation."""
        return self._start + dt.timedelta(seconds=self.elapsed)
