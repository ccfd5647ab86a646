"""The result log: records in batches what came of each resource; after a kill the rest is found on disk."""

from __future__ import annotations

import time
from collections.abc import Callable

from headwater.storage.database import Database, Row, Transaction
from headwater.sync.source_times import SECOND
from headwater.sync.state.file_intents import intend
from headwater.sync.state.set_rows import SetRow
from headwater.sync.transfer.work_queue import COLUMNS, Attempt, Work, encode_attempt

_CHUNK = 1_000
_BATCH = 500
_BATCH_SECONDS = 1.0
_BACKOFF_SECONDS = 60
_LONGEST_BACKOFF_SECONDS = 86_400

_N, _URI, _PATH = (COLUMNS.index(name) for name in ("n", "uri", "path"))
_NEXT = f"SELECT {', '.join(COLUMNS)} FROM temp.work WHERE n > ? AND round = ? ORDER BY n LIMIT {_CHUNK}"  # noqa: S608
_PLACED = """
INSERT INTO resources(set_id, uri, path, size, mtime_ns, digest, listed_hash, listed_length, lastmod, etag,
  last_modified, changed_at, newer, run)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT(set_id, uri) DO UPDATE SET path = excluded.path, size = excluded.size, mtime_ns = excluded.mtime_ns,
  digest = excluded.digest, listed_hash = excluded.listed_hash, listed_length = excluded.listed_length,
  lastmod = excluded.lastmod, etag = excluded.etag, last_modified = excluded.last_modified,
  changed_at = coalesce(excluded.changed_at, changed_at), newer = excluded.newer, doomed_at = NULL,
  run = excluded.run"""
_FAILED = """
INSERT INTO failures(set_id, uri, loc, reason, status, tries, first_at, last_at, next_at, wait_until, lastmod, length,
  hash, type, encoding, mirrors, changed_at)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT(set_id, uri) DO UPDATE SET loc = excluded.loc, reason = excluded.reason, status = excluded.status,
  tries = excluded.tries, last_at = excluded.last_at, next_at = excluded.next_at, wait_until = excluded.wait_until,
  lastmod = excluded.lastmod, length = excluded.length, hash = excluded.hash, type = excluded.type,
  encoding = excluded.encoding, mirrors = excluded.mirrors, changed_at = excluded.changed_at"""
_CONFIRMED = (
    "UPDATE resources SET listed_hash = ?, listed_length = ?, lastmod = ?, newer = 0, doomed_at = NULL,"
    " changed_at = coalesce(?, changed_at), mtime_ns = coalesce(?, mtime_ns) WHERE id = ?"
)


class ResultLog:
    """The work of one set, taken in order, and what came of it. `told` hears after each batch how much is done."""

    def __init__(self, database: Database, row: SetRow, run: int, told: Callable[[int], None]) -> None:
        self._database = database
        self._set = row.id
        self._run = run
        self._told = told
        self._placed: list[Row] = []
        self._failed: list[Row] = []
        self._confirmed: list[Row] = []
        self._again: list[Row] = []
        self._cleared: list[Row] = []
        self._open: dict[int, int] = {}
        self._done = 0
        self._waiting = 0
        self._flushed_at = time.monotonic()
        self._last_n = 0
        with database.write() as t:
            self.total = int(t.value("SELECT count(*) FROM temp.work"))
            self._any_failures = t.one("SELECT 1 FROM failures WHERE set_id = ? LIMIT 1", (self._set,)) is not None

    def has_round(self, number: int) -> bool:
        """Whether there is anything to be done in this round; it begins at its first row."""
        self._last_n = 0
        with self._database.write() as t:
            return t.one("SELECT 1 FROM temp.work WHERE round = ? LIMIT 1", (number,)) is not None

    def next_chunk(self, number: int) -> list[Work]:
        """The next rows of the round, noted as about to be placed; empty at its end."""
        with self._database.write(durable=True) as t:
            rows = list(t.rows(_NEXT, (self._last_n, number)))
            if not rows:
                return []
            intent = intend(t, self._set, [(row[_URI], row[_PATH]) for row in rows])
        self._open[intent] = len(rows)
        self._last_n = rows[-1][_N]
        return [Work(*(*row, intent)) for row in rows]

    def placed(
        self,
        work: Work,
        path: bytes,
        found: tuple[int, int],
        digest: str,
        *,
        etag: str | None = None,
        modified: str | None = None,
        newer: bool = False,
    ) -> None:
        """A file has its place; `found`: its size and modification time (ns) there."""
        self._placed.append(
            (self._set, work.uri, path, *found, digest, work.hash, work.length, work.lastmod, etag, modified,
             work.changed_at, int(newer), self._run)
        )  # fmt: skip
        if self._any_failures:  # also of a resource that was planned for another reason than its failure
            self._cleared.append((self._set, work.uri))
        self._count(work)

    def confirmed(self, work: Work, mtime_ns: int | None) -> None:
        """What is held is what is listed; `mtime_ns`: the modification time that the file was given for that."""
        self._confirmed.append((work.hash, work.length, work.lastmod, work.changed_at, mtime_ns, work.held))
        self._cleared.append((self._set, work.uri))
        self._count(work)

    def again(self, work: Work, attempt: Attempt, number: int, reason: str) -> None:
        """Another attempt is to be made, in round `number`."""
        self._again.append((encode_attempt(attempt), number, reason, work.n))
        self._count(work, done=0)

    def failed(self, work: Work, reason: str, status: int, wait_seconds: float | None, now: int) -> None:
        """There is no way left; `wait_seconds`: what the source asks for."""
        tries = (work.tries or 0) + 1
        next_at = now + backoff_seconds(tries) * SECOND
        wait_until = None if wait_seconds is None else now + int(wait_seconds * SECOND)
        self._failed.append(
            (self._set, work.uri, work.loc, reason[:500], status, tries, now, now, next_at, wait_until, work.lastmod,
             work.length, work.hash, work.type, work.encoding, work.mirrors, work.changed_at)
        )  # fmt: skip
        self._count(work)

    def _count(self, work: Work, done: int = 1) -> None:
        self._open[work.intent] -= 1
        self._done += done
        self._waiting += 1
        if self._waiting >= _BATCH or time.monotonic() - self._flushed_at > _BATCH_SECONDS:
            self.flush()

    def flush(self) -> None:
        """Record what has happened since the last time, in one transaction."""
        self._flushed_at = time.monotonic()
        if self._waiting:
            with self._database.write() as t:
                self._write(t)
            for rows in (self._placed, self._failed, self._confirmed, self._again, self._cleared):
                rows.clear()
            self._waiting = 0
        self._told(self._done)

    def _write(self, t: Transaction) -> None:
        t.many(_PLACED, self._placed)
        t.many("DELETE FROM failures WHERE set_id = ? AND uri = ?", self._cleared)
        t.many(_FAILED, self._failed)
        t.many(_CONFIRMED, self._confirmed)
        over = [(intent,) for intent, left in self._open.items() if left == 0]
        t.many("DELETE FROM intents WHERE id = ?", over)
        for (intent,) in over:
            del self._open[intent]
        t.many("UPDATE temp.work SET attempt_json = ?, round = ?, reason = ? WHERE n = ?", self._again)


def backoff_seconds(tries: int) -> int:
    """How long a service that follows waits before it tries a failed resource again (DST-F6)."""
    return int(min(_BACKOFF_SECONDS * 2 ** min(tries - 1, 20), _LONGEST_BACKOFF_SECONDS))
