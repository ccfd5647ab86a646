"""The scheduler of a source: runs what its sets have to do, when it is due, in a few threads for all of them.

What has to be done again and again is a task, which says when it is due next; one thread decides which tasks run, and
others run them, each task in one thread at a time. Tasks that may take minutes (a first load) never have all threads.
What only has to be done once, and soon, is a job of the work queue, which has threads of its own and two priorities:
changes that somebody waits for, and work that only has to be done some time. A publication of changes takes
milliseconds, most of them spent waiting for the disk; pages, and the first look at thousands of sets, take the
processor for as long as there is one. So those never have all threads, and only one at a time while there are news.
"""

from __future__ import annotations

import enum
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Sequence
from queue import SimpleQueue
from typing import Final, Protocol

from headwater.progress import Listener, Notice, silent

BUSY_SECONDS: Final = 2.0
"""Changes are taken to go on for so long after one was put in the queue."""
LOW_EVERY: Final = 16
"""Of so many jobs one is of low priority, however many of the others wait."""

Job = Callable[[], None]


class Priority(enum.Enum):
    """HIGH: somebody waits for it. LOW: it only has to be done some time."""

    HIGH = enum.auto()
    LOW = enum.auto()


class WorkQueue:
    """The jobs of `workers` threads. Jobs of one priority begin in the order in which they were put."""

    def __init__(self, workers: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.workers = workers
        self._most_low = max(1, workers - 2)
        self._clock = clock
        self._high: deque[Job] = deque()
        self._low: deque[Job] = deque()
        self._low_busy = 0
        self._since_low = 0
        self._busy_until = 0.0
        self._change = threading.Condition()
        self._closed = False

    def put(self, job: Job, priority: Priority) -> None:
        """Put a job in the queue."""
        with self._change:
            if priority is Priority.HIGH:
                self._high.append(job)
                self._busy_until = self._clock() + BUSY_SECONDS
            else:
                self._low.append(job)
            self._change.notify()

    def take(self) -> tuple[Job, Priority] | None:
        """The next job, waited for; None at the end. Say `done` of its priority afterwards."""
        with self._change:
            while not self._closed:
                priority = self._next()
                if priority is Priority.HIGH:
                    self._since_low += 1
                    return self._high.popleft(), priority
                if priority is Priority.LOW:
                    self._since_low = 0
                    self._low_busy += 1
                    return self._low.popleft(), priority
                self._change.wait(BUSY_SECONDS if self._low else None)
            return None

    def _next(self) -> Priority | None:
        may_low = bool(self._low) and self._low_busy < self._room
        if self._high and not (may_low and not self._low_busy and self._since_low >= LOW_EVERY):
            return Priority.HIGH
        return Priority.LOW if may_low else None

    @property
    def _room(self) -> int:
        """How many of low priority may be under way."""
        return self._most_low if self._clock() >= self._busy_until else 1

    def done(self, priority: Priority) -> None:
        """A job of this priority has ended."""
        if priority is Priority.LOW:
            with self._change:
                self._low_busy -= 1
                self._change.notify()

    @property
    def is_empty(self) -> bool:
        """Whether nothing waits."""
        return not self._high and not self._low

    def close(self) -> None:
        """End: what waits is not done any more."""
        with self._change:
            self._closed = True
            self._change.notify_all()


TASK_THREADS: Final = 16
"""Threads for tasks, at most: they wait for disks and networks most of the time."""
_SPARE_THREADS: Final = 2
"""So many of them are not given to what takes long, when there are more tasks than threads."""
_LONGEST_WAIT: Final = 60.0


class Task(Protocol):
    """Work that comes again and again. Its methods are called by several threads, `run` by one at a time."""

    def due_at(self) -> float:
        """When it is to run next, by `time.monotonic`. Never waits; whoever brings it forward wakes the scheduler."""
        ...

    def is_long(self) -> bool:
        """Whether the next run may take minutes."""
        ...

    def run(self) -> None:
        """Do it. Failures are the task's own, and move `due_at`."""
        ...


def startable(tasks: Sequence[Task], running: Collection[Task], now: float, room: int) -> tuple[list[Task], float]:
    """The tasks that are to run now, `room` of them long ones at most, and when the next one is due."""
    chosen, next_at = [], now + _LONGEST_WAIT
    for task in tasks:
        if task in running:
            continue
        if (due_at := task.due_at()) > now:
            next_at = min(next_at, due_at)
        elif not task.is_long():
            chosen.append(task)
        elif room > 0:  # the end of another long one makes room
            room -= 1
            chosen.append(task)
    return chosen, next_at


class Scheduler:
    """Runs tasks, and the jobs of a queue, until stopped.

    Each loop that is added has a thread of its own, and ends when the scheduler is `stopping`.
    """

    def __init__(self, queue: WorkQueue, listener: Listener = silent) -> None:
        self.stopping = threading.Event()
        """Set when whatever is under way has to end."""
        self._queue = queue
        self._listener = listener
        self._tasks: list[Task] = []
        """In the order in which they began last: where there is no room for all, none waits for ever."""
        self._loops: list[Callable[[], None]] = []
        self._at_stop: list[Callable[[], None]] = []
        self._threads: list[threading.Thread] = []
        self._task_count = 0
        """Threads for tasks that there are: as many as tasks were ever under way at once."""
        self._wake = threading.Condition()
        self._is_woken = False
        self._running: dict[Task, bool] = {}
        """Those under way, and whether they take long."""
        self._begun: SimpleQueue[Task | None] = SimpleQueue()

    def add(self, task: Task) -> None:
        """Run this task, too; before `start`."""
        self._tasks.append(task)

    def add_loop(self, loop: Callable[[], None], at_stop: Callable[[], None] | None = None) -> None:
        """Run this in a thread of its own; before `start`. Where it may wait long, `at_stop` ends that."""
        self._loops.append(loop)
        if at_stop is not None:
            self._at_stop.append(at_stop)

    def put(self, job: Job, priority: Priority) -> None:
        """Put a short job in the queue."""
        self._queue.put(job, priority)

    def start(self) -> None:
        """Begin."""
        count = min(TASK_THREADS, len(self._tasks))
        most_long = count if len(self._tasks) <= count else count - _SPARE_THREADS
        work: list[tuple[str, Callable[[], None]]] = [
            ("schedule", lambda: self._decide(most_long)),
            *[("job", self._run_jobs)] * self._queue.workers,
            *[("loop", loop) for loop in self._loops],
        ]
        self._threads = [
            threading.Thread(target=target, name=f"headwater-{name}-{number}", daemon=True)
            for number, (name, target) in enumerate(work)
        ]
        for thread in list(self._threads):
            thread.start()

    def wake(self) -> None:
        """Ask the tasks anew when they are due."""
        with self._wake:
            self._is_woken = True
            self._wake.notify()

    def stop(self) -> None:
        """Ask to end; work under way ends at its next step."""
        self.stopping.set()
        self._queue.close()
        for _ in range(TASK_THREADS):
            self._begun.put(None)
        self.wake()
        for end_waiting in self._at_stop:
            end_waiting()

    def join(self, timeout: float) -> bool:
        """Wait for the end; False when it has not come in time."""
        until = time.monotonic() + timeout
        for thread in list(self._threads):
            thread.join(max(0.0, until - time.monotonic()))
        return not any(thread.is_alive() for thread in self._threads)

    def _decide(self, most_long: int) -> None:
        while not self.stopping.is_set():
            with self._wake:
                self._is_woken = False
                room = most_long - sum(self._running.values())
                chosen, next_at = startable(self._tasks, self._running, time.monotonic(), room)
                for task in chosen:
                    self._tasks.remove(task)
                    self._tasks.append(task)
                    self._running[task] = task.is_long()
                    self._begun.put(task)
                self._have_task_threads(min(len(self._running), TASK_THREADS))
                self._wake.wait_for(lambda: self._is_woken, max(0.0, next_at - time.monotonic()))

    def _have_task_threads(self, count: int) -> None:
        while self._task_count < count:
            self._task_count += 1
            name = f"headwater-task-{self._task_count}"
            self._threads.append(threading.Thread(target=self._run_tasks, name=name, daemon=True))
            self._threads[-1].start()

    def _run_tasks(self) -> None:
        while (task := self._begun.get()) is not None and not self.stopping.is_set():
            self._run(task.run)
            with self._wake:
                del self._running[task]
            self.wake()

    def _run_jobs(self) -> None:
        while (taken := self._queue.take()) is not None:
            job, priority = taken
            self._run(job)
            self._queue.done(priority)

    def _run(self, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as fault:  # noqa: BLE001 - a thread's last frame: what is not told here is never heard of
            self._listener(Notice("HW-000", f"{type(fault).__name__}: {fault}"))
