"""The static tree of a set that publishes a copy: a link or a copy of every file that is as it was placed.

A file that was changed in the copy is not put there; what the tree has of it stays as it is, for the next run of `sync`
mends the copy.
"""

from __future__ import annotations

from headwater.files.patterns import Selection
from headwater.ingest.folder.signature import is_outlined
from headwater.ingest.folder.static_tree.set_tree import SetTree
from headwater.ingest.folder.walking.walk import FileEntry, RootFault, Walk, path_of


class CopyTree(SetTree):
    """One set's resources below `place`, of the copy's folder `root`. Set that before anything else."""

    root = b""

    def fill(self) -> tuple[int, int]:
        """Place what has no place yet, or the wrong one; how many files that were, and how many could not be placed.

        Raises PlaceFault.
        """
        placed = left = 0
        for uri, memo in self._rows():
            if self._is_right(uri, memo):
                continue
            one = self._file(uri, memo)
            placed += one is not None and self._check(one)
            left += not self._is_right(uri, memo)
        return placed, left

    def _file(self, uri: str, memo: bytes) -> FileEntry | None:
        """The file of the copy, where it is as it was placed."""
        try:
            found = next(Walk(self.root, Selection()).at(path_of(uri)), None)
        except RootFault:
            return None
        if not isinstance(found, FileEntry) or found.uri != uri or found.stat is None:
            return None
        return found if is_outlined(memo, found.stat, by_inode=False) else None
