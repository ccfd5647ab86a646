"""Many writes in one transaction: what comes while one is committed waits for the next (group commit)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from typing import Any, TypeVar

from headwater.storage.transaction import Transaction

T = TypeVar("T")
Work = Callable[[Transaction], Any]


class GroupCommit:
    """Writes of one event loop to a database, in the order in which they are asked for."""

    def __init__(
        self, begin: Callable[[], AbstractContextManager[Transaction]], threads: ThreadPoolExecutor | None = None
    ) -> None:
        """`begin` begins a transaction (`Database.write`), in one of these threads, or of those of the event loop."""
        self._begin = begin
        self._waiting: list[tuple[Work, asyncio.Future[Any]]] = []
        self._threads = threads
        self._writing: asyncio.Task[None] | None = None

    async def write(self, work: Callable[[Transaction], T]) -> T:
        """Run `work` in a transaction; it is committed when this returns. Raises what `work` or the commit raises.

        It may be run twice: when the transaction that it shared with others had to be rolled back. A fault that does
        not come again is not raised then: the work is done.
        """
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._waiting.append((work, future))
        if self._writing is None or self._writing.done():
            self._writing = asyncio.ensure_future(self._write())
        return await asyncio.shield(future)

    async def close(self) -> None:
        """Write what is waiting."""
        if self._writing is not None:
            await self._writing

    async def _write(self) -> None:
        loop = asyncio.get_running_loop()
        while self._waiting:
            waiting, self._waiting = self._waiting, []
            results = await loop.run_in_executor(self._threads, self._commit, [work for work, _ in waiting])
            for (_, future), result in zip(waiting, results, strict=True):
                if isinstance(result, BaseException):
                    future.set_exception(result)
                    future.exception()  # whoever waited may have gone
                else:
                    future.set_result(result)

    def _commit(self, works: Sequence[Work]) -> list[Any]:
        try:
            with self._begin() as transaction:
                return [work(transaction) for work in works]
        except Exception as fault:  # noqa: BLE001  handed to whoever waits
            if len(works) == 1:
                return [fault]
            return [self._commit([work])[0] for work in works]
