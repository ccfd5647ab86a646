"""A package as the body of an answer: its blocks are made in a thread, one at a time, when they are asked for."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Executor

import msgspec

END = b""


class DumpTimes(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds on the time that one request may take.

    A body has `first_seconds` and the time of what has come at `body_octets_per_second`, `body_seconds` at most;
    `seconds` are those of the whole answer. Its client takes `least_octets_per_second`, over `judged_seconds` of
    waiting for it; where there is no room, one gives way that has not taken a block for `patience_seconds`.
    """

    first_seconds: float = 10.0
    body_octets_per_second: int = 16 << 10
    body_seconds: float = 60.0
    seconds: float = 3_600.0
    least_octets_per_second: int = 32 << 10
    judged_seconds: float = 60.0
    patience_seconds: float = 5.0

    def for_body(self, octets: int) -> float:
        """Seconds from its beginning that a body has of which so many octets have come."""
        return min(self.first_seconds + octets / self.body_octets_per_second, self.body_seconds)


class TooSlow(TimeoutError):
    """The client has taken too long for the whole answer."""


class PackageStream:
    """The blocks of a package, for the task that makes it. `close` frees what it holds, whatever it is doing.

    `on_end` is called once: when nothing is left to be made, before the client can know it, or else by `give_up` or
    `close`.
    """

    def __init__(
        self,
        package: Iterable[bytes],
        pool: Executor,
        times: DumpTimes,
        clock: Callable[[], float],
        on_end: Callable[[], None],
    ) -> None:
        self._blocks = _generator(package)
        self._pool = pool
        self._times = times
        self._clock = clock
        self._on_end = on_end
        self._task = asyncio.current_task()
        self._deadline = clock() + times.seconds
        self._ready_at: float | None = None
        self._waited = 0.0
        self._octets = 0
        self._lock = threading.Lock()
        self._is_closed = self._is_ended = self.is_given_up = False

    @property
    def waiting_seconds(self) -> float:
        """How long a block has waited for the client to take it."""
        return 0.0 if self._ready_at is None or self._is_ended else self._clock() - self._ready_at

    async def next_block(self) -> bytes:
        """The next octets; END after the last. Raises what making them raises, and TooSlow."""
        self._waited += self.waiting_seconds
        self._ready_at = None
        if self.is_given_up or self._clock() > self._deadline or self._is_slow():
            raise TooSlow
        block = await asyncio.get_running_loop().run_in_executor(self._pool, self._next)
        self._octets += len(block)
        self._ready_at = self._clock()
        if block == END:
            self._end()
        return block

    def give_up(self) -> None:
        """End the answer, and free its place at once: another client is to have it."""
        self.is_given_up = True
        self._end()
        if self._task is not None:
            self._task.cancel()

    def _is_slow(self) -> bool:
        """Whether the client has taken too little in the last minute that we have waited for it."""
        if self._waited < self._times.judged_seconds:
            return False
        is_slow = self._octets < self._waited * self._times.least_octets_per_second
        self._waited, self._octets = 0.0, 0
        return is_slow

    async def close(self) -> None:
        """Free what is held, once a block that is being made is done."""
        if self._is_closed:
            return
        self._is_closed = True
        try:
            await asyncio.shield(asyncio.get_running_loop().run_in_executor(self._pool, self._free))
        finally:
            self._end()

    def _end(self) -> None:
        if not self._is_ended:
            self._is_ended = True
            self._on_end()

    def _next(self) -> bytes:
        with self._lock:
            return next(self._blocks, END)

    def _free(self) -> None:
        with self._lock:
            self._blocks.close()


def _generator(package: Iterable[bytes]) -> Generator[bytes, None, None]:
    yield from package
