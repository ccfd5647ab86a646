"""The file under a database: made for one user only, durable by name, on a disk that may be full."""

from __future__ import annotations

import errno
import os
from pathlib import Path

from headwater.storage.database_faults import DatabaseReadOnly, DatabaseUnreachable

_SHARED_OCTETS = 65_536


def create_file(path: Path) -> None:
    """Make the file when it is not there, for this user only whatever the umask; its companions get the same mode.

    Raises DatabaseReadOnly or DatabaseUnreachable.
    """
    try:
        str(path).encode()
    except UnicodeEncodeError as cause:
        raise DatabaseUnreachable("the path of a database must be valid UTF-8", where=repr(path)) from cause
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        return
    except OSError as cause:
        kind = (
            DatabaseReadOnly
            if isinstance(cause, PermissionError) or cause.errno == errno.EROFS
            else DatabaseUnreachable
        )
        raise kind(f"the database cannot be created: {cause.strerror}", where=str(path)) from cause
    try:
        os.fchmod(descriptor, 0o600)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    folder = os.open(path.parent, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(folder)  # the name itself must survive a power loss
    finally:
        os.close(folder)


def disk_is_full(path: Path) -> bool:
    """Whether there is no room even for what SQLite shares between processes; it calls that an I/O error."""
    try:
        system = os.statvfs(path.parent)
    except OSError:
        return False
    return system.f_bavail * system.f_frsize < _SHARED_OCTETS
