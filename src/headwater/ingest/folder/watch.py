"""File system notifications: hints on where a folder has changed.

A hint may be missing or wrong: scans are the truth.

On Linux they come from inotify (`inotify.py`), elsewhere from watchfiles. What cannot be told is turned into a wider
hint: a root that goes away, a lost watch, or more events than the system keeps hint everything.
"""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Callable, Iterator
from typing import Protocol

from watchfiles import watch

from headwater.errors import StoreFault
from headwater.ingest.folder.inotify import FolderWatch, WatchLost

DEBOUNCE_MS = 200
"""So long changes are gathered while a file is being written: it is read once, not over and over."""
_STEP_MS = 50
QUIET_MS = 4
"""Else so long without another change: long enough to see a save by several steps as one."""
SPACING_MS = 40
"""Hints follow each other after so long at least: many small passes over the changes cost more than a few."""
_WAKE_MS = 250

EVERYTHING: frozenset[bytes] = frozenset({b""})
"""The hint that anything may have changed."""

_UNDECODABLE = re.compile(r'Unable to decode path "(.*)" to string', re.DOTALL)
_ESCAPE = re.compile(r"\\(x[0-9A-Fa-f]{2}|u\{[0-9a-f]+\}|.)", re.DOTALL)
_SIMPLE = {"n": "\n", "r": "\r", "t": "\t", "0": "\0"}


class CannotWatch(StoreFault):
    """The system cannot watch this folder: no such folder, too many watches, or no support by the file system."""

    code = "HW-ING-40"


class _Stop:
    """A stop event as watchfiles wants it."""

    def __init__(self, stop: Callable[[], bool]) -> None:
        self.is_set = stop


class Coverage(Protocol):
    """Where it is told how many folders below the watched one are not watched, because they cannot be read."""

    unwatched: int


class _Untold:
    unwatched = 0


def hints(
    root: bytes, stop: Callable[[], bool], coverage: Coverage | None = None, wake: int | None = None
) -> Iterator[frozenset[bytes]]:
    """Yield sets of relative paths that may have changed, until `stop`; EVERYTHING when it cannot be told which.

    The first is empty and says that watching has begun: what happens from then on is hinted. A set with the empty path
    among others hints everything. `coverage` is kept up to date. Once the descriptor `wake` can be read, `stop` is
    looked at without delay, where the system allows for that. Raises CannotWatch.
    """
    base = os.path.realpath(root)
    told = _Untold() if coverage is None else coverage
    begun = False
    while not stop():
        if not os.path.isdir(base):
            raise CannotWatch("the folder is not there", where=os.fsdecode(root))
        watched = _identity(root)
        try:
            for found in _paths(base, stop, told, wake):
                if _identity(root) != watched:  # a link that leads elsewhere now, a file system mounted over it
                    yield EVERYTHING
                    raise CannotWatch("the folder is another one now", where=os.fsdecode(root))
                if b"" in found:
                    yield EVERYTHING
                    raise CannotWatch("the folder itself was moved or removed", where=os.fsdecode(root))
                if found or not begun:
                    begun = True
                    yield found
            return
        except WatchLost:
            yield EVERYTHING
        except RuntimeError as cause:  # what watchfiles raises for everything of its own
            undecodable = undecodable_path(str(cause))
            if undecodable is None:
                raise CannotWatch(f"the folder cannot be watched: {cause}", where=os.fsdecode(root)) from cause
            yield frozenset({_relative(base, undecodable), b""})
        except OSError as cause:
            what = cause.strerror or str(cause)
            raise CannotWatch(f"the folder cannot be watched: {what}", where=os.fsdecode(root)) from cause


def _paths(base: bytes, stop: Callable[[], bool], coverage: Coverage, wake: int | None) -> Iterator[frozenset[bytes]]:
    """What has changed, as relative paths; an empty set now and then."""
    return _by_inotify(base, stop, coverage, wake) if sys.platform == "linux" else _by_watchfiles(base, stop)


def _by_inotify(
    base: bytes, stop: Callable[[], bool], coverage: Coverage, wake: int | None
) -> Iterator[frozenset[bytes]]:
    seconds = 0.0  # the first says that watching has begun
    hinted_at = 0.0
    with FolderWatch(base, stop, wake) as watched:
        while not stop():
            coverage.unwatched = len(watched.closed)
            found = watched.changes(seconds)
            if found:
                found |= _gathered(watched, hinted_at + SPACING_MS / 1000)
                hinted_at = time.monotonic()
            yield frozenset(found)
            seconds = _WAKE_MS / 1000


def _gathered(watched: FolderWatch, not_before: float) -> set[bytes]:
    """What else comes in a moment; or, while a file is being written, until it is not, or that takes long."""
    found: set[bytes] = set()
    began = time.monotonic()
    ends = began + DEBOUNCE_MS / 1000
    soon = max(not_before, began + QUIET_MS / 1000)
    while (now := time.monotonic()) < ends:
        pause = _STEP_MS / 1000 if watched.unclosed else max(soon - now, 0.0)
        more = watched.changes(pause)
        found |= more
        if not more or (now >= soon and not watched.unclosed):
            break
    watched.unclosed.clear()
    return found


def _identity(root: bytes) -> tuple[int, int] | None:
    try:
        state = os.stat(root)
    except OSError:
        return None
    return state.st_dev, state.st_ino


def _by_watchfiles(base: bytes, stop: Callable[[], bool]) -> Iterator[frozenset[bytes]]:
    """A name that is no UTF-8 makes it fail for good: it is begun anew, and that name is hinted with everything."""
    for changes in watch(
        os.fsdecode(base),
        watch_filter=None,
        debounce=DEBOUNCE_MS,
        step=_STEP_MS,
        stop_event=_Stop(stop),
        rust_timeout=_WAKE_MS,
        yield_on_timeout=True,
        raise_interrupt=False,
        force_polling=False,
        ignore_permission_denied=True,
    ):
        yield frozenset(_relative(base, os.fsencode(path)) for _change, path in changes)


def _relative(base: bytes, path: bytes) -> bytes:
    return path[len(base) :].strip(b"/") if path.startswith(base) else b""


def undecodable_path(message: str) -> bytes | None:
    """The path in watchfiles' complaint about a name that is no UTF-8 (it shows Rust's escaped form)."""
    match = _UNDECODABLE.search(message)
    if match is None:
        return None
    pieces: list[bytes] = []
    end = 0
    for escape in _ESCAPE.finditer(match[1]):
        pieces += [match[1][end : escape.start()].encode(), _unescape(escape[1])]
        end = escape.end()
    return b"".join(pieces) + match[1][end:].encode()


def _unescape(text: str) -> bytes:
    if text.startswith("x"):
        return bytes.fromhex(text[1:])
    if text.startswith("u{"):
        return chr(int(text[2:-1], 16)).encode()
    return _SIMPLE.get(text, text).encode()
