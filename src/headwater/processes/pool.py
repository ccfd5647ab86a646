"""A pool of processes that do jobs of one kind in parallel, and give the answers back in the order of the jobs.

Processes, not threads, for work that holds the interpreter's lock. They are programs of their own, not forks: a forked
copy of a threaded program may hold somebody's lock for ever (decision 025). A `LimitedProcess` does jobs that cannot be
bounded from within, such as those of a library that is given hostile input.
"""

from __future__ import annotations

import fcntl
import os
import resource
import selectors
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable
from contextlib import closing, suppress
from itertools import chain, islice
from pathlib import Path
from typing import IO, Any, Generic, TypeVar

import msgspec

from headwater.processes.worker import encode_message, read_message

_START = "import sys; sys.path += sys.argv[2:]; from headwater.processes.worker import run; run(sys.argv[1])"
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


class _Task:
    """A job, and its answer as soon as there is one."""

    __slots__ = ("answer", "job")

    def __init__(self, job: Any) -> None:
        self.job = job
        self.answer: Any = None


class ProcessPool(Generic[T]):
    """Does jobs in processes, which are started with the first job and end with the last answer.

    Each has up to `ahead` jobs in hand. Jobs of one that has died, and all where none can be started, are done `here`.
    """

    def __init__(
        self,
        program: WorkerProgram,
        here: Callable[[Any], Any],
        *,
        processes: int,
        ahead: int,
        stop: Callable[[], bool] = lambda: False,
    ) -> None:
        self._program = program
        self._here = here
        self._count = processes
        self._ahead = ahead
        self._stop = stop

    def answers(self, jobs: Iterable[tuple[T, Any]]) -> Generator[tuple[T, Any], None, None]:
        """The answers to jobs, each with what came with its job, in order. Raises Stopped soon after `stop` says so.

        Jobs are taken when an answer is asked for, so many that, with the one whose answer was given last, `ahead` for
        each process are in hand.
        """
        source = iter(jobs)
        first = next(source, None)
        if first is None:
            return
        with closing(_Processes(self._program, self._count)) as processes:
            source = chain((first,), source)
            waiting: deque[tuple[T, _Task]] = deque()
            while True:
                for item, job in islice(source, max(0, self._ahead * max(1, processes.count) - len(waiting))):
                    waiting.append((item, processes.give(job)))
                if not waiting:
                    return
                item, task = waiting.popleft()
                while task.answer is None and processes.has(task):
                    if self._stop():
                        raise Stopped
                    processes.take(_POLL_SECONDS)
                yield item, self._here(task.job) if task.answer is None else task.answer


class _Processes:
    """The processes that are alive, and what each has in hand."""

    def __init__(self, program: WorkerProgram, count: int) -> None:
        self._selector = selectors.DefaultSelector()
        self._alive: list[_Process] = []
        for _number in range(count):
            with suppress(OSError):  # no process to be had: the others, or this one, do the work
                process = _Process(program)
                self._alive.append(process)
                self._selector.register(process.answers, selectors.EVENT_READ, process)
                self._send(process)

    @property
    def count(self) -> int:
        return len(self._alive)

    def give(self, job: Any) -> _Task:
        """Have a job done by the process that has the fewest."""
        task = _Task(job)
        if self._alive:
            process = min(self._alive, key=lambda one: len(one.tasks))
            process.put(task)
            self._send(process)
        return task

    def has(self, task: _Task) -> bool:
        """Whether a process has the job in hand; one that has died has not."""
        return any(task in process.tasks for process in self._alive)

    def take(self, seconds: float) -> None:
        """Take answers that have come, and give what finds room, as soon as there is anything or this time is over."""
        for key, events in self._selector.select(seconds):
            process: _Process = key.data
            if process not in self._alive:
                continue  # it has died since
            if events & selectors.EVENT_WRITE:
                self._send(process)
                continue
            try:
                is_alive = process.take()
            except BaseException:  # an interruption: nobody knows which answer comes next
                self._discard(process)
                raise
            if not is_alive:
                self._discard(process)

    def _send(self, process: _Process) -> None:
        """Write what the process' pipe has room for; what is left is written when there is room, by `take`."""
        try:
            rest = process.send()
        except OSError:  # it has died
            self._discard(process)
            return
        except BaseException:  # an interruption: nobody knows what was written
            self._discard(process)
            raise
        if rest != process.is_waiting:
            process.is_waiting = rest
            if rest:
                self._selector.register(process.jobs, selectors.EVENT_WRITE, process)
            else:
                self._selector.unregister(process.jobs)

    def _discard(self, process: _Process) -> None:
        self._alive.remove(process)
        self._selector.unregister(process.answers)
        if process.is_waiting:
            self._selector.unregister(process.jobs)
        process.close()

    def close(self) -> None:
        for process in self._alive:
            process.close()
        self._selector.close()


class _Process:
    """One process: its pipes, the jobs that it has in hand, and what of them has not been written yet."""

    def __init__(self, program: WorkerProgram) -> None:
        self._popen, self.jobs, self.answers = start_worker(program)
        for stream in (self.jobs, self.answers):
            widen(stream)  # it goes on while we do something else
        os.set_blocking(self.jobs.fileno(), False)
        self.tasks: deque[_Task] = deque()
        self.is_waiting = False
        """Whether it is watched for room in its pipe."""
        self._unsent = deque([memoryview(encode_message(program.settings))])

    def put(self, task: _Task) -> None:
        """Take a job in hand, to be sent."""
        message = memoryview(encode_message(task.job))
        self.tasks.append(task)
        self._unsent.append(message)

    def send(self) -> bool:
        """Write what there is room for; whether something is left. Raises OSError when the process has died."""
        with suppress(BlockingIOError):
            while self._unsent:
                written = os.write(self.jobs.fileno(), self._unsent[0])
                if written < len(self._unsent[0]):
                    self._unsent[0] = self._unsent[0][written:]
                else:
                    self._unsent.popleft()
        return bool(self._unsent)

    def take(self) -> bool:
        """Take an answer that is coming; False when the process has died."""
        answer = read_message(self.answers)
        if answer is None or not self.tasks:
            return False
        self.tasks.popleft().answer = answer
        return True

    def close(self) -> None:
        for stream in (self.jobs, self.answers):
            with suppress(OSError):
                stream.close()
        if self.tasks:
            self._popen.kill()  # nobody waits for what it still does
        self._popen.wait()


def start_worker(program: WorkerProgram) -> tuple[subprocess.Popen[bytes], IO[bytes], IO[bytes]]:
    """Start a process that runs `worker.run`; the process, and the pipes for jobs and for answers."""
    function = f"{program.function.__module__}:{program.function.__qualname__}"
    paths = (_HOME, *(path for path in sys.path if path not in ("", _HOME))) if program.libraries else (_HOME,)
    process = subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", _START, function, *paths],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,  # what makes it fail is met again here
        bufsize=0,  # a buffer would hide from a selector what it has already taken in
        pass_fds=program.descriptors,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    return process, process.stdin, process.stdout


def widen(stream: IO[bytes]) -> None:
    """Let the pipe hold more than usual where that can be."""
    if sys.platform == "linux":
        with suppress(OSError):  # the user has many large pipes already
            fcntl.fcntl(stream, fcntl.F_SETPIPE_SZ, _PIPE_OCTETS)


def processors() -> int:
    """As many as this process may use where the system says it (Linux), else all of the machine (macOS)."""
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
        self._started: tuple[subprocess.Popen[bytes], IO[bytes], IO[bytes]] | None = None

    def do(self, job: Any, seconds: float) -> Any:
        """The answer to a job. Raises JobEnded."""
        messages = memoryview(encode_message(job))
        if self._started is None:
            self._started = start_worker(self._program)
            messages = memoryview(encode_message(self._program.settings) + encode_message(job))
        process, jobs, answers = self._started
        late = threading.Event()

        def end() -> None:
            late.set()
            process.kill()

        timer = threading.Timer(seconds, end)
        timer.daemon = True
        timer.start()
        try:
            with suppress(BrokenPipeError):
                while messages:
                    messages = messages[jobs.write(messages) :]
            value = read_message(answers)
        except BaseException:
            self.close()
            raise
        finally:
            timer.cancel()
        if value is None:
            self.close()
            if late.is_set():
                raise JobEnded(f"it takes more than {seconds:,.0f} seconds")
            raise JobEnded("it takes more than its share of memory, or the library fails at it")
        return value

    def close(self) -> None:
        """End the process."""
        if self._started is not None:
            process, jobs, answers = self._started
            self._started = None
            process.kill()
            jobs.close()
            answers.close()
            process.wait()


def do_limited(function: Callable[[Any], Callable[[Any], Any]], job: Any, *, seconds: float, octets: int) -> Any:
    """What a `LimitedProcess` for one job gives. Raises JobEnded."""
    with closing(LimitedProcess(function, octets)) as process:
        return process.do(job, seconds)


def limit_memory(octets: int) -> None:
    """Let this process have so much memory at most, where the system bounds it; another number may follow."""
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_AS, (octets, resource.getrlimit(resource.RLIMIT_AS)[1]))
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
