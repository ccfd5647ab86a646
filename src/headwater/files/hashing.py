"""Hashes files: one is read once for all digests, and gets its place in the static tree where there is one.

This module is also what the processes of the pool do (`hash_pool.py`). It imports nothing but the standard library and
what lies beside it, so that they start in milliseconds. Requests and results are tuples that `marshal` knows.

A file is opened once, by a path without links, and what is read, copied or linked is that very file: whoever exchanges
a folder on the way for a link meanwhile leads nobody out of the set's folder.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import signal
import stat
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from headwater.files.file_copies import (
    ALGORITHM,
    GONE,
    LINK,
    SYNCED_COPY,
    FileChanged,
    Placement,
    PlacementFailed,
    VersionCopy,
    VersionWriter,
    is_linked,
)
from headwater.files.nofollow import READ_FLAGS, FileState, open_unlinked

if TYPE_CHECKING:
    from hashlib import _Hash

READ, VANISHED, CHANGED, SPECIAL, UNREADABLE, UNPLACED, STOPPED, UNFINISHED = range(8)
"""What came of reading a file. UNREADABLE and UNPLACED carry an errno. UNFINISHED: somebody is writing it."""

HashRequest = tuple[bytes, tuple[str, ...], "bytes | None"] | tuple[bytes, tuple[str, ...], "bytes | None", bool]
"""The path to read (no name in it is a link), the algorithms (none: the file's state alone is asked for), and the path
to place it at; then whether it was written to since it had its place: a link would show what is written next."""

HashResult = tuple[int, int, FileState, int, int, str, str]
"""Outcome, errno, the file's state, when reading began, when the file last changed before, its `hash` (RS-MD-05), and
what its octets are called that were set aside (`file_copies`; empty where they were not).

The errno of CHANGED is ELOOP when a name of the path is a link, that of READ why the octets could not be set aside.
Times are nanoseconds. The change is the file's ctime, except that a link which we made ourselves does not count: a
write in the same tick would show in mtime.
"""

_NOTHING: FileState = (0, 0, 0, 0)
_ATTEMPTS = 3
_CHUNK = 1 << 18
_SMALL = 1 << 20


class _Stopped(Exception):
    """The caller wants no more."""


class ReadOptions(NamedTuple):
    """How files are read: `mode` is how a place is made (LINK, COPY), `versions` what sets octets aside, if anything.

    `stop` says when nothing more is wanted. A file that was written to less than `settle_ns` ago is read only when
    nobody has it open for writing.
    """

    mode: str | None = None
    versions: VersionWriter | None = None
    stop: Callable[[], bool] | None = None
    settle_ns: int = 0


_DEFAULT_OPTIONS = ReadOptions()


def read_file(request: HashRequest, options: ReadOptions = _DEFAULT_OPTIONS) -> HashResult:
    """Read one file; never raises for what the file system does."""
    for _attempt in range(_ATTEMPTS):
        try:
            descriptor = open_unlinked(request[0], READ_FLAGS)
            try:
                return _read_open(descriptor, request, options)
            finally:
                os.close(descriptor)
        except FileChanged:
            continue
        except PlacementFailed as cause:
            return UNPLACED, cause.errno, _NOTHING, 0, 0, "", ""
        except _Stopped:
            return STOPPED, 0, _NOTHING, 0, 0, "", ""
        except GONE:
            return VANISHED, 0, _NOTHING, 0, 0, "", ""
        except OSError as cause:
            if cause.errno == errno.ELOOP:  # a name of the path has become a link since it was found
                return CHANGED, errno.ELOOP, _NOTHING, 0, 0, "", ""
            return UNREADABLE, cause.errno or 0, _NOTHING, 0, 0, "", ""
    return CHANGED, 0, _NOTHING, 0, 0, "", ""


def settled(results: list[HashResult], versions: VersionWriter | None) -> list[HashResult]:
    """The results of a block of files, once what was set aside of them is there."""
    if versions is None or not (error := versions.settle()):
        return results
    return [(one[0], error, *one[2:6], "") if ":" in one[6] else one for one in results]


def is_closed(descriptor: int) -> bool:
    """Whether it is known that nobody has an open file open for writing: on Linux, of files that are this user's.

    A read lease (fcntl(2)) is given only then. Should somebody open the file in that moment, a signal tells it that is
    ignored unless somebody handles it.
    """
    if not hasattr(fcntl, "F_SETLEASE"):
        return False
    try:
        fcntl.fcntl(descriptor, fcntl.F_SETSIG, signal.SIGURG)
        fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_RDLCK)
        fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    except OSError:  # it is open, or not this user's, or its file system knows no leases
        return False
    return True


def _read_open(descriptor: int, request: HashRequest, options: ReadOptions) -> HashResult:
    _path, algorithms, place, *more = request
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode):
        return SPECIAL, 0, _NOTHING, 0, 0, "", ""
    if 0 <= time.time_ns() - found.st_mtime_ns < options.settle_ns and not is_closed(descriptor):
        return UNFINISHED, 0, _NOTHING, 0, 0, "", ""
    began, placement, was_link = time.time_ns(), None, place is not None and is_linked(place, found)
    mode = SYNCED_COPY if any(more) else options.mode
    if place is not None and not (mode == LINK and was_link):
        placement = Placement(descriptor, place, found, mode)
    is_link = placement is not None and placement.is_link
    before = found if placement is None else os.fstat(descriptor)
    changed, state = before.st_ctime_ns, state_of(before)
    if is_link and state_of(found)[:2] == state[:2]:  # to link it has changed the time of its last change
        changed = max(found.st_ctime_ns, before.st_mtime_ns)
    writer = options.versions if ALGORITHM in algorithms else None
    version = None if writer is None else VersionCopy(writer, before.st_size)
    sinks = [one for one in (placement, version) if one is not None]
    hashes = [HASHERS[name]() for name in algorithms]
    try:
        if hashes or (placement is not None and not is_link):
            takers: list[Callable[[bytes], object]] = [*(one.update for one in hashes), *(one.write for one in sinks)]
            octets = _feed(descriptor, before.st_size, takers, options.stop)
            if state_of(os.fstat(descriptor)) != state or octets != before.st_size:
                raise FileChanged
        if placement is not None:
            placement.finish()
        if version is not None:
            version.finish()
    finally:
        for one in sinks:
            one.discard()
    error, aside = (version.errno, version.name) if version is not None else (0, "")
    text = " ".join([f"{name}:{one.hexdigest()}" for name, one in zip(algorithms, hashes, strict=True)])
    if (is_link or was_link) and (after := state_of(os.fstat(descriptor)))[:2] == state[:2]:
        state = after  # a link that goes is a change as well
    return READ, error, state, began, changed, text, aside


def _feed(descriptor: int, size: int, takers: list[Callable[[bytes], object]], stop: Callable[[], bool] | None) -> int:
    """Read the open file to its end; each of the `takers` is given all octets. Returns how many there were."""
    octets = 0
    chunk = size + 1 if size < _SMALL else _CHUNK
    while data := os.read(descriptor, chunk):
        for take in takers:
            take(data)
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


def digests_of(descriptor: int, algorithms: tuple[str, ...]) -> tuple[int, tuple[str, ...]]:
    """The number of octets that can be read from an open file, and their hex digests, from one reading."""
    hashes = [HASHERS[name]() for name in algorithms]
    octets = 0
    while data := os.read(descriptor, _CHUNK):
        octets += len(data)
        for one in hashes:
            one.update(data)
    return octets, tuple([one.hexdigest() for one in hashes])


def file_hasher(settings: tuple[str | None, bytes | None, int]) -> Callable[[list[HashRequest]], list[HashResult]]:
    """What a process of the pool does: hash a block of files, as long as its owner lives.

    `settings` are the mode of placing, the folder where octets are set aside, and `ReadOptions.settle_ns`.
    """
    mode, aside, settle_ns = settings
    versions = None if aside is None else VersionWriter(aside)
    owner = os.getppid()
    options = ReadOptions(mode, versions, lambda: os.getppid() != owner, settle_ns)

    def hash_files(block: list[HashRequest]) -> list[HashResult]:
        return settled([read_file(request, options) for request in block], versions)

    return hash_files


HASHERS: dict[str, Callable[..., _Hash]] = {
    name: partial(getattr(hashlib, name.replace("-", "")), usedforsecurity=False)
    for name in ("md5", "sha-1", "sha-224", "sha-256", "sha-384", "sha-512")
}
"""Makers of hash objects; some systems refuse MD5 for security. A test holds the names to those of `spec.records`,
which a hashing process does not import."""
