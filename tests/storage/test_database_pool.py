"""A pool keeps few databases open, and none of them loses anything by being closed and opened again."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from headwater.storage.database import Schema
from headwater.storage.database_faults import DatabaseClosed
from headwater.storage.database_pool import DatabasePool, PooledDatabase

SCHEMA = Schema(application_id=0x48575420, migrations=("CREATE TABLE t(n INTEGER);",))
MOST = 3


@pytest.fixture
def pool() -> Iterator[DatabasePool]:
    one = DatabasePool(MOST)
    yield one
    one.close()


def databases(folder: Path, pool: DatabasePool, count: int) -> list[PooledDatabase]:
    return [PooledDatabase(folder / f"{number}.sqlite", SCHEMA, pool, cache_octets=1 << 20) for number in range(count)]


def add(database: PooledDatabase, number: int) -> None:
    with database.write() as t:
        t.run("INSERT INTO t VALUES (?)", (number,))


def numbers(database: PooledDatabase) -> list[int]:
    with database.read() as t:
        return [row[0] for row in t.rows("SELECT n FROM t ORDER BY n")]


def open_files(folder: Path) -> set[str]:
    """The databases of a folder that this process has open."""
    found = set()
    for one in os.listdir("/proc/self/fd"):
        path = Path("/proc/self/fd") / one
        if path.is_symlink() and Path(os.readlink(path)).parent == folder:
            found.add(Path(os.readlink(path)).name.partition(".")[0])
    return found


def test_few_are_open_and_nothing_is_lost(tmp_path: Path, pool: DatabasePool) -> None:
    """By many threads at a time, each database by several of them."""
    made = databases(tmp_path, pool, 12)
    with ThreadPoolExecutor(8) as threads:
        for done in [threads.submit(add, made[number % 12], number) for number in range(240)]:
            done.result()
    assert [numbers(one) for one in made] == [list(range(first, 240, 12)) for first in range(12)]
    if Path("/proc/self/fd").is_dir():
        assert open_files(tmp_path) == {"9", "10", "11"}
    for one in made:
        one.close()


def test_one_that_is_used_is_not_closed(tmp_path: Path, pool: DatabasePool) -> None:
    made = databases(tmp_path, pool, 8)
    add(made[0], 1)
    with made[0].read() as t:
        seen = t.rows("SELECT n FROM t")
        for one in made[1:]:
            add(one, 2)
        add(made[0], 3)
        assert [row[0] for row in seen] == [1]  # its snapshot
    assert numbers(made[0]) == [1, 3]
    for one in made:
        one.close()


def test_one_that_was_given_up_is_not_opened_again(tmp_path: Path, pool: DatabasePool) -> None:
    (one,) = databases(tmp_path, pool, 1)
    add(one, 1)
    one.close()
    with pytest.raises(DatabaseClosed):
        add(one, 2)


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="open files are seen in /proc")
def test_one_that_was_given_up_while_it_was_used_takes_no_place(tmp_path: Path, pool: DatabasePool) -> None:
    """A use in another thread ends after `close`."""
    gone, *others = databases(tmp_path, pool, MOST + 1)
    for one in others:
        add(one, 1)
    gone.close()
    pool.used(gone)
    assert open_files(tmp_path) == {"1", "2", "3"}
    for one in others:
        one.close()
