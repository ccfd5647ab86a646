"""The service loop of `headwater sync --follow`: one run after another, as often as asked, as seldom as the source asks
by its headers (DST-C6).
"""

from __future__ import annotations

import random
import signal
import threading
import time
from collections.abc import Callable

import msgspec

from headwater.errors import Exit, Interrupted, SourceFault
from headwater.progress import Notice
from headwater.sync.faults import DestinationLocked
from headwater.sync.reports import SyncReport
from headwater.sync.run import SyncTask, synchronise
from headwater.sync.sets.polling import PollingHints
from headwater.transport.fetch import DeadlineMet

LONGEST_SECONDS = 86_400.0
JITTER = 0.1
GRACE_SECONDS = 1.5
"""How long a run may take to stop by itself, before it is broken off wherever it is."""

_GROWTH = 1.5
_LOOK_SECONDS = 0.25


class PollInterval(msgspec.Struct, frozen=True):
    """How often the source is asked for changes."""

    seconds: float
    longest_seconds: float | None = None
    """What the interval grows to while nothing changes; None: it does not grow."""


class PollHistory(msgspec.Struct):
    """How many polls in a row have found nothing new, and how many have failed: a failure says nothing of the other."""

    quiet: int = 0
    failures: int = 0

    def polled(self, *, is_busy: bool, has_failed: bool) -> None:
        """A poll has ended."""
        self.failures = self.failures + 1 if has_failed else 0
        if is_busy:
            self.quiet = 0
        elif not has_failed:
            self.quiet += 1


def next_wait(interval: PollInterval, quiet: int, hints: PollingHints, *, failures: int, chance: float) -> float:
    """Seconds until the next poll.

    As asked for while there are changes; up to the longest after `quiet` polls without any, and after `failures` in a
    row to a day at most, however quiet it was before; never sooner than the source has asked for (`Retry-After`), nor
    while what it sent is fresh (`max-age`, which the longest bounds); spread by a tenth with `chance` in 0 to 1.
    """
    wanted, longest = interval.seconds, interval.longest_seconds
    ceiling = min(longest if longest is not None else wanted, LONGEST_SECONDS)
    wait = max(_grown(wanted, quiet, ceiling), _grown(wanted, failures, LONGEST_SECONDS))
    if hints.max_age_seconds is not None:
        wait = max(wait, min(hints.max_age_seconds, LONGEST_SECONDS if longest is None else longest))
    if hints.retry_after_seconds is not None:
        wait = max(wait, min(hints.retry_after_seconds, LONGEST_SECONDS))
    return wait * (1 + JITTER * chance)


def _grown(seconds: float, times: int, longest: float) -> float:
    return min(seconds * _GROWTH ** min(times, 60), max(longest, seconds))


def follow(
    task: SyncTask,
    interval: PollInterval,
    tell: Callable[[SyncReport], None],
    *,
    stop: threading.Event | None = None,
) -> int:
    """Synchronise until stopped by SIGINT or SIGTERM (or `stop`); `tell` gets the report of each run.

    A run under way is given up at once; what it has done holds, and the next call continues. Returns the exit status:
    130 after SIGINT, else 0. A fault of the source does not end it, nor a long audit of the copy; any other is raised.
    """
    ended = stop or threading.Event()
    received: list[int] = []
    restore = catch_signals(ended, received)
    history = PollHistory()
    try:
        while not ended.is_set():
            hints = PollingHints()
            try:
                report = synchronise(msgspec.structs.replace(task, stopped=ended.is_set, hints=hints))
            except DeadlineMet as fault:
                task.listener(Notice(fault.code, f"{fault.what}; the next run goes on", fault.where))
                history.polled(is_busy=True, has_failed=False)
            except (SourceFault, DestinationLocked) as fault:
                task.listener(Notice(fault.rule or fault.code, f"{fault.what}; it is retried", fault.where))
                if isinstance(fault, SourceFault):  # whoever has the copy for long is no reason to wait longer after
                    history.polled(is_busy=False, has_failed=True)
            else:
                tell(report)
                history.polled(is_busy=is_busy(report), has_failed=all_failed(report))
            wait = next_wait(interval, history.quiet, hints, failures=history.failures, chance=random.random())
            _sleep(wait, ended)
    except (Interrupted, KeyboardInterrupt):
        if not ended.is_set():
            raise
    finally:
        restore()
    return Exit.INTERRUPTED if signal.SIGINT in received else Exit.DONE


def is_busy(report: SyncReport) -> bool:
    """Whether a run has found changes."""
    return any(report.total(name) for name in ("created", "updated", "deleted"))


def all_failed(report: SyncReport) -> bool:
    """Whether every set has failed by a fault of the source: a single one of many lets none of the others wait."""
    return report.exit_status == Exit.SOURCE and all(copied.exit_status == Exit.SOURCE for copied in report.sets)


def _sleep(seconds: float, ended: threading.Event) -> None:
    """Wait, until the end at most. Not by `Event.wait`: a signal that came inside of it could not set the event."""
    until = time.monotonic() + seconds
    while not ended.is_set() and (left := until - time.monotonic()) > 0:
        time.sleep(min(left, _LOOK_SECONDS))


def catch_signals(ended: threading.Event, received: list[int]) -> Callable[[], None]:
    """Let SIGINT and SIGTERM end the following: transfers at once, anything else after a moment, or on a second one."""
    if threading.current_thread() is not threading.main_thread():
        return lambda: None

    def caught(number: int, _frame: object) -> None:
        again = ended.is_set()
        received.append(number)
        ended.set()
        if again:
            raise KeyboardInterrupt
        signal.setitimer(signal.ITIMER_REAL, GRACE_SECONDS)

    def broken_off(_number: int, _frame: object) -> None:
        raise KeyboardInterrupt

    handlers = {signal.SIGINT: caught, signal.SIGTERM: caught, signal.SIGALRM: broken_off}
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}

    def restore() -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)
        for number, handler in before.items():
            signal.signal(number, handler)

    return restore
