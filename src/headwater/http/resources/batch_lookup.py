"""Batched look-ups in a catalog that is reached by network: one request for all who wait, none in the event loop.

What is asked for while a request is under way goes along with the next one, so that many clients cost as many requests
as one; and each may bring the resources that come next in the list.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from typing import TypeVar

from headwater.catalog.interface import Catalog, Resource
from headwater.http.resources.header_cache import ResourceHeaderCache
from headwater.http.resources.read_ahead_buffer import AHEAD
from headwater.http.source_access import in_time

T = TypeVar("T")
Waiting = dict[str, "asyncio.Future[Resource | None]"]


class BatchLookup:
    """Asks the catalog in the threads of `pool`, for the thread that `headers` belong to."""

    def __init__(self, catalog: Catalog, headers: ResourceHeaderCache, pool: Executor) -> None:
        self._catalog = catalog
        self._headers = headers
        self._pool = pool
        self._waiting: dict[str, Waiting] = {}
        self._requests: dict[str, asyncio.Task[None]] = {}

    async def find(self, set_name: str, relative: str) -> Resource | None:
        """The resource as the catalog holds it after this call, or None.

        Raises what the catalog raises, and StoreFault when its answer does not come in time.
        """
        waiting = self._waiting.setdefault(set_name, {})
        if relative not in waiting:
            waiting[relative] = asyncio.get_running_loop().create_future()
        if set_name not in self._requests:
            self._requests[set_name] = asyncio.ensure_future(self._request_all(set_name))
        return await in_time(asyncio.shield(waiting[relative]))  # others may wait for the same

    async def _request_all(self, set_name: str) -> None:
        """Requests for one set, until nobody waits."""
        try:
            while waiting := self._waiting.pop(set_name, None):
                try:
                    await self._request(set_name, waiting)
                except Exception as fault:  # noqa: BLE001 - told to those who wait
                    _fail(waiting, fault)
        finally:
            del self._requests[set_name]

    async def _request(self, set_name: str, waiting: Waiting) -> None:
        found = await self._in_thread(lambda: self._catalog.get(set_name, list(waiting)))
        for relative, future in waiting.items():
            _tell(future, found.get(relative))
        if not found or not self._headers.read_ahead.pays(len(waiting)):
            return
        last = max(found)
        self._headers.keep_ahead(
            set_name, await self._in_thread(lambda: self._catalog.resources(set_name, last, AHEAD))
        )
        asked = self._waiting.get(set_name, {})
        for relative in list(asked):
            resource = self._headers.read_ahead.take(set_name, relative)
            if resource is not None:
                _tell(asked.pop(relative), resource)

    async def _in_thread(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._pool, work)


def _tell(future: asyncio.Future[Resource | None], found: Resource | None) -> None:
    if not future.done():
        future.set_result(found)


def _fail(waiting: Waiting, fault: Exception) -> None:
    for future in waiting.values():
        if not future.done():
            future.set_exception(fault)
            future.exception()  # it may be that nobody waits any longer
