"""A pool of processes that render pages of a Resource List in parallel.

The publisher writes them into the store one by one, in the order of their numbers.

Processes, not threads: rendering holds the interpreter's lock. Programs of their own, not forks: see
`ingest.folder.hashing.pool`.
"""

from __future__ import annotations

import datetime as dt
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from itertools import cycle
from pathlib import Path
from typing import BinaryIO

import msgspec

from headwater.processors import processors
from headwater.publish.rendering.worker import RenderJob, WorkerReply, WorkerRequest
from headwater.publish.store_writer import read_range

POOL_ENTRIES = 60_000
"""With fewer entries to render, starting processes takes as long as it saves."""

_PROGRAM = "headwater.publish.rendering.worker"
_AHEAD = 2
"""Pages that a process has in hand: one that it renders, and one that waits or is being put into its place."""


class RenderPool:
    """Starts the processes: they read the SQLite file `catalog`; without one there are none.

    Safe for several threads: one publication at a time has processes, the others do without.
    """

    def __init__(self, catalog: Path | None, processes: int | None = None) -> None:
        self._catalog = catalog
        self._processes = processors() if processes is None else processes
        self._turn = threading.Lock()

    @contextmanager
    def rendering(self, order: RenderJob, numbers: Sequence[int], entries: int) -> Iterator[PageRendering]:
        """Have these pages rendered, which have so many entries together, as far as that saves time."""
        count = min(self._processes, len(numbers))
        if self._catalog is None or count < 2 or entries < POOL_ENTRIES or not self._turn.acquire(blocking=False):
            yield PageRendering(())
            return
        try:
            with ExitStack() as stack:
                site = msgspec.structs.replace(order.site, sets=(order.site.settings(order.name),))
                job = WorkerRequest(order=msgspec.structs.replace(order, site=site), catalog=str(self._catalog))
                yield PageRendering([_Process(job, numbers[first::count], stack) for first in range(count)])
        finally:
            self._turn.release()


class PageRendering:
    """The pages of one publication while processes render them."""

    def __init__(self, processes: Sequence[_Process]) -> None:
        self._processes = cycle(processes or (None,))

    def take(self) -> tuple[dt.datetime, Iterator[bytes]] | None:
        """The next page in the order of their numbers, as `worker.page` gives it; None: the caller renders it.

        Its blocks are good until the next call.
        """
        process = next(self._processes)
        return None if process is None else process.take()


class _Process:
    """One process and its share of the pages. One that cannot be started, or has died, gives nothing any more."""

    def __init__(self, job: WorkerRequest, numbers: Sequence[int], stack: ExitStack) -> None:
        self._numbers = iter(numbers)
        self._files: list[BinaryIO] = []
        self._taken = 0
        self._popen: subprocess.Popen[bytes] | None = None
        with suppress(OSError):
            self._files = [stack.enter_context(_anonymous_file()) for _number in range(_AHEAD)]
            files = tuple(file.fileno() for file in self._files)
            command = [sys.executable, "-P", "-m", _PROGRAM]
            self._popen = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, pass_fds=files)
            stack.callback(self._end, self._popen)
            self._say(msgspec.json.encode(msgspec.structs.replace(job, files=files)))
            for _file in files:
                self._ask()

    def take(self) -> tuple[dt.datetime, Iterator[bytes]] | None:
        """Its next page."""
        if self._taken:
            self._ask()  # the page before has been taken: its file is free
        file = self._files[self._taken % _AHEAD] if self._files else None
        self._taken += 1
        printed = self._hear()
        if file is None or printed is None or os.fstat(file.fileno()).st_size != printed.octets:
            self._popen = None
            return None
        return printed.completed, read_range(file, 0, printed.octets)

    def _ask(self) -> None:
        number = next(self._numbers, None)
        if number is not None:
            self._say(b"%d" % number)

    def _say(self, line: bytes) -> None:
        if self._popen is not None:
            assert self._popen.stdin is not None
            with suppress(BrokenPipeError):  # it has died, which shows when it is heard
                self._popen.stdin.write(line + b"\n")
                self._popen.stdin.flush()

    def _hear(self) -> WorkerReply | None:
        if self._popen is None:
            return None
        assert self._popen.stdout is not None
        try:
            return msgspec.json.decode(self._popen.stdout.readline(), type=WorkerReply)
        except msgspec.DecodeError:  # also of the empty line that its end is
            return None

    @staticmethod
    def _end(popen: subprocess.Popen[bytes]) -> None:
        """Nobody waits for what it still renders."""
        popen.kill()
        for stream in (popen.stdin, popen.stdout):
            assert stream is not None
            with suppress(BrokenPipeError):
                stream.close()
        popen.wait()


def _anonymous_file() -> BinaryIO:
    # Unbuffered: a buffer would go on giving what the file held before.
    return tempfile.TemporaryFile(buffering=0)
