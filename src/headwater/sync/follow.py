"""A service that follows a source: runs again and again, as often as asked, as seldom as the source wishes (DST-C6)."""

from __future__ import annotations

import random
import signal
import threading
from collections.abc import Callable
from pathlib import Path

from headwater.errors import Exit, SourceFault
from headwater.progress import Listener, Notice, silent
from headwater.sync.options import Options, Report
from headwater.sync.run import sync

LONGEST_SECONDS = 86_400.0
JITTER = 0.1
_GROWTH = 1.5


def next_wait(
    wanted: float, quiet: int, *, failed: bool, retry_after: float | None, longest: float | None, chance: float
) -> float:
    """Seconds until the next poll.

    `wanted` while there are changes; up to `longest` after `quiet` polls without any, and after failures (to a day at
    most); never sooner than the source has asked for (`Retry-After`); spread by a tenth with `chance` in 0 to 1.
    """
    ceiling = min(longest if longest is not None else wanted, LONGEST_SECONDS)
    if failed:
        ceiling = LONGEST_SECONDS
    wait = min(wanted * _GROWTH ** min(quiet, 60), max(ceiling, wanted))
    if retry_after is not None:
        wait = max(wait, min(retry_after, LONGEST_SECONDS))
    return wait * (1 + JITTER * chance)


def follow(
    url: str,
    destination: Path | str,
    options: Options,
    seconds: float,
    tell: Callable[[Report], None],
    *,
    listener: Listener = silent,
    longest: float | None = None,
    stop: threading.Event | None = None,
) -> int:
    """Synchronise until stopped by SIGINT or SIGTERM (or `stop`); `tell` gets the report of each run.

    Returns the exit status: 130 after SIGINT, else 0. A fault of the source does not end it, any other is raised.
    """
    ended = stop or threading.Event()
    received: list[int] = []
    restore = _catch_signals(ended, received)
    quiet = failures = 0
    try:
        while not ended.is_set():
            try:
                report = sync(url, destination, options, listener=listener)
            except SourceFault as fault:
                listener(Notice(fault.rule or fault.code, f"{fault.what}; it is tried again", fault.where))
                failures += 1
            else:
                tell(report)
                failures = failures + 1 if report.exit_status == Exit.SOURCE else 0
                busy = any(report.total(name) for name in ("created", "updated", "deleted"))
                quiet = 0 if busy else quiet + 1
            wait = next_wait(
                seconds,
                max(quiet, failures),
                failed=failures > 0,
                retry_after=None,
                longest=longest,
                chance=random.random(),
            )
            ended.wait(wait)
    finally:
        restore()
    return Exit.INTERRUPTED if signal.SIGINT in received else Exit.DONE


def _catch_signals(ended: threading.Event, received: list[int]) -> Callable[[], None]:
    """Let SIGINT and SIGTERM end the following after the run under way; a second one interrupts it."""
    if threading.current_thread() is not threading.main_thread():
        return lambda: None

    def caught(number: int, _frame: object) -> None:
        if ended.is_set():
            raise KeyboardInterrupt
        received.append(number)
        ended.set()

    before = {number: signal.signal(number, caught) for number in (signal.SIGINT, signal.SIGTERM)}

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    return restore
