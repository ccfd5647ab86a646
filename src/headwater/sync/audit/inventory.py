"""The inventory of a copy: its files and their hashes, from the disk alone; changes nothing."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

import msgspec

from headwater.copies.schema import FOLDER
from headwater.files import hashing
from headwater.files.file_placement import GONE
from headwater.files.hash_pool import HashPool
from headwater.files.hashing import HashRequest, HashResult
from headwater.processes.processors import processors
from headwater.progress import Listener, Progress
from headwater.storage.database import Database, Row, Transaction
from headwater.sync.audit.findings import states_all
from headwater.sync.transfer.verification import digests_of

PARALLEL_FROM = 3_000
"""With fewer files to hash, processes cost more than they save."""

_CHUNK = 5_000

_NO_SUCH_FILE = frozenset({errno.ENXIO, errno.ENAMETOOLONG, errno.EINVAL, errno.EILSEQ})
"""A socket, or a name that no file can have here: there is nothing that could be read."""

TABLES = """
CREATE TEMP TABLE IF NOT EXISTS found(
  path BLOB PRIMARY KEY, size INTEGER, mtime_ns INTEGER, digests TEXT, errno INTEGER
) WITHOUT ROWID;
CREATE TEMP TABLE IF NOT EXISTS walked(path BLOB PRIMARY KEY) WITHOUT ROWID;
CREATE TEMP TABLE IF NOT EXISTS unread_folders(path BLOB PRIMARY KEY, errno INTEGER) WITHOUT ROWID;
"""

_HELD = """
SELECT id, path, coalesce(listed_hash, '') FROM resources WHERE id > ? AND path IS NOT NULL ORDER BY id LIMIT ?"""
_EXPECTED = """
SELECT e.uri, e.path, e.hash, f.digests FROM temp.expected e LEFT JOIN temp.found f ON f.path = e.path
WHERE e.uri > ? ORDER BY e.uri LIMIT ?"""


class WantedFile(msgspec.Struct, frozen=True, gc=False):
    """A file to hash: its path relative to the copy, and the algorithms; with none, its state alone is asked for."""

    path: bytes
    algorithms: tuple[str, ...]
    octets: int = 0


class HashedFile(msgspec.Struct, frozen=True, gc=False):
    """A file that was hashed; `size` None: there is no plain file. `errno`: why one that is there cannot be read."""

    path: bytes
    size: int | None
    mtime_ns: int = 0
    digests: str = ""
    errno: int = 0


class Inventory:
    """Fills `found` and `walked`. What the state says is held is hashed from the beginning, while lists are fetched."""

    def __init__(self, root: bytes, database: Database, listener: Listener) -> None:
        self._root = os.path.realpath(root)
        self._database = database
        self._listener = listener
        self._blocks: list[list[HashedFile]] = []
        self._thread: threading.Thread | None = None
        with database.read() as t:
            count = int(t.value("SELECT count(*) FROM resources WHERE path IS NOT NULL"))
        self._ahead = self._hash(self._held(), count)
        if _processes(count):
            self._thread = threading.Thread(target=self._blocks.extend, args=(self._ahead,), daemon=True)
            self._thread.start()

    def _held(self) -> Iterator[WantedFile]:
        for _, path, listed in _by_pages(self._database.read, _HELD, 0):
            yield WantedFile(path, tuple(digest.algorithm for digest in digests_of(listed)))

    def _hash(self, wanted: Iterator[WantedFile], count: int) -> Iterator[list[HashedFile]]:
        """Hash these files, of which there are so many, and yield the results in blocks."""
        for block, found in HashPool(processes=_processes(count)).read(wanted, self._request):
            yield [_hashed(one.path, result) for one, result in zip(block, found, strict=True)]

    def _request(self, wanted: WantedFile) -> HashRequest:
        return self._root + b"/" + wanted.path, wanted.algorithms, None

    def wait(self) -> None:
        """Let what was begun ahead come to its end."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None
            self._ahead = iter(self._blocks)
            self._blocks = []

    def hash_expected(self) -> None:
        """Have everything in `expected` that is there in `found`, with all the digests that are listed."""
        self.wait()
        self._keep(self._ahead)
        with self._database.write() as t:
            count = int(
                t.value(
                    "SELECT count(*) FROM temp.expected e WHERE NOT EXISTS"
                    " (SELECT 1 FROM temp.found f WHERE f.path = e.path)"
                )
            )
        self._keep(self._hash(self._unhashed(), count))

    def _unhashed(self) -> Iterator[WantedFile]:
        for _, path, listed, digests in _by_pages(self._database.write, _EXPECTED, ""):
            if digests is not None and states_all(digests, listed):
                continue
            algorithms = tuple(digest.algorithm for digest in digests_of(listed))
            if digests is None or any(f"{name}:" not in digests for name in algorithms):
                yield WantedFile(path, algorithms)

    def _keep(self, blocks: Iterator[list[HashedFile]]) -> None:
        done = 0
        for block in blocks:
            with self._database.write() as t:
                t.many(
                    "INSERT OR REPLACE INTO temp.found(path, size, mtime_ns, digests, errno) VALUES (?, ?, ?, ?, ?)",
                    [(one.path, one.size, one.mtime_ns, one.digests, one.errno) for one in block],
                )
            done += len(block)
            self._listener(Progress("hashing", done))

    def walk(self, folder: str, others: list[str]) -> None:
        """Have every file below the folder of one set in `walked`, so that what should not be there is seen.

        Folders that cannot be read are in `unread_folders`. `others` are the folders of the other sets, which may lie
        in it.
        """
        skip = {FOLDER.encode(), *(other.encode() for other in others if other)} if not folder else set()
        with self._database.write() as t:
            t.run("DELETE FROM temp.walked")
            t.run("DELETE FROM temp.unread_folders")
        block: list[tuple[bytes]] = []
        unread: list[tuple[bytes, int]] = []
        for path in _files(self._root, folder.encode(), skip, unread):
            block.append((path,))
            if len(block) >= _CHUNK:
                self._keep_walked(block)
                block = []
        self._keep_walked(block)
        with self._database.write() as t:
            t.many("INSERT OR IGNORE INTO temp.unread_folders(path, errno) VALUES (?, ?)", unread)

    def _keep_walked(self, block: list[tuple[bytes]]) -> None:
        with self._database.write() as t:
            t.many("INSERT OR IGNORE INTO temp.walked(path) VALUES (?)", block)


def _processes(count: int) -> int:
    """How many processes hash so many files; 0: this one alone."""
    found = min(processors(), 8) if count >= PARALLEL_FROM else 0
    return found if found > 1 else 0


def _hashed(path: bytes, result: HashResult) -> HashedFile:
    outcome, error, (size, mtime_ns, _, _), _, _, digests, _ = result
    if outcome == hashing.READ:
        return HashedFile(path, size, mtime_ns, digests)
    if outcome == hashing.UNREADABLE and error not in _NO_SUCH_FILE:
        return HashedFile(path, -1, errno=error or errno.EIO)
    is_changing = outcome == hashing.CHANGED and error != errno.ELOOP
    return HashedFile(path, -1 if is_changing else None)  # a file, but no content that could be the right one


def _by_pages(begin: Callable[[], AbstractContextManager[Transaction]], query: str, last: int | str) -> Iterator[Row]:
    """The rows of a query in the order of its first column, some thousand to a transaction: none stays open between."""
    while True:
        with begin() as t:
            rows = list(t.rows(query, (last, _CHUNK)))
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
            if not here and entry.name in skip:
                continue
            path = here + b"/" + entry.name if here else entry.name
            if entry.is_dir(follow_symlinks=False):
                pending.append(path)
            else:
                yield path
