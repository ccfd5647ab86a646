"""What all parts of a hub work with, and the tasks that they begin."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final

import msgspec

from headwater.errors import HeadwaterError
from headwater.notify.group_commit import GroupCommit
from headwater.notify.http_client import HttpClient
from headwater.notify.hub.policy import HubLimits
from headwater.notify.hub.store import HubStore
from headwater.notify.signatures import SignatureMethod
from headwater.version import __version__

USER_AGENT: Final = f"headwater/{__version__} (WebSub hub)"


class HubOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What a hub is told: its public `url`, its limits, how it signs, a file of certificate authorities."""

    url: str
    limits: HubLimits = HubLimits()
    method: SignatureMethod = SignatureMethod.SHA256
    authorities: str | None = None


class HubContext(msgspec.Struct, frozen=True, kw_only=True):
    """The parts. `wake` is set when something has become due or has ended; `on_fault` hears of faults of our store,
    `on_topic_fault` of topics that cannot be used, and why."""

    options: HubOptions
    store: HubStore
    writer: GroupCommit
    client: HttpClient
    wake: asyncio.Event
    on_fault: Callable[[HeadwaterError], None]
    on_topic_fault: Callable[[str, str], None] = lambda _topic, _text: None


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
