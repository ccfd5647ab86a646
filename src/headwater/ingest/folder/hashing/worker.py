"""Hashes files: one is read once for all digests, and gets its place in the static tree where there is one.

This module is also the program of the pool's processes (`pool.py`): with nothing but the standard library and
what lies beside it, so that such a process starts in milliseconds. Requests and answers are marshalled tuples.

A file is opened once, by a path without links, and what is read, copied or linked is that very file: whoever exchanges
a folder on the way for a link meanwhile leads nobody out of the set's folder.
"""

from __future__ import annotations

import contextlib
import errno
import gc
import hashlib
import marshal
import os
import signal
import stat
import sys
import time
from collections.abc import Callable
from typing import IO, Any

from headwater.ingest.folder.static_tree.file_placement import (
    GONE,
    LINK,
    FileChanged,
    FileCopy,
    PlacementFailed,
    is_placed,
    link,
)
from headwater.ingest.folder.walking.nofollow import OpenFolder, open_unlinked

READ, VANISHED, CHANGED, SPECIAL, UNREADABLE, UNPLACED, STOPPED = range(7)
"""What came of reading a file. UNREADABLE and UNPLACED carry an errno."""

FileState = tuple[int, int, int, int]
"""Size, mtime, ctime (nanoseconds) and inode."""

HashRequest = tuple[bytes, "bytes | None", "FileState | None"]
"""The path to read (no name in it is a link), the path to place it at, and the state in which the file was found
(None: not known)."""

HashResult = tuple[int, int, FileState, int, int, str]
"""Outcome, errno, the file's state, when reading began, when the file last changed before, its `hash` (RS-MD-05).

Times are nanoseconds. The change is the file's ctime, except that a link which we made ourselves does not count: a
write in the same tick would show in mtime.
"""

_NOTHING: FileState = (0, 0, 0, 0)
_ATTEMPTS = 3
_CHUNK = 1 << 18
_SMALL = 1 << 20
_CONSTRUCTORS = {
    "md5": hashlib.md5,
    "sha-1": hashlib.sha1,
    "sha-224": hashlib.sha224,
    "sha-256": hashlib.sha256,
    "sha-384": hashlib.sha384,
    "sha-512": hashlib.sha512,
}
"""By the names that `hash` uses; a test holds them to those of `spec.hashes`, which a reading process cannot import."""

_FLAGS = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | getattr(os, "O_NOCTTY", 0)


def answer_octets(algorithms: tuple[str, ...]) -> int:
    """The most octets that one `HashResult` takes on its way: eight numbers of 64 bits, and the digests."""
    return 160 + sum(len(name) + 2 + 2 * _CONSTRUCTORS[name](usedforsecurity=False).digest_size for name in algorithms)


class _Stopped(Exception):
    """The caller wants no more."""


def read_file(
    request: HashRequest,
    algorithms: tuple[str, ...],
    mode: str | None,
    stop: Callable[[], bool] | None = None,
    open_file: Callable[[bytes, int], int] | None = None,
) -> HashResult:
    """Read one file; never raises for what the file system does. `algorithms` are names as in `hash`."""
    path, place, seen = request
    if place is None and (found := _read_at_once(path, algorithms, seen, open_file)) is not None:
        return found
    for _attempt in range(_ATTEMPTS):
        try:
            return _read_once(path, place, algorithms, mode, stop, open_file)
        except FileChanged:
            continue
        except PlacementFailed as cause:
            return UNPLACED, cause.errno, _NOTHING, 0, 0, ""
        except _Stopped:
            return STOPPED, 0, _NOTHING, 0, 0, ""
        except GONE:
            return VANISHED, 0, _NOTHING, 0, 0, ""
        except OSError as cause:
            if cause.errno == errno.ELOOP:  # a name of the path has become a link since it was found
                return CHANGED, 0, _NOTHING, 0, 0, ""
            return UNREADABLE, cause.errno or 0, _NOTHING, 0, 0, ""
    return CHANGED, 0, _NOTHING, 0, 0, ""


def _read_at_once(
    path: bytes, algorithms: tuple[str, ...], before: FileState | None, open_file: Callable[[bytes, int], int] | None
) -> HashResult | None:
    """The same for a small file that gives no trouble, in a third less time; None: look at it properly.

    The state `before` may be that in which the walk found it: one that still holds afterwards has held all the while.
    """
    began = time.time_ns()
    try:
        descriptor = (open_file or open_unlinked)(path, _FLAGS)
    except OSError:
        return None
    try:
        if before is None:
            found = os.fstat(descriptor)
            if not stat.S_ISREG(found.st_mode):
                return None
            before = state_of(found)
        return _read_quickly(descriptor, algorithms, before, began)
    except OSError:
        return None
    finally:
        os.close(descriptor)


def _read_quickly(descriptor: int, algorithms: tuple[str, ...], before: FileState, began: int) -> HashResult | None:
    """The reading of a small file that is in the state `before`, and stays in it; None of any other."""
    size = before[0]
    if size >= _SMALL:
        return None
    data = os.read(descriptor, size + 1)
    after = state_of(os.fstat(descriptor))
    if len(data) != size or after != before:
        return None
    digests = [f"{name}:{_CONSTRUCTORS[name](data, usedforsecurity=False).hexdigest()}" for name in algorithms]
    return READ, 0, after, began, after[2], " ".join(digests)


def _read_once(
    path: bytes,
    place: bytes | None,
    algorithms: tuple[str, ...],
    mode: str | None,
    stop: Callable[[], bool] | None,
    open_file: Callable[[bytes, int], int] | None,
) -> HashResult:
    descriptor = (open_file or open_unlinked)(path, _FLAGS)
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            return SPECIAL, 0, _NOTHING, 0, 0, ""
        linked = place is not None and mode == LINK and link(descriptor, found, path, place)
        return _read_open(descriptor, found if linked else None, place, algorithms, mode, stop)
    finally:
        os.close(descriptor)


def _read_open(
    descriptor: int,
    unlinked: os.stat_result | None,
    place: bytes | None,
    algorithms: tuple[str, ...],
    mode: str | None,
    stop: Callable[[], bool] | None,
) -> HashResult:
    """The reading of an open file. `unlinked` is its state before it was linked, when it has just been."""
    began = time.time_ns()
    before = os.fstat(descriptor)
    changed = before.st_ctime_ns
    if unlinked is not None and state_of(unlinked)[:2] == state_of(before)[:2]:
        changed = max(unlinked.st_ctime_ns, before.st_mtime_ns)
    copy = FileCopy(place, before) if place is not None and not is_placed(place, before, mode) else None
    if copy is None and before.st_size < _SMALL:
        quick = _read_quickly(descriptor, algorithms, state_of(before), began)
        if quick is not None:
            return *quick[:4], changed, quick[5]
        os.lseek(descriptor, 0, os.SEEK_SET)
    hashes = [_CONSTRUCTORS[name](usedforsecurity=False) for name in algorithms]
    try:
        octets = _feed(descriptor, before.st_size, hashes, copy, stop)
        if state_of(os.fstat(descriptor)) != state_of(before) or octets != before.st_size:
            raise FileChanged
        if copy is not None:
            copy.finish()
    finally:
        if copy is not None:
            copy.discard()
    digests = [f"{name}:{one.hexdigest()}" for name, one in zip(algorithms, hashes, strict=True)]
    return READ, 0, state_of(before), began, changed, " ".join(digests)


def _feed(descriptor: int, size: int, hashes: list[Any], copy: FileCopy | None, stop: Callable[[], bool] | None) -> int:
    octets = 0
    chunk = size + 1 if size < _SMALL else _CHUNK
    while data := os.read(descriptor, chunk):
        for one in hashes:
            one.update(data)
        if copy is not None:
            copy.write(data)
        octets += len(data)
        if octets >= size < _SMALL:
            break  # a second read to see the end costs as much as the first; the state afterwards tells as well
        if octets > size:
            raise FileChanged
        if stop is not None and stop():
            raise _Stopped
    return octets


def state_of(found: os.stat_result) -> FileState:
    """What of a file's state tells whether it has changed."""
    return found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino


def receive(stream: IO[bytes]) -> Any:
    """The next value from the other process; None at the end."""
    head = _exactly(stream, 4)
    body = _exactly(stream, int.from_bytes(head, "little")) if head is not None else None
    return marshal.loads(body) if body is not None else None  # noqa: S302 - the peer is our own process


def _exactly(stream: IO[bytes], octets: int) -> bytes | None:
    pieces = []
    while octets:
        piece = stream.read(octets)
        if not piece:
            return None
        pieces.append(piece)
        octets -= len(piece)
    return b"".join(pieces)


def send(stream: IO[bytes], value: Any) -> None:
    """Give one value to the other process."""
    body = marshal.dumps(value, 2)  # later versions look for values that occur twice: a third more to read
    view = memoryview(len(body).to_bytes(4, "little") + body)
    while view:
        view = view[stream.write(view) :]
    stream.flush()


def serve() -> None:
    """Answer blocks of requests until the other end is closed, which is also how the parent's death looks."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides what an interruption means
    gc.disable()  # nothing here makes cycles
    mode = sys.argv[1] or None
    algorithms = tuple(sys.argv[2:])
    with contextlib.suppress(BrokenPipeError):
        while (block := receive(sys.stdin.buffer)) is not None:
            with OpenFolder() as folder:
                results = [read_file(request, algorithms, mode, None, folder.open) for request in block]
            send(sys.stdout.buffer, results)
