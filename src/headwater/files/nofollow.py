"""Opens a path only while no name in it is a symbolic link, so that nobody leads us out of a folder while we look.

`O_NOFOLLOW` guards the last name alone: a folder on the way can be exchanged for a link between a look and the opening.
Linux refuses every link with `openat2`; elsewhere, and where a sandbox forbids the call, the path is walked from
descriptor to descriptor. Standard library only: the reading processes import it.
"""

import ctypes
import errno
import os
import stat
import struct
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Final

Opener = Callable[[bytes, int], int]

_OPENAT2: Final = 437
_HERE: Final = -100  # AT_FDCWD: relative paths begin at the working folder
_NO_SYMLINKS: Final = 0x04
_HOW: Final = "=QQQ"
_LARGE: Final = getattr(os, "O_LARGEFILE", 0)
_PATH_ONLY: Final = getattr(os, "O_PATH", 0)
_FOLDER: Final = (_PATH_ONLY or os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def open_by_steps(path: bytes, flags: int) -> int:
    """The same with what every system has: one descriptor for each name of the path."""
    *above, last = [one for one in path.split(b"/") if one not in (b"", b".")] or [b"."]
    held = os.open(b"/" if path.startswith(b"/") else b".", _FOLDER)
    try:
        for name in above:
            below = _step(name, _FOLDER, held)
            os.close(held)
            held = below
        return _step(last, flags | os.O_NOFOLLOW, held)
    finally:
        os.close(held)


def _step(name: bytes, flags: int, folder: int) -> int:
    try:
        descriptor = os.open(name, flags, dir_fd=folder)
    except OSError as cause:  # for a link, systems say ELOOP, EMLINK, or that it is no folder
        is_link = False
        if cause.errno in (errno.ENOTDIR, errno.EMLINK):
            with suppress(OSError):
                is_link = stat.S_ISLNK(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode)
        if is_link:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), name) from cause
        raise
    if _PATH_ONLY and flags & _PATH_ONLY and stat.S_ISLNK(os.fstat(descriptor).st_mode):  # O_PATH opens the link
        os.close(descriptor)
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), name)
    return descriptor


def _by_openat2() -> Opener:
    """One system call (openat2(2), Linux 5.6). Raises OSError where it is not there, or not allowed."""
    call = ctypes.CDLL(None, use_errno=True).syscall
    call.restype = ctypes.c_long
    call.argtypes = [ctypes.c_long, ctypes.c_int, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_size_t]
    hows: dict[int, bytes] = {}

    def opened(path: bytes, flags: int) -> int:
        if b"\0" in path:
            raise ValueError("embedded null byte")
        how = hows.get(flags)
        if how is None:
            large = 0 if flags & _PATH_ONLY else _LARGE
            how = hows[flags] = struct.pack(_HOW, flags | large, 0, _NO_SYMLINKS)
        while (descriptor := call(_OPENAT2, _HERE, path, how, len(how))) < 0:
            number = ctypes.get_errno()
            if number != errno.EINTR:
                raise OSError(number, os.strerror(number), path)
        return int(descriptor)

    os.close(opened(b"/", _FOLDER))
    return opened


def _best() -> Opener:
    if sys.platform == "linux":
        try:
            return _by_openat2()
        except OSError:  # an older kernel, or a sandbox that does not know the call
            pass
    return open_by_steps


open_unlinked: Final[Opener] = _best()
"""Gives a descriptor of what lies at a path, with these flags. Raises OSError; ELOOP when a name in it is a link.

The path has no `..`: what is below a folder, and has no link, is in it. O_CLOEXEC is for the caller to say.
"""

READ_FLAGS: Final = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
"""Flags by which a file is opened that may turn out to be anything: nothing is waited for."""

FileState = tuple[int, int, int, int]
"""Size, times of the last modification and of the last change in nanoseconds (their low 64 bits), inode."""
