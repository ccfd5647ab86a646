"""The inventory of a copy: its files and their hashes, from the disk alone; changes nothing."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

from headwater.processors import processors
from headwater.progress import Listener, Progress
from headwater.storage.database import Database, Row, Transaction
from headwater.sync.audit.hash_pool import PARALLEL_FROM, HashRequest, HashResult, hash_all
from headwater.sync.state.schema import FOLDER
from headwater.sync.transfer.verification import digests_of

_CHUNK = 5_000

TABLES = """
CREATE TEMP TABLE IF NOT EXISTS found(
  path BLOB PRIMARY KEY, size INTEGER, mtime_ns INTEGER, digests TEXT
) WITHOUT ROWID;
CREATE TEMP TABLE IF NOT EXISTS walked(path BLOB PRIMARY KEY) WITHOUT ROWID;
"""

_HELD = """
SELECT id, path, coalesce(listed_hash, '') FROM resources WHERE id > ? AND path IS NOT NULL ORDER BY id LIMIT ?"""
_EXPECTED = """
SELECT e.uri, e.path, e.hash, f.digests FROM temp.expected e LEFT JOIN temp.found f ON f.path = e.path
WHERE e.uri > ? ORDER BY e.uri LIMIT ?"""


class Inventory:
    """Fills `found` and `walked`. What the state says is held is hashed from the beginning, while lists are fetched."""

    def __init__(self, root: bytes, database: Database, listener: Listener) -> None:
        self._root = root
        self._database = database
        self._listener = listener
        self._ahead: Iterator[list[HashResult]] = iter(())
        self._blocks: list[list[HashResult]] = []
        self._thread: threading.Thread | None = None
        with database.read() as t:
            count = int(t.value("SELECT count(*) FROM resources WHERE path IS NOT NULL"))
        workers = _workers(count)
        self._ahead = hash_all(root, self._held(), workers=workers)
        if workers:
            first = next(self._ahead, None)  # the processes are forked here, before there are threads
            self._thread = threading.Thread(target=self._drain, args=(first, self._ahead), daemon=True)
            self._thread.start()

    def _held(self) -> Iterator[HashRequest]:
        for _, path, listed in _by_pages(self._database.read, _HELD, 0):
            yield HashRequest(path, tuple(digest.algorithm for digest in digests_of(listed)))

    def _drain(self, first: list[HashResult] | None, rest: Iterator[list[HashResult]]) -> None:
        if first is not None:
            self._blocks.append(first)
        self._blocks.extend(rest)

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
        self._keep(hash_all(self._root, self._unhashed(), workers=_workers(count)))

    def _unhashed(self) -> Iterator[HashRequest]:
        for _, path, listed, digests in _by_pages(self._database.write, _EXPECTED, ""):
            algorithms = tuple(digest.algorithm for digest in digests_of(listed))
            if digests is None or any(f"{name}:" not in digests for name in algorithms):
                yield HashRequest(path, algorithms)

    def _keep(self, blocks: Iterator[list[HashResult]]) -> None:
        done = 0
        for block in blocks:
            with self._database.write() as t:
                t.many(
                    "INSERT OR REPLACE INTO temp.found(path, size, mtime_ns, digests) VALUES (?, ?, ?, ?)",
                    [(one.path, one.size, one.mtime_ns, one.digests) for one in block],
                )
            done += len(block)
            self._listener(Progress("hashing", done))

    def walk(self, folder: str, others: list[str]) -> None:
        """Have every file below the folder of one set in `walked`, so that what should not be there is seen.

        `others` are the folders of the other sets, which may lie in it.
        """
        skip = {FOLDER.encode(), *(other.encode() for other in others if other)} if not folder else set()
        with self._database.write() as t:
            t.run("DELETE FROM temp.walked")
        block: list[tuple[bytes]] = []
        for path in _files(self._root, folder.encode(), skip):
            block.append((path,))
            if len(block) >= _CHUNK:
                self._keep_walked(block)
                block = []
        self._keep_walked(block)

    def _keep_walked(self, block: list[tuple[bytes]]) -> None:
        with self._database.write() as t:
            t.many("INSERT OR IGNORE INTO temp.walked(path) VALUES (?)", block)


def _workers(count: int) -> int:
    """How many processes hash so many files; 0: this one alone."""
    workers = min(processors(), 8) if count >= PARALLEL_FROM else 0
    return workers if workers > 1 else 0


def _by_pages(begin: Callable[[], AbstractContextManager[Transaction]], query: str, last: int | str) -> Iterator[Row]:
    """The rows of a query in the order of its first column, some thousand to a transaction: none stays open between."""
    while True:
        with begin() as t:
            rows = list(t.rows(query, (last, _CHUNK)))
        if not rows:
            return
        last = rows[-1][0]
        yield from rows


def _files(root: bytes, folder: bytes, skip: set[bytes]) -> Iterator[bytes]:
    """Every file and link below `folder`, relative to `root`; folders are not followed through links."""
    pending = [folder]
    while pending:
        here = pending.pop()
        try:
            entries = list(os.scandir(root + b"/" + here if here else root))
        except OSError:
            continue
        for entry in entries:
            if not here and entry.name in skip:
                continue
            path = here + b"/" + entry.name if here else entry.name
            if entry.is_dir(follow_symlinks=False):
                pending.append(path)
            else:
                yield path
