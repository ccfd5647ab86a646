"""One batch of events and rows in SQLite: what is read for the plan of the batch, and what it decided written down."""
# ruff: noqa: S608 the only text put into a statement is our own lists of columns

from __future__ import annotations

from collections.abc import Iterable, Sequence

from headwater.catalog import batch_planning
from headwater.catalog.batch_planning import (
    Log,
    PageFill,
    Place,
    Places,
    Run,
    is_row_key,
    is_text,
)
from headwater.catalog.faults import UnknownSet, WrongPhase
from headwater.catalog.interface import Event, Limits, Page, Segment, SetState
from headwater.catalog.sqlite.rows import (
    PAGE_COLUMNS,
    SEGMENT_COLUMNS,
    SET_COLUMNS,
    SLOT_BITS,
    change_row,
    fresh_row,
    kept_row,
    page_of,
    run_of,
    segment_of,
    state_of,
)
from headwater.catalog.state import LONGEST_KEY, RowKey, StateRow
from headwater.storage.sqlite.transaction import Row, Transaction

_PAGE_COUNT = "(SELECT count(*) FROM page WHERE set_id = id)"
_INSERT = "INSERT INTO resource VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
_LOG = "INSERT INTO change VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
STATE_QUERY = f'SELECT {SET_COLUMNS}, {_PAGE_COUNT} FROM "set"'


class SetHeader:
    """The set's own row, as a transaction found it."""

    __slots__ = ("base", "count", "id", "last_seq", "last_us", "name", "next_slot", "opened")

    def __init__(self, name: str, row: Row) -> None:
        self.name = name
        self.id: int = row[0]
        self.opened = row[1] is not None
        self.last_seq: int = row[2]
        self.last_us: int | None = row[3]
        self.count: int = row[4]
        self.next_slot: int = row[5]
        self.base = self.id << SLOT_BITS


def read_state(transaction: Transaction, name: str) -> SetState:
    row = transaction.one(f"{STATE_QUERY} WHERE name = ?", (name,)) if is_text(name) else None
    if row is None:
        raise UnknownSet("the catalog has no such set", where=name)
    return state_of(row[:-1], row[-1])


def head_of(transaction: Transaction, name: str) -> SetHeader:
    sql = 'SELECT id, opened_us, last_seq, last_us, count, next_slot FROM "set" WHERE name = ?'
    row = transaction.one(sql, (name,)) if is_text(name) else None
    if row is None:
        raise UnknownSet("the catalog has no such set", where=name)
    return SetHeader(name, row)


def read_places(transaction: Transaction, head: SetHeader, events: Sequence[Event], limits: Limits) -> Places:
    """Read where the resources of a batch lie, how full their pages are, and how full the last page is."""
    held = {
        row[0]: Place(row[1] - head.base, row[2], row[3])
        for row in transaction.rows_each(
            "SELECT uri, id, page, weight FROM resource WHERE set_id = ? AND uri = ?",
            _keys(transaction, head, events),
        )
    }
    numbers = {place.page for place in held.values()}
    last = transaction.value("SELECT max(number) FROM page WHERE set_id = ?", (head.id,))
    if last is not None:
        numbers.add(last)
    fills = transaction.rows_each(
        "SELECT number, count, weight FROM page WHERE set_id = ? AND number = ?",
        [(head.id, number) for number in sorted(numbers)],
    )
    return Places(limits, held, {row[0]: PageFill(*row) for row in fills}, head.next_slot)


def _keys(transaction: Transaction, head: SetHeader, events: Sequence[Event]) -> list[tuple[int, str]]:
    """The URIs that must be looked up; none when the set holds nothing between the batch's first and last one."""
    uris = batch_planning.uris_of(events)
    if not is_text("".join(uris)):
        uris = [uri for uri in uris if is_text(uri)]
    if not uris:
        return []
    # A load in the order of URIs never looks up: comparing octets and comparing code points give the same order.
    between = "SELECT 1 FROM resource WHERE set_id = ? AND uri BETWEEN ? AND ? LIMIT 1"
    if not transaction.value(between, (head.id, min(uris), max(uris))):
        return []
    return [(head.id, uri) for uri in uris]


def read_log(transaction: Transaction, head: SetHeader, limits: Limits) -> Log:
    sql = f"SELECT {SEGMENT_COLUMNS} FROM segment WHERE set_id = ? ORDER BY number DESC LIMIT 1"
    row = transaction.one(sql, (head.id,)) if head.opened else None
    if row is None or head.last_us is None:
        raise WrongPhase("the set is still loading: open it first", where=head.name)
    return Log(limits, head.last_seq, head.last_us, run_of(row))


def write_places(transaction: Transaction, head: SetHeader, places: Places) -> None:
    outcome = places.outcome()
    base, set_id = head.base, head.id
    if outcome.gone:
        transaction.many("DELETE FROM resource WHERE id = ?", [(base | place.slot,) for _, place in outcome.gone])
    if outcome.kept:
        transaction.many(
            "UPDATE resource SET weight = ?, seq = ?, lastmod_us = ?, hash = ?, length = ?, type = ?, more = ?,"
            " memo = ? WHERE id = ?",
            [kept_row(base, put) for put in outcome.kept],
        )
    if outcome.fresh:
        transaction.many(_INSERT, [fresh_row(base, set_id, put) for put in outcome.fresh])
    _write_pages(transaction, set_id, [page for page in places.pages.values() if page.touches])


def _write_pages(transaction: Transaction, set_id: int, pages: list[PageFill]) -> None:
    fresh = [page for page in pages if page.first_slot is not None]
    transaction.many(
        "INSERT INTO page (set_id, number, first_slot, count, weight, touched, stale_us) VALUES (?, ?, ?, ?, ?, ?, ?)",
        [(set_id, p.number, p.first_slot, p.count, p.weight, p.touches, p.first_us) for p in fresh],
    )
    transaction.many(
        "UPDATE page SET count = ?, weight = ?, touched = touched + ?, stale_us = coalesce(stale_us, ?)"
        " WHERE set_id = ? AND number = ?",
        [(p.count, p.weight, p.touches, p.first_us, set_id, p.number) for p in pages if p.first_slot is None],
    )


def write_log(transaction: Transaction, head: SetHeader, log: Log) -> None:
    transaction.many(
        _LOG,
        [change_row(head.base, logged) for logged in log.changes],
    )
    for run in (*log.closed, log.run):
        write_run(transaction, head, run)


def write_run(transaction: Transaction, head: SetHeader, run: Run) -> None:
    transaction.run(
        "INSERT OR REPLACE INTO segment (set_id, number, first, last, from_us, until_us, weight)"
        " VALUES (?, ?, ?, ?, ?, ?, ?)",
        (head.id, run.number, run.first, run.last, run.from_us, run.until_us, run.weight),
    )


_LARGEST = (1 << 63) - 1
_BEHIND_KEYS = "\U0010ffff" * (LONGEST_KEY // 4 + 1)
_OF_KIND = "SELECT kind, key, value, rank FROM state WHERE kind = ? AND set_id = ?"
_ASCENDING = f"{_OF_KIND} AND (rank, key) > (?, ?) AND rank <= ? ORDER BY rank, key LIMIT ?"
_DESCENDING = f"{_OF_KIND} AND (rank, key) < (?, ?) AND rank >= ? ORDER BY rank DESC, key DESC LIMIT ?"


def read_rows(transaction: Transaction, head: SetHeader, keys: Iterable[RowKey]) -> dict[RowKey, StateRow]:
    """Those of the rows that are there."""
    asked = list(keys)
    if not is_text("".join(text for key in asked for text in key)):
        asked = [key for key in asked if is_row_key(key)]
    found = transaction.rows_each(
        "SELECT kind, key, value, rank FROM state WHERE set_id = ? AND kind = ? AND key = ?",
        [(head.id, *key) for key in asked],
    )
    return {(row[0], row[1]): StateRow(*row) for row in found}


def read_rows_of(
    transaction: Transaction,
    head: SetHeader,
    kind: str,
    after: StateRow | None,
    until: int | None,
    limit: int,
    *,
    descending: bool,
) -> list[StateRow]:
    """Up to `limit` rows of a kind by rank and key, or in the opposite order."""
    if not is_row_key((kind, "-")):
        return []
    if descending:
        sql, first, last = _DESCENDING, (_LARGEST, _BEHIND_KEYS), -_LARGEST - 1
    else:
        sql, first, last = _ASCENDING, (-_LARGEST - 1, ""), _LARGEST
    rank, key = first if after is None else (after.rank, after.key)
    rows = transaction.rows(sql, (kind, head.id, rank, key, last if until is None else until, max(limit, 0)))
    return [StateRow(*row) for row in rows]


def count_rows(transaction: Transaction, head: SetHeader) -> dict[str, int]:
    """How many rows the set has of each kind."""
    return dict(transaction.rows("SELECT kind, count(*) FROM state WHERE set_id = ? GROUP BY kind", (head.id,)))


def sets_with_rows(transaction: Transaction, kind: str, until: int | None) -> dict[str, int]:
    """How many rows of a kind each set has, of a rank up to `until`."""
    if not is_row_key((kind, "-")):
        return {}
    mine = 'FROM state WHERE kind = ?1 AND set_id = "set".id AND rank <= ?2'  # sought in each set
    sql = f'SELECT name, (SELECT count(*) {mine}) FROM "set" WHERE EXISTS (SELECT 1 {mine}) ORDER BY name'
    return dict(transaction.rows(sql, (kind, _LARGEST if until is None else until)))


def write_rows(transaction: Transaction, head: SetHeader, writes: dict[RowKey, StateRow | None]) -> None:
    """Write what becomes of rows."""
    if not writes:
        return
    transaction.many(
        "DELETE FROM state WHERE set_id = ? AND kind = ? AND key = ?",
        [(head.id, *key) for key, row in writes.items() if row is None],
    )
    insert_rows(transaction, head, (row for row in writes.values() if row is not None))
    transaction.run('UPDATE "set" SET state_version = state_version + 1 WHERE id = ?', (head.id,))


def insert_rows(transaction: Transaction, head: SetHeader, rows: Iterable[StateRow]) -> None:
    """Put rows over their older ones."""
    transaction.many(
        "INSERT OR REPLACE INTO state (set_id, kind, key, rank, value) VALUES (?, ?, ?, ?, ?)",
        ((head.id, row.kind, row.key, row.rank, row.value) for row in rows),
    )


def read_pages(transaction: Transaction, head: SetHeader) -> list[Page]:
    """All pages in order."""
    sql = f"SELECT {PAGE_COLUMNS} FROM page WHERE set_id = ? ORDER BY number"
    return [page_of(row) for row in transaction.rows(sql, (head.id,))]


def read_segments(transaction: Transaction, head: SetHeader) -> list[Segment]:
    """All segments in order."""
    sql = f"SELECT {SEGMENT_COLUMNS} FROM segment WHERE set_id = ? ORDER BY number"
    return [segment_of(row) for row in transaction.rows(sql, (head.id,))]
