"""Duty cycles: recurring work that may take no more than a share of the time; values, without a clock."""

from __future__ import annotations

import msgspec


class DutyCycle(msgspec.Struct, frozen=True):
    """Work and pauses in turn, of which work is at most this share (more than 0, less than 1)."""

    share: float

    def pause_after(self, worked_seconds: float) -> float:
        """How many seconds to pause at least after so much work."""
        return worked_seconds * (1.0 / self.share - 1.0)

    def work_after(self, paused_seconds: float) -> float:
        """How many seconds of work a pause has room for: the inverse of `pause_after`."""
        return paused_seconds / (1.0 / self.share - 1.0)
