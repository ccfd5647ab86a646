"""What all parts of a hub work with, and the one loop by which each of them works off what is due."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, Generic, TypeVar

import msgspec

from headwater.errors import HeadwaterError, as_fault
from headwater.notify.group_commit import GroupCommit
from headwater.notify.http_client import HttpClient
from headwater.notify.hub.fair_queue import FairQueue, HubTask
from headwater.notify.hub.policy import HubLimits
from headwater.notify.hub.store import HubStore
from headwater.notify.websub import SignatureMethod, monotonic_unix_time
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


Task = TypeVar("Task", bound=HubTask)
_FAULT_SECONDS: Final = 3.0


class HubDriver(Generic[Task]):
    """Works off what is due, many tasks at a time, hosts in turns: the one loop of verifying, fetching and delivering.

    Each driver says what a task is (`_work`), whether it still is one when its turn comes (`_is_current`), and in which
    of its queues it waits.
    """

    def __init__(self, context: HubContext, *queues: FairQueue[Task]) -> None:
        self._context = context
        self._queues = queues
        self._running: set[asyncio.Task[None]] = set()

    def _queue_of(self, _task: Task) -> FairQueue[Task]:
        return self._queues[0]

    def _is_current(self, task: Task) -> bool:
        raise NotImplementedError

    async def _work(self, task: Task) -> Task | None:
        """Do a task; gives what is to be queued again. After a fault of our own store, or a bug, it is itself."""
        raise NotImplementedError

    def _enqueue(self, task: Task) -> None:
        self._queue_of(task).add(task.host, task, task.due_at)
        self._context.wake.set()

    def start_due(self, now: float) -> None:
        """Begin what is due, as far as there is room."""
        for queue in self._queues:
            while (task := queue.take(now)) is not None:
                if self._is_current(task):
                    running = asyncio.ensure_future(self._run(task, queue))
                    self._running.add(running)
                    running.add_done_callback(self._ended)
                else:
                    queue.done(task.host)

    def next_due(self) -> float | None:
        """When the next is due."""
        return min((due for queue in self._queues if (due := queue.next_due()) is not None), default=None)

    async def close(self) -> None:
        """Give up what is under way; it begins anew with the next start."""
        for running in self._running:
            running.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)

    async def _run(self, task: Task, queue: FairQueue[Task]) -> None:
        try:
            again = await self._work(task)
            if again is not None:
                self._enqueue(again)
        except Exception as error:  # noqa: BLE001 - our own store, or a bug: tried again later
            self._context.on_fault(as_fault(error))
            self._queue_of(task).add(task.host, task, monotonic_unix_time() + _FAULT_SECONDS)
        finally:
            queue.done(task.host)

    def _ended(self, running: asyncio.Task[None]) -> None:
        self._running.discard(running)
        self._context.wake.set()
