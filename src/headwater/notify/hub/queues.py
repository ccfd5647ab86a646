"""The queues of a hub, which serve hosts in turns, and the one loop by which each part of it works off what is due.

Whoever has many items, or answers slowly, delays nobody else: so many are under way at a time in all, so many of one
host, each item not before it is due. A host is a name and a port.
"""

import asyncio
import heapq
from collections import Counter, deque
from collections.abc import Callable
from typing import Final, Generic, TypeVar

import msgspec

from headwater.errors import HeadwaterError, StoreFault, as_fault
from headwater.notify.group_commit import GroupCommit
from headwater.notify.http_client import HttpClient
from headwater.notify.hub.policy import HubOptions
from headwater.notify.hub.store import HubStore, HubTask
from headwater.notify.websub import monotonic_unix_time
from headwater.version import __version__

Item = TypeVar("Item")


class FairQueue(Generic[Item]):
    """Items by host, `name:port`. Whoever takes one says `done` of its host when it is over."""

    def __init__(self, slots: int, host_slots: int) -> None:
        self._slots = slots
        self._host_slots = host_slots
        self._later: list[tuple[float, int, str, Item]] = []
        self._number = 0
        self._ready: dict[str, deque[Item]] = {}
        self._turns: deque[str] = deque()  # hosts that have something ready and a free slot, each once
        self._active: Counter[str] = Counter()  # how many of a host are taken and not done
        self.active = 0  # how many are taken and not done

    def __len__(self) -> int:
        """How many wait."""
        return len(self._later) + sum(map(len, self._ready.values()))

    def add(self, host: str, item: Item, due_at: float = 0.0) -> None:
        """Queue an item of a host that is due at a time; 0: at once."""
        if due_at > 0.0:
            self._number += 1
            heapq.heappush(self._later, (due_at, self._number, host, item))
            return
        waiting = self._ready.get(host)
        if waiting is None:
            waiting = self._ready[host] = deque()
            if self._active[host] < self._host_slots:
                self._turns.append(host)
        waiting.append(item)

    def waiting(self, host: str) -> int:
        """How many items of a host are ready and wait."""
        return len(self._ready.get(host, ()))

    def take(self, now: float) -> Item | None:
        """The next item that may be begun; None while there is none."""
        while self._later and self._later[0][0] <= now:
            _due, _number, host, item = heapq.heappop(self._later)
            self.add(host, item)
        if self.active >= self._slots or not self._turns:
            return None
        host = self._turns.popleft()
        waiting = self._ready[host]
        item = waiting.popleft()
        self.active += 1
        self._active[host] += 1
        if not waiting:
            del self._ready[host]
        elif self._active[host] < self._host_slots:
            self._turns.append(host)
        return item

    def done(self, host: str) -> None:
        """An item of this host is over."""
        self.active -= 1
        self._active[host] -= 1
        if self._active[host] == self._host_slots - 1 and host in self._ready:
            self._turns.append(host)
        if not self._active[host]:
            del self._active[host]

    def next_due(self) -> float | None:
        """When the first of those that are not due yet is; None when there is none."""
        return self._later[0][0] if self._later else None


# what works off the queues

USER_AGENT: Final = f"headwater/{__version__} (WebSub hub)"


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
        self._told_at = 0.0

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
            fault, now = as_fault(error), monotonic_unix_time()
            if not isinstance(fault, StoreFault) or now >= self._told_at + _FAULT_SECONDS:  # which a thousand may meet
                self._context.on_fault(fault)
                self._told_at = now
            self._queue_of(task).add(task.host, task, now + _FAULT_SECONDS)
        finally:
            queue.done(task.host)

    def _ended(self, running: asyncio.Task[None]) -> None:
        self._running.discard(running)
        self._context.wake.set()
