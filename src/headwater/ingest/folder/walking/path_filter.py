"""The path filter: which paths of a folder belong to the set by its settings alone, whatever lies there now."""

from __future__ import annotations

import os
from collections.abc import Iterable

from headwater.files.folder_marks import has_reserved
from headwater.files.patterns import Selection
from headwater.ingest.folder.watching.hint_paths import above


class PathFilter:
    """The set's settings: the selection, and what is never published (real paths, as `Walk` takes them)."""

    def __init__(self, root: bytes, selection: Selection, avoid: Iterable[bytes] = ()) -> None:
        self._selection = selection
        below = os.path.realpath(root).rstrip(b"/") + b"/"
        self._avoid = tuple(one[len(below) :] + b"/" for one in avoid if one.startswith(below))

    def takes(self, relative: bytes) -> bool:
        """Whether a file at this relative path would belong to the set."""
        if (relative + b"/").startswith(self._avoid):
            return False
        if has_reserved(relative):
            return False
        selection = self._selection
        return (selection.everything and selection.hidden) or (
            all(selection.enters(folder) for folder in above(relative)) and selection.takes(relative)
        )
