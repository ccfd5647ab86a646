"""Jobs in a process of their own, which is ended when one takes too long or too much memory: for what cannot be bounded
from within, such as a library that is given hostile input."""

from __future__ import annotations

import resource
import subprocess
import threading
from collections.abc import Callable
from contextlib import closing, suppress
from typing import IO, Any

from headwater.processes.pool import WorkerProgram, start_worker
from headwater.processes.worker import encode_message, read_message


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
