"""The scheduler: which tasks run now, over values; and that they do, in a few threads."""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence

from headwater.progress import Listener, Notice, Progress, silent
from headwater.source.scheduler import THREADS, Scheduler, Task, TaskQueue, Urgency
from tests.support.waiting import until

NOW = 10.0


class Planned:
    """A task of which everything is given."""

    def __init__(self, due_at: float, urgency: Urgency = Urgency.NEWS) -> None:
        self.due_at = due_at
        self.urgency = urgency

    def run(self) -> None:
        raise AssertionError


def placed(*tasks: Task) -> TaskQueue:
    queue = TaskQueue()
    for task in tasks:
        queue.place(task, NOW)
    return queue


def test_tasks_run_in_the_order_in_which_they_became_due() -> None:
    first, second, later, never = Planned(NOW), Planned(9), Planned(11), Planned(math.inf)
    queue = placed(first, second, later, never)
    assert [queue.take(Urgency.NEWS) for _ in range(3)] == [first, second, None]
    assert queue.next_at == 11
    queue.ripen(11)
    assert queue.take(Urgency.NEWS) is later
    assert queue.next_at == math.inf


def test_a_task_that_runs_does_not_run_twice_and_is_asked_when_it_has_run() -> None:
    task = Planned(NOW)
    queue = placed(task)
    assert queue.take(Urgency.NEWS) is task
    queue.place(task, NOW)
    assert queue.take(Urgency.NEWS) is None
    queue.done(task, NOW)
    assert queue.take(Urgency.NEWS) is task


def test_a_task_is_brought_forward_put_off_and_made_more_urgent() -> None:
    task = Planned(NOW + 60, Urgency.UPKEEP)
    queue = placed(task)
    task.due_at = NOW + 5
    queue.place(task, NOW)
    assert queue.next_at == NOW + 5
    task.due_at = NOW + 7
    queue.ripen(NOW + 5)
    assert queue.take(Urgency.UPKEEP) is None
    assert queue.next_at == NOW + 7
    queue.ripen(NOW + 7)
    task.urgency = Urgency.NEWS
    queue.place(task, NOW + 7)
    assert queue.take(Urgency.UPKEEP) is None
    assert queue.take(Urgency.NEWS) is task


class Counted:
    """A task that runs as often as it is told to."""

    def __init__(self, gate: threading.Event | None = None) -> None:
        self.wanted = self.done = 0
        self.gate = gate

    @property
    def due_at(self) -> float:
        return 0.0 if self.done < self.wanted else math.inf

    @property
    def urgency(self) -> Urgency:
        return Urgency.NEWS if self.gate is None else Urgency.LONG

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
