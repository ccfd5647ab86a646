"""What the processes of a pool do in its tests; apart from these, for each process imports it and needs no pytest."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable


def doubler(settings: str) -> Callable[[int], tuple[str, int]]:
    return lambda job: (settings, 2 * job)


def echo(_settings: None) -> Callable[[bytes], bytes]:
    return lambda job: job


def sleeper(seconds: float) -> Callable[[int], int]:
    """The process that is given 0 takes its time."""

    def work(job: int) -> int:
        if job == 0:
            time.sleep(seconds)
        return job

    return work


def suicide(_settings: None) -> Callable[[int], int]:
    """Every third job kills its process."""

    def work(job: int) -> int:
        if job % 3 == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        return job

    return work


def talker(_settings: None) -> Callable[[int], int]:
    """Says what is no answer."""
    os.write(1, b"The Zen of this program, at some length, instead of an answer")
    return lambda job: job


def deaf(_settings: None) -> Callable[[int], int]:
    sys.exit(1)


def writer(_settings: None) -> Callable[[tuple[int, bytes]], int]:
    return lambda job: os.write(*job)


def pids(_settings: None) -> Callable[[int], int]:
    return lambda _job: os.getpid()
