"""Very many changes of one resource: the work follows their number, however lists tell them (RS-CL-05, RS-CL-06)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import apsw
import pytest

from headwater.storage.transaction import Transaction
from headwater.sync.lists.entries import fold
from headwater.sync.state import TEMPORARY
from headwater.sync.update.difference import ask_for_old_deletions, contradicted

COUNT = 4_000
MOST = 400
"""Instructions of SQLite for each change: they are below 200, and were 20,000 and more where all were read for each."""

TABLES = """
CREATE TABLE sets(id INTEGER PRIMARY KEY, baseline_at INTEGER, position TEXT);
CREATE TABLE resources(id INTEGER PRIMARY KEY, set_id INTEGER, uri TEXT, path BLOB, listed_hash TEXT,
  listed_length INTEGER, changed_at INTEGER, newer INTEGER, doomed_at INTEGER, UNIQUE(set_id, uri));
CREATE TABLE failures(set_id INTEGER, uri TEXT, changed_at INTEGER, PRIMARY KEY(set_id, uri));
INSERT INTO sets VALUES(1, 1000000, '{"time": 1000000}');
INSERT INTO resources(set_id, uri, path, newer) VALUES(1, 'one', x'61', 0);
INSERT INTO temp.listed(uri) VALUES('one');
"""
CHANGE = (
    "INSERT INTO temp.changed(n, list, ordinal, uri, change, at, exact, stated, pending, refused)"
    " VALUES (?, ?, ?, 'one', 'deleted', ?, ?, ?, ?, 0)"
)


def is_first_half(n: int) -> bool:
    return n < COUNT // 2


def is_any(_n: int) -> bool:
    return True


def is_none(_n: int) -> bool:
    return False


def fold_one(t: Transaction) -> None:
    fold(t, [0], 1)


def fold_many(t: Transaction) -> None:
    fold(t, range(50), 50)


def ask(t: Transaction) -> None:
    ask_for_old_deletions(t, 1)


def contradict(t: Transaction) -> None:
    list(contradicted(t, 2_000_000))


@pytest.mark.parametrize(
    ("work", "is_pending", "lists", "backwards"),
    [
        pytest.param(fold_one, is_any, 1, False, id="all are to be done"),
        pytest.param(fold_one, is_first_half, 1, True, id="the first half is to be done, and later by its times"),
        pytest.param(fold_many, is_any, 50, False, id="many lists"),
        pytest.param(ask, is_any, 1, False, id="deletions before the Resource List"),
        pytest.param(contradict, is_none, 1, False, id="changes that the Resource List does not have"),
    ],
)
def test_the_work_follows_the_number_of_changes(
    work: Callable[[Transaction], None],
    is_pending: Callable[[int], bool],
    lists: int,
    backwards: bool,
) -> None:
    connection = apsw.Connection("")
    t = Transaction(connection, Path("memory"))
    t.run(TEMPORARY + TABLES)
    times = range(COUNT, 0, -1) if backwards else range(COUNT)
    t.many(
        CHANGE,
        ((n, n * lists // COUNT, n, at, 1, at, int(is_pending(n))) for n, at in enumerate(times)),
    )
    executed = 0

    def count() -> bool:
        nonlocal executed
        executed += 1_000
        return False

    connection.set_progress_handler(count, 1_000)
    work(t)
    assert executed < COUNT * MOST, f"{executed // COUNT:,} instructions for each change"
