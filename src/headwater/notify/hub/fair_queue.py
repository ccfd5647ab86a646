"""A queue that serves hosts in turns: so many at a time in all, so many of one host, each item not before it is due.

Whoever has many items, or answers slowly, delays nobody else. A host is a name and a port; names take turns first, then
the ports of a name, and the ports of one name have half of all places at most. Pure: times come from the caller.
"""

from __future__ import annotations

import heapq
from collections import deque
from typing import Generic, TypeVar

import msgspec

Item = TypeVar("Item")


class HubTask(msgspec.Struct, kw_only=True):
    """Something that is due at a UNIX time (0: at once), at a callback or topic of `host` (`name:port`)."""

    host: str
    due_at: float = 0.0


class FairQueue(Generic[Item]):
    """Items by host, `name:port`. Whoever takes one says `done` of its host when it is over."""

    def __init__(self, slots: int, host_slots: int) -> None:
        self._slots = slots
        self._host_slots = host_slots
        self._name_slots = max(host_slots, slots // 2)
        self._later: list[tuple[float, int, str, Item]] = []
        self._number = 0
        self._ready: dict[str, deque[Item]] = {}
        self._startable: dict[str, deque[str]] = {}
        """By name the hosts that have something ready and a free slot, each once."""
        self._turns: deque[str] = deque()
        """Names that have such hosts and a free slot, each once."""
        self._active: dict[str, int] = {}
        """How many of a host, and of a name, are taken and not done."""
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
                self._offer(host)
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
        name = self._turns.popleft()
        hosts = self._startable[name]
        host = hosts.popleft()
        waiting = self._ready[host]
        item = waiting.popleft()
        self.active += 1
        of_name, of_host = self._count(name, 1), self._count(host, 1)
        if not waiting:
            del self._ready[host]
        elif of_host < self._host_slots:
            hosts.append(host)
        if not hosts:
            del self._startable[name]
        elif of_name < self._name_slots:
            self._turns.append(name)
        return item

    def done(self, host: str) -> None:
        """An item of this host is over."""
        self.active -= 1
        name = _name(host)
        if self._count(name, -1) == self._name_slots - 1 and name in self._startable:
            self._turns.append(name)
        if self._count(host, -1) == self._host_slots - 1 and host in self._ready:
            self._offer(host)

    def _offer(self, host: str) -> None:
        """Let a host have turns."""
        name = _name(host)
        hosts = self._startable.get(name)
        if hosts is None:
            hosts = self._startable[name] = deque()
            if self._active.get(name, 0) < self._name_slots:
                self._turns.append(name)
        hosts.append(host)

    def _count(self, key: str, step: int) -> int:
        count = self._active.get(key, 0) + step
        if count:
            self._active[key] = count
        else:
            self._active.pop(key, None)
        return count

    def next_due(self) -> float | None:
        """When the first of those that are not due yet is; None when there is none."""
        return self._later[0][0] if self._later else None


def _name(host: str) -> str:
    return f"{host.rpartition(':')[0]}:"
