"""Asks the catalog and reads files in threads, so that the event loop never waits; threads that record go first.

Threads that record what is announced go first: they share one interpreter with the event loop, and where readers ask
without a pause, a batch took five to ten times as long (decision 077).
"""

import asyncio
import threading
import time
from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from typing import Any, Final, TypeVar

from headwater.errors import StoreFault
from headwater.source.health import ServableSource

T = TypeVar("T")

ANSWER_SECONDS = 5.0
"""A cluster that is away is asked for a minute, for what has to be recorded; who reads is told to come again."""


class SourceAccess:
    """A source, the threads that ask it, and the threads that read files for it.

    Documents lie on the disk: nobody waits for them while the catalog does not answer, so each has its own threads.
    """

    def __init__(self, source: ServableSource) -> None:
        self.source = source
        self.readers = ThreadPoolExecutor(max_workers=8, thread_name_prefix="headwater-read")
        self.askers = ThreadPoolExecutor(max_workers=4, thread_name_prefix="headwater-ask")
        self.watchers = ThreadPoolExecutor(max_workers=1, thread_name_prefix="headwater-ask-health")
        self.health: tuple[Future[tuple[int, bytes]] | None, float] = None, 0.0
        """The question that was asked last by those who watch, and until when it is waited for."""

    def close(self) -> None:
        """Give up the threads."""
        self.readers.shutdown(wait=False, cancel_futures=True)
        self.askers.shutdown(wait=False, cancel_futures=True)
        self.watchers.shutdown(wait=False, cancel_futures=True)

    async def ask(self, question: Callable[..., T], *about: Any, threads: Executor | None = None) -> T:
        """The answer to what the catalog may have to be asked for, in `threads` of their own for what may be slow.

        No client waits longer for it than ANSWER_SECONDS. Raises StoreFault when it does not come in time.
        """
        answer = asyncio.get_running_loop().run_in_executor(threads or self.askers, question, *about)
        try:
            return await asyncio.wait_for(answer, ANSWER_SECONDS)
        except TimeoutError:
            raise StoreFault("the catalog does not answer") from None

    async def read(self, work: Callable[..., T], *about: Any) -> T:
        """The result of work that waits for the disk."""
        return await asyncio.get_running_loop().run_in_executor(self.readers, work, *about)

    async def is_published(self, set_name: str | None) -> bool:
        """Whether the documents of a set, or (None) of the source, may be shown."""
        if self.source.is_known_published(set_name):
            return True
        if set_name is None:
            return await self.ask(self.source.is_site_published)
        return await self.ask(self.source.is_published, set_name)


PAUSE_SECONDS: Final = 0.0003
"""For so long the event loop stands still with a request while something is recorded: about what a batch needs to have
three quarters of the time."""


class Precedence:
    """Counts the threads that record at this moment."""

    def __init__(self, sleep: Callable[[float], None] = time.sleep) -> None:
        self._lock = threading.Lock()
        self._count = 0
        self._sleep = sleep

    def during(self, work: Callable[[], T]) -> T:
        """Do work that takes precedence. Returns and raises what it does."""
        with self._lock:
            self._count += 1
        try:
            return work()
        finally:
            with self._lock:
                self._count -= 1

    def give_way(self) -> None:
        """Let those threads run for a moment, where there are any: for the event loop, with each request."""
        if self._count:
            self._sleep(PAUSE_SECONDS)
