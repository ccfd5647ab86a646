"""The static tree of a set: a link or a copy of every file of the set, and nothing else.

New and changed files get their places while they are read (`reading`), before a list can name them; what is no resource
leaves the tree after no list names it any more. A note in the state folder says for which mode and place that was last
completed. It is taken away before anything changes and written again at the end: a run that was killed leaves a tree
without a note, and the next one compares the whole tree. A tree with a note is not believed either: others may have
removed or damaged what lies in it, so each run looks at every place once.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import msgspec

from headwater.catalog.interface import Catalog
from headwater.files import hashing
from headwater.files.file_copies import COPY
from headwater.files.patterns import Selection
from headwater.ingest.folder.comparison import is_outlined, memos_of
from headwater.ingest.folder.file_events import place_fault
from headwater.ingest.folder.walk import FileEntry, RootFault, Walk, path_of
from headwater.typed_decoding import from_json


class _Completed(msgspec.Struct, frozen=True):
    """What the note says."""

    place: str
    mode: str


class SetTree:
    """One set's resources below `place`. `note` is a file in the state folder."""

    def __init__(self, catalog: Catalog, name: str, place: Path, mode: str, note: Path) -> None:
        self._catalog = catalog
        self._name = name
        self._note = note
        self._completed = _Completed(str(place.absolute()), mode)
        self.place = os.fsencode(place)
        self.mode = mode
        self.torn, self._begun = True, False
        with suppress(FileNotFoundError, msgspec.DecodeError):
            self.torn = from_json(note.read_bytes(), _Completed) != self._completed

    def begin(self) -> None:
        """Something is about to change: until `end`, the tree counts as torn. Cheap when it was said before."""
        if not self._begun:
            self._begun = True
            self._note.unlink(missing_ok=True)
            _sync_folder(self._note.parent)

    def complete(self, begin_walk: Callable[[], Walk]) -> tuple[int, int]:
        """Place what has no place yet, or the wrong one; how many files that were, and how many are not as recorded.

        The latter are not placed. Only files that are in the catalog are looked at: all others have just been placed by
        the scan, or wait for the next one. Of a tree that was complete each place is looked at, and the file itself
        only where the catalog does not agree. Raises HW-ING-30.
        """
        placed = left = 0
        walk: Walk | None = None
        with suppress(RootFault):  # the folder is not there
            walk = begin_walk()
        for uri, memo in memos_of(self._catalog, self._name):
            with suppress(OSError):
                there = os.lstat(self.place + b"/" + path_of(uri))
                is_right = stat.S_ISREG(there.st_mode) and is_outlined(memo, there, by_inode=self.mode != COPY)
                if is_right and not self.torn:
                    continue
            file = None if walk is None else next(walk.at(path_of(uri)), None)
            if isinstance(file, FileEntry) and file.uri == uri and is_outlined(memo, file.stat, by_inode=False):
                placed += self._check(file)
            else:
                left += 1
        return placed, left

    def _check(self, one: FileEntry) -> bool:
        place = os.path.join(self.place, path_of(one.uri))
        with suppress(OSError):
            there = os.lstat(place)
            same = (there.st_dev, there.st_ino) == (one.stat.st_dev, one.stat.st_ino)
            alike = (there.st_size, there.st_mtime_ns) == (one.stat.st_size, one.stat.st_mtime_ns)
            if same != (self.mode == COPY) and (same or alike):
                return False
        self.begin()
        outcome, error, *_rest = hashing.read_file((one.path, (), place), hashing.ReadOptions(self.mode))
        if outcome == hashing.UNPLACED:
            raise place_fault(place, error)
        return outcome == hashing.READ

    def sweep(self) -> int:
        """Take away everything that is not a resource of the set; returns how many files that were."""
        removed = 0
        held = (uri for uri, _memo in memos_of(self._catalog, self._name))
        uri = next(held, None)
        with suppress(RootFault):  # there is no tree yet
            for one in Walk(self.place, Selection()).everything():
                while uri is not None and uri < one.uri:
                    uri = next(held, None)
                if isinstance(one, FileEntry) and uri != one.uri:
                    removed += self._remove(path_of(one.uri))
        return removed

    def _remove(self, relative: bytes) -> bool:
        path = os.path.join(self.place, relative)
        try:
            os.unlink(path)
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            return False
        folder = os.path.dirname(path)
        with suppress(OSError):  # a folder that is not empty stays, and with it those above
            while len(folder) > len(self.place):
                os.rmdir(folder)
                folder = os.path.dirname(folder)
        return True

    def end(self) -> None:
        """The tree is complete: every resource of the set, nothing else."""
        if self._begun or self.torn:
            aside = self._note.with_name(self._note.name + ".new")
            aside.write_bytes(msgspec.json.encode(self._completed))
            os.replace(aside, self._note)
            _sync_folder(self._note.parent)
        self._begun = False
        self.torn = False

    def settle(self, root: bytes) -> None:
        """Bring copies to the disk before a list that is synced names them; links go there with the list itself."""
        if not self._begun:
            return
        with suppress(OSError):
            if self.mode == COPY or os.stat(self.place).st_dev != os.stat(root).st_dev:
                os.sync()


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
