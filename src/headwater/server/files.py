"""Opens a file of a set's folder for sending: inside the folder whatever links say, regular, in its present state."""

from __future__ import annotations

import errno
import os
import stat
import sys

import msgspec

from headwater.ingest.folder.signature import note

_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
_MARK = slice(1, 5)  # where a signature keeps the mark of the settings, which is not a matter of the file


class Root:
    """The folder of one set."""

    def __init__(self, folder: str) -> None:
        self._folder = os.fsencode(folder)
        self._real = os.path.realpath(self._folder)

    def open(self, path: bytes) -> OpenFile:
        """Open the regular file at the relative `path`. Raises OSError, ENOENT also for what is no regular file.

        A FIFO or a device is never waited for. Where a link has led is not judged yet: see `contains`.
        """
        descriptor = os.open(self._folder + b"/" + path, _FLAGS)
        try:
            state = os.fstat(descriptor)
            if not stat.S_ISREG(state.st_mode):
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        except BaseException:
            os.close(descriptor)
            raise
        return OpenFile(descriptor, state)

    def contains(self, file: OpenFile, path: bytes) -> bool:
        """Whether what was opened lies below the folder, links resolved: asked of the kernel, so no race is left."""
        real = _path_of(file.descriptor, self._folder + b"/" + path)
        if real.startswith(self._real.rstrip(b"/") + b"/"):
            return True
        self._real = os.path.realpath(self._folder)  # the folder may have been replaced since
        return real.startswith(self._real.rstrip(b"/") + b"/")


class OpenFile(msgspec.Struct, frozen=True, gc=False):
    """An open file and its state when it was opened."""

    descriptor: int
    state: os.stat_result

    @property
    def key(self) -> tuple[int, int, int, int]:
        """What tells the file in this state from every other."""
        state = self.state
        return (state.st_size, state.st_mtime_ns, state.st_ctime_ns, state.st_ino)

    def is_unchanged(self) -> bool:
        """Whether the file still is as it was when it was opened."""
        now, then = os.fstat(self.descriptor), self.state
        return (now.st_size, now.st_mtime_ns, now.st_ctime_ns) == (then.st_size, then.st_mtime_ns, then.st_ctime_ns)

    def matches(self, memo: bytes) -> bool:
        """Whether the file is the one that ingest hashed, by the signature in its memo."""
        return memo == note(int.from_bytes(memo[_MARK], "little"), self.state)

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
