"""What the intake of announced records remembers beside the catalog: how far it has read, what it took, what waits.

One SQLite file in the state folder (`SqliteMemory`); `Memory` is the seam for another place. Catalog and memory cannot
commit together, so every batch goes in three steps: `begin` writes down what is about to happen, the catalog records,
`commit` writes down what has. After a crash in between, the catalog's last sequence number tells whether the batch
was recorded: nothing is lost and nothing comes twice.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol

import msgspec

from headwater.ingest.fed.pairs import Half, Statement, Unpaired
from headwater.spec.moments import from_microseconds, to_microseconds
from headwater.storage.database import Database, Transaction
from headwater.storage.lock import FileMutex
from headwater.storage.schema import Schema

SEEN_SECONDS = 14 * 86_400
"""How long a change document is known again when it is sent once more."""
REQUEST_SECONDS = 2 * 86_400
"""How long an idempotency key is remembered …"""
MOST_REQUESTS = 100_000
"""… and how many of them, for each set."""
_SWEEP = 20_000
"""Old rows that are taken away at once, at most …"""
_SWEEP_EVERY = 64
"""… in one of so many commits."""

_VERSION_1 = """
CREATE TABLE intent (
  set_name TEXT PRIMARY KEY, before INTEGER NOT NULL, count INTEGER NOT NULL, effects BLOB NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE seen (
  set_name TEXT NOT NULL, key BLOB NOT NULL, at_us INTEGER NOT NULL, noted_us INTEGER NOT NULL,
  PRIMARY KEY (set_name, key)
) STRICT, WITHOUT ROWID;
CREATE INDEX seen_age ON seen (noted_us);
CREATE TABLE gone (
  set_name TEXT NOT NULL, uri TEXT NOT NULL, at_us INTEGER NOT NULL, noted_us INTEGER NOT NULL,
  PRIMARY KEY (set_name, uri)
) STRICT, WITHOUT ROWID;
CREATE INDEX gone_age ON gone (noted_us);
CREATE TABLE half (
  set_name TEXT NOT NULL, uri TEXT NOT NULL, due_us INTEGER NOT NULL, half BLOB NOT NULL,
  PRIMARY KEY (set_name, uri)
) STRICT, WITHOUT ROWID;
CREATE INDEX half_due ON half (set_name, due_us);
CREATE TABLE statement (
  set_name TEXT NOT NULL, uri TEXT NOT NULL, rel TEXT NOT NULL, target TEXT NOT NULL,
  PRIMARY KEY (set_name, uri, rel, target)
) STRICT, WITHOUT ROWID;
CREATE INDEX statement_target ON statement (set_name, target);
CREATE TABLE position (
  set_name TEXT NOT NULL, feed TEXT NOT NULL, position BLOB NOT NULL,
  PRIMARY KEY (set_name, feed)
) STRICT, WITHOUT ROWID;
CREATE TABLE request (
  id INTEGER PRIMARY KEY, set_name TEXT NOT NULL, key TEXT NOT NULL, noted_us INTEGER NOT NULL,
  lines INTEGER NOT NULL, digest BLOB NOT NULL, complete INTEGER NOT NULL, UNIQUE (set_name, key)
) STRICT;
CREATE INDEX request_age ON request (noted_us);
CREATE TABLE answer (
  request INTEGER NOT NULL, number INTEGER NOT NULL, part BLOB NOT NULL, PRIMARY KEY (request, number)
) STRICT, WITHOUT ROWID;
"""

SCHEMA = Schema(application_id=0x4857696E, migrations=(_VERSION_1,))


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """How far the request with an idempotency key has got: so many lines with this digest, the part of its answer."""

    key: str
    lines: int
    digest: bytes
    part: bytes = b""
    complete: bool = False


class Effects(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What is to be kept in mind when a batch is recorded. Times are microseconds; `halves` None: waits no longer."""

    seen: dict[bytes, int] = msgspec.field(default_factory=dict)
    gone: dict[str, int] = msgspec.field(default_factory=dict)
    halves: dict[str, Half | None] = msgspec.field(default_factory=dict)
    statements: dict[str, tuple[Statement, ...]] = msgspec.field(default_factory=dict)
    positions: dict[str, bytes] = msgspec.field(default_factory=dict)
    progress: Progress | None = None


class Intent(msgspec.Struct, frozen=True):
    """A batch under way: `count` events are to follow the set's change number `before`."""

    before: int
    count: int
    effects: Effects


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """A request that was seen before: how far it got, and what it was answered."""

    lines: int
    digest: bytes
    complete: bool
    parts: tuple[bytes, ...]


class Memory(Protocol):
    """The seam: all methods are atomic and durable; what belongs together happens in one `turn`."""

    def turn(self, name: str) -> AbstractContextManager[None]:
        """The set for one thread of one process alone; a thread may enter it again while it is in it."""
        ...

    def intent(self, name: str) -> Intent | None:
        """The batch that was begun and not committed."""
        ...

    def begin(self, name: str, intent: Intent) -> None:
        """Write down what is about to be recorded."""
        ...

    def commit(self, name: str, effects: Effects, now: dt.datetime) -> None:
        """Write down what has been recorded; the intent has been carried out."""
        ...

    def shut_out(self, name: str) -> None:
        """Make sure that whoever began a batch and was paused does not record it any more, wherever that runs."""
        ...

    def abandon(self, name: str) -> None:
        """Forget the intent: nothing of it was recorded, nor will be."""
        ...

    def seen(self, name: str, keys: Iterable[bytes]) -> frozenset[bytes]:
        """Those of the keys that were taken before."""
        ...

    def gone(self, name: str, uris: Iterable[str]) -> dict[str, int]:
        """When those of the resources were deleted that have been."""
        ...

    def halves(self, name: str, uris: Iterable[str]) -> dict[str, Half]:
        """What waits for a partner, of these resources."""
        ...

    def due(self, name: str, until: dt.datetime | None, limit: int) -> dict[str, Half]:
        """What has waited until then; with None all that waits. Oldest first."""
        ...

    def unsettled(self, until: dt.datetime) -> frozenset[str]:
        """The sets in which something has waited until then, or a batch was begun and not committed."""
        ...

    def unpaired(self) -> dict[str, Unpaired]:
        """What waits for a partner, of each set in which something does."""
        ...

    def statements(self, name: str, uris: Iterable[str]) -> dict[str, tuple[Statement, ...]]:
        """What these resources say of others."""
        ...

    def about(self, name: str, uris: Iterable[str]) -> dict[str, tuple[Statement, ...]]:
        """What others say of these resources: (relation, who says it)."""
        ...

    def position(self, name: str, feed: str) -> bytes | None:
        """How far a feed was read."""
        ...

    def request(self, name: str, key: str) -> Request | None:
        """What became of the request with this key."""
        ...

    def lines_taken(self, name: str, key: str) -> int | None:
        """How many lines of the request with this key were taken; None for one that is new."""
        ...

    def close(self) -> None:
        """Give up what is held open."""
        ...


class SqliteMemory:
    """The memory in one SQLite file. Raises a `DatabaseFault` when the file or the disk is in the way."""

    def __init__(self, path: Path | str) -> None:
        self._path = Path(path)
        self._database = Database(path, SCHEMA)
        self._turns: dict[str, FileMutex] = {}
        self._commits = 0

    def turn(self, name: str) -> FileMutex:
        """The set for one thread of one process alone: a lock file beside the database keeps the others waiting."""
        return self._turns.setdefault(name, FileMutex(self._path.with_name(f"{self._path.stem}-{name}.turn")))

    def intent(self, name: str) -> Intent | None:
        """The batch that was begun and not committed."""
        with self._database.read() as transaction:
            row = transaction.one("SELECT before, count, effects FROM intent WHERE set_name = ?", (name,))
        return None if row is None else Intent(row[0], row[1], msgspec.msgpack.decode(row[2], type=Effects))

    def begin(self, name: str, intent: Intent) -> None:
        """Write down what is about to be recorded."""
        with self._database.write() as transaction:
            values = (name, intent.before, intent.count, msgspec.msgpack.encode(intent.effects))
            transaction.run("INSERT OR REPLACE INTO intent VALUES (?, ?, ?, ?)", values)

    def shut_out(self, name: str) -> None:
        """Nobody is to be shut out: the lock of a turn is held for as long as its process lives."""

    def abandon(self, name: str) -> None:
        """Forget the intent: nothing of it was recorded."""
        with self._database.write() as transaction:
            transaction.run("DELETE FROM intent WHERE set_name = ?", (name,))

    def commit(self, name: str, effects: Effects, now: dt.datetime) -> None:
        """Write down what has been recorded; the intent has been carried out."""
        now_us = to_microseconds(now)
        with self._database.write() as transaction:
            transaction.run("DELETE FROM intent WHERE set_name = ?", (name,))
            transaction.many(
                "INSERT OR IGNORE INTO seen VALUES (?, ?, ?, ?)",
                [(name, key, at_us, now_us) for key, at_us in effects.seen.items()],
            )
            transaction.many(
                "INSERT OR REPLACE INTO gone VALUES (?, ?, ?, ?)",
                [(name, uri, at_us, now_us) for uri, at_us in effects.gone.items()],
            )
            _keep_halves(transaction, name, effects.halves)
            _keep_statements(transaction, name, effects.statements)
            transaction.many(
                "INSERT OR REPLACE INTO position VALUES (?, ?, ?)",
                [(name, feed, position) for feed, position in effects.positions.items()],
            )
            if effects.progress is not None:
                _keep_progress(transaction, name, effects.progress, now_us)
            if self._commits % _SWEEP_EVERY == 0:
                _sweep(transaction, name, now_us)
            self._commits += 1

    def seen(self, name: str, keys: Iterable[bytes]) -> frozenset[bytes]:
        """Those of the keys that were taken before."""
        with self._database.read() as transaction:
            sql = "SELECT key FROM seen WHERE set_name = ? AND key = ?"
            return frozenset(row[0] for row in transaction.rows_each(sql, [(name, key) for key in keys]))

    def gone(self, name: str, uris: Iterable[str]) -> dict[str, int]:
        """When those of the resources were deleted that have been."""
        sql = "SELECT uri, at_us FROM gone WHERE set_name = ? AND uri = ?"
        with self._database.read() as transaction:
            return dict(transaction.rows_each(sql, [(name, uri) for uri in uris]))

    def halves(self, name: str, uris: Iterable[str]) -> dict[str, Half]:
        """What waits for a partner, of these resources."""
        sql = "SELECT uri, half FROM half WHERE set_name = ? AND uri = ?"
        with self._database.read() as transaction:
            return {uri: _half(octets) for uri, octets in transaction.rows_each(sql, [(name, uri) for uri in uris])}

    def due(self, name: str, until: dt.datetime | None, limit: int) -> dict[str, Half]:
        """What has waited until then; with None all that waits. Oldest first."""
        until_us = (1 << 63) - 1 if until is None else to_microseconds(until)
        sql = "SELECT uri, half FROM half WHERE set_name = ? AND due_us <= ? ORDER BY due_us LIMIT ?"
        with self._database.read() as transaction:
            return {uri: _half(octets) for uri, octets in transaction.rows(sql, (name, until_us, limit))}

    def unsettled(self, until: dt.datetime) -> frozenset[str]:
        """The sets in which something has waited until then, or a batch was begun and not committed."""
        sql = "SELECT set_name FROM half WHERE due_us <= ? UNION SELECT set_name FROM intent"
        with self._database.read() as transaction:
            return frozenset(row[0] for row in transaction.rows(sql, (to_microseconds(until),)))

    def unpaired(self) -> dict[str, Unpaired]:
        """What waits for a partner, of each set in which something does."""
        found: dict[str, Unpaired] = {}
        with self._database.read() as transaction:
            for name, octets in transaction.rows("SELECT set_name, half FROM half"):
                since, before = msgspec.msgpack.decode(octets, type=_Since).since, found.get(name, Unpaired(0, None))
                oldest = min((one for one in (since, before.since) if one is not None), default=None)
                found[name] = Unpaired(before.count + 1, oldest)
        return found

    def statements(self, name: str, uris: Iterable[str]) -> dict[str, tuple[Statement, ...]]:
        """What these resources say of others."""
        return self._grouped("SELECT uri, rel, target FROM statement WHERE set_name = ? AND uri = ?", name, uris)

    def about(self, name: str, uris: Iterable[str]) -> dict[str, tuple[Statement, ...]]:
        """What others say of these resources: (relation, who says it)."""
        return self._grouped("SELECT target, rel, uri FROM statement WHERE set_name = ? AND target = ?", name, uris)

    def _grouped(self, sql: str, name: str, uris: Iterable[str]) -> dict[str, tuple[Statement, ...]]:
        found: dict[str, tuple[Statement, ...]] = {}
        with self._database.read() as transaction:
            for uri, rel, other in transaction.rows_each(sql, [(name, uri) for uri in uris]):
                found[uri] = (*found.get(uri, ()), (rel, other))
        return found

    def position(self, name: str, feed: str) -> bytes | None:
        """How far a feed was read."""
        with self._database.read() as transaction:
            sql = "SELECT position FROM position WHERE set_name = ? AND feed = ?"
            found: bytes | None = transaction.value(sql, (name, feed))
        return found

    def request(self, name: str, key: str) -> Request | None:
        """What became of the request with this key."""
        with self._database.read() as transaction:
            sql = "SELECT id, lines, digest, complete FROM request WHERE set_name = ? AND key = ?"
            row = transaction.one(sql, (name, key))
            if row is None:
                return None
            parts = transaction.rows("SELECT part FROM answer WHERE request = ? ORDER BY number", (row[0],))
            return Request(lines=row[1], digest=row[2], complete=bool(row[3]), parts=tuple(one[0] for one in parts))

    def lines_taken(self, name: str, key: str) -> int | None:
        """How many lines of the request with this key were taken; None for one that is new."""
        with self._database.read() as transaction:
            sql = "SELECT lines FROM request WHERE set_name = ? AND key = ?"
            found: int | None = transaction.value(sql, (name, key))
        return found

    def close(self) -> None:
        """Give up the files."""
        self._database.close()


class _Since(msgspec.Struct, frozen=True):
    """Of a half no more than since when it waits."""

    since: dt.datetime | None = None


def _half(octets: bytes) -> Half:
    return msgspec.msgpack.decode(octets, type=Half)


def _keep_halves(transaction: Transaction, name: str, halves: dict[str, Half | None]) -> None:
    ended = [(name, uri) for uri, half in halves.items() if half is None]
    waiting = [
        (name, uri, to_microseconds(half.due), msgspec.msgpack.encode(half))
        for uri, half in halves.items()
        if half is not None
    ]
    transaction.many("DELETE FROM half WHERE set_name = ? AND uri = ?", ended)
    transaction.many("INSERT OR REPLACE INTO half VALUES (?, ?, ?, ?)", waiting)


def _keep_statements(transaction: Transaction, name: str, made: dict[str, tuple[Statement, ...]]) -> None:
    rows: Sequence[tuple[str, str, str, str]] = [
        (name, uri, rel, target) for uri, said in made.items() for rel, target in said
    ]
    transaction.many("DELETE FROM statement WHERE set_name = ? AND uri = ?", [(name, uri) for uri in made])
    transaction.many("INSERT OR IGNORE INTO statement VALUES (?, ?, ?, ?)", rows)


def _keep_progress(transaction: Transaction, name: str, made: Progress, now_us: int) -> None:
    transaction.run(
        "INSERT INTO request (set_name, key, noted_us, lines, digest, complete) VALUES (?1, ?2, ?3, ?4, ?5, ?6)"
        " ON CONFLICT (set_name, key) DO UPDATE SET lines = ?4, digest = ?5, complete = ?6",
        (name, made.key, now_us, made.lines, made.digest, int(made.complete)),
    )
    request = transaction.value("SELECT id FROM request WHERE set_name = ? AND key = ?", (name, made.key))
    if made.part:
        sql = "INSERT INTO answer SELECT ?1, coalesce(max(number) + 1, 0), ?2 FROM answer WHERE request = ?1"
        transaction.run(sql, (request, made.part))


def _sweep(transaction: Transaction, name: str, now_us: int) -> None:
    """Take away some of what is too old to matter; never more than a commit can bear."""
    old_us = to_microseconds(from_microseconds(now_us) - dt.timedelta(seconds=SEEN_SECONDS))
    for table, keys in (("seen", "set_name, key"), ("gone", "set_name, uri")):
        transaction.run(
            f"DELETE FROM {table} WHERE ({keys}) IN"  # noqa: S608 only our own names
            f" (SELECT {keys} FROM {table} WHERE noted_us < ? LIMIT {_SWEEP})",
            (old_us,),
        )
    old_us = to_microseconds(from_microseconds(now_us) - dt.timedelta(seconds=REQUEST_SECONDS))
    surplus = "SELECT id FROM request WHERE set_name = ? ORDER BY id DESC LIMIT -1 OFFSET ?"
    sql = f"SELECT id FROM request WHERE noted_us < ? UNION SELECT id FROM ({surplus}) LIMIT {_SWEEP}"  # noqa: S608
    old = [(row[0],) for row in transaction.rows(sql, (old_us, name, MOST_REQUESTS))]
    transaction.many("DELETE FROM answer WHERE request = ?", old)
    transaction.many("DELETE FROM request WHERE id = ?", old)
