"""Limits of hosts that the runs of all sources share: requests at a time, requests a second, and windows.

Runs are processes, so a limit is files below STATE/.aggregator/hosts: a slot is a file that whoever sends a request
holds by `flock`, and what a process held is free when it ends, however it ends. The moment of the next request stands
in a file of eight octets, which is read and written under a lock.
"""

from __future__ import annotations

import datetime as dt
import fcntl
import os
import random
import struct
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from headwater.aggregator.schedule import open_seconds, windows_of

if TYPE_CHECKING:
    from headwater.aggregator.configuration import HostLimits

FOLDER: Final = "hosts"
_LOOK_SECONDS: Final = 0.05
"""How soon it is looked again whether a slot is free."""

_CLOSED_SECONDS: Final = 60.0
_REFUSED: Final = frozenset({429, 503})
_MOMENT: Final = struct.Struct("<d")


class HostGate:
    """What a transport asks before each request: `take`, and after it `give`. For one process and thread.

    `hosts` are all that were asked, with the number of requests, and of those answered with 429 or 503. A host whose
    window is closed is not asked: `is_closed` says so of any.
    """

    def __init__(self, folder: Path, limits: Mapping[str, HostLimits], now: Callable[[], float] = time.time) -> None:
        self.hosts: dict[str, tuple[int, int]] = {}
        self.is_closed = False
        self.requests = 0
        self._folder, self._limits, self._now = folder, limits, now
        self._shared: dict[str, _SharedHost] = {}

    def take(self, host: str) -> float:
        """Take what a request to the host needs: 0, and `give` has to follow; else for how many seconds to wait."""
        self.hosts.setdefault(host, (0, 0))
        limits = self._limits.get(host)
        if limits is None:
            self.requests += 1
            return 0.0
        shared = self._shared.get(host)
        if shared is None:
            shared = self._shared[host] = _SharedHost(self._folder, host, limits)
        moment = self._now()
        if not open_seconds(dt.datetime.fromtimestamp(moment, dt.UTC), shared.windows):
            self.is_closed = True
            return _CLOSED_SECONDS
        wait = shared.take(moment)
        self.requests += not wait
        return wait

    def give(self, host: str, status: int = 0) -> None:
        """A request to the host has ended."""
        requests, refused = self.hosts.get(host, (0, 0))
        self.hosts[host] = (requests + 1, refused + (status in _REFUSED))
        if (shared := self._shared.get(host)) is not None:
            shared.give()

    def close(self) -> None:
        """Give back all."""
        for shared in self._shared.values():
            shared.close()
        self._shared.clear()


class _SharedHost:
    def __init__(self, folder: Path, host: str, limits: HostLimits) -> None:
        self.windows = windows_of(limits.window)
        self._slots = limits.concurrency
        self._seconds = 1 / limits.rate if limits.rate else 0.0
        self._folder = folder / quote(host, safe="")
        self._folder.mkdir(parents=True, exist_ok=True)
        self._held: list[int] = []  # descriptors that are locked
        self._free: dict[int, int] = {}  # slots that are open and not locked, with their descriptors
        self._numbers: dict[int, int] = {}
        self._moment = self._opened("next") if self._seconds else -1

    def _opened(self, name: str) -> int:
        return os.open(self._folder / name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)

    def take(self, now: float) -> float:
        slot = self._slot()
        if slot is None:
            return _LOOK_SECONDS * (1 + random.random())
        wait = self._wait(now)
        if wait:
            self._let_go(slot)
            return wait
        self._held.append(slot)
        return 0.0

    def give(self) -> None:
        if self._held:
            self._let_go(self._held.pop())

    def _slot(self) -> int | None:
        """A slot that nobody holds, locked; -1 where there is no limit, None where there is none."""
        if self._slots is None:
            return -1
        first = random.randrange(self._slots)
        for step in range(self._slots):
            number = (first + step) % self._slots
            if number in self._numbers.values() and number not in self._free:
                continue  # it is ours and held
            descriptor = self._free.pop(number, None)
            if descriptor is None:
                descriptor = self._opened(f"slot-{number}")
            self._numbers[descriptor] = number
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                self._free[number] = descriptor
                continue
            return descriptor
        return None

    def _let_go(self, slot: int) -> None:
        if slot >= 0:
            fcntl.flock(slot, fcntl.LOCK_UN)
            self._free[self._numbers[slot]] = slot

    def _wait(self, now: float) -> float:
        """Take the next moment of the host's rate, and return 0; else for how long to wait for it."""
        if self._moment < 0:
            return 0.0
        fcntl.flock(self._moment, fcntl.LOCK_EX)
        try:
            kept = os.pread(self._moment, _MOMENT.size, 0)
            due = _MOMENT.unpack(kept)[0] if len(kept) == _MOMENT.size else 0.0
            if now < due <= now + self._seconds:  # one that is later was written by a clock that has been set back
                return float(due - now)
            os.pwrite(self._moment, _MOMENT.pack(now + self._seconds), 0)
            return 0.0
        finally:
            fcntl.flock(self._moment, fcntl.LOCK_UN)

    def close(self) -> None:
        for descriptor in self._numbers:
            os.close(descriptor)
        if self._moment >= 0:
            os.close(self._moment)
