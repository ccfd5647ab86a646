"""Writing octets to an open file to their end, and how much room there is for them."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable
from typing import Final

USUALLY_FREE: Final = 1 << 30
"""So many octets a copy leaves free on its disk unless it is told otherwise, on a small disk a twentieth of it."""


def write_all(descriptor: int, octets: bytes | memoryview) -> None:
    """Write to the end: the kernel may take a part at a time."""
    written = os.write(descriptor, octets)
    if written == len(octets):
        return
    rest = memoryview(octets)
    while rest := rest[written:]:
        written = os.write(descriptor, rest)


def free_octets(place: str | bytes | int | os.PathLike[str]) -> int:
    """Octets that a user may still write on the disk of a folder or open file; no bound where it tells no size."""
    found = os.statvfs(place)
    return found.f_bavail * found.f_frsize if found.f_blocks else sys.maxsize


class Room:
    """What the files of a copy may take: so many octets stay free on the disk, and all together are at most `most`."""

    def __init__(
        self,
        folder: bytes,
        keep_free: int | None = None,
        most: int | None = None,
        held: int = 0,
        counted: Callable[[bytes], int] = lambda _path: 0,
    ) -> None:
        """`keep_free` None: as much as is usual. `held`: the octets of all files, as recorded; `counted`: of one."""
        found = os.statvfs(folder)
        self.capacity = found.f_blocks * found.f_frsize
        self.keep_free = min(USUALLY_FREE, self.capacity // 20) if keep_free is None else keep_free
        self.most = most
        self.held = held
        self.counted = counted
        self._folder = folder

    def left(self) -> int:
        """How many octets more there may be, by both bounds."""
        free = max(0, free_octets(self._folder) - self.keep_free)
        return free if self.most is None else max(0, min(free, self.most - self.held))

    def check(self, octets: int, gained: int = 0) -> None:
        """Raise OSError where so many octets more have no room on the disk, or the copy none for what it has gained."""
        if self.most is not None and gained > 0 and self.held + gained > self.most:
            raise OSError(errno.EDQUOT, f"the copy would have more than {_said(self.most)} (--max-total)")
        if self.keep_free and free_octets(self._folder) < octets + self.keep_free:
            raise OSError(
                errno.ENOSPC, f"less than {_said(self.keep_free)} would be left free on the disk (--keep-free)"
            )


def _said(octets: int) -> str:
    from headwater.quantities import human_octets  # not for the processes that read files

    return human_octets(octets)
