"""Limits of hosts that the runs of all sources share: requests at a time, requests a second, windows, `Retry-After`.

Runs are processes, so a limit is files below STATE/.aggregator/hosts: a slot is a file that whoever sends a request
holds by `flock`, and what a process held is free when it ends, however it ends. The moment of the next request stands
in a file with the digest of the host, which is read and written under a lock. Hosts without limits share 4,096 folders,
for anybody can name hosts without end: in each, the one that has asked to wait last is let be.
"""

from __future__ import annotations

import datetime as dt
import fcntl
import hashlib
import os
import random
import struct
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from headwater.aggregator.configuration import HostLimits
from headwater.retry import LONGEST_WAIT_SECONDS
from headwater.time_windows import open_seconds, windows_of

FOLDER: Final = "hosts"
_LOOK_SECONDS: Final = 0.05
"""How soon it is looked again whether a slot is free."""

_CLOSED_SECONDS: Final = 60.0
_REFUSED: Final = frozenset({429, 503})
_MOMENT: Final = struct.Struct("<d32s")


class HostGate:
    """What a transport asks before each request: `take`, and after it `give`. For one process and thread.

    `hosts` are all that were asked, with the number of requests, and of those answered with 429 or 503. A host whose
    window is closed is not asked: `is_closed` says so of any.
    """

    def __init__(self, folder: Path, limits: Mapping[str, HostLimits], now: Callable[[], float] = time.time) -> None:
        self.hosts: dict[str, tuple[int, int]] = {}
        self.is_closed = False
        self._folder, self._limits, self._now = folder, limits, now
        self._shared: dict[str, _SharedHost] = {}

    @property
    def requests(self) -> int:
        """How many were sent."""
        return sum(requests for requests, _ in self.hosts.values())

    def take(self, host: str) -> float:
        """Take what a request to the host needs: 0, and `give` has to follow; else for how many seconds to wait."""
        requests, refused = self.hosts.setdefault(host, (0, 0))
        shared, moment = self._host(host), self._now()
        if not open_seconds(dt.datetime.fromtimestamp(moment, dt.UTC), shared.windows):
            self.is_closed = True
            return _CLOSED_SECONDS
        wait = shared.take(moment)
        self.hosts[host] = requests + (not wait), refused
        return wait

    def give(self, host: str, status: int = 0) -> None:
        """A request to the host has ended."""
        requests, refused = self.hosts.get(host, (0, 0))
        self.hosts[host] = requests, refused + (status in _REFUSED)
        self._host(host).give()

    def rest(self, host: str, seconds: float) -> None:
        """Let nobody ask the host for so long, or as long as a run waits: it has said so. Nothing without a service."""
        if self._folder.parent.is_dir():
            self._host(host).rest(self._now(), min(seconds, LONGEST_WAIT_SECONDS))

    def _host(self, host: str) -> _SharedHost:
        if host not in self._shared:
            limits, digest = self._limits.get(host), hashlib.sha256(host.encode())
            name = digest.hexdigest() if limits else digest.hexdigest()[:3]
            self._shared[host] = _SharedHost(self._folder / name, digest.digest(), limits or HostLimits())
        return self._shared[host]

    def close(self) -> None:
        """Give back all."""
        for shared in self._shared.values():
            shared.close()
        self._shared.clear()


class _SharedHost:
    def __init__(self, folder: Path, digest: bytes, limits: HostLimits) -> None:
        self.windows = windows_of(limits.window)
        self._slots = limits.concurrency or 0
        self._seconds = 1 / limits.rate if limits.rate else 0.0
        self._folder, self._digest = folder, digest
        self._held: list[int] = []  # descriptors that are locked

    def _opened(self, name: str) -> int:
        self._folder.mkdir(parents=True, exist_ok=True)
        return os.open(self._folder / name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)

    def take(self, now: float) -> float:
        if self._slots and not self._has_slot():
            return _LOOK_SECONDS * (1 + random.random())
        wait = self._wait(now)
        if wait:
            self.give()
        return wait

    def give(self) -> None:
        if self._held:
            os.close(self._held.pop())

    def _has_slot(self) -> bool:
        """Hold a slot that nobody holds, if there is one."""
        for number in random.sample(range(self._slots), self._slots):
            descriptor = self._opened(f"slot-{number}")
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(descriptor)
            else:
                self._held.append(descriptor)
                return True
        return False

    def _wait(self, now: float) -> float:
        """Take the next moment of the host, and return 0; else for how long to wait for it."""
        if not self._seconds and not (self._folder / "next").exists():
            return 0.0
        with self._due(now) as (file, due):
            if due <= now and self._seconds:
                self._write(file, now + self._seconds)
        return max(0.0, due - now)

    def rest(self, now: float, seconds: float) -> None:
        with self._due(now) as (file, due):
            self._write(file, max(due, now + seconds))

    def _write(self, file: int, moment: float) -> None:
        os.pwrite(file, _MOMENT.pack(moment, self._digest), 0)

    @contextmanager
    def _due(self, now: float) -> Iterator[tuple[int, float]]:
        """The file of the next moment, locked, with that moment: 0 where it is another host's."""
        file = self._opened("next")
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
            kept = os.pread(file, _MOMENT.size, 0)
            due, digest = _MOMENT.unpack(kept) if len(kept) == _MOMENT.size else (0.0, b"")
            latest = now + max(self._seconds, LONGEST_WAIT_SECONDS)  # a later one is of a clock that was set back
            yield file, due if digest == self._digest and due <= latest else 0.0
        finally:
            os.close(file)

    def close(self) -> None:
        while self._held:
            self.give()
