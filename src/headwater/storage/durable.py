"""Files and folders made to survive a power loss, and a file replaced as a whole or not at all."""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

_FULL: int | None = getattr(fcntl, "F_FULLFSYNC", None)
"""On macOS a plain fsync leaves octets in the cache of the disk."""


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


def sync_folder(path: Path) -> None:
    """Make the names in a folder durable."""
    _sync(path, os.O_RDONLY | os.O_DIRECTORY)


def make_folders(path: Path) -> None:
    """Make a folder and those above that are missing, each name durable; what may not be read is not synced."""
    for folder in (*reversed(path.parents), path):
        if not folder.is_dir():
            folder.mkdir(exist_ok=True)
            with suppress(PermissionError):
                sync_folder(folder.parent)


def _sync(path: Path, flags: int) -> None:
    descriptor = os.open(path, flags)
    try:
        if _FULL is None:
            os.fsync(descriptor)
        else:
            fcntl.fcntl(descriptor, _FULL)
    except OSError as cause:
        if cause.errno not in (errno.EINVAL, errno.ENOTSUP):  # a file system without fsync has nothing to sync
            raise
    finally:
        os.close(descriptor)
