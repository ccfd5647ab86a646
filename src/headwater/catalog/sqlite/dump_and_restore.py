"""A whole set out of SQLite and into it again, within one transaction each."""
# ruff: noqa: S608 the only text put into a statement is our own lists of columns

from __future__ import annotations

from collections.abc import Iterable, Iterator

from headwater.catalog.batch_planning import is_text, to_optional
from headwater.catalog.dump.restore import RestoredPage, Restoring
from headwater.catalog.faults import Contradiction, SetExists, Unacceptable
from headwater.catalog.interface import Part, SetSnapshot, SetState
from headwater.catalog.sqlite.batch import every_row, head_of, insert_rows, read_state, write_run
from headwater.catalog.sqlite.rows import (
    CHANGE_COLUMNS,
    PAGE_COLUMNS,
    RESOURCE_COLUMNS,
    SEGMENT_COLUMNS,
    change_row,
    fresh_row,
    page_of,
    recorded_of,
    resource_of,
    segment_of,
)
from headwater.storage.sqlite.transaction import Row, Transaction


def read_parts(transaction: Transaction, name: str) -> Iterator[Part]:
    """The set as the transaction sees it; its rows lie in the order in which they are wanted. Raises UnknownSet."""
    head = head_of(transaction, name)
    pages = transaction.rows(f"SELECT {PAGE_COLUMNS} FROM page WHERE set_id = ? ORDER BY number", (head.id,))
    segments = transaction.rows(f"SELECT {SEGMENT_COLUMNS} FROM segment WHERE set_id = ? ORDER BY number", (head.id,))
    yield SetSnapshot(
        state=read_state(transaction, name),
        pages=tuple(map(page_of, pages)),
        segments=tuple(map(segment_of, segments)),
    )
    rows = transaction.rows(
        f"SELECT {RESOURCE_COLUMNS} FROM resource WHERE id >= ? AND id < ? ORDER BY id",
        (head.base, head.base + head.next_slot),
    )
    yield from map(resource_of, rows)
    rows = transaction.rows(
        f"SELECT {CHANGE_COLUMNS} FROM change WHERE id > ? AND id <= ? ORDER BY id",
        (head.base, head.base + head.last_seq),
    )
    for row in rows:
        yield recorded_of(row, head.base)
    yield from every_row(transaction, head)


def write_parts(transaction: Transaction, parts: Iterable[Part]) -> SetState:
    """Write a set that is not there. Raises SetExists, Contradiction, Unacceptable, and what `parts` raises."""
    restoring = Restoring(parts)
    state = restoring.snapshot.state
    if not state.name or not is_text(state.name):
        raise Unacceptable(f"no name for a set: {state.name!a}")
    if transaction.value('SELECT 1 FROM "set" WHERE name = ?', (state.name,)):
        raise SetExists("the set is in the catalog already", where=state.name)
    transaction.run(
        'INSERT INTO "set" (name, opened_us, last_seq, last_us, count, next_slot, notes, state_version)'
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        (
            state.name,
            to_optional(state.opened_at),
            state.last_seq,
            to_optional(state.last_at),
            state.count,
            restoring.next_slot,
            state.notes,
            state.state_version,
        ),
    )
    head = head_of(transaction, state.name)
    transaction.many(
        "INSERT OR IGNORE INTO resource VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (fresh_row(head.base, head.id, put) for put in restoring.resources()),
    )
    held = transaction.value("SELECT count(*) FROM resource WHERE set_id = ?", (head.id,))
    if held != state.count:
        raise Contradiction(
            f"{state.count - held} of {state.count} resources have a URI that came before", where=state.name
        )
    transaction.many(
        "INSERT INTO change VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (change_row(head.base, logged) for logged in restoring.changes()),
    )
    insert_rows(transaction, head, restoring.rows())
    rows = transaction.value("SELECT count(*) FROM state WHERE set_id = ?", (head.id,))
    if rows != restoring.row_count:
        what = f"{restoring.row_count - rows} of {restoring.row_count} rows have a kind and key that came before"
        raise Contradiction(what, where=state.name)
    transaction.many(
        "INSERT INTO page VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        [_page_row(head.id, one) for one in restoring.pages()],
    )
    for run in restoring.runs():
        write_run(transaction, head, run)
    return read_state(transaction, state.name)


def _page_row(set_id: int, restored: RestoredPage) -> Row:
    """A row for INSERT INTO page, in the order of its columns."""
    page = restored.page
    return (
        set_id,
        page.number,
        restored.first_slot,
        page.count,
        restored.weight,
        page.touched,
        page.rendered,
        to_optional(page.at),
        to_optional(page.completed),
        to_optional(page.stale_at),
    )
