"""A large member of a package on its way into a temporary file, with the digests by which it is verified."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from headwater.files.hashing import HASHERS
from headwater.files.whole_writes import write_all
from headwater.sync.copy.file_tree import FileTree
from headwater.sync.faults import DestinationUnusable

if TYPE_CHECKING:
    from hashlib import _Hash


class LargeMember:
    """A large member on its way into a temporary file, with its digests.

    Of more than `most_octets` nothing more is written: it is not what is listed, and no disk is to be filled by it.
    """

    def __init__(self, tree: FileTree, name: str, algorithms: tuple[str, ...], most_octets: int) -> None:
        self._tree = tree
        self._most_octets = most_octets
        self.name = name
        self._descriptor = tree.create_temporary(name)
        self._hashers: dict[str, _Hash] = {algorithm: HASHERS[algorithm]() for algorithm in algorithms}
        self.octets = 0

    def write(self, octets: bytes) -> None:
        """The next octets. Raises DestinationUnusable."""
        self.octets += len(octets)
        if self.octets > self._most_octets:
            return
        for hasher in self._hashers.values():
            hasher.update(octets)
        try:
            if self._tree.room is not None:
                self._tree.room.check(len(octets))
            write_all(self._descriptor, octets)
        except OSError as cause:
            raise DestinationUnusable(f"cannot write: {cause.strerror}", where=self.name) from cause

    def close(self) -> dict[str, str]:
        """It is whole: its digests; none of one with too many octets."""
        os.close(self._descriptor)
        self._descriptor = -1
        if self.octets > self._most_octets:
            return {}
        return {algorithm: hasher.hexdigest() for algorithm, hasher in self._hashers.items()}

    def discard(self) -> None:
        """Leave nothing of it."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
        self._tree.discard(self.name)
