"""The static tree of a set: a link or a copy of every file of the set.

New and changed files get their places when they were read (`reading`), before a list can name them; deleted ones leave
theirs after no list names them any more. Nothing is noted of the tree: others may have removed or damaged what lies in
it, and a run may have been killed, so after each look at the whole every place is looked at, and every file that is no
resource is taken away.
"""

import os
import stat
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

from headwater.catalog.interface import Catalog
from headwater.files import hashing
from headwater.files.file_copies import COPY
from headwater.files.nofollow import open_unlinked
from headwater.files.patterns import Selection
from headwater.ingest.folder.comparison import likeness, memos_of
from headwater.ingest.folder.file_events import place_fault
from headwater.ingest.folder.walk import FileEntry, RootFault, Walk, listing, path_of


class SetTree:
    """One set's resources below `place`, each as `mode` says."""

    def __init__(self, catalog: Catalog, name: str, place: bytes, mode: str) -> None:
        self._catalog = catalog
        self._name = name
        self._place = place
        self._mode = mode
        self._may_have_more = True  # whether there may be files that are no resources

    def complete(self, begin_walk: Callable[[], Walk]) -> tuple[int, int]:
        """Place what has no place yet, or the wrong one; how many files that were, and how many are not as recorded.

        The latter are not placed. Only files that are in the catalog are looked at: all others have just been placed by
        the scan, or wait for the next one. The file itself is looked at only where its place is not as the catalog has
        it; where folders list the very file as a link, nothing else is. Raises HW-ING-30.
        """
        placed = left = 0
        walk: Walk | None = None
        are_links, self._may_have_more = False, True
        with suppress(RootFault, OSError):  # the folder, or the tree, is not there
            walk = begin_walk()
            are_links = self._mode != COPY and walk.state.st_dev == os.stat(self._place).st_dev
        listed = _ListedFiles(os.path.realpath(self._place))
        listed.take(b"")  # what lies at the top counts also where the set has nothing
        for uri, memo in memos_of(self._catalog, self._name):
            path = path_of(uri)
            inode = listed.take(path)
            if are_links and inode is not None and memo.endswith(inode.to_bytes(8, "little")):
                continue  # with its inode a note ends: it is that file, and cannot be damaged
            place = os.path.join(self._place, path)
            with suppress(OSError):
                there = os.lstat(place)
                is_same, is_alike = likeness(memo, there)  # in the place of a link there may be a copy
                is_right = is_alike and not is_same if self._mode == COPY else is_same or is_alike
                if stat.S_ISREG(there.st_mode) and is_right:
                    continue
            file = None if walk is None else next(walk.at(path_of(uri)), None)
            if isinstance(file, FileEntry) and file.uri == uri and likeness(memo, file.stat)[1]:
                outcome, error, *_rest = hashing.read_file((file.path, (), place), hashing.ReadOptions(self._mode))
                if outcome == hashing.UNPLACED:
                    raise place_fault(place, error)
                placed += outcome == hashing.READ
            else:
                left += 1
        self._may_have_more = listed.left > 0
        return placed, left

    def sweep(self) -> int:
        """Take away every file that is no resource; how many that were. `complete` may have seen that there is none.

        A symbolic link is never ours, nor is what lies behind it.
        """
        if not self._may_have_more:
            return 0
        root, removed = os.path.realpath(self._place), 0
        held = (uri for uri, _memo in memos_of(self._catalog, self._name))
        uri = next(held, None)
        with suppress(RootFault):  # there is no tree yet
            for one in Walk(root, Selection()).everything():
                while uri is not None and uri < one.uri:
                    uri = next(held, None)
                if isinstance(one, FileEntry) and uri != one.uri:
                    removed += _remove(root, path_of(one.uri))
        return removed

    def settle(self, root: bytes) -> None:
        """Bring copies to the disk before a list that is synced names them; links go there with the list itself."""
        with suppress(OSError):
            if self._mode == COPY or os.stat(self._place).st_dev != os.stat(root).st_dev:
                os.sync()


@dataclass(eq=False)
class _ListedFiles:
    """The files of a tree by what its folders list, which costs a fraction of looking at each.

    Asked in the order of URIs, each folder is listed once, and those above the last path are held.
    """

    root: bytes
    left: int = 0  # how much was listed that nobody has asked for; folders count until a path leads through them
    _folders: list[tuple[bytes, dict[bytes, int | None]]] = field(default_factory=list)

    def take(self, path: bytes) -> int | None:
        """The inode of the regular file at this path; None where none is listed. Asked once for each."""
        above, folders = path[: path.rfind(b"/") + 1], self._folders
        while not folders or folders[-1][0] != above:
            here, names = folders[-1] if folders else (b"", {})
            if not above.startswith(here):
                folders.pop()
                continue
            name = above[len(here) :].partition(b"/")[0]
            self.left -= name in names
            names.pop(name, None)
            below, found = here + name + b"/" if folders else b"", dict[bytes, int | None]()
            with suppress(OSError), listing(self.root + b"/" + below) as entries:  # else each place is looked at itself
                for one in entries:
                    found[one.name] = one.inode() if one.is_file(follow_symlinks=False) else None
            self.left += len(found)
            folders.append((below, found))
        names, name = folders[-1][1], path[len(above) :]
        self.left -= name in names
        return names.pop(name, None)


def _remove(root: bytes, relative: bytes) -> bool:
    """Take away the regular file at this path; whether there was one, in the tree and with no link on the way."""
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
