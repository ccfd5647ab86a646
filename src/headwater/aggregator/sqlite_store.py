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
from headwater.spec.records import Link
from headwater.spec.times import from_microseconds, from_optional, to_microseconds
from headwater.storage.database import Database, Schema, opened_to_read
from headwater.storage.transaction import Transaction
from headwater.typed_decoding import from_json, json_decoder

HOME: Final = ".aggregator"
FILE: Final = "service.sqlite"
"""Where a service remembers: this file in this folder of its state."""

_FIRST: Final = """
CREATE TABLE sources(name TEXT PRIMARY KEY, configured_url TEXT NOT NULL, state TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE runs(
  number INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL, kind TEXT NOT NULL, worker TEXT NOT NULL,
  began_at INTEGER NOT NULL, lease_until INTEGER, operator TEXT NOT NULL, record TEXT, report TEXT
);
CREATE UNIQUE INDEX leases ON runs(name) WHERE lease_until IS NOT NULL;
CREATE INDEX runs_of_source ON runs(name, number) WHERE record IS NOT NULL;
CREATE TABLE events(
  number INTEGER PRIMARY KEY AUTOINCREMENT, run INTEGER NOT NULL, at INTEGER NOT NULL, sink TEXT, resource INTEGER,
  source TEXT NOT NULL, set_name TEXT NOT NULL, action TEXT NOT NULL, uri TEXT NOT NULL, origin TEXT NOT NULL,
  path TEXT NOT NULL, hash TEXT, length INTEGER, type TEXT, lastmod INTEGER, links TEXT, reason TEXT NOT NULL
);
CREATE INDEX events_of_resource ON events(resource) WHERE resource IS NOT NULL;
CREATE TABLE sinks(
  name TEXT PRIMARY KEY, acknowledged INTEGER NOT NULL, failures INTEGER NOT NULL DEFAULT 0,
  failure TEXT NOT NULL DEFAULT '', next_at INTEGER
) WITHOUT ROWID;
CREATE TABLE facts(name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE dead_letters(
  sink TEXT NOT NULL, number INTEGER NOT NULL, at INTEGER NOT NULL, reason TEXT NOT NULL, tries INTEGER NOT NULL,
  PRIMARY KEY(sink, number)
) WITHOUT ROWID;
"""
SCHEMA: Final = Schema(application_id=0x48574147, migrations=(_FIRST,))

_CACHE_OCTETS: Final = 2 << 20  # of each connection; each worker of a service has one
_KEPT_RUNS: Final = 200  # of each source

_OPERATORS: Final = ("url", "is_paused", "is_wanted_now", "answer", "retirement")
"""Fields of a source that people change at any time; the rest is the run's."""

_RUN: Final = "number, name, worker, began_at, lease_until, kind"
_EVENT: Final = (
    "number, run, at, source, set_name, action, uri, origin, path, hash, length, type, lastmod, links, reason"
)
_ADD_EVENT: Final = (
    f"INSERT INTO events(run, at, sink, resource{_EVENT.removeprefix('number, run, at')})"  # noqa: S608
    " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)
_LAST_OF_RESOURCE: Final = f"SELECT {_EVENT} FROM events WHERE resource = ? ORDER BY number DESC LIMIT 1"  # noqa: S608
_links = json_decoder(tuple[Link, ...])


class SqliteStore:
    """The `AggregatorStore` in the file `where`, which is made when it is not there, or in an open database.

    Safe for several threads and processes; not to be used on the other side of a fork.
    """

    def __init__(self, where: Path | Database) -> None:
        if isinstance(where, Path):
            where.parent.mkdir(parents=True, exist_ok=True)
        self._database = where if isinstance(where, Database) else Database(where, SCHEMA, cache_octets=_CACHE_OCTETS)
        self._commits = 0
        self._lock = threading.Lock()

    # sources

    def enrol(self, sources: Sequence[tuple[str, str]], now: dt.datetime) -> None:
        """Remember sources, as the protocol says."""
        with self._write() as t:
            known: dict[str, str] = dict(t.fetch("SELECT name, configured_url FROM sources"))
            for name, url in sources:
                if name not in known:
                    state = SourceState(name=name, url=url, life_since=now)
                    t.run("INSERT INTO sources VALUES (?, ?, ?)", (name, url, _json(state)))
                elif known[name] != url:
                    t.run("UPDATE sources SET configured_url = ? WHERE name = ?", (url, name))
                    _keep(t, msgspec.structs.replace(_source(t, name), url=url))

    def sources(self) -> list[SourceState]:
        """All sources, by name."""
        with self._database.read() as t:
            return [from_json(text, SourceState) for (text,) in t.fetch("SELECT state FROM sources ORDER BY name")]

    def source(self, name: str) -> SourceState | None:
        """One source; None where there is none."""
        with self._database.read() as t:
            text = t.value("SELECT state FROM sources WHERE name = ?", (name,))
        return None if text is None else from_json(text, SourceState)

    def change(self, name: str, **fields: Any) -> SourceState:
        """Set fields of a source."""
        with self._write() as t:
            state = msgspec.structs.replace(_source(t, name), **fields)
            _keep(t, state)
        return state

    def changed(self) -> int:
        """A number that is another one after a change: commits of others above, our own below."""
        return (self._database.data_version() << 32) + self._commits

    # runs

    def lease(self, name: str, kind: str, worker: str, now: dt.datetime, seconds: float) -> Run | None:
        """Begin a run of a source."""
        until = now + dt.timedelta(seconds=seconds)
        with self._write() as t:
            state = _source(t, name)
            for run in _leased(t, "name = ?", (name,)):
                if run.lease_until > now:
                    return None
                _break_off(t, run, now)
            if state.is_wanted_now:
                _keep(t, state := msgspec.structs.replace(state, is_wanted_now=False))
            values = name, kind, worker, to_microseconds(now), to_microseconds(until), _json(_operators(state))
            t.run(
                "INSERT INTO runs(name, kind, worker, began_at, lease_until, operator) VALUES (?, ?, ?, ?, ?, ?)",
                values,
            )
            number = int(t.value("SELECT last_insert_rowid()"))
        return Run(number=number, name=name, worker=worker, began_at=now, lease_until=until, kind=kind)

    def end(self, run: Run, record: RunRecord, state: SourceState) -> None:
        """Keep the record of a run and the state after it."""
        with self._write() as t:
            _check_lease(t, run)
            at_begin = from_json(t.value("SELECT operator FROM runs WHERE number = ?", (run.number,)), dict[str, Any])
            now = _operators(_source(t, run.name))
            changed = {name: now[name] for name in _OPERATORS if now[name] != at_begin[name]}
            if state.question_text != _source(t, run.name).question_text:  # the answer was to another question
                changed.pop("answer", None)
            fields = msgspec.to_builtins(state) | changed
            _keep(t, from_json(msgspec.json.encode(fields), SourceState))
            _end(t, run, record)

    def release(self, worker: str, now: dt.datetime) -> list[Run]:
        """End the leases of a worker, and all that are over."""
        with self._write() as t:
            found = _leased(t, "(worker = ? OR lease_until <= ?)", (worker, to_microseconds(now)))
            for run in found:
                _break_off(t, run, now)
        return found

    def running(self) -> list[Run]:
        """Runs that have a lease."""
        with self._database.read() as t:
            return _leased(t, "true", ())

    def runs(self, name: str | None = None, limit: int = 50, kind: str | None = None) -> list[RunRecord]:
        """Runs that have ended, newest first."""
        wanted = {column: value for column, value in (("name", name), ("kind", kind)) if value is not None}
        which = "".join(f" AND {column} = ?" for column in wanted)
        query = f"SELECT record, report FROM runs WHERE record IS NOT NULL{which} ORDER BY number DESC LIMIT ?"  # noqa: S608
        with self._database.read() as t:
            return [_record(*row) for row in t.fetch(query, (*wanted.values(), limit))]

    def run(self, number: int) -> RunRecord | None:
        """A run that has ended."""
        with self._database.read() as t:
            row = t.one("SELECT record, report FROM runs WHERE number = ? AND record IS NOT NULL", (number,))
        return None if row is None else _record(*row)

    def last_runs(self) -> dict[str, RunRecord]:
        """The newest run of each source that has ended."""
        newest = "SELECT max(number) FROM runs WHERE record IS NOT NULL GROUP BY name"
        with self._database.read() as t:
            rows = t.fetch(f"SELECT name, record FROM runs WHERE number IN ({newest})")  # noqa: S608
        return {name: _record(text) for name, text in rows}

    # the journal of events

    def append(self, run: Run, events: Sequence[NewEvent], now: dt.datetime) -> int:
        """Add events."""
        at = to_microseconds(now)
        with self._write() as t:
            _check_lease(t, run)
            for event in events:
                last = _last_event(t, event)
                if last is None or not is_repeated(last, event):
                    t.run(_ADD_EVENT, (run.number, at, None, _resource(event), *_values(event)))
            return _last_number(t)

    def append_held(self, sink: str, events: Sequence[NewEvent], now: dt.datetime, dead: Sequence[int] = ()) -> int:
        """Add events for one sink."""
        at = to_microseconds(now)
        with self._write() as t:
            t.many("DELETE FROM dead_letters WHERE sink = ? AND number = ?", [(sink, number) for number in dead])
            for event in events:
                last = _last_event(t, event)
                is_gone = last is not None and last.action == "deleted"
                if last is not None and not is_gone and (event.action == "deleted" or last.hash != event.hash):
                    event = msgspec.structs.replace(last, action="created")
                if not is_gone or event.action == "deleted":
                    t.run(_ADD_EVENT, (0, at, sink, None, *_values(event)))
            return _last_number(t)

    def events(self, after: int, limit: int = 1000, sink: str | None = None) -> list[Event]:
        """Events with numbers above `after`."""
        query = f"SELECT {_EVENT} FROM events WHERE number > ? AND (sink IS NULL OR sink = ?) ORDER BY number LIMIT ?"  # noqa: S608
        with self._database.read() as t:
            return [_event(row) for row in t.rows(query, (after, sink, limit))]

    def last_event(self, event: NewEvent) -> Event | None:
        """The last event of a resource."""
        with self._database.read() as t:
            return _last_event(t, event)

    def last_number(self) -> int:
        """The number of the last event."""
        with self._database.read() as t:
            return _last_number(t)

    def trimmed_number(self) -> int:
        """The number of the last event that was removed."""
        with self._database.read() as t:
            first = t.value("SELECT min(number) FROM events")
            return _last_number(t) if first is None else int(first) - 1

    def trim(self, before: dt.datetime) -> int:
        """Remove old events that every sink has acknowledged, and old dead letters."""
        at = to_microseconds(before)
        removed = 0
        while True:
            with self._write() as t:  # a part at a time: others write in between
                count = t.run(
                    "DELETE FROM events WHERE number IN (SELECT number FROM events WHERE at < ?"
                    " AND number <= (SELECT coalesce(min(acknowledged), (1 << 62)) FROM sinks)"
                    " ORDER BY number LIMIT 10000)",
                    (at,),
                )
                t.run("DELETE FROM dead_letters WHERE at < ?", (at,))
            removed += count
            if count == 0:
                return removed

    # sinks

    def enrol_sinks(self, names: Sequence[str]) -> None:
        """Remember these sinks alone."""
        with self._write() as t:
            known = {name for (name,) in t.fetch("SELECT name FROM sinks")}
            for name in known - set(names):
                t.run("DELETE FROM sinks WHERE name = ?", (name,))
                t.run("DELETE FROM dead_letters WHERE sink = ?", (name,))
            last = _last_number(t)
            t.many(
                "INSERT INTO sinks(name, acknowledged) VALUES (?, ?)",
                [(one, last) for one in names if one not in known],
            )

    def sink(self, name: str) -> SinkState:
        """How far a sink is."""
        with self._database.read() as t:
            row = t.one("SELECT acknowledged, failures, failure, next_at FROM sinks WHERE name = ?", (name,))
            if row is None:
                raise UnknownSource("there is no such sink", where=name)
            acknowledged, failures, failure, next_at = row
            last = _last_number(t)
            oldest = t.one(
                "SELECT at FROM events WHERE number > ? AND (sink IS NULL OR sink = ?) ORDER BY number LIMIT 1",
                (acknowledged, name),
            )
            counts = "SELECT count(*), coalesce(sum(tries > 0), 0) FROM dead_letters WHERE sink = ?"
            dead, refused = map(int, t.one(counts, (name,)) or (0, 0))
        return SinkState(
            name=name,
            acknowledged=acknowledged,
            waiting=max(0, last - acknowledged),
            oldest_waiting_at=None if oldest is None else from_microseconds(oldest[0]),
            dead_letters=dead,
            refused=refused,
            failures=failures,
            failure=failure,
            next_at=from_optional(next_at),
        )

    def acknowledge(self, name: str, number: int, dead: Sequence[DeadLetter] = (), *, after: int | None = None) -> None:
        """The sink has taken all up to `number`."""
        with self._write() as t:
            changed = t.run(
                "UPDATE sinks SET acknowledged = ?1, failures = 0, failure = '', next_at = NULL WHERE name = ?2"
                " AND acknowledged = coalesce(?3, acknowledged)",
                (number, name, after),
            )
            t.many(
                "INSERT OR REPLACE INTO dead_letters VALUES (?, ?, ?, ?, ?)",
                [(name, one.number, to_microseconds(one.at), one.reason, one.tries) for one in dead if changed],
            )

    def refused(self, name: str, reason: str, next_at: dt.datetime) -> None:
        """A delivery has failed."""
        with self._write() as t:
            t.run(
                "UPDATE sinks SET failures = failures + 1, failure = ?, next_at = ? WHERE name = ?",
                (reason, to_microseconds(next_at), name),
            )

    def set_position(self, name: str, number: int) -> None:
        """Let the sink begin again after `number`."""
        with self._write() as t:
            changed = t.run(
                "UPDATE sinks SET acknowledged = min(?, (SELECT coalesce(max(number), 0) FROM events)), failures = 0,"
                " failure = '', next_at = NULL WHERE name = ?",
                (number, name),
            )
            if not changed:
                raise UnknownSource("there is no such sink", where=name)

    def dead_letters(self, name: str, limit: int = 100) -> list[DeadLetter]:
        """Dead letters of a sink, newest first."""
        query = "SELECT sink, number, at, reason, tries FROM dead_letters WHERE sink = ? ORDER BY number DESC LIMIT ?"
        with self._database.read() as t:
            rows = t.fetch(query, (name, limit))
        return [
            DeadLetter(sink=sink, number=number, at=from_microseconds(at), reason=reason, tries=tries)
            for sink, number, at, reason, tries in rows
        ]

    # what else is remembered

    def fact(self, name: str) -> str | None:
        """A text that was kept by a name."""
        with self._database.read() as t:
            value = t.value("SELECT value FROM facts WHERE name = ?", (name,))
        return None if value is None else str(value)

    def keep_fact(self, name: str, text: str | None) -> None:
        """Keep a text by a name."""
        with self._write() as t:
            if text is None:
                t.run("DELETE FROM facts WHERE name = ?", (name,))
            else:
                t.run("INSERT OR REPLACE INTO facts VALUES (?, ?)", (name, text))

    def close(self) -> None:
        """Close the store."""
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


def _operators(state: SourceState) -> dict[str, Any]:
    values: dict[str, Any] = msgspec.to_builtins(state)
    return {name: values[name] for name in _OPERATORS}


def _leased(t: Transaction, which: str, values: tuple[str | int, ...]) -> list[Run]:
    query = f"SELECT {_RUN} FROM runs WHERE lease_until IS NOT NULL AND {which} ORDER BY number"  # noqa: S608
    return [
        Run(
            number=number, name=name, worker=worker, kind=kind, began_at=from_microseconds(began_at),
            lease_until=from_microseconds(until),
        )
        for number, name, worker, began_at, until, kind in t.fetch(query, values)
    ]  # fmt: skip


def _check_lease(t: Transaction, run: Run) -> None:
    held = t.one(
        "SELECT 1 FROM runs WHERE number = ? AND worker = ? AND lease_until IS NOT NULL", (run.number, run.worker)
    )
    if held is None:
        raise LeaseLost(run)


def _end(t: Transaction, run: Run, record: RunRecord) -> None:
    report = None if record.report is None else _json(record.report)
    told = _json(msgspec.structs.replace(record, report=None))
    t.run("UPDATE runs SET lease_until = NULL, record = ?, report = ? WHERE number = ?", (told, report, run.number))
    t.run(
        "DELETE FROM runs WHERE name = ?1 AND record IS NOT NULL AND number <= (SELECT number FROM runs WHERE name = ?1"
        " AND record IS NOT NULL ORDER BY number DESC LIMIT 1 OFFSET ?2)",
        (run.name, _KEPT_RUNS),
    )


def _break_off(t: Transaction, run: Run, now: dt.datetime) -> None:
    _end(t, run, broken_off(run, now))


def _record(text: str, report: str | None = None) -> RunRecord:
    record = from_json(text, RunRecord)
    return record if report is None else msgspec.structs.replace(record, report=from_json(report, dict[str, Any]))


def _resource(event: NewEvent) -> int:
    """What an event is about, as a number that others share by the rarest chance."""
    told = "\0".join((event.source, event.set_name, event.path)).encode()
    return int.from_bytes(hashlib.blake2b(told, digest_size=8).digest(), "big", signed=True)


def _last_event(t: Transaction, event: NewEvent) -> Event | None:
    row = t.one(_LAST_OF_RESOURCE, (_resource(event),))
    if row is None:
        return None
    last = _event(row)
    same = (last.source, last.set_name, last.path) == (event.source, event.set_name, event.path)
    return last if same else None


def _last_number(t: Transaction) -> int:
    return int(t.value("SELECT seq FROM sqlite_sequence WHERE name = 'events'") or 0)


def _values(event: NewEvent) -> tuple[str | int | None, ...]:
    lastmod = None if event.lastmod is None else to_microseconds(event.lastmod)
    return (
        event.source, event.set_name, event.action, event.uri, event.origin, event.path, event.hash, event.length,
        event.type, lastmod, _json(event.links) if event.links else None, event.reason,
    )  # fmt: skip


def _event(row: tuple[Any, ...]) -> Event:
    number, run, at, source, set_name, action, uri, origin, path, hash_, length, kind, lastmod, links, reason = row
    return Event(
        number=number, run=run, at=from_microseconds(at), source=source, set_name=set_name, action=action, uri=uri,
        origin=origin, path=path, hash=hash_, length=length, type=kind, lastmod=from_optional(lastmod),
        links=_links(links) if links else (), reason=reason,
    )  # fmt: skip
