"""Folders that are the program's own, told by a name or a mark in them: states of commands, and static trees.

No source publishes what is in them, and no copy is made there.
"""

import os
import re
import unicodedata
from pathlib import Path
from typing import Final

STATE_FOLDER: Final = b".headwater"
"""A folder of this name, at whatever depth, holds the state of a command: it is never looked into, nor published.

Some file systems take other names for the same: `is_reserved` knows them.
"""

STATE_MARK: Final = b".headwater-state"  # a folder in which this file lies is such a folder too, whatever its name

TREE_MARK: Final = b".headwater-tree"
"""A folder in which this file lies is a static tree: the documents, and perhaps the resources, of a source."""

_TEXTS: Final = {
    STATE_MARK: "The state of a Headwater command: never published.\n",
    TREE_MARK: "Written by `headwater publish`: not published by another source, and no place for a copy.\n",
}


_IGNORED: Final = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164"
    "\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufff8\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)
"""Characters that Unicode lets every comparison ignore, as HFS+ does in names."""

_SHORT_NAME: Final = re.compile(rb"(?:headwa|he[0-9a-f]{4})~[0-9]+")
"""What FAT and NTFS call a folder `.headwater` in eight characters."""

_NO_NAMES: Final = frozenset({b"", b".", b".."})

is_plain: Final = re.compile(rb"(?:[A-Za-z0-9_-][\w.-]*/)*[A-Za-z0-9_-][\w.-]*\Z", re.ASCII).match
"""Whether nothing of a path has to be looked at more closely, as with most: no name begins with a dot or has a `~`."""


def is_reserved(name: bytes) -> bool:
    """Whether some file system takes this name for that of the state's folder, whatever the present one does.

    Case, Unicode form and ignorable characters make no difference on APFS, HFS+ and NTFS; NTFS also drops dots and
    spaces at the end, has short names, and takes `name:stream` for a part of `name`.
    """
    if name.isascii() and b"~" not in name and b"eadwa" not in name.lower():
        return False
    plain = folded(name).partition(b":")[0].rstrip(b". ")
    return plain == STATE_FOLDER or _SHORT_NAME.fullmatch(plain) is not None


def has_reserved(path: bytes) -> bool:
    """Whether a path leads through, or to, a reserved name."""
    if path.isascii() and b"~" not in path and b"eadwa" not in path.lower():
        return False
    return any(map(is_reserved, path.split(b"/")))


def leads_inside(path: bytes) -> bool:
    """Whether a relative path can be that of a file in a folder: no name is empty, `.` or `..`, or reserved."""
    if is_plain(path):
        return True
    return b"\0" not in path and _NO_NAMES.isdisjoint(path.split(b"/")) and not has_reserved(path)


def folded(name: bytes) -> bytes:
    """A name or path in the form in which file systems compare it that ignore case or Unicode normal form."""
    text = _IGNORED.sub("", unicodedata.normalize("NFKC", name.decode("utf-8", "surrogateescape")))
    return unicodedata.normalize("NFKC", text.casefold()).encode("utf-8", "surrogateescape")


def is_state(folder: bytes) -> bool:
    """Whether a folder holds the state of a command, this one or another."""
    return is_reserved(os.path.basename(folder)) or os.path.lexists(folder + b"/" + STATE_MARK)


def is_tree(folder: bytes) -> bool:
    """Whether a folder is a static tree that `publish` has written."""
    return os.path.lexists(folder + b"/" + TREE_MARK)


def mark_folder(folder: Path, mark: bytes) -> None:
    """Put the mark there, where it is not there yet. Raises OSError."""
    path = folder / os.fsdecode(mark)
    if not path.exists():
        path.write_text(_TEXTS[mark])
