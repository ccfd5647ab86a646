"""How many octets of bodies may come in each second, over all transfers together (`--bwlimit`).

A transfer whose next octets are too early is paused, so that its server is held back by TCP; a paused transfer is not
taken for one that stands still. Decisions over values, without a clock.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headwater.sync.network.handles import Handle

LEAST_OCTETS_PER_CONNECTION = 4096
"""Octets a second that are worth a connection: with more of them each would look as if it stood still."""

_BURST_SECONDS = 0.1


class Throttle:
    """A bucket of octets that fills by `rate` each second; it may be overdrawn by what comes at once."""

    def __init__(self, rate: int) -> None:
        self.rate = rate
        self.paused: dict[Handle, None] = {}
        self._octets = self._most = rate * _BURST_SECONDS
        self._filled_at: float | None = None

    def fill(self, now: float) -> bool:
        """Let time fill the bucket; whether there is anything in it."""
        if self._filled_at is not None:
            self._octets = min(self._most, self._octets + max(0.0, now - self._filled_at) * self.rate)
        self._filled_at = now
        return self._octets > 0

    def take(self, octets: int) -> bool:
        """Take so many octets; False: it is too early."""
        if self._octets <= 0:
            return False
        self._octets -= octets
        return True

    def give_back(self, octets: int) -> None:
        """What was taken has not been used."""
        self._octets += octets

    def wait_seconds(self) -> float:
        """How long it takes until there is something in the bucket."""
        return max(0.0, (1 - self._octets) / self.rate)
