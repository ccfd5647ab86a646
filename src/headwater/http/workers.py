"""Worker processes that serve the same socket: kept running while the first one runs, ended with it.

Each child watches its parent, so that none is left over when that is killed; the parent watches its children, and
starts one anew after a pause when it has ended unasked. What only the parent knows, a child asks it for over a pipe,
which works on a full disk as well.
"""

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from typing import Any

from headwater.errors import StoreFault, as_fault
from headwater.http.routes import Answer
from headwater.progress import Listener, Notice, silent

_PAUSE_SECONDS = 5.0
"""So often it is seen to that all children run: where they end again and again, starting takes little of the time."""
ANSWER_SECONDS = 12.0  # so long a child waits for an answer: longer than the parent waits for its catalog
Answers = Mapping[str, Callable[[], Answer]]  # what a child may ask for, by name, and who answers it, in any thread


class FirstProcess:
    """The parent of a serving process, as the child sees it: asked one question at a time, from any thread."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._lock = threading.Lock()
        self._count = 0

    def ask(self, question: str) -> Answer:
        """What the parent answers to one of its `Answers`. Raises StoreFault when it does not."""
        until = time.monotonic() + ANSWER_SECONDS
        if self._lock.acquire(timeout=ANSWER_SECONDS):
            try:
                self._count += 1
                self._connection.send((self._count, question))
                while self._connection.poll(max(0.0, until - time.monotonic())):
                    number, answer = self._connection.recv()
                    if number == self._count:  # else one that is waited for no longer
                        return answer  # type: ignore[no-any-return]
            except (EOFError, OSError):
                pass  # it has ended, and so shall we
            finally:
                self._lock.release()
        raise StoreFault("the first process of this server does not answer")


class ServingProcesses:
    """Runs `target(connection, *arguments)` in `count` processes, until `stop`; `answers` what they ask for.

    The target makes a `FirstProcess` of the connection.
    """

    def __init__(
        self,
        target: Callable[..., None],
        arguments: tuple[Any, ...],
        count: int,
        code: str,
        answers: Answers,
        listener: Listener = silent,
    ) -> None:
        self._context = multiprocessing.get_context("spawn")
        self._target = target
        self._arguments = arguments
        self._count = count
        self._code = code
        self._answers = answers
        self._listener = listener
        self._stopping = threading.Event()
        self._children: list[SpawnProcess] = []
        self._thread = threading.Thread(target=self._watch, name="headwater-workers", daemon=True)

    def start(self) -> None:
        """Start the processes. None of them imports from the current folder, which may be the published one."""
        os.environ["PYTHONSAFEPATH"] = "1"  # multiprocessing passes no option on that says so, to its helper either
        self._children = [self._child() for _ in range(self._count)]
        self._thread.start()

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
        """One more process. Ctrl-C and SIGHUP reach all of us: the parent decides what they mean, from the start."""
        ours, theirs = self._context.Pipe()
        child = self._context.Process(target=self._target, args=(theirs, *self._arguments), daemon=True)
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP})
        try:
            resource_tracker.ensure_running()  # once it runs, it leaves the mask as it is
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
            child.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            theirs.close()
        threading.Thread(target=self._answer, args=(ours,), name="headwater-answers", daemon=True).start()
        return child

    def _answer(self, connection: Connection) -> None:
        with connection, suppress(EOFError, OSError):
            while True:
                number, question = connection.recv()
                try:
                    answer = self._answers[question]()
                except Exception as error:  # noqa: BLE001 - the next question is answered all the same
                    fault = as_fault(error)
                    self._listener(Notice(fault.code, fault.what, fault.where))
                    answer = 503, f"a fault of our own store [{fault.code}]\n".encode()
                connection.send((number, answer))

    def _watch(self) -> None:
        while not self._stopping.wait(_PAUSE_SECONDS):
            for number, child in enumerate(self._children):
                if child.exitcode is not None:
                    text = f"a serving process ended with status {child.exitcode}; another starts"
                    self._listener(Notice(self._code, text))
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
