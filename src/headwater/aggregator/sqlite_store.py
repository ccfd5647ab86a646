"""The store of a service in one SQLite file: several processes of one machine share it (WAL).

There is one writer at a time, so numbers that a transaction gives are in the order of commits, and a lease that it has
checked holds until it is committed. All is on the disk when a method returns.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from headwater.aggregator.store import (
    DeadLetter,
    Event,
    LeaseLost,
    NewEvent,
    Run,
    RunRecord,
    SinkState,
    SourceState,
    UnknownSource,
    broken_off,
    is_repeated,
)
from headwater.errors import UsageFault
from headwater.spec.times import from_optional, to_microseconds
from headwater.storage.database import Database, Schema, opened_to_read
from headwater.storage.transaction import Transaction
from headwater.typed_decoding import from_json

HOME: Final = ".aggregator"
FILE: Final = "service.sqlite"
"""Where a service remembers: this file in this folder of its state."""

_FIRST: Final = """
CREATE TABLE sources(name TEXT PRIMARY KEY, configured_url TEXT NOT NULL, state TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE runs(
  number INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL, kind TEXT NOT NULL, worker TEXT NOT NULL,
  lease_until INTEGER, run TEXT NOT NULL, state_before TEXT NOT NULL, record TEXT, report TEXT
);
CREATE UNIQUE INDEX leases ON runs(name) WHERE lease_until IS NOT NULL;
CREATE INDEX runs_of_source ON runs(name, number) WHERE record IS NOT NULL;
CREATE TABLE events(
  number INTEGER PRIMARY KEY AUTOINCREMENT, at INTEGER NOT NULL, sink TEXT, resource INTEGER, event TEXT NOT NULL
);
CREATE INDEX events_of_resource ON events(resource) WHERE resource IS NOT NULL;
CREATE TABLE sinks(
  name TEXT PRIMARY KEY, acknowledged INTEGER NOT NULL, failures INTEGER NOT NULL DEFAULT 0,
  failure TEXT NOT NULL DEFAULT '', next_at INTEGER, left_at INTEGER
) WITHOUT ROWID;
CREATE TABLE facts(name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE dead_letters(
  sink TEXT NOT NULL, number INTEGER NOT NULL, at INTEGER NOT NULL, letter TEXT NOT NULL, PRIMARY KEY(sink, number)
) WITHOUT ROWID;
"""
SCHEMA: Final = Schema(application_id=0x48574147, migrations=(_FIRST,))

_CACHE_OCTETS: Final = 2 << 20  # of each connection; each worker of a service has one
_KEPT_RUNS: Final = 200  # of each source

_OPERATORS: Final = ("url", "is_paused", "is_wanted_now", "answer", "refused_text", "retirement")
"""Fields of a source that people change at any time; the rest is the run's."""

_RESET: Final = "failures = 0, failure = '', next_at = NULL"
_OF_SINK: Final = "(sink IS NULL OR sink = ?)"


class SqliteStore:
    """The `AggregatorStore` in the file `where`, which is made when it is not there, or in an open database.

    `AggregatorStore` says what each method does. Safe for several threads and processes; not to be used on the other
    side of a fork.
    """

    def __init__(self, where: Path | Database) -> None:
        if isinstance(where, Path):
            where.parent.mkdir(parents=True, exist_ok=True)
        self._database = where if isinstance(where, Database) else Database(where, SCHEMA, cache_octets=_CACHE_OCTETS)
        self._commits = 0
        self._lock = threading.Lock()

    # sources

    def enrol(self, sources: Sequence[tuple[str, str]], now: dt.datetime) -> None:
        with self._write() as t:
            known: dict[str, str] = dict(t.fetch("SELECT name, configured_url FROM sources"))
            for name, url in sources:
                if name not in known:
                    state = SourceState(name=name, url=url, life_since=now)
                    t.run("INSERT INTO sources VALUES (?, ?, ?)", (name, url, _json(state)))
                elif known[name] != url:
                    t.run("UPDATE sources SET configured_url = ? WHERE name = ?", (url, name))
                    _keep(t, replace(_source(t, name), url=url))

    def sources(self) -> list[SourceState]:
        with self._database.read() as t:
            return [from_json(text, SourceState) for (text,) in t.fetch("SELECT state FROM sources ORDER BY name")]

    def source(self, name: str) -> SourceState | None:
        with self._database.read() as t:
            text = t.value("SELECT state FROM sources WHERE name = ?", (name,))
        return None if text is None else from_json(text, SourceState)

    def change(self, name: str, **fields: Any) -> SourceState:
        with self._write() as t:
            state = replace(_source(t, name), **fields)
            _keep(t, state)
        return state

    def changed(self) -> int:
        return (self._database.data_version() << 32) + self._commits  # commits of others above, our own below

    # runs

    def lease(self, name: str, kind: str, worker: str, now: dt.datetime, seconds: float) -> Run | None:
        run = Run(
            number=0, name=name, worker=worker, began_at=now, lease_until=now + dt.timedelta(seconds=seconds), kind=kind
        )
        with self._write() as t:
            state = _source(t, name)
            for held in _leased(t, "name = ?", (name,)):
                if held.lease_until > now:
                    return None
                _end(t, held, broken_off(held, now))
            if state.is_wanted_now:
                _keep(t, state := replace(state, is_wanted_now=False))
            t.run(
                "INSERT INTO runs(name, kind, worker, lease_until, run, state_before) VALUES (?, ?, ?, ?, ?, ?)",
                (name, kind, worker, to_microseconds(run.lease_until), _json(run), _json(state)),
            )
            return replace(run, number=int(t.value("SELECT last_insert_rowid()")))

    def end(self, run: Run, record: RunRecord, state: SourceState) -> None:
        with self._write() as t:
            _check_lease(t, run)
            before = from_json(t.value("SELECT state_before FROM runs WHERE number = ?", (run.number,)), SourceState)
            now = _source(t, run.name)
            changed = {one: getattr(now, one) for one in _OPERATORS if getattr(now, one) != getattr(before, one)}
            if state.question_text != now.question_text:  # the answer was to another question
                changed.pop("answer", None)
            _keep(t, replace(state, **changed))
            _end(t, run, record)

    def release(self, worker: str, now: dt.datetime) -> list[Run]:
        with self._write() as t:
            found = _leased(t, "(worker = ? OR lease_until <= ?)", (worker, to_microseconds(now)))
            for run in found:
                _end(t, run, broken_off(run, now))
        return found

    def running(self) -> list[Run]:
        with self._database.read() as t:
            return _leased(t, "true", ())

    def runs(self, name: str | None = None, limit: int = 50, kind: str | None = None) -> list[RunRecord]:
        wanted = {column: value for column, value in (("name", name), ("kind", kind)) if value is not None}
        which = "".join(f" AND {column} = ?" for column in wanted)
        query = f"SELECT record, report FROM runs WHERE record IS NOT NULL{which} ORDER BY number DESC LIMIT ?"  # noqa: S608
        with self._database.read() as t:
            return [_record(*row) for row in t.fetch(query, (*wanted.values(), limit))]

    def run(self, number: int) -> RunRecord | None:
        with self._database.read() as t:
            row = t.one("SELECT record, report FROM runs WHERE number = ? AND record IS NOT NULL", (number,))
        return None if row is None else _record(*row)

    def last_runs(self) -> dict[str, RunRecord]:
        newest = "SELECT max(number) FROM runs WHERE record IS NOT NULL GROUP BY name"
        with self._database.read() as t:
            rows = t.fetch(f"SELECT name, record FROM runs WHERE number IN ({newest})")  # noqa: S608
        return {name: _record(text) for name, text in rows}

    # the journal of events

    def append(self, run: Run, events: Sequence[NewEvent], now: dt.datetime) -> int:
        with self._write() as t:
            _check_lease(t, run)
            for event in events:
                last = _last_event(t, event)
                if last is None or not is_repeated(last, event):
                    _add(t, event, run.number, now)
            return _last_number(t)

    def append_held(self, sink: str, events: Sequence[NewEvent], now: dt.datetime, dead: Sequence[int] = ()) -> int:
        with self._write() as t:
            t.many("DELETE FROM dead_letters WHERE sink = ? AND number = ?", [(sink, number) for number in dead])
            for event in events:
                last = _last_event(t, event)
                is_gone = last is not None and last.action == "deleted"
                if last is not None and not is_gone and (event.action == "deleted" or last.hash != event.hash):
                    event = replace(last, action="created")
                if not is_gone or event.action == "deleted":
                    _add(t, event, 0, now, sink)
            return _last_number(t)

    def events(self, after: int, limit: int = 1000, sink: str | None = None) -> list[Event]:
        query = f"SELECT number, event FROM events WHERE number > ? AND {_OF_SINK} ORDER BY number LIMIT ?"  # noqa: S608
        with self._database.read() as t:
            return [_event(*row) for row in t.rows(query, (after, sink, limit))]

    def last_event(self, event: NewEvent) -> Event | None:
        with self._database.read() as t:
            return _last_event(t, event)

    def last_number(self) -> int:
        with self._database.read() as t:
            return _last_number(t)

    def trimmed_number(self) -> int:
        with self._database.read() as t:
            first = t.value("SELECT min(number) FROM events")
            return _last_number(t) if first is None else int(first) - 1

    def trim(self, before: dt.datetime) -> int:
        at = to_microseconds(before)
        with self._write() as t:
            t.run("DELETE FROM dead_letters WHERE at < ?", (at,))
            t.run("DELETE FROM dead_letters WHERE sink IN (SELECT name FROM sinks WHERE left_at < ?)", (at,))
            t.run("DELETE FROM sinks WHERE left_at < ?", (at,))
        removed = 0
        while True:
            with self._write() as t:  # a part at a time: others write in between
                count = t.run(
                    "DELETE FROM events WHERE number IN (SELECT number FROM events WHERE at < ?"
                    " AND number <= (SELECT coalesce(min(acknowledged), (1 << 62)) FROM sinks)"
                    " ORDER BY number LIMIT 10000)",
                    (at,),
                )
            removed += count
            if count == 0:
                return removed

    # sinks

    def enrol_sinks(self, names: Sequence[str], now: dt.datetime) -> list[SinkState]:
        with self._write() as t:
            last = _last_number(t)
            t.many("INSERT OR IGNORE INTO sinks(name, acknowledged) VALUES (?, ?)", [(one, last) for one in names])
            t.run("UPDATE sinks SET left_at = coalesce(left_at, ?)", (to_microseconds(now),))
            t.many("UPDATE sinks SET left_at = NULL WHERE name = ?", [(one,) for one in names])
            return [_sink(t, name) for (name,) in t.fetch("SELECT name FROM sinks WHERE left_at IS NOT NULL")]

    def sink(self, name: str) -> SinkState:
        with self._database.read() as t:
            return _sink(t, name)

    def acknowledge(self, name: str, number: int, dead: Sequence[DeadLetter] = (), *, after: int | None = None) -> None:
        with self._write() as t:
            changed = t.run(
                f"UPDATE sinks SET acknowledged = ?1, {_RESET} WHERE name = ?2"  # noqa: S608
                " AND acknowledged = coalesce(?3, acknowledged)",
                (number, name, after),
            )
            t.many(
                "INSERT OR REPLACE INTO dead_letters VALUES (?, ?, ?, ?)",
                [(name, one.number, to_microseconds(one.at), _json(one)) for one in dead if changed],
            )

    def refused(self, name: str, reason: str, next_at: dt.datetime) -> None:
        with self._write() as t:
            t.run(
                "UPDATE sinks SET failures = failures + 1, failure = ?, next_at = ? WHERE name = ?",
                (reason, to_microseconds(next_at), name),
            )

    def set_position(self, name: str, number: int) -> None:
        with self._write() as t:
            _sink(t, name)
            values = min(number, _last_number(t)), name
            t.run(f"UPDATE sinks SET acknowledged = ?, {_RESET} WHERE name = ?", values)  # noqa: S608

    def dead_letters(self, name: str, limit: int = 100) -> list[DeadLetter]:
        query = "SELECT letter FROM dead_letters WHERE sink = ? ORDER BY number DESC LIMIT ?"
        with self._database.read() as t:
            return [from_json(text, DeadLetter) for (text,) in t.fetch(query, (name, limit))]

    # what else is remembered

    def fact(self, name: str) -> str | None:
        with self._database.read() as t:
            value = t.value("SELECT value FROM facts WHERE name = ?", (name,))
        return None if value is None else str(value)

    def keep_fact(self, name: str, text: str | None) -> None:
        with self._write() as t:
            if text is None:
                t.run("DELETE FROM facts WHERE name = ?", (name,))
            else:
                t.run("INSERT OR REPLACE INTO facts VALUES (?, ?)", (name, text))

    def close(self) -> None:
        self._database.close()

    def __enter__(self) -> SqliteStore:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextmanager
    def _write(self) -> Iterator[Transaction]:
        with self._database.write() as t:
            yield t
        with self._lock:
            self._commits += 1


def existing_store(state: Path) -> SqliteStore:
    """The store of the service with this state. Raises UsageFault (HW-AGG-03) where there is none, DatabaseFaults."""
    return SqliteStore(_existing(state))


@contextmanager
def store_to_read(state: Path) -> Iterator[SqliteStore]:
    """The same for reading only, also by another user. Raises OSError, too."""
    with opened_to_read(_existing(state), SCHEMA) as database:
        yield SqliteStore(database)


def _existing(state: Path) -> Path:
    if not (path := state / HOME / FILE).is_file():
        raise UsageFault("no service has run with this state yet", code="HW-AGG-03", where=str(path))
    return path


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()


def _source(t: Transaction, name: str) -> SourceState:
    text = t.value("SELECT state FROM sources WHERE name = ?", (name,))
    if text is None:
        raise UnknownSource("there is no such source", where=name)
    return from_json(text, SourceState)


def _keep(t: Transaction, state: SourceState) -> None:
    t.run("UPDATE sources SET state = ? WHERE name = ?", (_json(state), state.name))


def _leased(t: Transaction, which: str, values: tuple[str | int, ...]) -> list[Run]:
    query = f"SELECT number, run FROM runs WHERE lease_until IS NOT NULL AND {which} ORDER BY number"  # noqa: S608
    return [replace(from_json(text, Run), number=number) for number, text in t.fetch(query, values)]


def _check_lease(t: Transaction, run: Run) -> None:
    held = t.one(
        "SELECT 1 FROM runs WHERE number = ? AND worker = ? AND lease_until IS NOT NULL", (run.number, run.worker)
    )
    if held is None:
        raise LeaseLost(run)


def _end(t: Transaction, run: Run, record: RunRecord) -> None:
    report = None if record.report is None else _json(record.report)
    told = _json(replace(record, report=None))
    t.run("UPDATE runs SET lease_until = NULL, record = ?, report = ? WHERE number = ?", (told, report, run.number))
    t.run(
        "DELETE FROM runs WHERE name = ?1 AND record IS NOT NULL AND number <= (SELECT number FROM runs WHERE name = ?1"
        " AND record IS NOT NULL ORDER BY number DESC LIMIT 1 OFFSET ?2)",
        (run.name, _KEPT_RUNS),
    )


def _record(text: str, report: str | None = None) -> RunRecord:
    record = from_json(text, RunRecord)
    return record if report is None else replace(record, report=from_json(report, dict[str, Any]))


def _about(event: NewEvent) -> tuple[str, str, str]:
    return event.source, event.set_name, event.path


def _resource(event: NewEvent) -> int:
    """What an event is about, as a number that others share by the rarest chance."""
    told = "\0".join(_about(event)).encode()
    return int.from_bytes(hashlib.blake2b(told, digest_size=8).digest(), "big", signed=True)


def _last_event(t: Transaction, event: NewEvent) -> Event | None:
    query = "SELECT number, event FROM events WHERE resource = ? ORDER BY number DESC LIMIT 1"
    row = t.one(query, (_resource(event),))
    last = None if row is None else _event(*row)
    return last if last is not None and _about(last) == _about(event) else None


def _last_number(t: Transaction) -> int:
    return int(t.value("SELECT seq FROM sqlite_sequence WHERE name = 'events'") or 0)


def _add(t: Transaction, event: NewEvent, run: int, now: dt.datetime, sink: str | None = None) -> None:
    """Add an event: of a resource, or for one sink alone."""
    fields = {name: getattr(event, name) for name in NewEvent.__struct_fields__}
    text = _json(Event(number=0, run=run, at=now, **fields))
    values = to_microseconds(now), sink, _resource(event) if sink is None else None, text
    t.run("INSERT INTO events(at, sink, resource, event) VALUES (?, ?, ?, ?)", values)


def _event(number: int, text: str) -> Event:
    return replace(from_json(text, Event), number=number)


def _sink(t: Transaction, name: str) -> SinkState:
    row = t.one("SELECT acknowledged, failures, failure, next_at FROM sinks WHERE name = ?", (name,))
    if row is None:
        raise UnknownSource("there is no such sink", where=name)
    acknowledged, failures, failure, next_at = row
    oldest = t.value(
        f"SELECT at FROM events WHERE number > ? AND {_OF_SINK} ORDER BY number LIMIT 1",  # noqa: S608
        (acknowledged, name),
    )
    counts = "SELECT count(*), coalesce(sum(letter ->> 'tries' > 0), 0) FROM dead_letters WHERE sink = ?"
    dead, refused = map(int, t.one(counts, (name,)) or (0, 0))
    return SinkState(
        name=name,
        acknowledged=acknowledged,
        waiting=max(0, _last_number(t) - acknowledged),
        oldest_waiting_at=from_optional(oldest),
        dead_letters=dead,
        refused=refused,
        failures=failures,
        failure=failure,
        next_at=from_optional(next_at),
    )
