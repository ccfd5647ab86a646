"""Bars that time sets, on a machine that may have other work for a moment: who is slow misses one three times."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

ATTEMPTS = 3
_forgiven: list[str] = []


class Late(AssertionError):
    """It was right, and took too long."""


@contextmanager
def within(seconds: float, what: str) -> Iterator[None]:
    """Raises Late when the block ends well and took longer; what goes wrong in it goes wrong at once."""
    began = time.monotonic()
    yield
    if (took := time.monotonic() - began) > seconds:
        raise Late(f"{what} took {took:.2f} s; the bar is {seconds} s")


@contextmanager
def unless_late(seconds: float) -> Iterator[None]:
    """What is asserted in the block holds for so long; raises Late when it fails after that."""
    began = time.monotonic()
    try:
        yield
    except AssertionError as error:
        if (took := time.monotonic() - began) < seconds:
            raise
        raise Late(f"{took:.2f} s have passed, and it need no longer hold after {seconds} s") from error


def in_time(attempt: Callable[[int], None]) -> None:
    """Call `attempt` with 0, 1, … (for names of its own) until it is not Late: a bar is not missed by chance."""
    for number in range(ATTEMPTS):
        try:
            return attempt(number)
        except Late as error:
            if number + 1 == ATTEMPTS:
                raise
            _forgiven.append(str(error))
    return None


def forgiven() -> list[str]:
    """What was forgiven since the last time that somebody asked; the summary of a run tells it (`tests.lateness`)."""
    told = list(_forgiven)
    _forgiven.clear()
    return told
