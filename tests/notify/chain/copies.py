"""Looks at copies: whether they are equal to the source's files, and what was done to their files how often."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path


class Equality:
    """Tells which copies are equal to a folder that does not change meanwhile; it is read once.

    It costs little while copies differ: names are compared first, then content up to the first file that differs,
    which is looked at first the next time.
    """

    def __init__(self, files: Path, copies: Sequence[Path]) -> None:
        self._content = {one.name: one.read_bytes() for one in files.iterdir()}
        self._copies = copies
        self._differing: dict[Path, str] = {}
        self.left = set(copies)

    def look(self) -> bool:
        """Whether all are equal; one that was may be changed again by what comes late, so all are looked at again."""
        self.left = {copy for copy in self.left if not self._is_equal(copy)}
        if not self.left:
            self.left = {copy for copy in self._copies if not self._is_equal(copy)}
        return not self.left

    def _is_equal(self, copy: Path) -> bool:
        if (known := self._differing.get(copy)) is not None and not self._is_same(copy, known):
            return False
        if names_in(copy) != self._content.keys():
            return False
        differing = next((name for name in self._content if not self._is_same(copy, name)), None)
        if differing is not None:
            self._differing[copy] = differing
        return differing is None

    def _is_same(self, copy: Path, name: str) -> bool:
        with contextlib.suppress(OSError):
            return (copy / name).read_bytes() == self._content[name]
        return False


class Places(threading.Thread):
    """Looks at the files of all copies that never change: which file it is, and since when it has its name."""

    def __init__(self, copies: Sequence[Path], pause: float) -> None:
        super().__init__(daemon=True)
        self._copies = copies
        self._pause = pause
        self._is_over = threading.Event()
        self.seen: list[defaultdict[str, set[tuple[int, int]]]] = [defaultdict(set) for _ in copies]

    def run(self) -> None:
        """Look again and again."""
        while not self._is_over.wait(self._pause):
            self._look()

    def end(self) -> None:
        """Look once more."""
        self._is_over.set()
        self.join()
        self._look()

    def _look(self) -> None:
        for copy, seen in zip(self._copies, self.seen, strict=True):
            with contextlib.suppress(OSError), os.scandir(copy) as entries:
                for one in entries:
                    if one.name.startswith("once"):
                        with contextlib.suppress(OSError):
                            stat = one.stat()
                            seen[one.name].add((stat.st_ino, stat.st_ctime_ns))


def names_in(folder: Path) -> set[str]:
    """The files of a copy, its state aside."""
    with contextlib.suppress(OSError):
        return {one for one in os.listdir(folder) if not one.startswith(".")}
    return set()


def journal(copy: Path) -> Counter[str]:
    """How often each file was placed, changed or removed."""
    state = sqlite3.connect(f"file:{copy / '.headwater' / 'state.sqlite'}?mode=ro", uri=True)
    try:
        return Counter(bytes(path).decode() for (path,) in state.execute("SELECT path FROM journal"))
    finally:
        state.close()
