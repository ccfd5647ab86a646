"""A pool of processes that hash local files; threads would wait for the interpreter's lock.

The processes are programs of their own. They are not forked: a program that uses us may have threads, and the locks
that these hold at that moment would be held in a fork for ever.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections import deque
from collections.abc import Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress

import msgspec

from headwater.spec.hashes import HASHLIB
from headwater.sync.copy import hash_worker as hash_program
from headwater.sync.copy.hash_worker import hash_files, receive, send

PARALLEL_FROM = 3_000
"""Files below which starting a process costs more than it saves."""

_BATCH = 400
_AHEAD = 4
_PROGRAM = hash_program.__file__


class HashRequest(msgspec.Struct, frozen=True, gc=False):
    """One file to hash: its path relative to the root, and the algorithms."""

    path: bytes
    algorithms: tuple[str, ...]


class HashResult(msgspec.Struct, frozen=True, gc=False):
    """One file that was hashed; `size` None: there is no plain file to be read."""

    path: bytes
    size: int | None
    mtime_ns: int = 0
    digests: str = ""


def hash_all(root: bytes, wanted: Iterable[HashRequest], *, workers: int) -> Generator[list[HashResult], None, None]:
    """Hash files below `root` and yield the results in blocks, in any order; `workers` 0: in this process."""
    blocks = _blocks(wanted)
    if workers < 1:
        for block in blocks:
            yield _hash_block(root, block)
        return
    processes = [_HashProcess(root) for _ in range(workers)]
    free = deque(processes)
    try:
        with ThreadPoolExecutor(workers, thread_name_prefix="hashing") as threads:
            flying: deque[Future[list[HashResult]]] = deque()
            for block in blocks:
                flying.append(threads.submit(_hash_elsewhere, free, block))
                if len(flying) >= workers * _AHEAD:
                    yield flying.popleft().result()
            while flying:
                yield flying.popleft().result()
    finally:
        for process in processes:
            process.end()


def _hash_elsewhere(free: deque[_HashProcess], block: list[HashRequest]) -> list[HashResult]:
    """Have a process hash the block: there are as many as threads, so one is free."""
    process = free.popleft()
    try:
        return process.hash(block)
    finally:
        free.append(process)


class _HashProcess:
    """A process that hashes blocks. Where it cannot be started, or has died, its blocks are hashed here."""

    def __init__(self, root: bytes) -> None:
        self._root = root
        self._popen: subprocess.Popen[bytes] | None = None
        with suppress(OSError):
            command = [sys.executable, "-I", "-S", _PROGRAM, os.fsdecode(root)]
            self._popen = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, process_group=0
            )

    def hash(self, block: list[HashRequest]) -> list[HashResult]:
        if self._popen is not None:
            assert self._popen.stdin is not None
            assert self._popen.stdout is not None
            with suppress(OSError, EOFError, ValueError, TypeError):  # it has died: what it gave is cut off
                send(self._popen.stdin, _asked(block))
                return _told(block, receive(self._popen.stdout))
        return _hash_block(self._root, block)

    def end(self) -> None:
        if self._popen is None:
            return
        self._popen.kill()
        for stream in (self._popen.stdin, self._popen.stdout):
            assert stream is not None
            with suppress(OSError):
                stream.close()
        self._popen.wait()


def _blocks(wanted: Iterable[HashRequest]) -> Iterator[list[HashRequest]]:
    block: list[HashRequest] = []
    for one in wanted:
        block.append(one)
        if len(block) >= _BATCH:
            yield block
            block = []
    if block:
        yield block


def _hash_block(root: bytes, block: list[HashRequest]) -> list[HashResult]:
    return _told(block, hash_files(root, _asked(block)))


def _asked(block: list[HashRequest]) -> list[tuple[bytes, tuple[str, ...]]]:
    """A block as `hash_files` takes it."""
    return [(one.path, tuple([HASHLIB[name] for name in one.algorithms])) for one in block]


def _told(block: list[HashRequest], hashed: list[tuple[bytes, int | None, int, tuple[str, ...]]]) -> list[HashResult]:
    """What `hash_files` gave for a block, with the digests as a `hash` attribute writes them."""
    return [
        HashResult(
            path,
            size,
            mtime_ns,
            " ".join([f"{name}:{value}" for name, value in zip(one.algorithms, hexes, strict=False)]),
        )
        for one, (path, size, mtime_ns, hexes) in zip(block, hashed, strict=True)
    ]
