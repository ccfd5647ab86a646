"""Jobs in a process of their own, which is ended when one takes too long or too much memory: for what cannot be bounded
from within, such as a library that is given hostile input."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

from headwater.processes.worker import encode_message, read_message

_START = "import sys; sys.path += sys.argv[2:]; from headwater.processes.worker import run; run(sys.argv[1])"
_HOME = os.fspath(Path(__file__).parents[2])


class JobEnded(Exception):
    """The process was ended: it took longer than it may, or died of its job (memory, a fault of a library)."""


class LimitedProcess:
    """A process that does jobs one after the other, is ended when one takes too long or too much memory, and is started
    anew with the next. Close it.

    It does what `function(octets)(job)` gives: `function` is one of a module, and calls `limit_memory` with the octets
    that it is given. Jobs and answers are values that `marshal` knows, and not None.
    """

    def __init__(self, function: Callable[[Any], Callable[[Any], Any]], octets: int) -> None:
        self._name = f"{function.__module__}:{function.__qualname__}"
        self._octets = octets
        self._process: subprocess.Popen[bytes] | None = None

    def do(self, job: Any, seconds: float) -> Any:
        """The answer to a job. Raises JobEnded."""
        process = self._started()
        assert process.stdin is not None
        assert process.stdout is not None
        late = threading.Event()

        def end() -> None:
            late.set()
            process.kill()

        timer = threading.Timer(seconds, end)
        timer.daemon = True
        timer.start()
        try:
            with suppress(BrokenPipeError):
                process.stdin.write(encode_message(job))
                process.stdin.flush()
            value = read_message(process.stdout)
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
        if self._process is not None:
            self._process.kill()
            with suppress(BrokenPipeError):
                self._process.communicate()
            self._process = None

    def _started(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            paths = (_HOME, *(path for path in sys.path if path not in ("", _HOME)))
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", _START, self._name, *paths],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )
            assert self._process.stdin is not None
            with suppress(BrokenPipeError):
                self._process.stdin.write(encode_message(self._octets))
        return self._process


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
