"""Hashes many local files, in parallel processes where it pays: threads would wait for the interpreter's lock."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor

import msgspec

from headwater.sync.copy.digest import digests_of_descriptor

PARALLEL_FROM = 3_000
"""Files below which starting a process costs more than it saves."""

_BATCH = 400
_AHEAD = 4


class Wanted(msgspec.Struct, frozen=True, gc=False):
    """One file to hash: its path relative to the root, and the algorithms."""

    path: bytes
    algorithms: tuple[str, ...]


class Hashed(msgspec.Struct, frozen=True, gc=False):
    """One file that was hashed; `size` None: there is no plain file to be read."""

    path: bytes
    size: int | None
    mtime_ns: int = 0
    digests: str = ""


def hash_all(root: bytes, wanted: Iterable[Wanted], *, workers: int) -> Iterator[list[Hashed]]:
    """Hash files below `root` and yield the results in blocks, in any order; `workers` 0: in this process."""
    blocks = _blocks(wanted)
    if workers < 1:
        for block in blocks:
            yield _hash_block(root, block)
        return
    context = multiprocessing.get_context("fork")
    with ProcessPoolExecutor(workers, mp_context=context) as pool:
        flying: list[Future[list[Hashed]]] = []
        for block in blocks:
            flying.append(pool.submit(_hash_block, root, block))
            if len(flying) >= workers * _AHEAD:
                yield flying.pop(0).result()
        for future in flying:
            yield future.result()


def _blocks(wanted: Iterable[Wanted]) -> Iterator[list[Wanted]]:
    block: list[Wanted] = []
    for one in wanted:
        block.append(one)
        if len(block) >= _BATCH:
            yield block
            block = []
    if block:
        yield block


def _hash_block(root: bytes, block: list[Wanted]) -> list[Hashed]:
    return [_hash_one(root, one) for one in block]


def _hash_one(root: bytes, one: Wanted) -> Hashed:
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
    try:
        descriptor = os.open(root + b"/" + one.path, flags)
    except OSError:
        return Hashed(one.path, None)
    try:
        found = os.fstat(descriptor)
        if (found.st_mode & 0o170000) != 0o100000:
            return Hashed(one.path, None)
        if not one.algorithms:
            return Hashed(one.path, found.st_size, found.st_mtime_ns)
        size, hexes = digests_of_descriptor(descriptor, one.algorithms)
        text = " ".join(f"{name}:{value}" for name, value in zip(one.algorithms, hexes, strict=True))
        return Hashed(one.path, size, found.st_mtime_ns, text)
    except OSError:
        return Hashed(one.path, None)
    finally:
        os.close(descriptor)
