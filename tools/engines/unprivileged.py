"""Who runs an engine: ourselves, or for root the user `nobody`, since engines refuse to run as root.

That user must be able to reach the engine, its Java and its data, which root's own folders often do not allow.
"""

from __future__ import annotations

import os
import pwd
import stat
from pathlib import Path

NAME = "nobody"


def account() -> tuple[int, int] | None:
    """User and group to run an engine as, None for our own."""
    if os.geteuid() != 0:
        return None
    entry = pwd.getpwnam(NAME)
    return entry.pw_uid, entry.pw_gid


def unreachable(path: Path) -> Path | None:
    """The first folder on the way to a path that shuts the unprivileged user out, None when the way is free."""
    if account() is None:
        return None
    folders = [folder for folder in reversed(path.absolute().parents) if folder.exists()]
    return next((folder for folder in folders if not folder.stat().st_mode & stat.S_IXOTH), None)


def hand_over(folder: Path) -> None:
    """Give a folder and all in it to the unprivileged user; nothing when we are not root."""
    owner = account()
    if owner is None:
        return
    for path in (folder, *folder.rglob("*")):
        os.chown(path, *owner, follow_symlinks=False)
