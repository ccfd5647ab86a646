"""The pool of processes: answers in order, whatever becomes of the processes; nothing is forked, and nothing stays."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from headwater.processes import pool as pool_module
from headwater.processes.pool import ProcessPool, Stopped, WorkerProgram
from tests.support.pool_functions import deaf, doubler, echo, sleeper, suicide, talker, writer
from tests.support.waiting import until

ROOT = Path(__file__).resolve().parent.parent

widen = pool_module.widen


def here(job: int) -> int:
    return job


def program(function: Callable[[Any], Callable[[Any], Any]], **fields: Any) -> WorkerProgram:
    return WorkerProgram(function=function, libraries=True, **fields)  # they are no part of the package


def numbers(count: int) -> Iterator[tuple[str, int]]:
    return ((f"job {number}", number) for number in range(count))


@pytest.mark.parametrize(("processes", "ahead"), [(1, 1), (1, 5), (3, 1), (3, 4)])
def test_answers_come_in_the_order_of_the_jobs(
    started: list[subprocess.Popen[bytes]], processes: int, ahead: int
) -> None:
    pool: ProcessPool[str] = ProcessPool(program(doubler, settings="x"), here, processes=processes, ahead=ahead)
    found = list(pool.answers(numbers(50)))
    assert found == [(f"job {number}", ("x", 2 * number)) for number in range(50)]
    assert len(started) == processes
    assert all(one.returncode == 0 for one in started)
    assert list(pool.answers(numbers(3))) == found[:3], "it may be used again"


def test_while_an_answer_is_waited_for_jobs_are_done_here() -> None:
    """The process does its first job for ever: the others are done here, as many as may be in hand."""
    done: list[int] = []
    stop = False

    def helping(job: int) -> int:
        nonlocal stop
        done.append(job)
        stop = len(done) == 5  # `ahead` more than the process has in hand, in place of the one that is waited for
        return job

    pool: ProcessPool[str] = ProcessPool(
        program(sleeper, settings=600.0), helping, processes=1, ahead=4, helps=True, stop=lambda: stop
    )
    with pytest.raises(Stopped):
        list(pool.answers(numbers(50)))
    assert done == [4, 5, 6, 7, 8]


def test_one_process_that_is_helped_gives_all_answers_in_order() -> None:
    pool: ProcessPool[str] = ProcessPool(
        program(doubler, settings="x"), lambda job: ("x", 2 * job), processes=1, ahead=2, helps=True
    )
    assert list(pool.answers(numbers(500))) == [(f"job {number}", ("x", 2 * number)) for number in range(500)]


def test_no_more_jobs_are_taken_than_there_is_room_for() -> None:
    taken = 0

    def jobs() -> Iterator[tuple[int, int]]:
        nonlocal taken
        for number in range(40):
            taken += 1
            yield number, number

    pool: ProcessPool[int] = ProcessPool(program(doubler), here, processes=2, ahead=3)
    for given, _answer in enumerate(pool.answers(jobs()), 1):
        assert taken <= given + 2 * 3 - 1


@pytest.mark.parametrize("function", [suicide, talker, deaf])
def test_jobs_of_processes_that_die_are_done_here(
    started: list[subprocess.Popen[bytes]], function: Callable[[Any], Callable[[Any], Any]]
) -> None:
    pool: ProcessPool[str] = ProcessPool(program(function), here, processes=2, ahead=3)
    assert [answer for _item, answer in pool.answers(numbers(60))] == list(range(60))
    assert len(started) == 2
    assert all(one.poll() is not None for one in started)


def test_the_others_go_on_when_one_is_killed(started: list[subprocess.Popen[bytes]]) -> None:
    pool: ProcessPool[str] = ProcessPool(program(doubler), here, processes=2, ahead=2)
    at_home = []
    for (_item, answer), number in zip(pool.answers(numbers(400)), range(400), strict=True):
        assert answer in (number, (None, 2 * number))
        at_home += [number] if answer == number else []
        if number == 3:
            started[0].kill()
            started[0].wait()
    assert len(at_home) <= 3, "what it had in hand"


def test_no_process_to_be_had(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_arguments: object, **_options: object) -> None:
        raise OSError(errno.EAGAIN, "no more processes")

    monkeypatch.setattr(subprocess, "Popen", refuse)
    pool: ProcessPool[str] = ProcessPool(program(doubler), here, processes=2, ahead=2)
    assert [answer for _item, answer in pool.answers(numbers(10))] == list(range(10))


@pytest.mark.parametrize("room", [1 << 12, 1 << 16, 1 << 20])
def test_jobs_and_answers_that_fill_the_pipes_never_wait_for_each_other(
    monkeypatch: pytest.MonkeyPatch, room: int
) -> None:
    monkeypatch.setattr(pool_module, "_PIPE_OCTETS", room)
    jobs = [(number, bytes([number % 256]) * 300_000) for number in range(60)]
    pool: ProcessPool[int] = ProcessPool(program(echo), here, processes=2, ahead=8)
    assert list(pool.answers(iter(jobs))) == jobs


def test_processes_share_open_files() -> None:
    with tempfile.TemporaryFile() as file:
        jobs = [(None, (file.fileno(), b"abc")), (None, (file.fileno(), b"de"))]
        shared = program(writer, descriptors=(file.fileno(),))
        pool: ProcessPool[None] = ProcessPool(shared, here, processes=1, ahead=1)
        assert [answer for _item, answer in pool.answers(iter(jobs))] == [3, 2]
        file.seek(0)
        assert file.read() == b"abcde"


def test_stopping_does_not_wait_for_a_job(started: list[subprocess.Popen[bytes]]) -> None:
    pool: ProcessPool[str] = ProcessPool(
        program(sleeper, settings=600.0), here, processes=2, ahead=2, stop=lambda: bool(started)
    )
    with pytest.raises(Stopped):
        list(pool.answers(numbers(10)))
    assert all(one.returncode is not None for one in started)


def test_who_wants_no_more_answers_leaves_no_process_and_no_file(started: list[subprocess.Popen[bytes]]) -> None:
    files = len(os.listdir("/proc/self/fd"))
    pool: ProcessPool[str] = ProcessPool(program(sleeper, settings=600.0), here, processes=2, ahead=2)
    answers = pool.answers((str(number), number) for number in (1, 0, 2, 3))
    assert next(answers) == ("1", 1)
    answers.close()
    assert len(started) == 2
    assert all(one.returncode is not None for one in started)
    assert len(os.listdir("/proc/self/fd")) == files


def test_nothing_is_forked_while_threads_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """A lock that a thread holds at the moment of a fork is held in it for ever."""

    def forked() -> int:
        raise AssertionError("os.fork")

    monkeypatch.setattr(os, "fork", forked)
    stop = threading.Event()
    thread = threading.Thread(target=stop.wait)
    thread.start()
    try:
        pool: ProcessPool[str] = ProcessPool(program(doubler), here, processes=2, ahead=2)
        assert len(list(pool.answers(numbers(20)))) == 20
    finally:
        stop.set()
        thread.join()


def test_processes_end_when_their_owner_is_killed() -> None:
    owner = """if True:
        import os, sys
        sys.path.insert(0, os.getcwd())
        from headwater.processes.pool import ProcessPool, WorkerProgram
        from tests import test_process_pool as tests
        from tests.support.pool_functions import pids
        pool = ProcessPool(tests.program(pids), print, processes=2, ahead=1)
        answers = pool.answers(tests.numbers(100))
        print(*{pid for (_item, pid), _ in zip(answers, range(4))}, flush=True)
        sys.stdin.read()
    """
    with subprocess.Popen(
        [sys.executable, "-c", owner], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT
    ) as process:
        assert process.stdout is not None
        workers = [int(one) for one in process.stdout.readline().split()]
        assert len(workers) == 2
        assert all(is_running(pid) for pid in workers)
        process.kill()
        process.wait()
        until(lambda: not any(is_running(pid) for pid in workers), what="the end of the processes")


def is_running(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
