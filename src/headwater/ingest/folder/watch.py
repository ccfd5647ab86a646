"""File system notifications: hints on where a folder has changed, by Linux's inotify(7).

A hint may be missing or wrong: scans are the truth. Where a root goes away, a watch is lost, or the system does not
keep all events, watching ends, and whoever begins anew scans the whole. Elsewhere a folder is scanned now and then. A
folder that has moved out is told of by its old name.

Each folder is watched before it is listed, so what comes into it is heard or listed. Links are not followed, wherever
in a path they are: a folder would be watched by another name, and its watch end with that name. A folder that cannot be
read is tried again when its mode changes: `cp -a` makes folders with mode 0700 and opens them at the end.
"""

from __future__ import annotations

import ctypes
import errno
import os
import select
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Final

from headwater.errors import StoreFault
from headwater.files.folder_marks import is_reserved
from headwater.files.nofollow import open_unlinked

DEBOUNCE_MS = 200  # so long changes are gathered while a file is being written: it is read once, not over and over
QUIET_MS = 4  # else so long without another change: long enough to see a save by several steps as one
SPACING_MS = 40
"""Hints follow each other after so long at least: many small passes over the changes cost more than a few."""
_WAKE_MS = 250

EVERYTHING: frozenset[bytes] = frozenset({b""})  # the hint that anything may have changed

_HAS_INOTIFY: Final = hasattr(ctypes.CDLL(None), "inotify_init1")


class CannotWatch(StoreFault):
    """The system cannot watch this folder: no such folder, too many watches, or no support by the file system."""

    code = "HW-ING-40"


def hints(
    root: bytes, stop: Callable[[], bool], unwatched: Callable[[int], None] = lambda _count: None
) -> Iterator[frozenset[bytes]]:
    """Yield sets of relative paths that may have changed, until `stop`; EVERYTHING when it cannot be told which.

    The first is empty, unless there is news already, and says that watching has begun: what happens from then on is
    hinted. `unwatched` is told how many folders below are not watched because they cannot be read. Raises CannotWatch.
    """
    base = os.path.realpath(root)
    if not _HAS_INOTIFY:
        raise CannotWatch("no inotify here: Headwater scans the folder at intervals", where=os.fsdecode(root))
    identity, hinted_at, seconds = _identity(root), 0.0, 0.0  # the first says that watching has begun
    is_first = True
    try:
        with FolderWatch(base, stop) as watched:
            while not stop():
                unwatched(len(watched.closed))
                found, seconds = watched.changes(seconds), _WAKE_MS / 1000
                if found:
                    found |= _gathered(watched, hinted_at + SPACING_MS / 1000)
                    hinted_at = time.monotonic()
                if b"" in found or _identity(root) != identity:  # a link may lead elsewhere, a mount hide it
                    yield EVERYTHING
                    raise CannotWatch("the folder was moved, removed or replaced", where=os.fsdecode(root))
                if found or is_first:
                    is_first = False
                    yield frozenset(found)
    except OSError as cause:
        what = cause.strerror or str(cause)
        raise CannotWatch(f"the folder cannot be watched: {what}", where=os.fsdecode(root)) from cause


def _gathered(watched: FolderWatch, not_before: float) -> set[bytes]:
    """What else comes in a moment; or, while a file is being written, until it is not, or that takes long."""
    found: set[bytes] = set()
    began = time.monotonic()
    soon, ends = max(not_before, began + QUIET_MS / 1000), began + DEBOUNCE_MS / 1000
    while (left := (ends if watched.unclosed else soon) - time.monotonic()) > 0:
        found |= watched.changes(left)
    watched.unclosed.clear()
    return found


def _identity(root: bytes) -> tuple[int, int] | None:
    try:
        state = os.stat(root)
    except OSError:
        return None
    return state.st_dev, state.st_ino


_MODIFY, _ATTRIB, _CLOSE_WRITE, _MOVED_FROM, _MOVED_TO = 0x2, 0x4, 0x8, 0x40, 0x80
_CREATE, _DELETE, _DELETE_SELF, _MOVE_SELF = 0x100, 0x200, 0x400, 0x800
_UNMOUNT, _OVERFLOW, _IGNORED = 0x2000, 0x4000, 0x8000
_ONLY_FOLDERS, _NO_FOLLOW, _IS_FOLDER = 0x1000000, 0x2000000, 0x40000000
_GONE: Final = _DELETE_SELF | _MOVE_SELF | _UNMOUNT
_ASKED: Final = (
    _MODIFY | _ATTRIB | _CLOSE_WRITE | _MOVED_FROM | _MOVED_TO | _CREATE | _DELETE | _DELETE_SELF | _MOVE_SELF
) | _ONLY_FOLDERS
_LIST: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_NAME: Final = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_CLOEXEC
_EVENT: Final = struct.Struct("iIII")
_READ_OCTETS: Final = 1 << 18
_PASSED_OVER: Final = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG})


class FolderWatch:
    """Watches the folder `base`, a real path, and all below it, until `stop`. A context manager, for one thread.

    Raises OSError where the system gives no watch: EMFILE and ENOSPC tell of its limits.
    """

    def __init__(self, base: bytes, stop: Callable[[], bool] = lambda: False) -> None:
        self._base = base
        self._stop = stop
        self._paths: dict[int, bytes] = {}
        """Of the watched folders, by the numbers of their watches; that of the folder itself is empty."""
        self.closed: set[bytes] = set()  # folders that are not watched because they cannot be read, as relative paths
        self.unclosed: set[bytes] = set()
        """Files that have come or were written to, and not closed since; whoever reads this empties it."""
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._descriptor = _checked(self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC), base)
        self._poll = select.poll()
        self._poll.register(self._descriptor, select.POLLIN)
        try:
            self._watch(b"")
            self._descend(b"")
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> FolderWatch:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def close(self) -> None:
        """End all watches."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def changes(self, seconds: float) -> set[bytes]:
        """What has changed, as relative paths, waited for so long; the empty path: the folder itself is gone.

        Raises CannotWatch where some were lost, and OSError where a folder that has come cannot be watched.
        """
        found: set[bytes] = set()
        data, start = b"", 0
        if self._poll.poll(seconds * 1000):
            with suppress(BlockingIOError):
                data = os.read(self._descriptor, _READ_OCTETS)
        while start < len(data):
            number, mask, _cookie, octets = _EVENT.unpack_from(data, start)
            start += _EVENT.size + octets
            self._take(number, mask, data[start - octets : start].rstrip(b"\0"), found)
        return found

    def _take(self, number: int, mask: int, name: bytes, found: set[bytes]) -> None:
        if mask & _OVERFLOW:
            what = "there were more changes than the system can report: Headwater watches the folder again"
            raise CannotWatch(what, where=os.fsdecode(self._base))
        above = self._paths.get(number)
        if above is None:  # told before its watch was ended
            return
        if not name:
            if mask & _GONE and not above:
                found.add(b"")
            if mask & _IGNORED:
                del self._paths[number]
            return
        path = above + b"/" + name if above else name
        if mask & _IS_FOLDER and is_reserved(name):
            return
        found.add(path)
        if not mask & _IS_FOLDER:
            if mask & (_MODIFY | _CREATE):
                self.unclosed.add(path)
            else:
                self.unclosed.discard(path)
            return
        if mask & (_MOVED_FROM | _DELETE):
            self.closed = {one for one in self.closed if one != path and not one.startswith(path + b"/")}
        if mask & ~_ATTRIB & _ASKED or path in self.closed:  # another may be in the place of one that has gone
            self.closed.discard(path)
            if self._attempt(path):
                self._descend(path)

    def _attempt(self, path: bytes) -> bool:
        """Watch the folder at `path`; False where there is none, or it is watched already, or it cannot be read."""
        try:
            return self._watch(path)
        except OSError as cause:
            if cause.errno in (errno.EACCES, errno.EPERM):
                self.closed.add(path)
            elif cause.errno not in _PASSED_OVER:
                raise
            return False

    def _watch(self, path: bytes) -> bool:
        full = os.path.join(self._base, path) if path else self._base
        folder = open_unlinked(full, _NAME)  # a name in the path may have become a link since we were told of it
        try:
            number = _checked(
                self._libc.inotify_add_watch(self._descriptor, b"/proc/self/fd/%d" % folder, _ASKED), full
            )
        finally:
            os.close(folder)
        known = self._paths.get(number)
        if known is not None and (known == path or not known or path.startswith(known + b"/")):  # a folder in itself
            return False
        self._paths[number] = path  # where it was known by another, it has moved here, which is yet to be told
        return True

    def _descend(self, top: bytes) -> None:
        waiting = [top]
        while waiting and not self._stop():
            path, names = waiting.pop(), list[bytes]()
            with suppress(OSError):  # gone, or closed again: whoever scans it says so
                descriptor = open_unlinked(os.path.join(self._base, path) if path else self._base, _LIST)
                try:
                    with os.scandir(descriptor) as entries:
                        names = [os.fsencode(one.name) for one in entries if one.is_dir(follow_symlinks=False)]
                finally:
                    os.close(descriptor)
            for name in names:
                below = path + b"/" + name if path else name
                if not is_reserved(name) and self._attempt(below):
                    waiting.append(below)


def _checked(result: int, path: bytes) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), path)
    return result
