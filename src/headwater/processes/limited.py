"""One job in a process of its own, which is ended when it takes too long or too much memory: for what cannot be bounded
from within, such as a library that is given hostile input."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from io import BytesIO
from pathlib import Path
from typing import Any

from headwater.processes.worker import encode_message, read_message

_START = "import sys; sys.path += sys.argv[2:]; from headwater.processes.worker import run; run(sys.argv[1])"
_HOME = os.fspath(Path(__file__).parents[2])


class JobEnded(Exception):
    """The process was ended: it took longer than it may, or died of its job (memory, a fault of a library)."""


def do_limited(function: Callable[[Any], Callable[[Any], Any]], job: Any, *, seconds: float, octets: int) -> Any:
    """What `function(octets)(job)` gives, done by a process that is killed after so many seconds.

    `function` is one of a module; it calls `limit_memory` with the octets that it is given. Job and answer are values
    that `marshal` knows, and not None. Raises JobEnded.
    """
    name = f"{function.__module__}:{function.__qualname__}"
    paths = (_HOME, *(path for path in sys.path if path not in ("", _HOME)))
    process = subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", _START, name, *paths],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    try:
        answer, _nothing = process.communicate(encode_message(octets) + encode_message(job), timeout=seconds)
    except subprocess.TimeoutExpired as error:
        raise JobEnded(f"it takes more than {seconds:,.0f} seconds") from error
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()
    value = read_message(BytesIO(answer))
    if value is None:
        raise JobEnded("the process that does it has died")
    return value


def limit_memory(octets: int) -> None:
    """Let this process have so much memory at most, where the system bounds it."""
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_AS, (octets, octets))
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
