"""Worker processes that serve the same socket: kept running while the first one runs, ended with it.

Each child watches its parent, so that none is left over when that is killed; the parent watches its children, and
starts one anew that has ended unasked, later each time it happens.
"""

from __future__ import annotations

import multiprocessing
import signal
import threading
import time
from collections.abc import Callable
from multiprocessing import resource_tracker
from multiprocessing.connection import wait
from multiprocessing.context import SpawnProcess
from typing import Any

from headwater.progress import Listener, Notice, silent

_SHORTEST_PAUSE = 0.5
_LONGEST_PAUSE = 30.0
_STEADY_SECONDS = 60.0
"""A child that ran for so long starts again at once."""


class ServingProcesses:
    """Runs `target(*arguments)` in `count` processes, until `stop`."""

    def __init__(
        self,
        target: Callable[..., None],
        arguments: tuple[Any, ...],
        count: int,
        code: str,
        listener: Listener = silent,
    ) -> None:
        self._context = multiprocessing.get_context("spawn")
        self._target = target
        self._arguments = arguments
        self._count = count
        self._code = code
        self._listener = listener
        self._stopping = threading.Event()
        self._children: list[SpawnProcess] = []
        self._thread = threading.Thread(target=self._watch, name="headwater-workers", daemon=True)

    def start(self) -> None:
        """Start the processes."""
        self._children = [self._child() for _ in range(self._count)]
        self._thread.start()

    @property
    def pids(self) -> list[int]:
        """The processes that run now."""
        return [child.pid for child in self._children if child.pid is not None and child.is_alive()]

    def stop(self, timeout: float = 15.0) -> None:
        """Ask all to end, wait, and end by force what has not ended in time."""
        self._stopping.set()
        if self._thread.ident is not None:
            self._thread.join()
        for child in self._children:
            child.terminate()
        until = time.monotonic() + timeout
        for child in self._children:
            child.join(max(0.0, until - time.monotonic()))
            if child.is_alive():
                child.kill()
                child.join()

    def _child(self) -> SpawnProcess:
        """One more process. Ctrl-C reaches all of us: the parent decides what it means, from the child's first step."""
        child = self._context.Process(target=self._target, args=self._arguments, daemon=True)
        resource_tracker.ensure_running()  # once it runs, it leaves the mask as it is
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            child.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        return child

    def _watch(self) -> None:
        pause, began = _SHORTEST_PAUSE, time.monotonic()
        while not self._stopping.is_set():
            ended = wait([child.sentinel for child in self._children], timeout=0.2)
            for number, child in enumerate(self._children):
                if child.sentinel not in ended or self._stopping.is_set():
                    continue
                child.join()
                self._listener(
                    Notice(self._code, f"a serving process ended with status {child.exitcode}; another starts")
                )
                pause = (
                    _SHORTEST_PAUSE if time.monotonic() - began > _STEADY_SECONDS else min(2 * pause, _LONGEST_PAUSE)
                )
                self._stopping.wait(pause)
                began = time.monotonic()
                if not self._stopping.is_set():
                    self._children[number] = self._child()


def when_parent_ends(act: Callable[[], None]) -> None:
    """In a child: call `act` from a thread when the parent has ended, however it did."""
    parent = multiprocessing.parent_process()
    if parent is None:
        return
    sentinel = parent.sentinel

    def watch() -> None:
        wait([sentinel])
        act()

    threading.Thread(target=watch, name="headwater-parent", daemon=True).start()
