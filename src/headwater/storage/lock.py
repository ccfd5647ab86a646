"""File locks: exclusive or shared between processes, and a mutex; the end of the process releases them."""

import fcntl
import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

_LOOK_SECONDS: Final = 0.02


class LockHeld(Exception):
    """Another process holds the lock; `holder` is what it has written into the file, the beginning of it."""

    def __init__(self, holder: bytes) -> None:
        super().__init__("another process holds the lock")
        self.holder = holder


def lock_exclusive(path: Path) -> int:
    """Hold the file, which is made when it is not there and never through a symbolic link; nobody else can then.

    Returns the descriptor: closing it, or the end of the process however it comes, lets the file go. Raises LockHeld
    where another has it, and OSError.
    """
    while True:
        descriptor = _locked(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600), fcntl.LOCK_EX)
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(descriptor), os.lstat(path)):
                return descriptor
        os.close(descriptor)  # whoever held it has removed it: by its name others may hold another file


def lock_shared(path: Path) -> int:
    """Hold a file that is there with others who do the same, so that nobody can hold it alone. As `lock_exclusive`."""
    return _locked(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW), fcntl.LOCK_SH)


def waited_for(lock: Callable[[Path], int], path: Path, seconds: float) -> int:
    """What `lock` gives, one of the two above, as soon as others let it within so many seconds. Raises what it raises.

    What a process that was killed had started may hold its lock for another moment.
    """
    until = time.monotonic() + seconds
    while True:
        try:
            return lock(path)
        except LockHeld:
            if time.monotonic() >= until:
                raise
        time.sleep(_LOOK_SECONDS)


def _locked(descriptor: int, kind: int) -> int:
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except OSError as cause:
        holder = os.pread(descriptor, 20, 0) if isinstance(cause, BlockingIOError) else b""
        os.close(descriptor)
        if isinstance(cause, BlockingIOError):
            raise LockHeld(holder) from cause
        raise
    return descriptor
