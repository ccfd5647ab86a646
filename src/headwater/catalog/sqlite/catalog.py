"""The catalog in one SQLite file: the embedded default, for one machine and any number of its processes.

It reads what a batch concerns, asks `batch_planning` what the batch does, and writes that down, all in one transaction.
"""
# ruff: noqa: S608 the only text put into a statement is our own lists of columns

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from headwater.catalog import batch_planning
from headwater.catalog.batch_planning import Run, is_text, to_microseconds
from headwater.catalog.faults import Unacceptable, WrongPhase
from headwater.catalog.interface import (
    Accepted,
    Change,
    Event,
    Limits,
    Page,
    Rendered,
    Resource,
    Segment,
    SetSnapshot,
    SetState,
)
from headwater.catalog.sqlite.batch import (
    STATE_QUERY,
    count_rows,
    head_of,
    insert_rows,
    read_log,
    read_pages,
    read_places,
    read_rows,
    read_rows_of,
    read_segments,
    read_state,
    sets_with_rows,
    write_log,
    write_places,
    write_rows,
    write_run,
)
from headwater.catalog.sqlite.rows import (
    CHANGE_COLUMNS,
    RESOURCE_COLUMNS,
    SCHEMA,
    recorded_of,
    resource_of,
    segment_of,
    state_of,
)
from headwater.catalog.state import NO_UPDATE, RowKey, StateRow, StateUpdate
from headwater.errors import StoreFault
from headwater.spec.times import from_microseconds
from headwater.storage.database import Database, Durability
from headwater.storage.database_faults import SchemaTooNew


class SqliteCatalog:
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

    def sets(self) -> list[SetState]:
        """Every set, by name."""
        with self._database.read() as transaction:
            return [state_of(row[:-1], row[-1]) for row in transaction.rows(f"{STATE_QUERY} ORDER BY name")]

    def newest(self) -> dict[str, int]:
        """The number of the newest change of every open set, by name."""
        with self._database.read() as transaction:
            return dict(transaction.rows('SELECT name, last_seq FROM "set" WHERE opened_us IS NOT NULL'))

    def state(self, name: str) -> SetState:
        """One set. Raises UnknownSet."""
        with self._database.read() as transaction:
            return read_state(transaction, name)

    def create(self, name: str, *, last_seq: int = 0) -> SetState:
        """Make sure the set exists (loading when new, with changes from `last_seq` + 1 on) and return it."""
        if not name or not is_text(name):
            raise Unacceptable(f"no name for a set: {name!a}")
        with self._database.write() as transaction:
            transaction.run('INSERT INTO "set" (name, last_seq) VALUES (?, ?) ON CONFLICT DO NOTHING', (name, last_seq))
            return read_state(transaction, name)

    def load(
        self, name: str, events: Sequence[Event], *, after: SetState | None = None, state: StateUpdate = NO_UPDATE
    ) -> int:
        """Apply events without logging changes, while the set is loading; idempotent. Returns the live count."""
        writes = batch_planning.row_writes(state)
        with self._database.write() as transaction:
            head = head_of(transaction, name)
            if after is not None:
                batch_planning.check_after(read_state(transaction, name), after)
            if head.opened:
                raise WrongPhase("the set is open: changes are recorded, not loaded", where=name)
            write_rows(transaction, head, writes)
            places = read_places(transaction, head, events, self.limits.of(name))
            batch_planning.load(places, events)
            write_places(transaction, head, places)
            transaction.run(
                'UPDATE "set" SET count = ?, next_slot = ? WHERE id = ?',
                (head.count + places.added, places.next_slot, head.id),
            )
            return head.count + places.added

    def open(self, name: str, at: dt.datetime) -> SetState:
        """End the load: the first segment begins with `from_` = `at`. No effect on a set that is open."""
        at_us = to_microseconds(at)
        with self._database.write() as transaction:
            head = head_of(transaction, name)
            if not head.opened:
                last_us = at_us if head.last_us is None else max(at_us, head.last_us)
                transaction.run('UPDATE "set" SET opened_us = ?, last_us = ? WHERE id = ?', (at_us, last_us, head.id))
                transaction.run(
                    "UPDATE page SET stale_us = ? WHERE set_id = ? AND touched > rendered", (at_us, head.id)
                )
                write_run(transaction, head, Run(0, head.last_seq + 1, head.last_seq, at_us))
            return read_state(transaction, name)

    def record(
        self,
        name: str,
        events: Sequence[Event],
        now: dt.datetime,
        *,
        after: SetState | None = None,
        state: StateUpdate = NO_UPDATE,
    ) -> Accepted:
        """Log events in order as changes with consecutive sequence numbers and strictly increasing times."""
        now_us, writes = to_microseconds(now), batch_planning.row_writes(state)
        with self._database.write() as transaction:
            head = head_of(transaction, name)
            log = read_log(transaction, head, self.limits.of(name))
            if after is not None:
                batch_planning.check_after(read_state(transaction, name), after)
            write_rows(transaction, head, writes)
            places = read_places(transaction, head, events, self.limits.of(name))
            ignored = batch_planning.record(places, log, events, now_us)
            if log.changes:
                insert_rows(transaction, head, batch_planning.rows_of_changes(state, log.changes))
                write_places(transaction, head, places)
                write_log(transaction, head, log)
                transaction.run(
                    'UPDATE "set" SET last_seq = ?, last_us = ?, count = ?, next_slot = ? WHERE id = ?',
                    (log.last_seq, log.last_us, head.count + places.added, places.next_slot, head.id),
                )
        if not log.changes:
            return Accepted(0, 0, tuple(ignored))
        return Accepted(log.changes[0].seq, log.last_seq, tuple(ignored))

    def mark(self, name: str, now: dt.datetime) -> dt.datetime:
        """Draw a line: return T, the latest of `now` and all earlier times; every later change gets a time after T."""
        now_us = to_microseconds(now)
        with self._database.write() as transaction:
            head = head_of(transaction, name)
            last_us = now_us if head.last_us is None else max(now_us, head.last_us)
            transaction.run('UPDATE "set" SET last_us = ? WHERE id = ?', (last_us, head.id))
        return from_microseconds(last_us)

    def remember(self, name: str, memos: Sequence[tuple[str, bytes]], *, newest: int | None = None) -> None:
        """Replace the memos of live resources (others are skipped); no change is logged, no page touched."""
        with self._database.write() as transaction:
            head = head_of(transaction, name)
            until = head.last_seq if newest is None else newest
            transaction.many(
                "UPDATE resource SET memo = ? WHERE set_id = ? AND uri = ? AND seq <= ?",
                [(memo or None, head.id, uri, until) for uri, memo in memos if is_text(uri)],
            )

    def rows(self, name: str, keys: Iterable[RowKey]) -> dict[RowKey, StateRow]:
        """Those of the rows of the set's state that are there."""
        with self._database.read() as transaction:
            return read_rows(transaction, head_of(transaction, name), keys)

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
        """Up to `limit` rows of a kind by rank and key: those after the place of `after`, of a rank up to `until`.

        With `descending` in the opposite order: those before that place, of a rank down to `until`.
        """
        with self._database.read() as transaction:
            head = head_of(transaction, name)
            return read_rows_of(transaction, head, kind, after, until, limit, descending=descending)

    def row_counts(self, name: str) -> dict[str, int]:
        """How many rows the set has of each kind of which it has any."""
        with self._database.read() as transaction:
            return count_rows(transaction, head_of(transaction, name))

    def sets_with_rows(self, kind: str, until: int | None = None) -> dict[str, int]:
        """The sets that have rows of a kind, of a rank up to `until`, and how many."""
        with self._database.read() as transaction:
            return sets_with_rows(transaction, kind, until)

    def get(self, name: str, uris: Sequence[str]) -> dict[str, Resource]:
        """The live resources among `uris`."""
        with self._database.read() as transaction:
            head = head_of(transaction, name)
            rows = transaction.rows_each(
                f"SELECT {RESOURCE_COLUMNS} FROM resource WHERE set_id = ? AND uri = ?",
                [(head.id, uri) for uri in uris if is_text(uri)],
            )
            return {resource.uri: resource for resource in map(resource_of, rows)}

    def resources(self, name: str, after: str = "", limit: int = 10_000) -> list[Resource]:
        """Up to `limit` live resources with uri > `after`, in the order of their UTF-8 octets; none if `limit` < 1."""
        with self._database.read() as transaction:
            head = head_of(transaction, name)
            rows = transaction.rows(
                f"SELECT {RESOURCE_COLUMNS} FROM resource WHERE set_id = ? AND uri > ? ORDER BY uri LIMIT ?",
                (head.id, after, max(limit, 0)),
            )
            return [resource_of(row) for row in rows]

    def memos(self, name: str, after: str = "", limit: int = 10_000) -> list[tuple[str, bytes]]:
        """URI and memo of each of the resources that `resources` would return."""
        with self._database.read() as transaction:
            head = head_of(transaction, name)
            rows = transaction.rows(
                "SELECT uri, memo FROM resource WHERE set_id = ? AND uri > ? ORDER BY uri LIMIT ?",
                (head.id, after, max(limit, 0)),
            )
            return [(uri, memo or b"") for uri, memo in rows]

    def pages(self, name: str) -> list[Page]:
        """All pages in order, also empty ones (count 0)."""
        with self._database.read() as transaction:
            return read_pages(transaction, head_of(transaction, name))

    def page(self, name: str, number: int) -> Iterator[Resource]:
        """The live resources of one page in slot order, read from one snapshot; none for a page that is not there."""
        self.state(name)  # an unknown set is said now, not with the first resource
        return self._page(name, number)

    def _page(self, name: str, number: int) -> Iterator[Resource]:
        with self._database.read() as transaction:
            head = head_of(transaction, name)
            sql = "SELECT first_slot FROM page WHERE set_id = ? AND number = ?"
            first = transaction.value(sql, (head.id, number))
            if first is None:
                return
            next_first = transaction.value(sql, (head.id, number + 1))
            until = head.next_slot if next_first is None else next_first
            rows = transaction.rows(
                f"SELECT {RESOURCE_COLUMNS} FROM resource WHERE id >= ? AND id < ? ORDER BY id",
                (head.base + first, head.base + until),
            )
            yield from map(resource_of, rows)

    def rendered(self, name: str, pages: Sequence[Rendered]) -> None:
        """Note that documents of pages were written from the states with these `touched` counts."""
        rows = [(page, to_microseconds(page.at), to_microseconds(page.completed)) for page in pages]
        with self._database.write() as transaction:
            head = head_of(transaction, name)
            for page, at_us, completed_us in rows:
                changed = transaction.run(
                    "UPDATE page SET rendered = ?1, at_us = ?2, completed_us = ?3,"
                    " stale_us = CASE WHEN touched > ?1 THEN max(coalesce(stale_us, ?2), ?2) END"
                    " WHERE set_id = ?4 AND number = ?5 AND touched >= ?1",
                    (page.touched, at_us, completed_us, head.id, page.number),
                )
                if not changed:
                    raise Unacceptable(f"page {page.number} was never touched {page.touched} times", where=name)

    def changes(self, name: str, after: int = 0, limit: int = 10_000) -> list[Change]:
        """Up to `limit` changes with seq > `after`, in order; none when `limit` < 1."""
        with self._database.read() as transaction:
            head = head_of(transaction, name)
            rows = transaction.rows(
                f"SELECT {CHANGE_COLUMNS} FROM change WHERE id > ? AND id <= ? ORDER BY id LIMIT ?",
                (head.base + max(after, 0), head.base + head.last_seq, max(limit, 0)),
            )
            return [recorded_of(row, head.base) for row in rows]

    def segments(self, name: str) -> list[Segment]:
        """All segments in order; the last one is open. None while the set is loading."""
        with self._database.read() as transaction:
            return read_segments(transaction, head_of(transaction, name))

    def snapshot_of(self, name: str, newest: int | None = None) -> SetSnapshot:
        """One set with its pages and segments, from its present state, whatever is `newest`. Raises UnknownSet."""
        with self._database.read() as transaction:
            head = head_of(transaction, name)
            return SetSnapshot(
                read_state(transaction, name), read_pages(transaction, head), read_segments(transaction, head)
            )

    def snapshots(self, names: frozenset[str] = frozenset()) -> Iterator[SetSnapshot]:
        """The snapshots of these sets, by name; all, without names."""
        return (self.snapshot_of(one.name) for one in self.sets() if not names or one.name in names)

    def times(self, wanted: Mapping[str, int]) -> dict[str, dt.datetime]:
        """When the change of this number happened, for each set that has it."""
        found = {name: self.changes(name, seq - 1, 1) for name, seq in wanted.items()}
        return {name: changes[0].at for name, changes in found.items() if changes}

    def close_segment(self, name: str, now: dt.datetime) -> Segment:
        """Close the open segment, also an empty one, and open the next; return the closed one."""
        now_us = to_microseconds(now)
        with self._database.write() as transaction:
            head = head_of(transaction, name)
            log = read_log(transaction, head, self.limits.of(name))
            closed = log.close(max(now_us, log.last_us + 1))
            write_log(transaction, head, log)
            transaction.run('UPDATE "set" SET last_us = ? WHERE id = ?', (log.last_us, head.id))
        return segment_of((closed.number, closed.first, closed.last, closed.from_us, closed.until_us, closed.weight))

    def note(self, name: str, notes: bytes) -> None:
        """Replace the publisher's private note of the set."""
        with self._database.write() as transaction:
            head = head_of(transaction, name)
            transaction.run('UPDATE "set" SET notes = ? WHERE id = ?', (notes, head.id))

    def check(self) -> list[str]:
        """What is wrong with the file itself; reads all of it. `verify` compares the snapshot."""
        return self._database.check()

    def close(self) -> None:
        """Give up connections; what was accepted is on disk. Iterators under way end with `DatabaseClosed`."""
        self._database.close()
