"""The inventory of a copy: its files and their hashes, from the disk alone; changes nothing."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

from headwater.files import hashing
from headwater.files.file_copies import GONE
from headwater.files.folder_marks import folded, is_reserved, leads_inside
from headwater.files.hash_pool import HashPool
from headwater.files.hashing import HASHERS, HashRequest, HashResult
from headwater.processes.pool import processors
from headwater.storage.database import Database
from headwater.sync.audit.expected_files import WantedFile
from headwater.sync.audit.findings import FoundFile
from headwater.sync.copy.file_tree import FileTree
from headwater.sync.transfer.verification import digests_of

PARALLEL_FROM = 3_000
"""With fewer files to hash, processes cost more than they save."""

_CHUNK = 5_000

_NO_SUCH_FILE = frozenset({errno.ENXIO, errno.ENAMETOOLONG, errno.EINVAL, errno.EILSEQ})
"""A socket, or a name that no file can have here: there is nothing that could be read."""

TABLES = """
CREATE TEMP TABLE IF NOT EXISTS surplus(path BLOB PRIMARY KEY) WITHOUT ROWID;
CREATE TEMP TABLE IF NOT EXISTS unread_folders(path BLOB PRIMARY KEY, errno INTEGER) WITHOUT ROWID;
"""

_KEEP_SURPLUS = """
INSERT OR IGNORE INTO temp.surplus(path) SELECT ?1 WHERE NOT EXISTS (SELECT 1 FROM temp.expected e WHERE e.path = ?1)
AND NOT EXISTS (SELECT 1 FROM temp.spared s WHERE s.path = ?1)"""


class Inventory:
    """The files of a copy as they lie on the disk."""

    def __init__(self, root: bytes, database: Database) -> None:
        self._root = os.path.realpath(root)
        self._database = database

    def hashed(
        self, wanted: Iterator[WantedFile], count: int
    ) -> Iterator[tuple[Sequence[WantedFile], Sequence[HashResult]]]:
        """Hash these files, of which there are so many: blocks with their results, in the order of the files."""
        processes = min(processors(), 8) if count >= PARALLEL_FROM else 0
        yield from HashPool(processes=processes if processes > 1 else 0).read(wanted, self._request)

    def _request(self, wanted: WantedFile) -> HashRequest:
        """With every digest that is listed, else with that of what was placed; without any the state alone is read."""
        algorithms = _algorithms(wanted.hash or "") or _algorithms(wanted.digest or "")
        return self.file(wanted.path), algorithms, None

    def file(self, path: bytes) -> bytes:
        """Where a file of the copy lies: nowhere, where a state has a path that leads out of it."""
        return self._root + b"/" + path if leads_inside(path) else b""

    def walk(self, folder: str, others: list[str]) -> None:
        """Have every file below the folder of one set in `surplus` that is neither in `expected` nor in `spared`.

        Folders that cannot be read are in `unread_folders`. `others` are the folders of the other sets, which may lie
        in it.
        """
        skip = {other.encode() for other in others if other} if not folder else set()
        with self._database.write() as t:
            t.run("DELETE FROM temp.surplus")
            t.run("DELETE FROM temp.unread_folders")
        unread: list[tuple[bytes, int]] = []
        files = _files(self._root, folder.encode(), skip, unread)
        while block := [(path,) for path in islice(files, _CHUNK)]:
            with self._database.write() as t:
                t.many(_KEEP_SURPLUS, block)
        with self._database.write() as t:
            t.many("INSERT OR IGNORE INTO temp.unread_folders(path, errno) VALUES (?, ?)", unread)
        with FileTree(Path(os.fsdecode(self._root)), None) as tree:
            if tree.folds:
                self._spare_spellings()

    def _spare_spellings(self) -> None:
        """Take out of `surplus` what is expected under another spelling of its name: to the file system it is that."""
        with self._database.write() as t:
            t.run("DELETE FROM temp.folded")
            named = t.rows("SELECT path FROM temp.expected UNION ALL SELECT path FROM temp.spared")
            t.many(
                "INSERT OR IGNORE INTO temp.folded(name, path) VALUES (?1, ?1)", ((folded(path),) for (path,) in named)
            )
            surplus = t.fetch("SELECT path FROM temp.surplus")
            known = "DELETE FROM temp.surplus WHERE path = ?1 AND EXISTS (SELECT 1 FROM temp.folded WHERE name = ?2)"
            t.many(known, ((path, folded(path)) for (path,) in surplus))


def _algorithms(listed: str) -> tuple[str, ...]:
    """The algorithms of the digests that are listed; where one stands there alone, it need not be a digest as well."""
    name, _, rest = listed.partition(":")
    if name in HASHERS and rest.isalnum():
        return (name,)
    return tuple(digest.algorithm for digest in digests_of(listed))


def found_file(result: HashResult) -> FoundFile | None:
    """The file that was hashed. None: there is no plain file; with an errno there is one that cannot be read."""
    outcome, error, (size, mtime_ns, _, _), _, _, digests, _ = result
    if outcome == hashing.READ:
        return FoundFile(size, mtime_ns, digests)
    if outcome == hashing.UNREADABLE and error not in _NO_SUCH_FILE:
        return FoundFile(-1, 0, "", error or errno.EIO)
    is_changing = outcome == hashing.CHANGED and error != errno.ELOOP
    return FoundFile(-1, 0, "") if is_changing else None  # a file, but no content that could be the right one


def _files(root: bytes, folder: bytes, skip: set[bytes], unread: list[tuple[bytes, int]]) -> Iterator[bytes]:
    """Every file and link below `folder`, relative to `root`; folders are not followed through links.

    Folders that cannot be read are added to `unread`, each with the errno.
    """
    pending = [folder]
    while pending:
        here = pending.pop()
        try:
            entries = list(os.scandir(root + b"/" + here if here else root))
        except GONE:
            continue
        except OSError as cause:
            unread.append((here, cause.errno or errno.EIO))
            continue
        for entry in entries:
            if not here and (entry.name in skip or is_reserved(entry.name)):
                continue
            path = here + b"/" + entry.name if here else entry.name
            if entry.is_dir(follow_symlinks=False):
                pending.append(path)
            else:
                yield path
