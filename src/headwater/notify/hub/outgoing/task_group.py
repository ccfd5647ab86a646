"""Tasks of an event loop that are begun and left to themselves, until all are given up."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any


class TaskGroup:
    """Keeps tasks alive while they run; `ended` is set when one has ended."""

    def __init__(self, ended: asyncio.Event) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()
        self._ended_event = ended

    def start(self, work: Coroutine[Any, Any, Any]) -> None:
        """Begin a task."""
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    async def close(self) -> None:
        """Cancel all and wait for their end."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        self._ended_event.set()
        if not task.cancelled() and (fault := task.exception()) is not None:
            task.get_loop().call_exception_handler({"message": "a task has failed", "exception": fault, "task": task})
