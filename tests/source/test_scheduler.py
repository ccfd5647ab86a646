"""The scheduler: which tasks run now, over values; and that they do, in a few threads."""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence

import pytest

from headwater.progress import Listener, Notice, Progress, silent
from headwater.source.scheduler import TASK_THREADS, Scheduler, Task, WorkQueue, startable
from tests.support.waiting import until


class Planned:
    """A task of which everything is given."""

    def __init__(self, due_at: float, *, long: bool = False) -> None:
        self.at = due_at
        self.long = long

    def due_at(self) -> float:
        return self.at

    def is_long(self) -> bool:
        return self.long

    def run(self) -> None:
        raise AssertionError


CASES = {
    "nothing is due": ([Planned(11), Planned(12)], [], 1, [], 11),
    "what is due runs, what runs does not run twice": ([Planned(9), Planned(9), Planned(10)], [1], 1, [0, 2], 70),
    "the next wait is for those that do not run": ([Planned(11), Planned(12)], [0], 1, [], 12),
    "what takes long waits for room": ([Planned(9, long=True), Planned(9, long=True), Planned(9)], [], 1, [0, 2], 70),
    "without room only the others": ([Planned(9, long=True), Planned(9)], [], 0, [1], 70),
    "what has nothing to do is asked again some time": ([Planned(math.inf)], [], 1, [], 70),
}


@pytest.mark.parametrize("case", CASES)
def test_what_runs_now(case: str) -> None:
    tasks, running, room, chosen, next_at = CASES[case]
    found = startable(tasks, [tasks[number] for number in running], 10.0, room)
    assert found == ([tasks[number] for number in chosen], next_at)


class Counted:
    """A task that runs as often as it is told to."""

    def __init__(self, gate: threading.Event | None = None) -> None:
        self.wanted = self.done = 0
        self.gate = gate

    def due_at(self) -> float:
        return 0.0 if self.done < self.wanted else math.inf

    def is_long(self) -> bool:
        return self.gate is not None

    def run(self) -> None:
        if self.gate is not None:
            self.gate.wait(60)
        self.done += 1
        if self.done == 2:
            raise ZeroDivisionError("a bug")


def planned(tasks: Sequence[Task], listener: Listener = silent) -> Scheduler:
    scheduler = Scheduler(WorkQueue(0), listener)
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
        scheduler.wake()
        until(lambda number=number: tasks[0].done == number)  # type: ignore[misc]
    scheduler.stop()
    assert scheduler.join(10)
    assert tasks[1].done == 0
    assert [one.message for one in heard if isinstance(one, Notice)] == ["ZeroDivisionError: a bug"]


def test_long_tasks_never_have_all_threads() -> None:
    gate = threading.Event()
    long = [Counted(gate) for _ in range(2 * TASK_THREADS)]
    short = Counted()
    for one in (*long, short):
        one.wanted = 1
    before = threading.active_count()
    scheduler = planned([*long, short])
    scheduler.start()
    assert threading.active_count() - before <= TASK_THREADS + 1
    until(lambda: short.done == 1, what="the one that does not take long")
    assert not any(one.done for one in long)
    gate.set()
    until(lambda: all(one.done == 1 for one in long), what="the others")
    scheduler.stop()
    assert scheduler.join(10)


class Endless:
    """A task that takes long and is always due."""

    def __init__(self) -> None:
        self.done = 0

    def due_at(self) -> float:
        return 0.0

    def is_long(self) -> bool:
        return True

    def run(self) -> None:
        self.done += 1


def test_of_more_long_tasks_than_threads_each_has_its_turn() -> None:
    tasks = [Endless() for _ in range(3 * TASK_THREADS)]
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
