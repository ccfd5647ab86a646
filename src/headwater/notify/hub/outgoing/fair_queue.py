"""A queue that serves hosts in turns: so many at a time in all, so many of one host, each item not before it is due.

Whoever has many items, or answers slowly, delays nobody else. Pure: times come from the caller.
"""

from __future__ import annotations

import heapq
from collections import deque
from typing import Generic, TypeVar

Item = TypeVar("Item")


class FairQueue(Generic[Item]):
    """Items by host. Whoever takes one says `done` of its host when it is over."""

    def __init__(self, slots: int, host_slots: int) -> None:
        self._slots = slots
        self._host_slots = host_slots
        self._later: list[tuple[float, int, str, Item]] = []
        self._number = 0
        self._ready: dict[str, deque[Item]] = {}
        self._turns: deque[str] = deque()
        """Hosts that have something ready and a free slot, each once."""
        self._active: dict[str, int] = {}
        self.active = 0
        """How many are taken and not done."""

    def __len__(self) -> int:
        """How many wait."""
        return len(self._later) + sum(map(len, self._ready.values()))

    def add(self, host: str, item: Item, due_at: float = 0.0) -> None:
        """Queue an item of a host that is due at a time; 0: at once."""
        if due_at > 0.0:
            self._number += 1
            heapq.heappush(self._later, (due_at, self._number, host, item))
            return
        waiting = self._ready.get(host)
        if waiting is None:
            waiting = self._ready[host] = deque()
            if self._active.get(host, 0) < self._host_slots:
                self._turns.append(host)
        waiting.append(item)

    def waiting(self, host: str) -> int:
        """How many items of a host are ready and wait."""
        return len(self._ready.get(host, ()))

    def take(self, now: float) -> Item | None:
        """The next item that may be begun; None while there is none."""
        while self._later and self._later[0][0] <= now:
            _due, _number, host, item = heapq.heappop(self._later)
            self.add(host, item)
        if self.active >= self._slots or not self._turns:
            return None
        host = self._turns.popleft()
        waiting = self._ready[host]
        item = waiting.popleft()
        active = self._active[host] = self._active.get(host, 0) + 1
        self.active += 1
        if not waiting:
            del self._ready[host]
        elif active < self._host_slots:
            self._turns.append(host)
        return item

    def done(self, host: str) -> None:
        """An item of this host is over."""
        self.active -= 1
        active = self._active[host] - 1
        if active:
            self._active[host] = active
        else:
            del self._active[host]
        if active == self._host_slots - 1 and host in self._ready:
            self._turns.append(host)

    def next_due(self) -> float | None:
        """When the first of those that are not due yet is; None when there is none."""
        return self._later[0][0] if self._later else None
