"""A pool of processes that hash files, and give the results back in the order of the files.

So few files that starting processes would take longer are hashed in this one.

Processes, not threads: files of a few KiB hold the interpreter's lock most of the time. Measured with SHA-256, two
threads were 1.16 times slower than one, two processes 1.7 times faster.
They are programs of their own, not forks: a forked copy of a threaded server may hold somebody's lock for ever.
"""

from __future__ import annotations

import fcntl
import os
import selectors
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Generic, Protocol, TypeVar

from headwater.ingest.folder.hashing import worker
from headwater.ingest.folder.hashing.worker import HashRequest, HashResult, read_file
from headwater.processors import processors

BLOCK_FILES = 128
BLOCK_OCTETS = 4 << 20
FIRST_FILES = 8
"""In the first block, while nothing is known of how large files are here."""
SERIAL_FILES = 256
"""So many files are read in this process before others are started: that takes about as long as starting them."""
SERIAL_OCTETS = 16 << 20
AHEAD = 24
"""So many blocks each process may have in hand: it reads on while this process writes a batch down (50 to 80 ms)."""
PROGRAM = (
    sys.executable,
    "-I",
    "-S",
    "-c",
    "import sys; sys.path.append(sys.argv.pop(1)); from headwater.ingest.folder.hashing.worker import serve; serve()",
    os.fspath(Path(worker.__file__).parents[4]),
)
"""A reading process: this package and the standard library, without what a site may add to every start."""
_PIPE_OCTETS = 1 << 20
_PIPE_PAGE = 4096
_POLL_SECONDS = 0.2


class HasSize(Protocol):
    """Something to read, of an expected size."""

    @property
    def octets(self) -> int:
        """How much there is to read; 0 when that is not known."""
        ...


T = TypeVar("T", bound=HasSize)


class Stopped(Exception):
    """The work was ended because the caller asked for it; what was recorded before stays."""


class _Block(Generic[T]):
    """Some files that are read together."""

    __slots__ = ("answer", "items", "octets", "requests")

    def __init__(self) -> None:
        self.items: list[T] = []
        self.octets = 0
        self.requests: list[HashRequest] = []
        self.answer: list[HashResult] | None = None


class _BlockSize:
    """How many files of unknown size make a block: so many as had BLOCK_OCTETS, by those that were read before."""

    def __init__(self) -> None:
        self._files = self._octets = 0

    @property
    def files(self) -> int:
        if not self._files:
            return FIRST_FILES
        return max(1, min(BLOCK_FILES, BLOCK_OCTETS * self._files // max(1, self._octets)))

    def learn(self, results: Sequence[HashResult]) -> None:
        self._files += len(results)
        self._octets += sum([one[2][0] for one in results])


class _HashProcess(Generic[T]):
    def __init__(self, arguments: list[str]) -> None:
        self._popen = subprocess.Popen(
            [*PROGRAM, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,  # a buffer would hide from the selector what it has already taken in
        )
        self.outstanding: deque[_Block[T]] = deque()
        self.room = _widened(self.answers)
        """How many octets of answers wait in the pipe without holding the process up."""
        assert self._popen.stdin is not None
        _widened(self._popen.stdin)  # so that giving it that much work does not keep us from our own

    @property
    def answers(self) -> IO[bytes]:
        assert self._popen.stdout is not None
        return self._popen.stdout

    def ask(self, block: _Block[T]) -> bool:
        """Give the process a block; False when it has died."""
        assert self._popen.stdin is not None
        self.outstanding.append(block)
        try:
            worker.send(self._popen.stdin, block.requests)
        except OSError:
            return False
        return True

    def close(self) -> None:
        for stream in (self._popen.stdin, self._popen.stdout):
            with suppress(OSError):
                assert stream is not None
                stream.close()
        if self.outstanding:
            self._popen.kill()  # it may be in the middle of a large file that nobody waits for any more
        self._popen.wait()


class HashPool:
    """Reads files with these digests. A context manager: the processes end with it."""

    def __init__(
        self,
        algorithms: tuple[str, ...],
        *,
        mode: str | None = None,
        processes: int | None = None,
        stop: Callable[[], bool] = lambda: False,
    ) -> None:
        self._algorithms = algorithms
        self._mode = mode
        self._count = processors() if processes is None else processes
        self._stop = stop

    def read(
        self, items: Iterable[T], request: Callable[[T], HashRequest]
    ) -> Iterator[tuple[Sequence[T], Sequence[HashResult]]]:
        """Blocks of items with their readings, in the order of the items. Raises Stopped soon after `stop` says so."""
        pace = _BlockSize()
        blocks = _blocks(iter(items), request, pace)
        files = octets = 0
        for block in blocks:
            found = [self._read_here(one) for one in block.requests]
            pace.learn(found)
            yield block.items, found
            files += len(block.items)
            octets += sum([one[2][0] for one in found])
            if self._count > 0 and (files >= SERIAL_FILES or octets >= SERIAL_OCTETS):
                break
        else:
            return
        yield from self._read_elsewhere(blocks, pace)

    def _read_here(self, request: HashRequest) -> HashResult:
        found = read_file(request, self._algorithms, self._mode, self._stop)
        if found[0] == worker.STOPPED or self._stop():
            raise Stopped
        return found

    def _read_elsewhere(
        self, blocks: Iterator[_Block[T]], pace: _BlockSize
    ) -> Iterator[tuple[Sequence[T], Sequence[HashResult]]]:
        following = next(blocks, None)
        if following is None:
            return
        answer_octets = BLOCK_FILES * worker.answer_octets(self._algorithms)
        arguments = [self._mode or "", *self._algorithms]
        workers = _Workers[T](self._count, arguments, answer_octets, self._read_here, self._stop)
        try:
            waiting: deque[_Block[T]] = deque()
            while following is not None or waiting:
                while following is not None and len(waiting) < workers.most:
                    workers.give(following)
                    waiting.append(following)
                    following = next(blocks, None)
                block = waiting.popleft()
                found = workers.answer(block)
                pace.learn(found)
                yield block.items, found
        finally:
            workers.close()


def _widened(stream: IO[bytes]) -> int:
    """Let the pipe hold more than usual where that can be; returns how much it holds."""
    if sys.platform != "linux":
        return 0
    with suppress(OSError):  # the user has many large pipes already
        fcntl.fcntl(stream, fcntl.F_SETPIPE_SZ, _PIPE_OCTETS)
    return fcntl.fcntl(stream, fcntl.F_GETPIPE_SZ)


def _blocks(items: Iterator[T], request: Callable[[T], HashRequest], pace: _BlockSize) -> Iterator[_Block[T]]:
    block, most = _Block[T](), pace.files
    for item in items:
        block.items.append(item)
        block.requests.append(request(item))
        block.octets += item.octets
        if len(block.items) >= most or block.octets >= BLOCK_OCTETS:
            yield block
            block, most = _Block[T](), pace.files
    if block.items:
        yield block


class _Workers(Generic[T]):
    """The reading processes, and what each has in hand. Work of one that died is done by the caller itself."""

    def __init__(
        self,
        count: int,
        arguments: list[str],
        answer_octets: int,
        read_here: Callable[[HashRequest], HashResult],
        stop: Callable[[], bool],
    ) -> None:
        self._read_here = read_here
        self._stop = stop
        self._selector = selectors.DefaultSelector()
        self._alive: list[_HashProcess[T]] = []
        for _number in range(count):
            with suppress(OSError):  # no process to be had: the others, or this one, do the work
                process = _HashProcess[T](arguments)
                self._alive.append(process)
                self._selector.register(process.answers, selectors.EVENT_READ, process)
        # All answers to what a process has in hand fit into its pipe: it never waits to write while we wait to write
        # to it. A block begins a page of the pipe, and ends in one.
        room = min((process.room for process in self._alive), default=0)
        self._ahead = max(1, min(AHEAD, room // (answer_octets + 2 * _PIPE_PAGE)))

    @property
    def most(self) -> int:
        """How many blocks may be in hand."""
        return self._ahead * max(1, len(self._alive))

    def give(self, block: _Block[T]) -> None:
        if self._alive:
            process = min(self._alive, key=lambda one: len(one.outstanding))
            if not process.ask(block):
                self._discard(process)

    def answer(self, block: _Block[T]) -> list[HashResult]:
        while block.answer is None:
            if self._stop():
                raise Stopped
            if not any(block in process.outstanding for process in self._alive):
                return [self._read_here(request) for request in block.requests]
            for key, _events in self._selector.select(_POLL_SECONDS):
                self._take(key.data)
        return block.answer

    def _take(self, process: _HashProcess[T]) -> None:
        answer = worker.receive(process.answers)
        if answer is None:
            self._discard(process)
        else:
            process.outstanding.popleft().answer = answer

    def _discard(self, process: _HashProcess[T]) -> None:
        self._selector.unregister(process.answers)
        self._alive.remove(process)
        process.close()

    def close(self) -> None:
        for process in self._alive:
            process.close()
        self._selector.close()
