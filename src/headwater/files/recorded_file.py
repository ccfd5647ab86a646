"""Reads a small file in a state that was recorded of it, or not at all."""

from __future__ import annotations

import os
from typing import Final

from headwater.files.nofollow import OpenFolder

READ: Final = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
"""Flags by which a file is opened that may turn out to be anything: nothing is waited for."""

FileState = tuple[int, int, int, int]
"""Size, times of the last modification and of the last change in nanoseconds (their low 64 bits), inode."""

_TIME: Final = (1 << 64) - 1


def read_in_state(folder: OpenFolder, path: bytes, state: FileState) -> bytes | None:
    """The octets of the file at an absolute path in this state; None when it is in another one, or cannot be read.

    The look comes after the reading: a file that is in the recorded state then was in it while it was read, because
    whatever writes to a file moves its time of change.
    """
    try:
        descriptor = folder.open(path, READ)
        try:
            octets = os.pread(descriptor, state[0], 0)  # which fails for a FIFO, a terminal and a folder
            now = os.fstat(descriptor)
        finally:
            os.close(descriptor)
    except OSError:
        return None
    found = now.st_size, now.st_mtime_ns & _TIME, now.st_ctime_ns & _TIME, now.st_ino
    return octets if found == state and len(octets) == state[0] else None
