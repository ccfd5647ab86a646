"""Hashes files in processes, and gives the results back in the order of the files.

So few files that starting processes would take longer are hashed in this one. Processes, not threads: files of a few
KiB hold the interpreter's lock most of the time. Measured with SHA-256, two threads were 1.16 times slower than one,
two processes 1.7 times faster.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import Protocol, TypeVar

from headwater.files import hashing
from headwater.files.file_copies import VersionWriter
from headwater.files.hashing import HashRequest, HashResult, ReadOptions, file_hasher, read_file, settled
from headwater.processes.pool import ProcessPool, Stopped, WorkerProgram, processors

BLOCK_FILES = 128
BLOCK_OCTETS = 4 << 20
UNKNOWN_OCTETS = 1 << 19
"""A file whose size is not known counts as one of so many octets: what waits for a block of large ones waits long."""
SERIAL_FILES = 256
"""So many files are read in this process before others are started: that takes about as long as starting them."""
SERIAL_OCTETS = 16 << 20
AHEAD = 40
"""So many blocks each process may have in hand: it reads on while this process writes a batch down (100 to 150 ms). A
pipe holds no more answers."""


class HasSize(Protocol):
    """Something to read, of an expected size."""

    @property
    def octets(self) -> int:
        """How much there is to read; `UNKNOWN_OCTETS` when that is not known."""
        ...


T = TypeVar("T", bound=HasSize)


class HashPool:
    """Hashes files; with `mode` (LINK, COPY) those with a place are put there, octets are set aside in `aside`.

    What was written to less than `settle_ns` ago is read only when nobody has it open for writing.
    `processes` are as many as there are processors, or so many; with 0 of them all is done in this one.
    """

    def __init__(
        self,
        mode: str | None = None,
        *,
        aside: bytes | None = None,
        processes: int | None = None,
        stop: Callable[[], bool] = lambda: False,
        settle_ns: int = 0,
    ) -> None:
        writer = None if aside is None else VersionWriter(aside)
        self._options = ReadOptions(mode, writer, stop, settle_ns=settle_ns)
        self._aside = aside
        self._count = processors() if processes is None else processes
        self._stop = stop

    def read(
        self, items: Iterable[T], request: Callable[[T], HashRequest]
    ) -> Iterator[tuple[Sequence[T], Sequence[HashResult]]]:
        """Blocks of items with their results, in the order of the items. Raises Stopped soon after `stop` says so."""
        blocks = _blocks(iter(items), request)
        files = octets = 0
        for block, requests in blocks:
            found = self._read_here(requests)
            yield block, found
            files += len(block)
            octets += sum([one[2][0] for one in found])
            if self._count > 0 and (files >= SERIAL_FILES or octets >= SERIAL_OCTETS):
                break
        following = next(blocks, None)
        if following is None:
            return
        settings = self._options.mode, self._aside, self._options.settle_ns
        program = WorkerProgram(function=file_hasher, settings=settings)
        pool: ProcessPool[list[T]] = ProcessPool(
            program, self._read_here, processes=self._count, ahead=AHEAD, stop=self._stop
        )
        yield from pool.answers(chain([following], blocks))

    def _read_here(self, requests: list[HashRequest]) -> list[HashResult]:
        return settled([self._read_one(request) for request in requests], self._options.versions)

    def _read_one(self, request: HashRequest) -> HashResult:
        found = read_file(request, self._options)
        if found[0] == hashing.STOPPED or self._stop():
            raise Stopped
        return found


def _blocks(items: Iterator[T], request: Callable[[T], HashRequest]) -> Iterator[tuple[list[T], list[HashRequest]]]:
    block: list[T] = []
    octets = 0
    for item in items:
        block.append(item)
        octets += item.octets
        if len(block) >= BLOCK_FILES or octets >= BLOCK_OCTETS:
            yield block, [request(one) for one in block]
            block, octets = [], 0
    if block:
        yield block, [request(one) for one in block]
