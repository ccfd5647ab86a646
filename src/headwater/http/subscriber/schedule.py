"""When a copy that is followed by push is polled: seldom while push is at work, at once where something may be missing.

Pure; times are of a clock that never goes back.
"""

from __future__ import annotations

from typing import Final

import msgspec

from headwater.sync.follow import PollHistory, PollInterval, next_wait
from headwater.sync.sets.polling import PollingHints

SLOWER: Final = 20.0
LEAST_SLOW_SECONDS: Final = 600.0
_FIRST_EARLY: Final = 0.2
_MOST_DOUBLINGS: Final = 16


def slow_interval(interval: PollInterval) -> PollInterval:
    """How often is polled as a back-up: as seldom as asked for, else twenty times more seldom, and ten minutes."""
    longest = interval.longest_seconds
    seconds = longest if longest is not None else max(SLOWER * interval.seconds, LEAST_SLOW_SECONDS)
    return PollInterval(seconds, longest)


class PollSchedule(msgspec.Struct, kw_only=True):
    """What is known of the polls of one copy."""

    interval: PollInterval
    polled_at: float | None = None
    """When the last poll ended."""

    chance: float = 0.0
    history: PollHistory = msgspec.field(default_factory=PollHistory)
    hints: PollingHints = msgspec.field(default_factory=PollingHints)
    early_at: float | None = None
    early_count: int = 0
    """How many polls in a row were early ones."""

    def ask(self, now: float, delay: float = 0.0) -> None:
        """Poll early; one early poll after another comes more and more slowly, up to the usual interval."""
        least = 0.0
        if self.polled_at is not None and self.early_count:
            pause = _FIRST_EARLY * 2.0 ** min(self.early_count, _MOST_DOUBLINGS)
            least = self.polled_at + min(pause, self.interval.seconds)
        at = max(now + delay, least)
        self.early_at = at if self.early_at is None else min(self.early_at, at)

    def due_at(self, *, is_pushed: bool) -> float:
        """When the next poll is due; `is_pushed`: push is at work for all sets."""
        if self.polled_at is None:
            return 0.0
        interval = slow_interval(self.interval) if is_pushed else self.interval
        quiet = 0 if is_pushed else self.history.quiet
        wait = next_wait(interval, quiet, self.hints, failures=self.history.failures, chance=self.chance)
        usual = self.polled_at + wait
        return usual if self.early_at is None else min(usual, self.early_at)

    def polled(self, now: float, *, chance: float, is_busy: bool, has_failed: bool) -> None:
        """A poll has ended."""
        self.early_count = self.early_count + 1 if self.early_at is not None and self.early_at <= now else 0
        self.early_at = None
        self.polled_at, self.chance = now, chance
        self.history.polled(is_busy=is_busy, has_failed=has_failed)
