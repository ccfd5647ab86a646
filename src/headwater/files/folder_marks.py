"""Folders that are the program's own, told by a name or a mark in them: states of commands, and static trees.

No source publishes what is in them, and no copy is made there.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

STATE_FOLDER: Final = b".headwater"
"""A folder of this name, at whatever depth, holds the state of a command: it is never looked into, nor published."""

STATE_MARK: Final = b".headwater-state"
"""A folder in which this file lies is such a folder too, whatever its name."""

TREE_MARK: Final = b".headwater-tree"
"""A folder in which this file lies is a static tree: the documents, and perhaps the resources, of a source."""

_TEXTS: Final = {
    STATE_MARK: "The state of a Headwater command: never published.\n",
    TREE_MARK: "Written by `headwater publish`: not published by another source, and no place for a copy.\n",
}


def is_state(folder: bytes) -> bool:
    """Whether a folder holds the state of a command, this one or another."""
    return os.path.basename(folder) == STATE_FOLDER or os.path.lexists(folder + b"/" + STATE_MARK)


def is_tree(folder: bytes) -> bool:
    """Whether a folder is a static tree that `publish` has written."""
    return os.path.lexists(folder + b"/" + TREE_MARK)


def mark_folder(folder: Path, mark: bytes) -> None:
    """Put the mark there, where it is not there yet. Raises OSError."""
    path = folder / os.fsdecode(mark)
    if not path.exists():
        path.write_text(_TEXTS[mark])
