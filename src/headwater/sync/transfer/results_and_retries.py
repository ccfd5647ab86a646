"""The result log: records in batches what came of each resource, and when a failed one is tried again (DST-F6)."""

import time
from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from headwater.progress import Progress
from headwater.retry import Backoff
from headwater.storage.transaction import Row, Transaction
from headwater.sync.copy.file_tree import printable_path
from headwater.sync.copy.held_files import intend
from headwater.sync.reports import Done, SetReport, ignored, with_stated
from headwater.sync.source_times import SECOND
from headwater.sync.state import SetRow
from headwater.sync.transfer.verification import strongest_text
from headwater.sync.transfer.work_queue import COLUMNS, Attempt, RunContext, Work, encode_attempts

BATCH = 1_000
_BATCH_SECONDS = 1.0
FIRST_PAUSE_SECONDS = 5
"""How long a service that follows waits before it tries a failed resource again, doubled with each try (DST-F6)."""

_LONGEST_BACKOFF_SECONDS = 86_400
"""Also what `Retry-After` may ask for at most (DST-F1): a proxy that says years shuts out nothing for years."""

_MOST_UNTOLD = 10_000  # failures of a set that wait for its end, when changes may have settled them
_N, _URI, _PATH = (COLUMNS.index(name) for name in ("n", "uri", "path"))
IN_ROUND = f"SELECT {', '.join(COLUMNS)} FROM temp.work WHERE n > ? AND round = ? ORDER BY n LIMIT {BATCH}"  # noqa: S608


class PlacedFile(NamedTuple):
    """A file in its place: size and modification time there, its digest, and the validators it came with."""

    path: bytes
    size: int
    mtime_ns: int
    digest: str
    etag: str | None = None
    last_modified: str | None = None
    newer: bool = False  # whether it is newer than what is listed


_RESOURCE_COLUMNS = (
    "set_id", "uri", "path", "size", "mtime_ns", "digest", "listed_hash", "listed_length", "lastmod", "etag",
    "last_modified", "changed_at", "newer", "run", "loc", "type", "encoding", "links", "extra",
)  # fmt: skip
_FAILURE_COLUMNS = (
    "set_id", "uri", "loc", "reason", "status", "tries", "first_at", "last_at", "next_at", "wait_until", "lastmod",
    "length", "hash", "type", "encoding", "links", "extra", "changed_at",
)  # fmt: skip


def _upsert(table: str, columns: tuple[str, ...], kept: str, also: str = "") -> str:
    """Insert a row, or replace all of it but `kept` where there is one of this resource; `also`: further columns."""
    new = ", ".join(f"{name} = excluded.{name}" for name in columns if name not in ("set_id", "uri", kept))
    return (
        f"INSERT INTO {table}({', '.join(columns)}) VALUES ({', '.join('?' * len(columns))})"  # noqa: S608
        f" ON CONFLICT(set_id, uri) DO UPDATE SET {new}{also}"
    )


_PLACED = _upsert(
    "resources",
    _RESOURCE_COLUMNS,
    kept="changed_at",
    also=", changed_at = coalesce(excluded.changed_at, changed_at), doomed_at = NULL, recovered = 0",
)
_FAILED = _upsert("failures", _FAILURE_COLUMNS, kept="first_at")
_SETTLED_ROUND = -1
_COUNTS = f"SELECT count(*), count(*) FILTER (WHERE round = {_SETTLED_ROUND}), coalesce(max(round), -1) FROM temp.work"  # noqa: S608
_TAKE = f"UPDATE temp.work SET round = {_SETTLED_ROUND} WHERE n IN (SELECT value FROM json_each(?))"  # noqa: S608
_LEAVE = "UPDATE temp.work SET round = 0 WHERE n = ?"

CONFIRM = """
UPDATE resources SET listed_hash = ?1, listed_length = ?2, lastmod = ?3, loc = ?4, type = ?5, encoding = ?6, links = ?7,
  extra = ?8, newer = 0, recovered = 0, doomed_at = NULL, mtime_ns = coalesce(?10, mtime_ns),
  changed_at = nullif(max(coalesce(changed_at, 0), coalesce(?9, 0)), 0)
WHERE id = ?11 AND (?9 OR ?10 OR newer OR recovered OR doomed_at IS NOT NULL
  OR (listed_hash, listed_length, lastmod, loc, type, encoding, links, extra)
    IS NOT (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8))"""
"""Notes that what is held is as it is stated. Where all of it is recorded already nothing is written."""

_CLEARED = "DELETE FROM failures WHERE set_id = ? AND uri = ?"
_AGAIN = "UPDATE temp.work SET attempt_json = ?, round = ?, reason = ? WHERE n = ?"
_STATEMENTS = (_PLACED, _CLEARED, _FAILED, CONFIRM, _LEAVE, _AGAIN)


class ResultLog:
    """The work of one set, taken in batches, and what came of it: recorded, counted in `counts`, and told.

    What was taken is in no round any more. One of `placed`, `confirmed`, `failed`, `again` and `left` is called for
    each; the last two put it into a round again. Results are recorded in batches, and when more is taken.
    """

    def __init__(self, context: RunContext, row: SetRow, counts: SetReport) -> None:
        self._context = context
        self._database = context.database
        self._set = row.id
        self._run = context.run_number
        self._counts = counts
        self._rows: dict[str, list[Row]] = {statement: [] for statement in _STATEMENTS}
        self._open: dict[int, int] = {}
        self._waiting = 0
        self._flushed_at = time.monotonic()
        self.count()

    def count(self) -> None:
        """Count what is to be done and what is done."""
        with self._database.write() as t:
            self.total, self._done, self.last_round = map(int, t.one(_COUNTS) or (0, 0, -1))
            self._any_failures = t.one("SELECT 1 FROM failures WHERE set_id = ? LIMIT 1", (self._set,)) is not None

    def each(self, query: str, *values: int) -> Iterator[Work]:
        """The work that a query finds (`IN_ROUND`, …), taken some at a time. Its first condition is `n > ?`."""
        last = 0
        while works := self.take(query, last, *values):
            last = works[-1].n
            yield from works

    def take(self, query: str, *values: int | str) -> list[Work]:
        """Take the rows of the work that a query of `COLUMNS` finds; they are noted as about to be placed."""
        self._context.settle()
        with self._database.write(durable=True) as t:
            self._write(t)
            rows = t.fetch(query, values)
            intent = intend(t, self._set, [(row[_URI], row[_PATH]) for row in rows]) if rows else 0
            t.run(_TAKE, (msgspec.json.encode([row[_N] for row in rows]).decode(),))
        if rows:
            self._open[intent] = len(rows)
        self._written()
        return [Work(*(*row, intent)) for row in rows]

    def left(self, work: Work) -> None:
        """Nothing has come of it by this way: it waits for another one."""
        self._rows[_LEAVE].append((work.n,))
        self._count(work, done=0)

    def placed(self, work: Work, file: PlacedFile, octets: int, *, held: bool = False, adopted: bool = False) -> None:
        """A file has its place, for which so many octets were received; `held`: it was there, and nothing has changed;
        `adopted`: another tool had put it there."""
        counts = self._counts
        counts.octets += octets
        if held:
            counts.unchanged += 1
        elif work.held is None:
            counts.created += 1
        else:
            counts.updated += 1
        if not held and self._context.each is not ignored:
            kind = "adopted" if adopted else "created" if work.held is None else "updated"
            size = 0 if adopted else file.size
            done = Done(kind, work.uri, printable_path(file.path), size, hash=file.digest, length=file.size)
            if work.held is not None and work.tries is not None and self._is_repair(work, file.digest):
                done = msgspec.structs.replace(done, repaired=True)
            self._context.each(with_stated(done, work.type, work.lastmod, work.links))
        row = (
            self._set, work.uri, file.path, file.size, file.mtime_ns, file.digest, work.hash, work.length, work.lastmod,
            file.etag, file.last_modified, work.changed_at, int(file.newer), self._run, *work.stated,
        )  # fmt: skip
        self._rows[_PLACED].append(row)
        if self._any_failures:  # also of a resource that was planned for another reason than its failure
            self._rows[_CLEARED].append((self._set, work.uri))
        self._count(work)

    def _is_repair(self, work: Work, digest: str) -> bool:
        """Whether the file was found damaged, and is what it was again."""
        with self._database.read() as t:
            recorded = t.one("SELECT digest, listed_hash FROM resources WHERE id = ? AND mtime_ns = -1", (work.held,))
        return recorded is not None and (digest == recorded[0] or work.hash == (recorded[1] or ""))

    def confirmed(self, work: Work, mtime_ns: int | None) -> None:
        """What is held is what is listed; `mtime_ns`: the modification time that the file was given for that."""
        self._counts.unchanged += 1
        row = work.hash, work.length, work.lastmod, *work.stated, work.changed_at, mtime_ns, work.held
        self._rows[CONFIRM].append(row)
        self._rows[_CLEARED].append((self._set, work.uri))
        self._count(work)

    def again(self, work: Work, attempts: tuple[Attempt, ...], number: int, reason: str | None) -> None:
        """Other attempts are to be made, in round `number`; `reason`: why the resource itself was asked in vain."""
        self.last_round = number
        self._rows[_AGAIN].append((encode_attempts(attempts), number, reason, work.n))
        self._count(work, done=0)

    def failed(self, work: Work, reason: str, status: int, wait_seconds: float | None) -> None:
        """There is no way left; `wait_seconds`: what the source asks for."""
        now = self._context.now()
        self._counts.failed += 1
        if self._context.each is not ignored:
            path, hash_ = printable_path(work.path), strongest_text(work.hash)
            done = Done("failed", work.uri, path, reason=reason, hash=hash_, length=work.length)
            failed = self._context.failed
            failed[work.uri] = with_stated(done, work.type, work.lastmod, work.links)
            if len(failed) > _MOST_UNTOLD:
                self._context.each(failed.pop(next(iter(failed))))
        tries = (work.tries or 0) + 1
        next_at = now + int(Backoff(FIRST_PAUSE_SECONDS, _LONGEST_BACKOFF_SECONDS).seconds(tries)) * SECOND
        wait_until = None
        if wait_seconds is not None:
            wait_until = now + int(min(wait_seconds, _LONGEST_BACKOFF_SECONDS) * SECOND)
        row = (
            self._set, work.uri, work.loc, reason[:500], status, tries, now, now, next_at, wait_until, work.lastmod,
            work.length, work.hash, work.type, work.encoding, work.links, work.extra, work.changed_at,
        )  # fmt: skip
        self._rows[_FAILED].append(row)
        self._count(work)

    def _count(self, work: Work, done: int = 1) -> None:
        self._open[work.intent] -= 1
        self._done += done
        self._waiting += 1
        if self._waiting >= BATCH or time.monotonic() - self._flushed_at > _BATCH_SECONDS:
            self.flush()

    def flush(self) -> None:
        """Record what has happened since the last time, in one transaction."""
        if self._waiting:
            self._context.settle()
            with self._database.write() as t:
                self._write(t)
        self._written()

    def _written(self) -> None:
        self._flushed_at = time.monotonic()
        for rows in self._rows.values():
            rows.clear()
        self._waiting = 0
        self._context.listener(Progress("transferring", self._done, self.total, self._counts.octets))

    def _write(self, t: Transaction) -> None:
        for statement, rows in self._rows.items():
            t.many(statement, rows)
        over = [intent for intent, left in self._open.items() if left == 0]
        t.many("DELETE FROM intents WHERE id = ?", [(intent,) for intent in over])
        for intent in over:
            del self._open[intent]
