"""Files and folders made to survive a power loss, and a file replaced as a whole or not at all."""

import ctypes
import errno
import fcntl
import os
import sys
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from pathlib import Path

_FULL: int | None = getattr(fcntl, "F_FULLFSYNC", None)  # on macOS a plain fsync leaves octets in the cache of the disk
MANY = 32  # from so many files on, the whole file system is synced


def replace_file(target: Path, chunks: Iterable[bytes], temporary: str) -> int:
    """Make `target` hold exactly these octets, or leave it as it is; returns their number.

    They are written to a name that begins with `temporary` in the same folder, synced, and renamed. Raises OSError, and
    whatever `chunks` raises.
    """
    aside = target.with_name(f"{temporary}{os.urandom(8).hex()}")
    octets = 0
    try:
        with aside.open("xb") as file:
            for chunk in chunks:
                octets += file.write(chunk)
        sync_file(aside)
        os.replace(aside, target)
    except BaseException:
        with suppress(OSError):
            aside.unlink()
        raise
    sync_folder(target.parent)
    return octets


def sync_file(path: Path) -> None:
    """Make the content of a file durable."""
    _sync(path, os.O_RDONLY)


def sync_descriptor(descriptor: int) -> None:
    """Make what is open durable."""
    try:
        if _FULL is None:
            os.fsync(descriptor)
        else:
            fcntl.fcntl(descriptor, _FULL)
    except OSError as cause:
        if cause.errno not in (errno.EINVAL, errno.ENOTSUP):  # a file system without fsync has nothing to sync
            raise


def sync_folder(path: Path) -> None:
    """Make the names in a folder durable."""
    _sync(path, os.O_RDONLY | os.O_DIRECTORY)


def sync_many(paths: Collection[Path | str]) -> None:
    """Make files, and the names in folders, durable that lie in one file system.

    Many of them are synced by one call for the whole file system (syncfs(2), Linux) instead of one for each. It waits
    for whatever else is to be written there as well.
    """
    if len(paths) >= MANY and _SYNCFS is not None:
        some = next(iter(paths))
        descriptor = os.open(some, os.O_RDONLY)
        try:
            if _SYNCFS(descriptor) == 0:
                return
            number = ctypes.get_errno()
            if number != errno.ENOSYS:
                raise OSError(number, os.strerror(number), os.fspath(some))
        finally:
            os.close(descriptor)
    for one in paths:
        _sync(one, os.O_RDONLY)


_SYNCFS: Callable[[int], int] | None = None
if sys.platform == "linux":
    with suppress(OSError, AttributeError):
        _SYNCFS = ctypes.CDLL(None, use_errno=True).syncfs


def make_folders(path: Path) -> None:
    """Make a folder and those above that are missing, each name durable; what may not be read is not synced."""
    for folder in (*reversed(path.parents), path):
        if not folder.is_dir():
            folder.mkdir(exist_ok=True)
            with suppress(PermissionError):
                sync_folder(folder.parent)


def _sync(path: Path | str, flags: int) -> None:
    descriptor = os.open(path, flags)
    try:
        sync_descriptor(descriptor)
    finally:
        os.close(descriptor)
