"""SIGTERM and SIGINT as an event, or SIGTERM as an exception: what is under way ends in order. SIGHUP ends nothing."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING

from headwater.errors import Exit, Interrupted

if TYPE_CHECKING:
    from headwater.progress import Notice

_STANDARD_ERROR = 2


class StopSignal:
    """A context in which SIGTERM and SIGINT set `event` instead of ending the process; a second one acts as usual.

    With `grace_seconds`, what is still under way so long after the first one is broken off, and the context left.
    """

    def __init__(self, grace_seconds: float | None = None) -> None:
        self.event = threading.Event()
        self._grace_seconds = grace_seconds
        self._by: int | None = None
        self._before: dict[signal.Signals, object] = {}

    def __enter__(self) -> StopSignal:
        for number in (signal.SIGTERM, signal.SIGINT):
            self._before[number] = signal.signal(number, self._stop)
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> bool:
        if self._grace_seconds is not None:
            signal.setitimer(signal.ITIMER_REAL, 0)
        self._put_back()
        is_broken_off = self.event.is_set() and isinstance(error, KeyboardInterrupt | Interrupted)
        return is_broken_off and self._grace_seconds is not None

    def _put_back(self) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]

    def _stop(self, number: int, _frame: FrameType | None) -> None:
        self._by = self._by or number
        self._put_back()
        self.event.set()
        if self._grace_seconds is not None:
            signal.signal(signal.SIGALRM, signal.default_int_handler)
            signal.setitimer(signal.ITIMER_REAL, self._grace_seconds)

    def wait(self) -> None:
        """Return when a signal has come."""
        self.event.wait()

    @property
    def exit_status(self) -> Exit:
        """That of a command which a signal may have ended."""
        return Exit.INTERRUPTED if self._by == signal.SIGINT else Exit.DONE


@contextmanager
def hangups_noted(tell: Callable[[Notice], None]) -> Iterator[None]:
    """A context in which SIGHUP is told and ends nothing: log rotation and service managers send it.

    Where standard error is a terminal it means that this has gone, and ends the process as ever; where whoever has
    started us ignores it (`nohup`), so do we.
    """
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or signal.getsignal(signal.SIGHUP) != signal.SIG_DFL or os.isatty(_STANDARD_ERROR):
        yield
        return
    from headwater.progress import Notice  # imported here: `--help` needs none of it

    notice = Notice("HW-SRV-15", "SIGHUP ends nothing here, and nothing is read again")

    def note(_number: int, _frame: FrameType | None) -> None:
        threading.Thread(target=tell, args=(notice,), daemon=True).start()  # this one may be writing to the log

    signal.signal(signal.SIGHUP, note)
    try:
        yield
    finally:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)


class Terminated(BaseException):
    """SIGTERM has come."""


@contextmanager
def terminated() -> Iterator[None]:
    """A context in which SIGTERM raises Terminated; where that leaves it, the process ends by the signal as ever."""

    def terminate(_number: int, _frame: FrameType | None) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # one is enough for what has to be said
        raise Terminated

    before = signal.signal(signal.SIGTERM, terminate)
    try:
        yield
    except Terminated:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTERM)
        raise
    finally:
        signal.signal(signal.SIGTERM, before)
