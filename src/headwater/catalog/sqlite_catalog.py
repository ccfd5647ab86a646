"""The catalog in one SQLite file: the embedded default, for one machine and any number of its processes.

It reads what a batch concerns, asks `page_filling` what the batch does, and writes that down, all in one transaction.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import asdict, astuple

from headwater.catalog import page_filling
from headwater.catalog.interface import (
    LONGEST_KEY,
    NO_UPDATE,
    Accepted,
    Catalog,
    Change,
    Event,
    Limits,
    Metadata,
    Page,
    Rendered,
    Resource,
    RowKey,
    Segment,
    SetSnapshot,
    SetState,
    StateRow,
    StateUpdate,
    Unacceptable,
    UnknownSet,
    WrongPhase,
)
from headwater.catalog.page_filling import (
    Log,
    Logged,
    PageFill,
    PageSlot,
    Places,
    Put,
    RowWrite,
    SegmentRun,
    is_row_key,
    is_text,
    page_of,
    segment_of,
    to_microseconds,
)
from headwater.errors import StoreFault
from headwater.spec.records import ChangeKind, Extra, Link
from headwater.spec.times import from_microseconds, from_optional
from headwater.storage.database import Database, Durability, Schema
from headwater.storage.transaction import Row, SchemaTooNew, Transaction, Value
from headwater.typed_decoding import json_decoder

# ruff: noqa: S608 the only text put into a statement is our own lists of columns

# The tables, and values of the catalog as their rows, and back
#
# `resource.id` and `change.id` are `set_id << 40 | slot` and `set_id << 40 | seq`: the file itself lies in the order in
# which pages and segments are read, so that a page costs the same in a set of any size, and a load in any order of URIs
# appends. Only the unique index knows the order of URIs. A migration that was ever released is never changed.

SLOT_BITS = 40  # bits of a slot or a sequence number within an id: a million million of each, for eight million sets

_VERSION_1 = """
CREATE TABLE "set" (
  id INTEGER PRIMARY KEY,
  name TEXT NOT NULL UNIQUE,
  opened_us INTEGER,                      -- NULL while it is loading
  last_seq INTEGER NOT NULL DEFAULT 0,
  last_us INTEGER,                        -- time of the newest change or mark
  count INTEGER NOT NULL DEFAULT 0,
  next_slot INTEGER NOT NULL DEFAULT 0,
  notes BLOB NOT NULL DEFAULT x''
) STRICT;

CREATE TABLE resource (
  id INTEGER PRIMARY KEY,                 -- set_id << 40 | slot
  set_id INTEGER NOT NULL,
  uri TEXT NOT NULL,
  page INTEGER NOT NULL,
  weight INTEGER NOT NULL,
  seq INTEGER NOT NULL,                   -- of the last change; 0: as loaded
  lastmod_us INTEGER,
  hash TEXT,
  length INTEGER,
  type TEXT,
  more BLOB,                              -- JSON of the rare attributes, NULL when there are none
  memo BLOB
) STRICT;
CREATE UNIQUE INDEX resource_uri ON resource (set_id, uri);

CREATE TABLE page (
  set_id INTEGER NOT NULL,
  number INTEGER NOT NULL,
  first_slot INTEGER NOT NULL,            -- its slots end where those of the next page begin
  count INTEGER NOT NULL,
  weight INTEGER NOT NULL,
  touched INTEGER NOT NULL,
  rendered INTEGER NOT NULL DEFAULT 0,
  at_us INTEGER,
  completed_us INTEGER,
  stale_us INTEGER,
  PRIMARY KEY (set_id, number)
) STRICT, WITHOUT ROWID;

CREATE TABLE change (
  id INTEGER PRIMARY KEY,                 -- set_id << 40 | seq
  at_us INTEGER NOT NULL,
  uri TEXT NOT NULL,
  change INTEGER NOT NULL,                -- 1 created, 2 updated, 3 deleted
  lastmod_us INTEGER,
  hash TEXT,
  length INTEGER,
  type TEXT,
  more BLOB
) STRICT;

CREATE TABLE segment (
  set_id INTEGER NOT NULL,
  number INTEGER NOT NULL,
  first INTEGER NOT NULL,
  last INTEGER NOT NULL,
  from_us INTEGER NOT NULL,
  until_us INTEGER,                       -- NULL: open
  weight INTEGER NOT NULL,
  PRIMARY KEY (set_id, number)
) STRICT, WITHOUT ROWID;
"""

_VERSION_2 = """
CREATE TABLE state (                      -- not without rowid: a look-up would read every large value on its way
  id INTEGER PRIMARY KEY,
  set_id INTEGER NOT NULL,
  kind TEXT NOT NULL,
  key TEXT NOT NULL,
  rank INTEGER NOT NULL,
  value BLOB NOT NULL,
  UNIQUE (set_id, kind, key)
) STRICT;
CREATE INDEX state_rank ON state (kind, set_id, rank, key);
ALTER TABLE "set" ADD COLUMN state_version INTEGER NOT NULL DEFAULT 0;
"""

SCHEMA = Schema(application_id=0x48574361, migrations=(_VERSION_1, _VERSION_2))


CHANGES = {1: ChangeKind.CREATED, 2: ChangeKind.UPDATED, 3: ChangeKind.DELETED}
_CHANGE_NUMBERS = {change: number for number, change in CHANGES.items()}

RESOURCE_COLUMNS = "lastmod_us, hash, length, type, more, uri, memo, page, seq"
CHANGE_COLUMNS = "lastmod_us, hash, length, type, more, id, at_us, uri, change"
PAGE_COLUMNS = "number, count, weight, touched, rendered, at_us, completed_us, stale_us"
SEGMENT_COLUMNS = "number, first, last, from_us, weight, until_us"
SET_COLUMNS = "name, opened_us, last_seq, last_us, count, notes, state_version"


class More(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The attributes that few resources have."""

    encoding: str | None = None
    changefreq: str | None = None
    links: tuple[Link, ...] = ()
    extra: Extra = ()


_to_json = msgspec.json.Encoder().encode
_from_json = json_decoder(More)


def _described(metadata: Metadata) -> Row:
    """The columns lastmod_us, hash, length, type and more, which is JSON of the rare attributes where there are any."""
    lastmod = metadata.lastmod
    lastmod_us = None if lastmod is None else to_microseconds(lastmod)
    if metadata.links or metadata.extra or metadata.encoding is not None or metadata.changefreq is not None:
        links = tuple(  # times as JSON keeps them exactly: of no subclass, in UTC
            link
            if link.modified is None
            else msgspec.structs.replace(link, modified=from_microseconds(to_microseconds(link.modified)))
            for link in metadata.links
        )
        rare = More(encoding=metadata.encoding, changefreq=metadata.changefreq, links=links, extra=metadata.extra)
        return lastmod_us, metadata.hash, metadata.length, metadata.type, _to_json(rare)
    return lastmod_us, metadata.hash, metadata.length, metadata.type, None


def metadata_of(
    lastmod_us: int | None, hash_: str | None, length: int | None, type_: str | None, more: Any
) -> Metadata:
    """The metadata that the five columns keep."""
    lastmod = None if lastmod_us is None else from_microseconds(lastmod_us)
    if more is None:
        return Metadata(lastmod=lastmod, hash=hash_, length=length, type=type_)
    return Metadata(lastmod=lastmod, hash=hash_, length=length, type=type_, **asdict(_from_json(more)))


def fresh_row(base: int, set_id: int, put: Put) -> Row:
    """A row for INSERT INTO resource, in the order of its columns."""
    event, place = put.event, put.place
    lastmod_us, hash_, length, type_, more = _described(event.metadata)
    slot, uri, memo = base | place.slot, event.uri, event.memo or None
    return slot, set_id, uri, place.page, place.weight, put.seq, lastmod_us, hash_, length, type_, more, memo


def kept_row(base: int, put: Put) -> Row:
    """Values for UPDATE resource … WHERE id = ?."""
    event, place = put.event, put.place
    return place.weight, put.seq, *_described(event.metadata), event.memo or None, base | place.slot


def change_row(base: int, logged: Logged) -> Row:
    """A row for INSERT INTO change, in the order of its columns."""
    what = base | logged.seq, logged.at_us, logged.uri, _CHANGE_NUMBERS[logged.change]
    return *what, *_described(logged.metadata)


def resource_of(row: Row) -> Resource:
    """From RESOURCE_COLUMNS."""
    lastmod_us, hash_, length, type_, more, uri, memo, page, seq = row
    return Resource(uri, metadata_of(lastmod_us, hash_, length, type_, more), memo or b"", page, seq)


def recorded_of(row: Row, base: int) -> Change:
    """From CHANGE_COLUMNS."""
    *described, id_, at_us, uri, change = row
    return Change(id_ - base, from_microseconds(at_us), uri, CHANGES[change], metadata_of(*described))


def _state_of(row: Row) -> SetState:
    """From _STATE_QUERY."""
    name, opened_us, last_seq, last_us, count, notes, state_version, page_count = row
    return SetState(
        name=name,
        opened_at=from_optional(opened_us),
        last_seq=last_seq,
        last_at=from_optional(last_us),
        count=count,
        page_count=page_count,
        notes=notes,
        state_version=state_version,
    )


class SqliteCatalog(Catalog):
    """A catalog in the file at `path`, created and migrated as needed; use from any thread.

    Raises StoreFault for a file of a newer Headwater and a `DatabaseFault` (HW-DB-…) when the file or the disk is in
    the way; every method may raise the latter.
    """

    is_remote = False
    load_batch = 2_000

    def __init__(
        self,
        path: Path | str,
        limits: Limits | None = None,
        *,
        durability: Durability = Durability.FULL,
        busy_seconds: float = 30.0,
    ) -> None:
        self.limits = limits or Limits()
        try:
            self._database = Database(path, SCHEMA, durability=durability, busy_seconds=busy_seconds)
        except SchemaTooNew as cause:
            raise StoreFault(cause.what, code="HW-CAT-03", where=cause.where) from cause

    @property
    def migrated_from(self) -> int | None:
        """The schema version that the file had before it was opened, when that was an older one."""
        return self._database.migrated_from

    @contextmanager
    def _read(self, name: str) -> Iterator[_Set]:
        with self._database.read() as transaction:
            yield _Set(transaction, name)

    @contextmanager
    def _write(self, name: str) -> Iterator[_Set]:
        with self._database.write() as transaction:
            yield _Set(transaction, name)

    def sets(self) -> list[SetState]:
        with self._database.read() as transaction:
            return [_state_of(row) for row in transaction.rows(f"{_STATE_QUERY} ORDER BY name")]

    def newest(self) -> dict[str, int]:
        with self._database.read() as transaction:
            return dict(transaction.rows('SELECT name, last_seq FROM "set" WHERE opened_us IS NOT NULL'))

    def state(self, name: str) -> SetState:
        with self._read(name) as held:
            return held.state()

    def create(self, name: str, *, last_seq: int = 0) -> SetState:
        if not name or not is_text(name):
            raise Unacceptable(f"no name for a set: {name!a}")
        with self._database.write() as transaction:
            transaction.run('INSERT INTO "set" (name, last_seq) VALUES (?, ?) ON CONFLICT DO NOTHING', (name, last_seq))
            return _Set(transaction, name).state()

    def load(
        self, name: str, events: Sequence[Event], *, after: SetState | None = None, state: StateUpdate = NO_UPDATE
    ) -> int:
        with self._write(name) as held:
            held.check_after(after)
            if held.opened_us is not None:
                raise WrongPhase("the set is open: changes are recorded, not loaded", where=name)
            held.write_rows(page_filling.row_writes(state))
            places = held.places(events, self.limits.of(name))
            page_filling.load(places, events)
            held.write_places(places)
            return held.count + places.added

    def open(self, name: str, at: dt.datetime) -> SetState:
        at_us = to_microseconds(at)
        with self._write(name) as held:
            if held.opened_us is None:
                held.update(opened_us=at_us, last_us=held.later(at_us))
                held.transaction.run(
                    "UPDATE page SET stale_us = ? WHERE set_id = ? AND touched > rendered", (at_us, held.id)
                )
                held.write_run(SegmentRun(0, held.last_seq + 1, held.last_seq, at_us))
            return held.state()

    def record(
        self,
        name: str,
        events: Sequence[Event],
        now: dt.datetime,
        *,
        after: SetState | None = None,
        state: StateUpdate = NO_UPDATE,
    ) -> Accepted:
        now_us = to_microseconds(now)
        with self._write(name) as held:
            log = held.log(self.limits.of(name))
            held.check_after(after)
            places = held.places(events, self.limits.of(name))
            ignored = tuple(page_filling.record(places, log, events, now_us))
            held.write_rows(page_filling.row_writes(state, log.changes))
            if not log.changes:
                return Accepted(0, 0, ignored)
            held.write_places(places)
            held.write_log(log)
        return Accepted(log.changes[0].seq, log.last_seq, ignored)

    def mark(self, name: str, now: dt.datetime) -> dt.datetime:
        now_us = to_microseconds(now)
        with self._write(name) as held:
            last_us = held.later(now_us)
            held.update(last_us=last_us)
        return from_microseconds(last_us)

    def remember(self, name: str, memos: Sequence[tuple[str, bytes]], *, newest: int | None = None) -> None:
        with self._write(name) as held:
            until = held.last_seq if newest is None else newest
            held.transaction.many(
                "UPDATE resource SET memo = ? WHERE set_id = ? AND uri = ? AND seq <= ?",
                [(memo or None, held.id, uri, until) for uri, memo in memos if is_text(uri)],
            )

    def rows(self, name: str, keys: Iterable[RowKey]) -> dict[RowKey, StateRow]:
        with self._read(name) as held:
            found = held.transaction.rows_each(
                "SELECT kind, key, value, rank FROM state WHERE set_id = ? AND kind = ? AND key = ?",
                [(held.id, *key) for key in keys if is_row_key(key)],
            )
            return {(row[0], row[1]): StateRow(*row) for row in found}

    def rows_of(
        self,
        name: str,
        kind: str,
        *,
        after: StateRow | None = None,
        until: int | None = None,
        limit: int = 10_000,
        descending: bool = False,
    ) -> list[StateRow]:
        with self._read(name) as held:
            if not is_row_key((kind, "-")):
                return []
            sql, first, last = _ASCENDING, (-_LARGEST - 1, ""), _LARGEST
            if descending:
                sql, first, last = _DESCENDING, (_LARGEST, _BEHIND_KEYS), -_LARGEST - 1
            rank, key = first if after is None else (after.rank, after.key)
            values = (kind, held.id, rank, key, last if until is None else until, max(limit, 0))
            return [StateRow(*row) for row in held.transaction.rows(sql, values)]

    def row_counts(self, name: str) -> dict[str, int]:
        with self._read(name) as held:
            return dict(held.rows("SELECT kind, count(*) FROM state WHERE set_id = ? GROUP BY kind"))

    def sets_with_rows(self, kind: str, until: int | None = None) -> dict[str, int]:
        if not is_row_key((kind, "-")):
            return {}
        mine = 'FROM state WHERE kind = ?1 AND set_id = "set".id AND rank <= ?2'  # sought in each set
        sql = f'SELECT name, (SELECT count(*) {mine}) FROM "set" WHERE EXISTS (SELECT 1 {mine}) ORDER BY name'
        with self._database.read() as transaction:
            return dict(transaction.rows(sql, (kind, _LARGEST if until is None else until)))

    def get(self, name: str, uris: Sequence[str]) -> dict[str, Resource]:
        with self._read(name) as held:
            rows = held.transaction.rows_each(
                f"SELECT {RESOURCE_COLUMNS} FROM resource WHERE set_id = ? AND uri = ?",
                [(held.id, uri) for uri in uris if is_text(uri)],
            )
            return {resource.uri: resource for resource in map(resource_of, rows)}

    def resources(self, name: str, after: str = "", limit: int = 10_000) -> list[Resource]:
        with self._read(name) as held:
            return [resource_of(row) for row in held.by_uri(RESOURCE_COLUMNS, after, limit)]

    def memos(self, name: str, after: str = "", limit: int = 10_000) -> list[tuple[str, bytes]]:
        with self._read(name) as held:
            return held.by_uri("uri, coalesce(memo, x'')", after, limit)

    def pages(self, name: str) -> list[Page]:
        with self._read(name) as held:
            return held.pages()

    def page(self, name: str, number: int) -> Iterator[Resource]:
        self.state(name)  # an unknown set is said now, not with the first resource
        return self._page(name, number)

    def _page(self, name: str, number: int) -> Iterator[Resource]:
        with self._read(name) as held:
            first, until = held.slots_of(number)
            rows = held.transaction.rows(
                f"SELECT {RESOURCE_COLUMNS} FROM resource WHERE id >= ? AND id < ? ORDER BY id",
                (held.base + first, held.base + until),
            )
            yield from map(resource_of, rows)

    def rendered(self, name: str, pages: Sequence[Rendered]) -> None:
        rows = [(page, to_microseconds(page.at), to_microseconds(page.completed)) for page in pages]
        with self._write(name) as held:
            for page, at_us, completed_us in rows:
                changed = held.transaction.run(
                    "UPDATE page SET rendered = ?1, at_us = ?2, completed_us = ?3,"
                    " stale_us = CASE WHEN touched > ?1 THEN max(coalesce(stale_us, ?2), ?2) END"
                    " WHERE set_id = ?4 AND number = ?5 AND touched >= ?1",
                    (page.touched, at_us, completed_us, held.id, page.number),
                )
                if not changed:
                    raise Unacceptable(f"page {page.number} was never touched {page.touched} times", where=name)

    def changes(self, name: str, after: int = 0, limit: int = 10_000) -> list[Change]:
        with self._read(name) as held:
            rows = held.transaction.rows(
                f"SELECT {CHANGE_COLUMNS} FROM change WHERE id > ? AND id <= ? ORDER BY id LIMIT ?",
                (held.base + max(after, 0), held.base + held.last_seq, max(limit, 0)),
            )
            return [recorded_of(row, held.base) for row in rows]

    def segments(self, name: str) -> list[Segment]:
        with self._read(name) as held:
            return held.segments()

    def snapshot_of(self, name: str) -> SetSnapshot:
        with self._read(name) as held:
            return SetSnapshot(held.state(), held.pages(), held.segments())

    def snapshots(self, names: frozenset[str] = frozenset()) -> Iterator[SetSnapshot]:
        return (self.snapshot_of(one.name) for one in self.sets() if not names or one.name in names)

    def times(self, wanted: Mapping[str, int]) -> dict[str, dt.datetime]:
        found = {name: self.changes(name, seq - 1, 1) for name, seq in wanted.items()}
        return {name: changes[0].at for name, changes in found.items() if changes}

    def close_segment(self, name: str, now: dt.datetime) -> Segment:
        now_us = to_microseconds(now)
        with self._write(name) as held:
            log = held.log(self.limits.of(name))
            closed = log.close(max(now_us, log.last_us + 1))
            held.write_log(log)
        return segment_of(*astuple(closed))

    def note(self, name: str, notes: bytes) -> None:
        with self._write(name) as held:
            held.update(notes=notes)

    def drop(self, name: str) -> None:
        with self._write(name) as held:
            for table in ("resource", "change"):
                held.transaction.run(
                    f"DELETE FROM {table} WHERE id >= ? AND id < ?", (held.base, held.base + (1 << SLOT_BITS))
                )
            for table in ("page", "segment", "state"):
                held.transaction.run(f"DELETE FROM {table} WHERE set_id = ?", (held.id,))
            held.transaction.run('DELETE FROM "set" WHERE id = ?', (held.id,))

    def check(self) -> list[str]:
        """What is wrong with the file itself; reads all of it. `verify` compares the snapshot."""
        return self._database.check()

    def close(self) -> None:
        self._database.close()


_STATE_QUERY = f'SELECT {SET_COLUMNS}, (SELECT count(*) FROM page WHERE set_id = id) FROM "set"'
_LARGEST = (1 << 63) - 1
_BEHIND_KEYS = "\U0010ffff" * (LONGEST_KEY // 4 + 1)
_OF_KIND = "SELECT kind, key, value, rank FROM state WHERE kind = ? AND set_id = ?"
_ASCENDING = f"{_OF_KIND} AND (rank, key) > (?, ?) AND rank <= ? ORDER BY rank, key LIMIT ?"
_DESCENDING = f"{_OF_KIND} AND (rank, key) < (?, ?) AND rank >= ? ORDER BY rank DESC, key DESC LIMIT ?"


class _Set:
    """One set inside a transaction: its own row as that found it, and its rows in the other tables.

    `base` is where the ids of its resources and changes begin. Raises UnknownSet.
    """

    def __init__(self, transaction: Transaction, name: str) -> None:
        sql = 'SELECT id, opened_us, last_seq, last_us, count, next_slot FROM "set" WHERE name = ?'
        row = transaction.one(sql, (name,)) if is_text(name) else None
        if row is None:
            raise UnknownSet("the catalog has no such set", where=name)
        self.transaction = transaction
        self.name = name
        self.id: int
        self.count: int
        self.id, self.opened_us, self.last_seq, self.last_us, self.count, self.next_slot = row
        self.base = self.id << SLOT_BITS

    def state(self) -> SetState:
        """The state as it is by now."""
        row = self.transaction.one(f"{_STATE_QUERY} WHERE id = ?", (self.id,))
        assert row is not None
        return _state_of(row)

    def check_after(self, after: SetState | None) -> None:
        """Raise Moved where the set is not as it was seen."""
        if after is not None:
            page_filling.check_after(self.state(), after)

    def later(self, us: int) -> int:
        """The later of this time and the newest one."""
        return us if self.last_us is None else max(us, self.last_us)

    def update(self, **columns: Value) -> None:
        """Write columns of the set's own row."""
        assigned = ", ".join(f"{name} = ?" for name in columns)
        self.transaction.run(f'UPDATE "set" SET {assigned} WHERE id = ?', (*columns.values(), self.id))

    def rows(self, sql: str) -> Iterator[Row]:
        """What a query of the set alone finds."""
        return self.transaction.rows(sql, (self.id,))

    def by_uri(self, columns: str, after: str, limit: int) -> list[Any]:
        """Resources in the order of their URIs."""
        sql = f"SELECT {columns} FROM resource WHERE set_id = ? AND uri > ? ORDER BY uri LIMIT ?"
        return self.transaction.fetch(sql, (self.id, after, max(limit, 0)))

    def pages(self) -> list[Page]:
        return [page_of(*row) for row in self.rows(f"SELECT {PAGE_COLUMNS} FROM page WHERE set_id = ? ORDER BY number")]

    def segments(self) -> list[Segment]:
        sql = f"SELECT {SEGMENT_COLUMNS} FROM segment WHERE set_id = ? ORDER BY number"
        return [segment_of(*row) for row in self.rows(sql)]

    def slots_of(self, page: int) -> tuple[int, int]:
        """The first slot of a page, and the first one behind it; none for a page that is not there."""
        sql = "SELECT first_slot FROM page WHERE set_id = ? AND number = ?"
        first, behind = (self.transaction.value(sql, (self.id, number)) for number in (page, page + 1))
        return (0, 0) if first is None else (first, self.next_slot if behind is None else behind)

    def places(self, events: Sequence[Event], limits: Limits) -> Places:
        """Where the resources of a batch lie, and how full their pages and the last one are."""
        uris = page_filling.uris_of(events)
        if not is_text("".join(uris)):
            uris = [uri for uri in uris if is_text(uri)]
        # A load in the order of URIs never looks up: comparing octets and comparing code points give the same order.
        between = "SELECT 1 FROM resource WHERE set_id = ? AND uri BETWEEN ? AND ? LIMIT 1"
        if uris and not self.transaction.value(between, (self.id, min(uris), max(uris))):
            uris = []
        sql = "SELECT uri, id, page, weight FROM resource WHERE set_id = ? AND uri = ?"
        found = self.transaction.rows_each(sql, [(self.id, uri) for uri in uris])
        held = {row[0]: PageSlot(row[1] - self.base, row[2], row[3]) for row in found}
        numbers = {place.page for place in held.values()}
        last = self.transaction.value("SELECT max(number) FROM page WHERE set_id = ?", (self.id,))
        if last is not None:
            numbers.add(last)
        fills = self.transaction.rows_each(
            "SELECT number, count, weight FROM page WHERE set_id = ? AND number = ?",
            [(self.id, number) for number in sorted(numbers)],
        )
        return Places(limits, held, {row[0]: PageFill(*row) for row in fills}, self.next_slot)

    def write_places(self, places: Places) -> None:
        """Write what a planned batch makes of resources and pages."""
        outcome, run_each = places.outcome(), self.transaction.many
        run_each("DELETE FROM resource WHERE id = ?", [(self.base | place.slot,) for _, place in outcome.gone])
        run_each(
            "UPDATE resource SET weight = ?, seq = ?, lastmod_us = ?, hash = ?, length = ?, type = ?, more = ?,"
            " memo = ? WHERE id = ?",
            [kept_row(self.base, put) for put in outcome.kept],
        )
        run_each(
            "INSERT INTO resource VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            [fresh_row(self.base, self.id, put) for put in outcome.fresh],
        )
        pages = [page for page in places.pages.values() if page.touches]
        run_each(
            "INSERT INTO page (set_id, number, first_slot, count, weight, touched, stale_us)"
            " VALUES (?, ?, ?, ?, ?, ?, ?)",
            [
                (self.id, p.number, p.first_slot, p.count, p.weight, p.touches, p.first_us)
                for p in pages
                if p.first_slot is not None
            ],
        )
        run_each(
            "UPDATE page SET count = ?, weight = ?, touched = touched + ?, stale_us = coalesce(stale_us, ?)"
            " WHERE set_id = ? AND number = ?",
            [(p.count, p.weight, p.touches, p.first_us, self.id, p.number) for p in pages if p.first_slot is None],
        )
        self.update(count=self.count + places.added, next_slot=places.next_slot)

    def log(self, limits: Limits) -> Log:
        """The end of the log. Raises WrongPhase while the set is loading."""
        sql = f"SELECT {SEGMENT_COLUMNS} FROM segment WHERE set_id = ? ORDER BY number DESC LIMIT 1"
        row = self.transaction.one(sql, (self.id,))
        if row is None or self.last_us is None:
            raise WrongPhase("the set is still loading: open it first", where=self.name)
        return Log(limits, self.last_seq, self.last_us, SegmentRun(*row))

    def write_log(self, log: Log) -> None:
        """Write the changes of a planned batch, and the segments that it has filled."""
        self.transaction.many(
            "INSERT INTO change VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            [change_row(self.base, logged) for logged in log.changes],
        )
        for run in (*log.closed, log.run):
            self.write_run(run)
        self.update(last_seq=log.last_seq, last_us=log.last_us)

    def write_run(self, run: SegmentRun) -> None:
        """Write a segment."""
        sql = f"INSERT OR REPLACE INTO segment (set_id, {SEGMENT_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?)"
        self.transaction.run(sql, (self.id, *astuple(run)))

    def write_rows(self, writes: Sequence[RowWrite]) -> None:
        """Do what a batch does to rows of the state."""
        if not writes:
            return
        self.transaction.many(
            "DELETE FROM state WHERE set_id = ? AND kind = ? AND key = ?",
            [(self.id, row.kind, row.key) for row in writes if row.value is None],
        )
        self.transaction.many(
            "INSERT OR REPLACE INTO state (set_id, kind, key, rank, value) VALUES (?, ?, ?, ?, ?)",
            [(self.id, row.kind, row.key, row.rank, row.value) for row in writes if row.value is not None],
        )
        self.transaction.run('UPDATE "set" SET state_version = state_version + 1 WHERE id = ?', (self.id,))
