"""The static tree of a set: a link or a copy of every file of the set.

New and changed files get their places when they were read (`reading`), before a list can name them; deleted ones leave
theirs after no list names them any more. A note in the state folder says for which mode and place, and as of which
change, that was last completed. It is taken away before anything changes and written again at the end: a run that was
killed leaves a tree without a note, and the next one compares the whole tree and takes away every file that is no
resource. A tree with a note is not believed either: others may have removed or damaged what lies in it, so each run
looks at every place once.
"""

from __future__ import annotations

import datetime as dt
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import msgspec

from headwater.catalog.interface import Catalog, UnknownSet
from headwater.files import hashing
from headwater.files.file_copies import COPY
from headwater.files.nofollow import open_unlinked
from headwater.files.patterns import Selection
from headwater.ingest.folder.comparison import is_outlined, memos_of
from headwater.ingest.folder.file_events import place_fault
from headwater.ingest.folder.walk import FileEntry, RootFault, Walk, path_of
from headwater.spec.records import ChangeKind
from headwater.storage.durable import replace_file, sync_folder
from headwater.typed_decoding import from_json


class _Completed(msgspec.Struct, frozen=True):
    """What the note says: for which place and mode the tree was complete, as of which change, made when."""

    place: str
    mode: str
    seq: int
    at: dt.datetime | None = None


class SetTree:
    """One set's resources below `place`. `note` is a file in the state folder."""

    def __init__(self, catalog: Catalog, name: str, place: Path, mode: str, note: Path) -> None:
        self._catalog = catalog
        self._name = name
        self._note = note
        self._absolute = str(place.absolute())
        self.place = os.fsencode(place)
        self.mode = mode
        self._begun = False
        self._seq: int | None = None
        """As of which change the tree was complete; None: it is torn."""
        with suppress(FileNotFoundError, msgspec.DecodeError, UnknownSet):
            found = from_json(note.read_bytes(), _Completed)
            is_ours = (found.place, found.mode) == (self._absolute, mode)
            if is_ours and found.at is not None and found.at == self._made_at(found.seq):
                self._seq = found.seq

    def begin(self) -> None:
        """Something is about to change: until `end`, the tree counts as torn. Cheap when it was said before."""
        if not self._begun:
            self._begun = True
            self._note.unlink(missing_ok=True)
            sync_folder(self._note.parent)

    def tear(self) -> None:
        """What was placed since the tree was complete may be no resource: the next `sweep` compares all."""
        self._seq = None

    def _made_at(self, seq: int) -> dt.datetime | None:
        """When this change was made: a catalog that was lost or restored has another one of this number."""
        found = self._catalog.changes(self._name, seq - 1, 1)
        return found[0].at if found and found[0].seq == seq else self._catalog.state(self._name).opened_at

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
                if is_right and self._seq is not None:
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
        """Take away the files of deleted resources, of a torn tree every file that is no resource; how many that were.

        A symbolic link is never ours, nor is what lies behind it.
        """
        root = os.path.realpath(self.place)
        seq, removed = self._seq, 0
        if seq is None:
            return sum(_remove(root, path) for path in self._strays(root))
        while changes := self._catalog.changes(self._name, seq):
            seq = changes[-1].seq
            gone = {one.uri for one in changes if one.change is ChangeKind.DELETED}
            absent = gone - self._catalog.get(self._name, list(gone)).keys()
            removed += sum(_remove(root, path_of(uri)) for uri in absent)
        return removed

    def _strays(self, root: bytes) -> Iterator[bytes]:
        held = (uri for uri, _memo in memos_of(self._catalog, self._name))
        uri = next(held, None)
        with suppress(RootFault):  # there is no tree yet
            for one in Walk(root, Selection()).everything():
                while uri is not None and uri < one.uri:
                    uri = next(held, None)
                if isinstance(one, FileEntry) and uri != one.uri:
                    yield path_of(one.uri)

    def end(self) -> None:
        """The tree is complete."""
        seq = self._catalog.state(self._name).last_seq
        if self._begun or self._seq != seq:
            told = _Completed(self._absolute, self.mode, seq, self._made_at(seq))
            replace_file(self._note, [msgspec.json.encode(told)], f"{self._note.name}-")
        self._begun, self._seq = False, seq

    def settle(self, root: bytes) -> None:
        """Bring copies to the disk before a list that is synced names them; links go there with the list itself."""
        if not self._begun:
            return
        with suppress(OSError):
            if self.mode == COPY or os.stat(self.place).st_dev != os.stat(root).st_dev:
                os.sync()


def _remove(root: bytes, relative: bytes) -> bool:
    """Take away the regular file at this path; whether there was one, in the tree and with no link on the way."""
    if any(name in (b"", b".", b"..") for name in relative.split(b"/")) or b"\0" in relative:
        return False  # whatever the catalog says
    folder, name = os.path.split(os.path.join(root, relative))
    try:
        descriptor = open_unlinked(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        if not stat.S_ISREG(os.lstat(name, dir_fd=descriptor).st_mode):
            return False
        os.unlink(name, dir_fd=descriptor)
    except FileNotFoundError:
        return False
    finally:
        os.close(descriptor)
    with suppress(OSError):  # a folder that is not empty stays, and with it those above
        while len(folder) > len(root):
            os.rmdir(folder)
            folder = os.path.dirname(folder)
    return True
