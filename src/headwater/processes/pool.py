"""A pool of processes that do jobs of one kind in parallel, and give the answers back in the order of the jobs.

Processes, not threads, for work that holds the interpreter's lock. They are programs of their own, not forks: a forked
copy of a threaded program may hold somebody's lock for ever (decision 025). A `LimitedProcess` does jobs that cannot be
bounded from within, such as those of a library that is given hostile input.
"""

from __future__ import annotations

import fcntl
import os
import resource
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import IO, Any, Generic, TypeVar

import msgspec

from headwater.processes import encode_message, read_message

_START = "import sys; sys.path += sys.argv[2:]; from headwater.processes import run; run(sys.argv[1])"
_HOME = os.fspath(Path(__file__).parents[2])
_PIPE_OCTETS = 1 << 20
_POLL_SECONDS = 0.2

T = TypeVar("T")


class Stopped(Exception):
    """The work was ended because the caller asked for it; what was recorded before stays."""


class WorkerProgram(msgspec.Struct, frozen=True, kw_only=True):
    """What a process of a pool does.

    `function` is called once in the process, with `settings`, and gives the function that does a job. Settings, jobs
    and answers are values that `marshal` knows; no job and no answer is None. `libraries` says whether the function
    needs more than this package and the standard library. `descriptors` are open files to share.
    """

    function: Callable[[Any], Callable[[Any], Any]]
    settings: Any = None
    libraries: bool = False
    descriptors: tuple[int, ...] = ()


class ProcessPool(msgspec.Struct, Generic[T]):
    """Does jobs in processes, which are started when the first answer is asked for and end with the last.

    Each has up to `ahead` jobs in hand. Jobs of one that has died, and all where none can be started, are done `here`;
    with `helps` also up to `ahead` more, rather than that an answer is waited for.
    """

    program: WorkerProgram
    here: Callable[[Any], Any]
    processes: int
    ahead: int
    helps: bool = False
    stop: Callable[[], bool] = lambda: False

    def answers(self, jobs: Iterable[tuple[T, Any]]) -> Generator[tuple[T, Any], None, None]:
        """The answers to jobs, each with what came with its job, in order. Raises Stopped soon after `stop` says so.

        Jobs are taken when an answer is asked for, so many that, with the one whose answer was given last, `ahead` for
        each process are in hand, twice as many where this process helps.
        """
        source = iter(jobs)
        answered = threading.Condition()
        waiting: deque[tuple[T, _Task]] = deque()
        with ExitStack() as stack:
            processes: list[_Process] = []
            for _number in range(self.processes):
                with suppress(OSError):  # no process to be had: the others, or this one, do the work
                    processes.append(stack.enter_context(closing(_Process(self.program, answered))))

            def give() -> None:
                """Give the processes what they may have in hand."""
                while len(waiting) < most:
                    process = min(processes, key=lambda one: len(one.tasks), default=None)
                    if process is not None and len(process.tasks) >= self.ahead:
                        return
                    if (following := next(source, None)) is None:
                        return
                    waiting.append((following[0], _Task(following[1], process)))

            while True:
                processes = [one for one in processes if one.is_alive]
                most = self.ahead * max(1, len(processes)) * (2 if self.helps else 1)
                give()
                if not waiting:
                    return
                item, task = waiting.popleft()
                while self.helps and task.is_in_hand and len(waiting) < most:
                    if (following := next(source, None)) is None:
                        break
                    waiting.append((following[0], _Task(following[1], None, self.here(following[1]))))
                    give()
                with answered:
                    while task.is_in_hand:
                        if self.stop():
                            raise Stopped
                        answered.wait(_POLL_SECONDS)
                yield item, self.here(task.job) if task.answer is None else task.answer


class _Task:
    __slots__ = ("_process", "answer", "job")

    def __init__(self, job: Any, process: _Process | None, answer: Any = None) -> None:
        self.job = job
        self.answer = answer
        self._process = process
        if process is not None:
            process.give(self)

    @property
    def is_in_hand(self) -> bool:
        """Whether its answer is still to come; a process that has died gives none."""
        return self.answer is None and self._process is not None and self._process.is_alive


class _Process:
    """One process, the jobs that it has in hand, and the thread that reads its answers.

    Answers are read all the time, so that a process that is given a job always gets so far that it takes it.
    """

    def __init__(self, program: WorkerProgram, answered: threading.Condition) -> None:
        function = f"{program.function.__module__}:{program.function.__qualname__}"
        paths = (_HOME, *(path for path in sys.path if program.libraries and path not in ("", _HOME)))
        self._popen = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _START, function, *paths],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,  # what makes it fail is met again here
            pass_fds=program.descriptors,
        )
        assert self._popen.stdin is not None
        assert self._popen.stdout is not None
        self._jobs, self._answers = self._popen.stdin, self._popen.stdout
        for stream in (self._jobs, self._answers):
            widen(stream)  # it goes on while we do something else
        self._answered = answered
        self.tasks: deque[_Task] = deque()
        self.is_alive = True
        self._reader = threading.Thread(target=self._read, name="headwater-answers", daemon=True)
        self._reader.start()
        self._send(program.settings)

    def give(self, task: _Task) -> None:
        """Take a job in hand."""
        self.tasks.append(task)
        self._send(task.job)

    def _send(self, value: Any) -> None:
        try:
            self._jobs.write(encode_message(value))
            self._jobs.flush()
        except OSError:  # it has died, or hears nothing any more
            self._popen.kill()

    def _read(self) -> None:
        while (answer := read_message(self._answers)) is not None and self.tasks:
            with self._answered:
                self.tasks.popleft().answer = answer
                self._answered.notify()
        with self._answered:
            self.is_alive = False
            self._answered.notify()

    def close(self) -> None:
        """End the process and the thread."""
        if self.tasks or not self.is_alive:
            self._popen.kill()  # nobody waits for what it still does
        with suppress(OSError):
            self._jobs.close()
        self._popen.wait()
        self._reader.join()
        self._answers.close()


def widen(stream: IO[bytes]) -> None:
    """Let the pipe hold more than usual where that can be."""
    if sys.platform == "linux":
        with suppress(OSError):  # the user has many large pipes already
            fcntl.fcntl(stream, fcntl.F_SETPIPE_SZ, _PIPE_OCTETS)


_alone = False


def work_alone() -> None:
    """Let this process start no others: there are many of its kind, and a core is nobody's own."""
    global _alone
    _alone = True


def processors() -> int:
    """As many as this process may use where the system says it (Linux), else all of the machine (macOS)."""
    if _alone:
        return 1
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity is not None else os.cpu_count() or 1


class JobEnded(Exception):
    """The process was ended: it took longer than it may, or died of its job (memory, a fault of a library)."""


class LimitedProcess:
    """A process that does jobs one after the other, is ended when one takes too long or too much memory, and is started
    anew with the next. Close it.

    It does what `function(octets)(job)` gives: `function` is one of a module, and calls `limit_memory` with the octets
    that it is given. Jobs and answers are values that `marshal` knows, and not None.
    """

    def __init__(self, function: Callable[[Any], Callable[[Any], Any]], octets: int) -> None:
        self._program = WorkerProgram(function=function, settings=octets, libraries=True)
        self._answered = threading.Condition()
        self._process: _Process | None = None

    def do(self, job: Any, seconds: float) -> Any:
        """The answer to a job. Raises JobEnded."""
        if self._process is None:
            self._process = _Process(self._program, self._answered)
        task = _Task(job, self._process)
        with self._answered:
            is_in_time = self._answered.wait_for(lambda: not task.is_in_hand, seconds)
        if task.answer is None:
            self.close()
            if not is_in_time:
                raise JobEnded(f"it takes more than {seconds:,.0f} seconds")
            raise JobEnded("it takes more than its share of memory, or the library fails at it")
        return task.answer

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.close()
            self._process = None


def limit_memory(octets: int) -> None:
    """Let this process have so much memory at most, where the system bounds it; another number may follow."""
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_AS, (octets, resource.getrlimit(resource.RLIMIT_AS)[1]))
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
