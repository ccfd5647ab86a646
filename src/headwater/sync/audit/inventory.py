"""The inventory of a copy: its files and their hashes, from the disk alone; changes nothing."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from itertools import islice
from pathlib import Path

import msgspec

from headwater.files import hashing
from headwater.files.file_placement import GONE
from headwater.files.folder_marks import folded, is_reserved, leads_inside
from headwater.files.hash_pool import HashPool
from headwater.files.hashing import HASHERS, HashRequest, HashResult
from headwater.processes.pool import processors
from headwater.progress import Listener, Progress
from headwater.storage.database import Database
from headwater.storage.database_faults import DatabaseFault
from headwater.storage.sqlite.transaction import Row, Transaction
from headwater.sync.copy.file_tree import FileTree
from headwater.sync.transfer.verification import digests_of

PARALLEL_FROM = 3_000
"""With fewer files to hash, processes cost more than they save."""

_CHUNK = 5_000
_BATCH = 2_000

_NO_SUCH_FILE = frozenset({errno.ENXIO, errno.ENAMETOOLONG, errno.EINVAL, errno.EILSEQ})
"""A socket, or a name that no file can have here: there is nothing that could be read."""

TABLES = """
CREATE TEMP TABLE IF NOT EXISTS found(
  path BLOB PRIMARY KEY, size INTEGER, mtime_ns INTEGER, digests TEXT, errno INTEGER
) WITHOUT ROWID;
CREATE TEMP TABLE IF NOT EXISTS surplus(path BLOB PRIMARY KEY) WITHOUT ROWID;
CREATE TEMP TABLE IF NOT EXISTS unread_folders(path BLOB PRIMARY KEY, errno INTEGER) WITHOUT ROWID;
"""

_HELD = """
SELECT id, path, coalesce(listed_hash, ''), digest FROM resources WHERE id > ? AND path IS NOT NULL
ORDER BY id LIMIT ?"""
_UNHASHED = """
SELECT u.uri, e.path, coalesce(e.hash, ''), r.digest FROM temp.unhashed u JOIN temp.expected e ON e.uri = u.uri
LEFT JOIN resources r ON r.path = e.path
WHERE u.uri > ? ORDER BY u.uri LIMIT ?"""
_KEEP = "INSERT OR REPLACE INTO temp.found(path, size, mtime_ns, digests, errno) VALUES (?, ?, ?, ?, ?)"
_KEEP_SURPLUS = """
INSERT OR IGNORE INTO temp.surplus(path) SELECT ?1 WHERE NOT EXISTS (SELECT 1 FROM temp.expected e WHERE e.path = ?1)
AND NOT EXISTS (SELECT 1 FROM temp.spared s WHERE s.path = ?1)"""


class WantedFile(msgspec.Struct, frozen=True, gc=False):
    """A file to hash: its path relative to the copy, and the algorithms; with none, its state alone is asked for."""

    path: bytes
    algorithms: tuple[str, ...]
    octets: int = 0


class Inventory:
    """Fills `found` and `surplus`. What the state says is held is hashed from the beginning, while lists are fetched,
    and is written down as it comes: what is held in memory does not grow with the copy."""

    def __init__(self, root: bytes, database: Database, listener: Listener) -> None:
        self._root = os.path.realpath(root)
        self._database = database
        self._listener = listener
        self._thread: threading.Thread | None = None
        self._fault: DatabaseFault | None = None
        self._hashed = 0
        with database.read() as t:
            self._held_count = int(t.value("SELECT count(*) FROM resources WHERE path IS NOT NULL"))
        if _processes(self._held_count):
            self._thread = threading.Thread(target=self._hash_ahead, daemon=True)
            self._thread.start()

    def _hash_ahead(self) -> None:
        try:
            for _ in self._hash(self._held(), self._held_count):
                pass
        except DatabaseFault as fault:
            self._fault = fault

    def _held(self) -> Iterator[WantedFile]:
        for _, path, listed, recorded in _by_pages(self._database.read, _HELD, 0):
            yield WantedFile(path, _algorithms(listed) or _algorithms(recorded or ""))

    def _hash(self, wanted: Iterator[WantedFile], count: int) -> Iterator[int]:
        """Hash these files, of which there are so many, into `found`; gives how many have been, now and then."""
        rows: list[Row] = []
        for block, found in HashPool(processes=_processes(count)).read(wanted, self._request):
            rows += [_found_row(one.path, result) for one, result in zip(block, found, strict=True)]
            if len(rows) >= _BATCH:
                yield self._keep(rows)
                rows = []
        yield self._keep(rows)

    def _request(self, wanted: WantedFile) -> HashRequest:
        return self.file(wanted.path), wanted.algorithms, None

    def file(self, path: bytes) -> bytes:
        """Where a file of the copy lies: nowhere, where a state has a path that leads out of it."""
        return self._root + b"/" + path if leads_inside(path) else b""

    def _keep(self, rows: list[Row]) -> int:
        with self._database.write() as t:
            t.many(_KEEP, rows)
        self._hashed += len(rows)
        return self._hashed

    def wait(self) -> None:
        """Let what was begun ahead come to its end. Raises DatabaseFault where that could not be written down."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None
            self._listener(Progress("hashing", self._hashed))
        if self._fault is not None:
            raise self._fault

    def hash_unhashed(self, count: int) -> None:
        """Have the files of all that is in `unhashed`, so many, in `found` with all the digests that are listed."""
        for done in self._hash(self._unhashed(), count):
            self._listener(Progress("hashing", done))

    def _unhashed(self) -> Iterator[WantedFile]:
        for _, path, listed, recorded in _by_pages(self._database.write, _UNHASHED, ""):
            yield WantedFile(path, _algorithms(listed) or _algorithms(recorded or ""))

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


def _processes(count: int) -> int:
    """How many processes hash so many files; 0: this one alone."""
    found = min(processors(), 8) if count >= PARALLEL_FROM else 0
    return found if found > 1 else 0


def _algorithms(listed: str) -> tuple[str, ...]:
    """The algorithms of the digests that are listed; where one stands there alone, it need not be a digest as well."""
    name, _, rest = listed.partition(":")
    if name in HASHERS and rest.isalnum():
        return (name,)
    return tuple(digest.algorithm for digest in digests_of(listed))


def _found_row(path: bytes, result: HashResult) -> Row:
    """The row of `found` for a file that was hashed. Without a size there is no plain file; with an errno there is one
    that cannot be read."""
    outcome, error, (size, mtime_ns, _, _), _, _, digests, _ = result
    if outcome == hashing.READ:
        return path, size, mtime_ns, digests, 0
    if outcome == hashing.UNREADABLE and error not in _NO_SUCH_FILE:
        return path, -1, 0, "", error or errno.EIO
    is_changing = outcome == hashing.CHANGED and error != errno.ELOOP
    return path, -1 if is_changing else None, 0, "", 0  # a file, but no content that could be the right one


def _by_pages(begin: Callable[[], AbstractContextManager[Transaction]], query: str, last: int | str) -> Iterator[Row]:
    """The rows of a query in the order of its first column, some thousand to a transaction: none stays open between."""
    while True:
        with begin() as t:
            rows = t.fetch(query, (last, _CHUNK))
        if not rows:
            return
        last = rows[-1][0]
        yield from rows


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
