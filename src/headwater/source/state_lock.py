"""The lock of a state folder: one process at a time works on it."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import ClassVar

from headwater.copies.schema import FOLDER, STATE
from headwater.errors import StoreFault
from headwater.files.folder_marks import STATE_MARK, mark_folder
from headwater.storage.lock import LockHeld, lock_exclusive


class Locked(StoreFault):
    """Another process works on the same state folder."""

    code: ClassVar[str] = "HW-OWN-01"
    advice: ClassVar[str] = "End the other process, or use another state folder."


class StateUnusable(StoreFault):
    """The state folder cannot be made or written."""

    code: ClassVar[str] = "HW-OWN-02"
    advice: ClassVar[str] = "Name a folder with --state that this user may write in."


def make_state(folder: Path) -> None:
    """Make sure of the state folder, and that whoever publishes a folder above leaves it out. Raises StateUnusable."""
    if (folder / FOLDER / STATE).is_file():
        advice = "Name a folder of its own with --state: in a copy it would be an extra file, and keep `sync` out."
        raise StateUnusable("the folder is a copy that `headwater sync` keeps", where=str(folder), advice=advice)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        mark_folder(folder, STATE_MARK)
    except OSError as cause:
        raise _unusable(folder, cause) from cause


def _unusable(folder: Path, cause: OSError) -> StateUnusable:
    is_full = cause.errno in (errno.ENOSPC, errno.EDQUOT)
    advice = "Free space there, or name a folder on another file system with --state." if is_full else None
    return StateUnusable(f"cannot be used for state: {cause.strerror}", where=str(folder), advice=advice)


class StateLock:
    """Holds the lock file of a state folder until `release`, or until the process ends, however it does."""

    def __init__(self, folder: Path) -> None:
        make_state(folder)
        try:
            self._descriptor = lock_exclusive(folder / "lock")
        except OSError as cause:
            raise _unusable(folder, cause) from cause
        except LockHeld as cause:
            holder = cause.holder.decode("ascii", "replace").strip()
            who = f"process {holder}" if holder.isdigit() else "another process"
            raise Locked(f"{who} is using this state folder", where=str(folder)) from cause
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, b"%d\n" % os.getpid(), 0)

    def release(self) -> None:
        """Let others have the folder. No effect the second time."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
