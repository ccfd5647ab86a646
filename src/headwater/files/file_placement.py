"""Puts one open file into a static tree, as a hard link or as a copy. Standard library only.

What is linked or copied is the file that is open, whatever lies at its path by now.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import stat

from headwater.files.whole_writes import write_all

LINK, COPY = "link", "copy"
"""How a file gets its place in a static tree: as a hard link (a copy where that cannot be), or always as a copy."""

PLACING = ".headwater-tmp-"
"""Names of half-placed files begin so, as those of half-written documents do."""

GONE = (FileNotFoundError, NotADirectoryError)

_DESCRIPTORS = b"/proc/self/fd/%d" if os.path.isdir("/proc/self/fd") else None


class FileChanged(Exception):
    """The file was written to, or exchanged, while it was read."""


class PlacementFailed(Exception):
    """The file's place in the static tree could not be made."""

    def __init__(self, cause: OSError) -> None:
        super().__init__(str(cause))
        self.errno = cause.errno or 0


def link(descriptor: int, source: os.stat_result, path: bytes, place: bytes) -> bool:
    """Make `place` a hard link of the open file, replacing what is there.

    False when nothing was linked: it is a link already, or links cannot be here and a copy will be made.
    """
    try:
        try:
            _link_open(descriptor, path, place)
        except GONE:
            if os.fstat(descriptor).st_nlink == 0:  # it is the source that vanished
                raise
            _room(place)
            _link_open(descriptor, path, place)
    except FileExistsError:
        return not _same(place, source) and _relink(descriptor, path, place)
    except GONE:
        raise
    except OSError:
        return False
    return True


def _relink(descriptor: int, path: bytes, place: bytes) -> bool:
    aside = _aside(place)
    try:
        _link_open(descriptor, path, aside)
    except GONE:
        raise
    except OSError:
        return False
    try:
        _rename(aside, place)
    finally:
        with contextlib.suppress(*GONE):
            os.unlink(aside)
    return True


def _link_open(descriptor: int, path: bytes, place: bytes) -> None:
    """Link the open file itself. Where the system cannot link a descriptor: by its path, and look what that was."""
    if _DESCRIPTORS is not None:
        # A folder has to be named for the call that follows the descriptor's name; the absolute path ignores it.
        os.link(_DESCRIPTORS % descriptor, place, src_dir_fd=descriptor, follow_symlinks=True)
        return
    aside = _aside(place)
    os.link(path, aside, follow_symlinks=False)
    try:
        if not _same(aside, os.fstat(descriptor)):
            raise FileChanged
        os.link(aside, place, follow_symlinks=False)
    finally:
        os.unlink(aside)


def is_placed(place: bytes, source: os.stat_result, mode: str | None) -> bool:
    """Whether the file has its place already: as a link to itself. A copy is always made anew."""
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
        raise PlacementFailed(cause) from cause


def make_room(folder: bytes) -> None:
    """Make sure `folder` is a folder: a file that stands in its way (it has become a folder) is removed."""
    try:
        os.mkdir(folder)
    except FileExistsError:
        if not stat.S_ISDIR(os.lstat(folder).st_mode):
            os.unlink(folder)
            os.mkdir(folder)
    except GONE:
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
        raise PlacementFailed(cause) from cause


def _remove_tree(folder: bytes) -> None:
    with os.scandir(folder) as entries:
        for entry in list(entries):
            if entry.is_dir(follow_symlinks=False):
                _remove_tree(entry.path)
            else:
                os.unlink(entry.path)
    os.rmdir(folder)


class FileCopy:
    """A copy that is made from the very octets that are hashed, and takes its place only when they held still."""

    def __init__(self, place: bytes, source: os.stat_result) -> None:
        self._place = place
        self._source = source
        self._aside = _aside(place)
        try:
            self._descriptor = os.open(self._aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        except OSError as cause:
            raise PlacementFailed(cause) from cause
        self._open = True

    def write(self, data: bytes) -> None:
        """Take the next octets."""
        try:
            write_all(self._descriptor, data)
        except OSError as cause:
            raise PlacementFailed(cause) from cause

    def finish(self) -> None:
        """Give the copy the source's time (what a server says of it is then what the list says) and its place."""
        try:
            os.fchmod(self._descriptor, stat.S_IMODE(self._source.st_mode) & 0o777)
            os.utime(self._descriptor, ns=(self._source.st_atime_ns, self._source.st_mtime_ns))
        except OSError as cause:
            raise PlacementFailed(cause) from cause
        self._close()
        _rename(self._aside, self._place)

    def discard(self) -> None:
        """Leave nothing behind, unless it has its place."""
        self._close()
        with contextlib.suppress(*GONE):
            os.unlink(self._aside)

    def _close(self) -> None:
        if self._open:
            self._open = False
            os.close(self._descriptor)
