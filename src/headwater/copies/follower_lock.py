"""The lock of the process that follows a copy by push: whether one does can be seen, however the last one ended."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Final

from headwater.storage.lock import LockHeld, lock_exclusive, lock_shared, waited_for

FILE: Final = "push.lock"
_SECONDS: Final = 1.0
"""Who only looks holds it for a moment."""


def lock_as_follower(folder: Path) -> int | None:
    """Hold the lock until the descriptor is closed; None where another process follows, or no file can be made."""
    try:
        return waited_for(lock_exclusive, folder / FILE, _SECONDS)
    except (LockHeld, OSError):
        return None


def without_lock(folder: Path) -> None:
    """Leave no lock, by which the copy would seem to be followed by nobody: a process of many copies holds none."""
    with contextlib.suppress(OSError):
        (folder / FILE).unlink(missing_ok=True)


def is_followed(folder: Path) -> bool | None:
    """Whether a process follows the copy whose state is in `folder`; None: that cannot be seen."""
    try:
        descriptor = lock_shared(folder / FILE)
    except LockHeld:
        return True
    except OSError:
        return None
    os.close(descriptor)
    return False
