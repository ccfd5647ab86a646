"""Many writes in one transaction: what comes while one is committed waits for the next (group commit)."""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from typing import Any, TypeVar

from headwater.errors import StoreFault
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

        It may be run again: when another one has failed with which it shared a transaction.
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
        """What becomes of each. One that fails is left out, and the others run again; without a store all fail."""
        results: list[Any] = [None] * len(works)
        left = list(range(len(works)))
        while True:
            failing: int | None = None
            try:
                with self._begin() as transaction:
                    for failing in left:
                        results[failing] = works[failing](transaction)
                    failing = None
                return results
            except Exception as fault:  # noqa: BLE001  handed to whoever waits
                failed = left if failing is None or isinstance(fault, StoreFault) else [failing]
                for number in failed:
                    results[number] = fault
                left = [number for number in left if number not in failed]
                if not left:
                    return results
