"""Opens files of a set's folder: inside the folder whatever links say, regular, in their present state."""

from __future__ import annotations

import errno
import os
import stat
import sys

import msgspec

from headwater.files.folder_marks import has_reserved, is_state
from headwater.files.nofollow import open_unlinked
from headwater.files.recorded_file import READ
from headwater.ingest.folder.signature import matches

_FOLDER = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_CLOEXEC


class ResourceFolder:
    """The folder of one set."""

    def __init__(self, folder: str) -> None:
        self._folder = os.fsencode(folder)
        self._has_links = os.path.realpath(self._folder) != os.path.abspath(self._folder)
        """Whether a name of the folder's own path is a link; it may lead elsewhere at any time."""

    def open(self, path: bytes) -> OpenFile:
        """Open the regular file at the relative `path`, which lies below the folder, links resolved.

        Raises OSError; ENOENT for what is no regular file, leads out of the folder, or is the state of a command. A
        FIFO or a device is never waited for.
        """
        if has_reserved(path):
            raise _absent()
        descriptor = self._open(path)
        try:
            state = os.fstat(descriptor)
            if not stat.S_ISREG(state.st_mode):
                raise _absent()
        except BaseException:
            os.close(descriptor)
            raise
        return OpenFile(descriptor, state)

    def path_of(self, path: bytes) -> bytes:
        """The absolute path of a file at the relative `path`."""
        return self._folder + b"/" + path

    def _open(self, path: bytes) -> int:
        """One call for a file that no link leads to, as nearly all are."""
        if not self._has_links:
            try:
                return open_unlinked(self.path_of(path), READ)
            except OSError as cause:
                if cause.errno != errno.ELOOP:
                    raise
        folder = os.open(self._folder, _FOLDER)
        try:
            return open_unlinked(path, READ, folder)
        except OSError as cause:
            if cause.errno != errno.ELOOP:
                raise
            return self._open_linked(path, folder)
        finally:
            os.close(folder)

    def _open_linked(self, path: bytes, folder: int) -> int:
        """Open a file that links lead to, and judge where they have led: asked of the kernel, so no race is left."""
        descriptor = os.open(path, READ, dir_fd=folder)
        try:
            below = _path_of(folder, self._folder).rstrip(b"/") + b"/"
            real = _path_of(descriptor, self._folder + b"/" + path)
            if not real.startswith(below) or _is_ours(real, below):
                raise _absent()
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor


def _absent() -> OSError:
    return FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))


def _is_ours(real: bytes, below: bytes) -> bool:
    """Whether the file lies in a folder with the state of a command."""
    folder = os.path.dirname(real)
    while folder.startswith(below):
        if is_state(folder):
            return True
        folder = os.path.dirname(folder)
    return False


class OpenFile(msgspec.Struct, frozen=True, gc=False):
    """An open file and its state when it was opened. `is_vouched`: it is known to be in the recorded state."""

    descriptor: int
    state: os.stat_result
    is_vouched: bool = False

    @property
    def key(self) -> tuple[int, int, int, int]:
        """What tells the file in this state from every other."""
        state = self.state
        return (state.st_size, state.st_mtime_ns, state.st_ctime_ns, state.st_ino)

    @property
    def octets(self) -> int:
        """Its size."""
        return self.state.st_size

    def is_unchanged(self) -> bool:
        """Whether the file still is as it was when it was opened."""
        now, then = os.fstat(self.descriptor), self.state
        return (now.st_size, now.st_mtime_ns, now.st_ctime_ns) == (then.st_size, then.st_mtime_ns, then.st_ctime_ns)

    def matches(self, memo: bytes) -> bool:
        """Whether the file is the one that ingest hashed, by the signature in its memo."""
        return matches(memo, self.state)

    def read(self, start: int, octets: int) -> bytes:
        """Up to so many octets from `start`."""
        return os.pread(self.descriptor, octets, start)

    def close(self) -> None:
        """Give the descriptor back."""
        os.close(self.descriptor)


if sys.platform == "linux":

    def _path_of(descriptor: int, path: bytes) -> bytes:
        return os.readlink(b"/proc/self/fd/%d" % descriptor)

else:

    def _path_of(descriptor: int, path: bytes) -> bytes:
        real = os.path.realpath(path)
        ours, theirs = os.fstat(descriptor), os.stat(real)
        return real if (ours.st_dev, ours.st_ino) == (theirs.st_dev, theirs.st_ino) else b""
