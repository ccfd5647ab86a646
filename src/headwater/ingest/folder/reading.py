"""One file read once: its digests, its state before and after, and, where a static tree is wanted, its place there.

This module is also the program of the reading processes (`readers.py`): it runs alone, by its path, with nothing but
the standard library, so that such a process starts in milliseconds. Requests and answers are marshalled tuples.
"""

from __future__ import annotations

import contextlib
import gc
import hashlib
import marshal
import os
import secrets
import signal
import stat
import sys
import time
from collections.abc import Callable
from typing import IO, Any

READ, VANISHED, CHANGED, SPECIAL, UNREADABLE, UNPLACED, STOPPED = range(7)
"""What came of reading a file. UNREADABLE and UNPLACED carry an errno."""

LINK, COPY = "link", "copy"
"""How a file gets its place in a static tree: as a hard link (a copy where that cannot be), or always as a copy."""

PLACING = ".headwater-tmp-"
"""Names of half-placed files begin so, as those of half-written documents do."""

State = tuple[int, int, int, int]
"""Size, mtime, ctime (nanoseconds) and inode."""

Request = tuple[bytes, "bytes | None", "State | None"]
"""The path to read, the path to place it at, and the state in which the file was found (None: not known)."""

Reading = tuple[int, int, State, int, int, str]
"""Outcome, errno, the file's state, when reading began, when the file last changed before, its `hash` (RS-MD-05).

Times are nanoseconds. The change is the file's ctime, except that a link which we made ourselves does not count: a
write in the same tick would show in mtime.
"""

_NOTHING: State = (0, 0, 0, 0)
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

_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | getattr(os, "O_NOCTTY", 0)
_GONE = (FileNotFoundError, NotADirectoryError)


def answer_octets(algorithms: tuple[str, ...]) -> int:
    """The most octets that one `Reading` takes on its way: eight numbers of 64 bits, and the digests."""
    return 160 + sum(len(name) + 2 + 2 * _CONSTRUCTORS[name](usedforsecurity=False).digest_size for name in algorithms)


class _Changed(Exception):
    """The file was written to while it was read."""


class _Stopped(Exception):
    """The caller wants no more."""


class _Unplaced(Exception):
    """The file's place in the static tree could not be made."""

    def __init__(self, cause: OSError) -> None:
        super().__init__(str(cause))
        self.errno = cause.errno or 0


def read_file(
    request: Request, algorithms: tuple[str, ...], mode: str | None, stop: Callable[[], bool] | None = None
) -> Reading:
    """Read one file; never raises for what the file system does. `algorithms` are names as in `hash`."""
    path, place, seen = request
    if place is None and (found := _read_quickly(path, algorithms, seen)) is not None:
        return found
    for _attempt in range(_ATTEMPTS):
        try:
            return _read_once(path, place, algorithms, mode, stop)
        except _Changed:
            continue
        except _Unplaced as cause:
            return UNPLACED, cause.errno, _NOTHING, 0, 0, ""
        except _Stopped:
            return STOPPED, 0, _NOTHING, 0, 0, ""
        except _GONE:
            return VANISHED, 0, _NOTHING, 0, 0, ""
        except OSError as cause:
            return UNREADABLE, cause.errno or 0, _NOTHING, 0, 0, ""
    return CHANGED, 0, _NOTHING, 0, 0, ""


def _read_quickly(path: bytes, algorithms: tuple[str, ...], before: State | None = None) -> Reading | None:
    """The same for a small file that gives no trouble, in a third less time; None: look at it properly.

    The state `before` may be that in which the walk found it: one that still holds afterwards has held all the while.
    """
    began = time.time_ns()
    try:
        descriptor = os.open(path, _FLAGS)
    except OSError:
        return None
    try:
        if before is None:
            found = os.fstat(descriptor)
            if not stat.S_ISREG(found.st_mode):
                return None
            before = state_of(found)
        size = before[0]
        if size >= _SMALL:
            return None
        data = os.read(descriptor, size + 1)
        after = state_of(os.fstat(descriptor))
    except OSError:
        return None
    finally:
        os.close(descriptor)
    if len(data) != size or after != before:
        return None
    digests = [f"{name}:{_CONSTRUCTORS[name](data, usedforsecurity=False).hexdigest()}" for name in algorithms]
    return READ, 0, after, began, after[2], " ".join(digests)


def _read_once(
    path: bytes, place: bytes | None, algorithms: tuple[str, ...], mode: str | None, stop: Callable[[], bool] | None
) -> Reading:
    unlinked = _link(path, place) if place is not None and mode == LINK else None
    if unlinked is not None and (found := _read_quickly(path, algorithms)) is not None:
        size, mtime, _ctime, inode = state = found[2]
        if (size, mtime, inode) == (unlinked.st_size, unlinked.st_mtime_ns, unlinked.st_ino):
            return READ, 0, state, found[3], max(unlinked.st_ctime_ns, mtime), found[5]
    began = time.time_ns()
    descriptor = os.open(path, _FLAGS)
    try:
        before = os.fstat(descriptor)
        if not stat.S_ISREG(before.st_mode):
            return SPECIAL, 0, _NOTHING, 0, 0, ""
        hashes = [_CONSTRUCTORS[name](usedforsecurity=False) for name in algorithms]
        copy = _Copy(place, before) if place is not None and not _placed(place, before, mode) else None
        try:
            octets = _feed(descriptor, before.st_size, hashes, copy, stop)
            after = os.fstat(descriptor)
            if state_of(after) != state_of(before) or octets != before.st_size:
                raise _Changed
            if copy is not None:
                copy.finish()
        finally:
            if copy is not None:
                copy.discard()
    finally:
        os.close(descriptor)
    changed = before.st_ctime_ns
    if unlinked is not None and state_of(unlinked)[:2] == state_of(before)[:2] and unlinked.st_ino == before.st_ino:
        changed = max(unlinked.st_ctime_ns, before.st_mtime_ns)
    digests = [f"{name}:{one.hexdigest()}" for name, one in zip(algorithms, hashes, strict=True)]
    return READ, 0, state_of(before), began, changed, " ".join(digests)


def _feed(descriptor: int, size: int, hashes: list[Any], copy: _Copy | None, stop: Callable[[], bool] | None) -> int:
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
            raise _Changed
        if stop is not None and stop():
            raise _Stopped
    return octets


def state_of(found: os.stat_result) -> State:
    """What of a file's state tells whether it has changed."""
    return found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino


def _link(path: bytes, place: bytes) -> os.stat_result | None:
    """Make `place` a hard link of `path`, replacing what is there; return the file's state before that.

    None when nothing was linked: it is a link already, or links cannot be here and a copy will be made.
    """
    source = os.lstat(path)
    if not stat.S_ISREG(source.st_mode):
        return None
    try:
        try:
            os.link(path, place, follow_symlinks=False)
        except _GONE:
            os.lstat(path)  # when it is the source that vanished, say so
            _room(place)
            os.link(path, place, follow_symlinks=False)
    except FileExistsError:
        return None if _same(place, source) else _relink(path, place, source)
    except _GONE:
        raise
    except OSError:
        return None
    return source


def _relink(path: bytes, place: bytes, source: os.stat_result) -> os.stat_result | None:
    aside = _aside(place)
    try:
        os.link(path, aside, follow_symlinks=False)
    except _GONE:
        raise
    except OSError:
        return None
    try:
        _rename(aside, place)
    finally:
        with contextlib.suppress(*_GONE):
            os.unlink(aside)
    return source


def _placed(place: bytes, source: os.stat_result, mode: str | None) -> bool:
    return mode == LINK and _same(place, source)


def _same(place: bytes, source: os.stat_result) -> bool:
    try:
        found = os.lstat(place)
    except OSError:
        return False
    return (found.st_dev, found.st_ino) == (source.st_dev, source.st_ino)


def _aside(place: bytes) -> bytes:
    """A name beside `place` for a half-placed file, in a folder that exists when this returns."""
    _room(place)
    return os.path.join(os.path.dirname(place), os.fsencode(PLACING + secrets.token_hex(8)))


def _room(place: bytes) -> None:
    try:
        make_room(os.path.dirname(place))
    except OSError as cause:
        raise _Unplaced(cause) from cause


def make_room(folder: bytes) -> None:
    """Make sure `folder` is a folder: a file that stands in its way (it has become a folder) is removed."""
    try:
        os.mkdir(folder)
    except FileExistsError:
        if not stat.S_ISDIR(os.lstat(folder).st_mode):
            os.unlink(folder)
            os.mkdir(folder)
    except _GONE:
        make_room(os.path.dirname(folder))
        make_room(folder)


def _rename(aside: bytes, place: bytes) -> None:
    try:
        try:
            os.replace(aside, place)
        except IsADirectoryError:  # a folder of the source has become a file
            _remove_tree(place)
            os.replace(aside, place)
    except OSError as cause:
        raise _Unplaced(cause) from cause


def _remove_tree(folder: bytes) -> None:
    with os.scandir(folder) as entries:
        for entry in list(entries):
            if entry.is_dir(follow_symlinks=False):
                _remove_tree(entry.path)
            else:
                os.unlink(entry.path)
    os.rmdir(folder)


class _Copy:
    """A copy that is made from the very octets that are hashed, and takes its place only when they held still."""

    def __init__(self, place: bytes, source: os.stat_result) -> None:
        self._place = place
        self._source = source
        self._aside = _aside(place)
        try:
            self._descriptor = os.open(self._aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        except OSError as cause:
            raise _Unplaced(cause) from cause
        self._open = True

    def write(self, data: bytes) -> None:
        view = memoryview(data)
        try:
            while view:
                view = view[os.write(self._descriptor, view) :]
        except OSError as cause:
            raise _Unplaced(cause) from cause

    def finish(self) -> None:
        """Give the copy the source's time (what a server says of it is then what the list says) and its place."""
        try:
            os.fchmod(self._descriptor, stat.S_IMODE(self._source.st_mode) & 0o777)
            os.utime(self._descriptor, ns=(self._source.st_atime_ns, self._source.st_mtime_ns))
        except OSError as cause:
            raise _Unplaced(cause) from cause
        self._close()
        _rename(self._aside, self._place)

    def discard(self) -> None:
        self._close()
        with contextlib.suppress(*_GONE):
            os.unlink(self._aside)

    def _close(self) -> None:
        if self._open:
            self._open = False
            os.close(self._descriptor)


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


def _serve() -> None:
    """Answer blocks of requests until the other end is closed, which is also how the parent's death looks."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides what an interruption means
    gc.disable()  # nothing here makes cycles
    mode = sys.argv[1] or None
    algorithms = tuple(sys.argv[2:])
    while (block := receive(sys.stdin.buffer)) is not None:
        send(sys.stdout.buffer, [read_file(request, algorithms, mode) for request in block])


if __name__ == "__main__":
    with contextlib.suppress(BrokenPipeError):
        _serve()
