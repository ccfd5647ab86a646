"""A package as the body of an answer: its blocks are made in a thread, one at a time, when they are asked for."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Executor

END = b""


class TooSlow(TimeoutError):
    """The client has taken too long for the whole answer."""


class PackageStream:
    """The blocks of a package. `close` frees what it holds, whatever it is doing.

    `on_end` is called once: when nothing is left to be made, before the client can know it, or else by `close`.
    """

    def __init__(
        self, package: Iterable[bytes], pool: Executor, is_late: Callable[[], bool], on_end: Callable[[], None]
    ) -> None:
        self._blocks = _generator(package)
        self._pool = pool
        self._is_late = is_late
        self._on_end = on_end
        self._lock = threading.Lock()
        self._is_closed = self._is_ended = False

    async def next_block(self) -> bytes:
        """The next octets; END after the last. Raises what making them raises, and TooSlow."""
        if self._is_late():
            raise TooSlow
        block = await asyncio.get_running_loop().run_in_executor(self._pool, self._next)
        if block == END:
            self._end()
        return block

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
