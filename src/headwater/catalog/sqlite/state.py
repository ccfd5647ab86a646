"""The rows of sets in SQLite: read and written within a transaction that is under way."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from headwater.catalog.accepted_values import is_text
from headwater.catalog.batch_planning import is_row_key
from headwater.catalog.sqlite.batch import SetHeader
from headwater.catalog.state import LONGEST_KEY, RowKey, StateRow
from headwater.storage.sqlite.transaction import Transaction

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


class RowRange(msgspec.Struct, frozen=True):
    """Rows of a kind that are asked for (`StateRows.rows_of`)."""

    kind: str
    after: StateRow | None
    until: int | None
    limit: int
    descending: bool


def read_rows_of(transaction: Transaction, head: SetHeader, asked: RowRange) -> list[StateRow]:
    """Up to `limit` rows of a kind by rank and key, or in the opposite order."""
    if not is_row_key((asked.kind, "-")):
        return []
    after, until = asked.after, asked.until
    if asked.descending:
        sql, first, last = _DESCENDING, (_LARGEST, _BEHIND_KEYS), -_LARGEST - 1
    else:
        sql, first, last = _ASCENDING, (-_LARGEST - 1, ""), _LARGEST
    rank, key = first if after is None else (after.rank, after.key)
    rows = transaction.rows(
        sql, (asked.kind, head.id, rank, key, last if until is None else until, max(asked.limit, 0))
    )
    return [StateRow(*row) for row in rows]


def every_row(transaction: Transaction, head: SetHeader) -> Iterator[StateRow]:
    """All rows by kind, rank and key."""
    sql = "SELECT kind, key, value, rank FROM state WHERE set_id = ? ORDER BY kind, rank, key"
    for row in transaction.rows(sql, (head.id,)):
        yield StateRow(*row)


def count_rows(transaction: Transaction, head: SetHeader) -> dict[str, int]:
    """How many rows the set has of each kind."""
    return dict(transaction.rows("SELECT kind, count(*) FROM state WHERE set_id = ? GROUP BY kind", (head.id,)))


def sets_with_rows(transaction: Transaction, kind: str, until: int | None) -> dict[str, int]:
    """How many rows of a kind each set has, of a rank up to `until`."""
    if not is_row_key((kind, "-")):
        return {}
    mine = 'FROM state WHERE kind = ?1 AND set_id = "set".id AND rank <= ?2'  # sought in each set
    sql = f'SELECT name, (SELECT count(*) {mine}) FROM "set" WHERE EXISTS (SELECT 1 {mine}) ORDER BY name'  # noqa: S608
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
