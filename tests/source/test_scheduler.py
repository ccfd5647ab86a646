"""The scheduler: which tasks run when, in a few threads."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Sequence

from headwater.progress import Listener, Notice, Progress, silent
from headwater.source.scheduler import THREADS, Scheduler, Task, Urgency
from tests.support.waiting import until


class Planned:
    """A task of which everything is given; it notes in which order such tasks ran, and is never due again."""

    def __init__(self, ran: list[Planned], due_at: float, urgency: Urgency = Urgency.NEWS) -> None:
        self.ran = ran
        self.due_at = due_at
        self.urgency = urgency

    def run(self) -> None:
        self.due_at = math.inf
        self.ran.append(self)


def test_a_task_is_brought_forward_put_off_and_made_more_urgent() -> None:
    ran, gate = list[Planned](), threading.Event()
    upkeep = [Counted(gate, Urgency.UPKEEP) for _ in range(THREADS[Urgency.UPKEEP])]
    for one in upkeep:
        one.wanted = 1
    now = time.monotonic()
    forward, off, urgent = (Planned(ran, now + 60), Planned(ran, 0, Urgency.UPKEEP), Planned(ran, 0, Urgency.UPKEEP))
    scheduler = planned([*upkeep, forward, off, urgent])
    scheduler.start()
    forward.due_at = time.monotonic() + 0.2
    scheduler.wake(forward)
    until(lambda: ran == [forward], what="what was brought forward")
    urgent.urgency = Urgency.NEWS
    scheduler.wake(urgent)
    until(lambda: ran == [forward, urgent], what="what was made more urgent")
    off.due_at = math.inf
    scheduler.wake(off)
    gate.set()
    until(lambda: all(one.done for one in upkeep))
    scheduler.stop()
    assert scheduler.join(10)
    assert ran == [forward, urgent]


class Counted:
    """A task that runs as often as it is told to."""

    def __init__(self, gate: threading.Event | None = None, urgency: Urgency = Urgency.LONG) -> None:
        self.wanted = self.done = 0
        self.gate = gate
        self.urgency = urgency if gate is not None else Urgency.NEWS

    @property
    def due_at(self) -> float:
        return 0.0 if self.done < self.wanted else math.inf

    def run(self) -> None:
        if self.gate is not None:
            self.gate.wait(60)
        self.done += 1
        if self.done == 2:
            raise ZeroDivisionError("a bug")


def planned(tasks: Sequence[Task], listener: Listener = silent) -> Scheduler:
    scheduler = Scheduler(listener)
    for task in tasks:
        scheduler.add(task)
    return scheduler


def test_tasks_run_when_they_become_due_and_a_bug_is_told() -> None:
    heard: list[Notice | Progress] = []
    tasks = [Counted(), Counted()]
    scheduler = planned(tasks, heard.append)
    scheduler.start()
    for number in range(1, 4):
        tasks[0].wanted = number
        scheduler.wake(tasks[0])
        until(lambda number=number: tasks[0].done == number)  # type: ignore[misc]
    scheduler.stop()
    assert scheduler.join(10)
    assert tasks[1].done == 0
    assert [one.message for one in heard if isinstance(one, Notice)] == ["ZeroDivisionError: a bug"]


def test_long_tasks_have_threads_of_their_own() -> None:
    gate = threading.Event()
    long = [Counted(gate) for _ in range(2 * THREADS[Urgency.LONG])]
    short = Counted()
    for one in (*long, short):
        one.wanted = 1
    before = threading.active_count()
    scheduler = planned([*long, short])
    scheduler.start()
    assert threading.active_count() - before <= sum(THREADS.values()) + 1
    until(lambda: short.done == 1, what="the one that does not take long")
    assert not any(one.done for one in long)
    gate.set()
    until(lambda: all(one.done == 1 for one in long), what="the others")
    scheduler.stop()
    assert scheduler.join(10)


class Endless:
    """A task that is always due."""

    due_at = 0.0

    def __init__(self, urgency: Urgency) -> None:
        self.done = 0
        self.urgency = urgency

    def run(self) -> None:
        self.done += 1


def test_of_more_tasks_than_threads_each_has_its_turn() -> None:
    tasks = [Endless(urgency) for urgency in Urgency for _ in range(3 * THREADS[urgency])]
    scheduler = planned(tasks)
    scheduler.start()
    until(lambda: all(one.done for one in tasks), what="a turn of each")
    scheduler.stop()
    assert scheduler.join(10)


def test_a_loop_ends_with_the_scheduler() -> None:
    ended = threading.Event()

    def loop() -> None:
        scheduler.stopping.wait(60)
        ended.set()

    scheduler = planned([])
    scheduler.add_loop(loop)
    scheduler.start()
    scheduler.stop()
    assert scheduler.join(10)
    assert ended.is_set()
