"""The scheduler of a source: runs the tasks of its sets when they are due, in a few threads for all of them.

A task says when it is due next and how urgent that is. Each urgency has a queue and threads of its own, so none waits
for another: changes that somebody waits for take milliseconds, most of them spent waiting for the disk; pages, and the
first publications of thousands of sets, take the processor for as long as there is one; a first load may take hours.
Upkeep has few threads, for the sake of the processor.
"""

import enum
import heapq
import itertools
import math
import threading
import time
from collections.abc import Callable
from functools import partial
from queue import SimpleQueue
from typing import Final, Protocol

from headwater.progress import Listener, Notice, silent


class Urgency(enum.Enum):
    """NEWS: somebody waits for it. UPKEEP: it only has to be done some time. LONG: it may take minutes."""

    NEWS = enum.auto()
    UPKEEP = enum.auto()
    LONG = enum.auto()


THREADS: Final = {Urgency.NEWS: 8, Urgency.UPKEEP: 2, Urgency.LONG: 12}
"""At most so many, of each: they wait for disks and networks most of the time."""


class Task(Protocol):
    """Work that comes again and again. Its methods are called by several threads, `run` by one at a time."""

    @property
    def due_at(self) -> float:
        """When it is to run next, by `time.monotonic`. Never waits; whoever brings it forward wakes the scheduler."""
        ...

    @property
    def urgency(self) -> Urgency:
        """How urgent the next run is."""
        ...

    def run(self) -> None:
        """Do it. Failures are the task's own, and move `due_at`."""
        ...


class Scheduler:
    """Runs tasks until stopped. Each loop that is added has a thread of its own, and ends when it is `stopping`."""

    def __init__(self, listener: Listener = silent) -> None:
        self.stopping = threading.Event()  # set when whatever is under way has to end
        self._listener = listener
        self._tasks: list[Task] = []
        self._loops: list[Callable[[], None]] = []
        self._threads: list[threading.Thread] = []
        self._sooner = threading.Condition()
        """Guards all that follows; told when there is something to do sooner than before."""
        self._later: list[tuple[float, int, Task]] = []  # a heap; an entry of another time than `_times` has is void
        self._times: dict[Task, float] = {}
        self._numbers = itertools.count()
        self._due: dict[Task, Urgency] = {}  # the tasks that wait for a thread
        self._queues: dict[Urgency, SimpleQueue[Task | None]] = {one: SimpleQueue() for one in Urgency}
        """The same in the order in which they became due; an entry of another urgency than `_due` has is void."""
        self._running: set[Task] = set()

    def add(self, task: Task) -> None:
        """Run this task, too; before `start`."""
        self._tasks.append(task)

    def add_loop(self, loop: Callable[[], None]) -> None:
        """Run this in a thread of its own; before `start`."""
        self._loops.append(loop)

    def start(self) -> None:
        """Begin."""
        with self._sooner:
            for task in self._tasks:
                self._place(task)
        work = [("time", self._keep_time), *(("loop", loop) for loop in self._loops)]
        for urgency, most in THREADS.items():
            count = min(most, len(self._tasks))
            work += [(urgency.name.lower(), partial(self._run_tasks, urgency))] * count
        self._threads = [
            threading.Thread(target=target, name=f"headwater-{name}-{number}", daemon=True)
            for number, (name, target) in enumerate(work)
        ]
        for thread in self._threads:
            thread.start()

    def wake(self, task: Task) -> None:
        """Ask this task anew when it is due, and how urgent it is."""
        with self._sooner:
            self._place(task)

    def stop(self) -> None:
        """Ask to end; work under way ends at its next step."""
        self.stopping.set()
        with self._sooner:
            self._sooner.notify()
        for urgency, most in THREADS.items():
            for _thread in range(most):
                self._queues[urgency].put(None)

    def join(self, timeout: float) -> bool:
        """Wait for the end; False when it has not come in time."""
        until = time.monotonic() + timeout
        for thread in self._threads:
            thread.join(max(0.0, until - time.monotonic()))
        return not any(thread.is_alive() for thread in self._threads)

    def _place(self, task: Task) -> None:
        if task in self._running:  # it is asked when it has run
            return
        due_at, urgency = task.due_at, task.urgency
        if due_at > time.monotonic():
            self._due.pop(task, None)
            if due_at < self._times.get(task, math.inf):  # it is asked again at the sooner of the two times
                self._times[task] = due_at
                heapq.heappush(self._later, (due_at, next(self._numbers), task))
                if self._later[0][2] is task:
                    self._sooner.notify()
        elif self._due.get(task) is not urgency:
            self._times.pop(task, None)
            self._due[task] = urgency
            self._queues[urgency].put(task)

    def _keep_time(self) -> None:
        with self._sooner:
            while not self.stopping.is_set():
                now = time.monotonic()
                while self._later and self._later[0][0] <= now:
                    due_at, _number, task = heapq.heappop(self._later)
                    if self._times.get(task) == due_at:
                        del self._times[task]
                        self._place(task)
                next_at = self._later[0][0] if self._later else math.inf
                self._sooner.wait(min(next_at - now, threading.TIMEOUT_MAX))

    def _run_tasks(self, urgency: Urgency) -> None:
        while (task := self._queues[urgency].get()) is not None and not self.stopping.is_set():
            with self._sooner:
                if self._due.get(task) is not urgency:
                    continue
                del self._due[task]
                self._running.add(task)
            try:
                task.run()
            except Exception as fault:  # noqa: BLE001 - a thread's last frame: what is not told here is never heard of
                self._listener(Notice("HW-000", f"{type(fault).__name__}: {fault}"))
            with self._sooner:
                self._running.discard(task)
                self._place(task)
