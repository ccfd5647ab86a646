"""Asks the source what may wait for its catalog, in threads: nothing in the event loop waits for a network."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from headwater.errors import StoreFault
from headwater.http.responses import Response, not_yet
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
        self._first = ThreadPoolExecutor(max_workers=1, thread_name_prefix="headwater-first")

    def close(self) -> None:
        """Give up the threads."""
        self.readers.shutdown(wait=False, cancel_futures=True)
        self.askers.shutdown(wait=False, cancel_futures=True)
        self._first.shutdown(wait=False, cancel_futures=True)

    async def ask(self, question: Callable[..., T], *about: Any) -> T:
        """The answer to what the catalog may have to be asked for. Raises StoreFault when it does not come in time."""
        return await in_time(asyncio.get_running_loop().run_in_executor(self.askers, question, *about))

    async def ask_first(self, question: Callable[[], T]) -> T:
        """The same for what another process is asked, one question at a time: it may be busy, and delays nothing."""
        return await in_time(asyncio.get_running_loop().run_in_executor(self._first, question))

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


async def in_time(answer: asyncio.Future[T]) -> T:
    """The answer of the catalog, for which no client waits longer than ANSWER_SECONDS. Raises StoreFault."""
    try:
        return await asyncio.wait_for(answer, ANSWER_SECONDS)
    except TimeoutError:
        raise StoreFault("the catalog does not answer") from None


def not_published(set_name: str | None) -> Response:
    """503: a set, or (None) the source, is not published yet."""
    return not_yet(set_name or "the source")
