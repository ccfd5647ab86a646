"""One SQLite file: transactions that end whole, readers that see one state, migrations that go forward."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import apsw
import pytest

from headwater.storage.database import Database, Durability, Schema, copy_database
from headwater.storage.transaction import DatabaseFault, SchemaTooNew, SchemaTooOld, Transaction
from tests.support.failing import failing

ONE = "CREATE TABLE item (id INTEGER PRIMARY KEY, word TEXT NOT NULL) STRICT; INSERT INTO item VALUES (1, 'first');"
TWO = "ALTER TABLE item ADD COLUMN size INTEGER; UPDATE item SET size = length(word);"
BROKEN = "DELETE FROM item; CREATE TABLE extra (id INTEGER); INSERT INTO nowhere VALUES (1);"
MARK = 0x48570001
V1, V2 = Schema(MARK, (ONE,)), Schema(MARK, (ONE, TWO))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state.db"


@pytest.fixture
def database(path: Path) -> Iterator[Database]:
    with Database(path, V1) as database:
        yield database


def words(database: Database) -> list[str]:
    with database.read() as transaction:
        return [row[0] for row in transaction.rows("SELECT word FROM item ORDER BY id")]


def add(database: Database, *new: str) -> None:
    with database.write() as transaction:
        transaction.many("INSERT INTO item (word) VALUES (?)", [(word,) for word in new])


def test_what_was_committed_is_there_for_the_next_one(database: Database, path: Path) -> None:
    add(database, "second")
    assert words(database) == ["first", "second"]
    with Database(path, V1) as other:
        assert words(other) == ["first", "second"]
        add(other, "third")
    assert words(database) == ["first", "second", "third"]


@pytest.mark.parametrize("raised", [ValueError, KeyboardInterrupt, SystemExit, GeneratorExit])
def test_anything_raised_rolls_back(database: Database, raised: type[BaseException]) -> None:
    def fail() -> None:
        with database.write() as transaction:
            transaction.run("DELETE FROM item")
            assert transaction.value("SELECT count(*) FROM item") == 0
            raise raised

    with pytest.raises(raised):
        fail()
    assert words(database) == ["first"]
    add(database, "second")
    assert words(database) == ["first", "second"]


def test_a_refused_statement_rolls_back(database: Database) -> None:
    def fail() -> None:
        with database.write() as transaction:
            transaction.run("DELETE FROM item")
            transaction.run("INSERT INTO item (word) VALUES (NULL)")

    with pytest.raises(DatabaseFault) as fault:
        fail()
    assert "NOT NULL" in fault.value.what
    assert words(database) == ["first"]


def test_many_runs_to_its_end_even_with_returning(database: Database) -> None:
    with database.write() as transaction:
        transaction.many("INSERT INTO item (word) VALUES (?) RETURNING id", [("a",), ("b",), ("c",)])
    assert words(database) == ["first", "a", "b", "c"]


def test_values_rows_and_counts(database: Database) -> None:
    add(database, "a", "b")
    with database.write() as transaction:
        assert transaction.run("UPDATE item SET word = word || '!' WHERE id > ?", (1,)) == 2
        assert transaction.run("UPDATE item SET word = 'x' WHERE id = :id", {"id": 99}) == 0
        assert transaction.one("SELECT id, word FROM item WHERE id = 2") == (2, "a!")
        assert transaction.one("SELECT 1 WHERE 0") is None
        assert transaction.value("SELECT word FROM item WHERE id = 99") is None
        assert list(transaction.rows_each("SELECT word FROM item WHERE id = ?", [(3,), (99,), (1,)])) == [
            ("b!",),
            ("first",),
        ]


def test_a_reader_sees_one_state_and_waits_for_nobody(database: Database) -> None:
    with database.read() as transaction:
        add(database, "second")  # also what was written before the first query is not seen
        assert transaction.value("SELECT count(*) FROM item") == 1
        with database.write() as writing:
            writing.run("DELETE FROM item")
            assert transaction.value("SELECT count(*) FROM item") == 1
            with database.read() as nested:
                assert nested.value("SELECT count(*) FROM item") == 2
    assert words(database) == []


def test_a_reader_cannot_write(database: Database) -> None:
    with database.read() as transaction, failing("HW-DB-03"):
        transaction.run("DELETE FROM item")
    assert words(database) == ["first"]


def test_rows_end_with_their_transaction(database: Database) -> None:
    add(database, "second", "third")
    with database.read() as transaction:
        begun = transaction.rows("SELECT word FROM item")
        unbegun = transaction.rows("SELECT word FROM item")
        next(begun)
    for rows in (begun, unbegun):
        with failing("HW-DB-10"):
            next(rows)
    assert database._lent == set()


def test_one_transaction_at_a_time_in_a_thread(database: Database) -> None:
    with database.write(), pytest.raises(DatabaseFault, match="inside a transaction"), database.write():
        pass
    add(database, "second")


def test_threads_take_turns(database: Database) -> None:
    def count_up() -> None:
        for _ in range(20):
            with database.write() as transaction:
                size = transaction.value("SELECT count(*) FROM item")
                transaction.run("INSERT INTO item (word) VALUES (?)", (str(size),))

    threads = [threading.Thread(target=count_up) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert words(database)[1:] == [str(n) for n in range(1, 101)]


def test_close_ends_reads_under_way(database: Database, path: Path) -> None:
    add(database, "second", "third")
    with database.read() as transaction:
        rows = transaction.rows("SELECT word FROM item")
        next(rows)
        database.close()
        with failing("HW-DB-10"):
            next(rows)
    for use in (database.read, database.write):
        with failing("HW-DB-10"), use():
            pass
    assert [file.name for file in path.parent.iterdir()] == ["state.db"]


def test_close_while_threads_read_and_write(database: Database, path: Path) -> None:
    add(database, *("x" * 100 for _ in range(5_000)))
    ended: list[DatabaseFault] = []
    ready = threading.Barrier(5)

    def use(work: Callable[[], object]) -> None:
        ready.wait()
        try:
            while True:
                work()
        except DatabaseFault as cause:
            ended.append(cause)

    works = [lambda: words(database)] * 2 + [lambda: add(database, "y")] * 2
    threads = [threading.Thread(target=use, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    ready.wait()
    database.close()
    for thread in threads:
        thread.join(timeout=30)
    assert [cause.code for cause in ended] == ["HW-DB-10"] * 4
    assert [file.name for file in path.parent.iterdir()] == ["state.db"]
    with Database(path, V1) as again:
        assert again.check() == []


@pytest.mark.parametrize("durability", Durability)
def test_the_file_is_opened_the_safe_way(path: Path, durability: Durability) -> None:
    with Database(path, V1, durability=durability) as database, database.write() as transaction:
        assert transaction.value("PRAGMA journal_mode") == "wal"
        assert transaction.value("PRAGMA foreign_keys") == 1
        assert transaction.value("PRAGMA synchronous") == {"FULL": 2, "NORMAL": 1}[durability.value]
        assert transaction.value("PRAGMA trusted_schema") == 0


def test_checkpoint_empties_the_log_when_nobody_reads(database: Database, path: Path) -> None:
    add(database, *("x" * 100 for _ in range(1_000)))
    wal = path.with_name("state.db-wal")
    with database.read() as transaction:
        transaction.value("SELECT 1 FROM item")
        add(database, "later")
        database._writer.set_busy_timeout(1)
        database.checkpoint()
        assert wal.stat().st_size > 0
    database.checkpoint()
    assert wal.stat().st_size == 0


def test_a_copy_is_one_state_whatever_is_written_meanwhile(path: Path, tmp_path: Path) -> None:
    """Files copied one after the other are of two states: a checkpoint between them loses what lay in the log."""
    schema = Schema(application_id=7, migrations=("CREATE TABLE t (n INTEGER PRIMARY KEY, v INTEGER, pad BLOB)",))
    done = threading.Event()
    with Database(path, schema, durability=Durability.NORMAL) as database:
        with database.write() as transaction:
            transaction.many("INSERT INTO t VALUES (?, 0, zeroblob(900))", [(n,) for n in range(20_000)])

        def write() -> None:
            value = 0
            while not done.is_set():
                value += 1
                with database.write() as transaction:
                    transaction.run("UPDATE t SET v = ? WHERE n % 1000 = 0", (value,))
                database.checkpoint()

        writer = threading.Thread(target=write)
        writer.start()
        try:
            for number in range(10):
                copy = tmp_path / f"copy-{number}.sqlite"
                copy_database(path, copy)
                with Database(copy, schema) as copied, copied.read() as transaction:
                    assert list(transaction.rows("PRAGMA integrity_check")) == [("ok",)]
                    assert len(list(transaction.rows("SELECT DISTINCT v FROM t WHERE n % 1000 = 0"))) == 1
        finally:
            done.set()
            writer.join()


def test_a_copy_of_what_is_opened_and_closed_again_meanwhile_is_one_state(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody has the file open before or after its first half is copied, but a short run comes in between."""

    def in_halves(source: Path, target: str) -> None:
        octets = source.read_bytes()
        if meanwhile:
            meanwhile.pop()()
        Path(target).write_bytes(octets[: len(octets) // 2] + source.read_bytes()[len(octets) // 2 :])

    def rewrite() -> None:
        with Database(path, V1) as database, database.write() as transaction:
            transaction.run("DELETE FROM item")
            rows = [("later" * 500,) for _ in range(200)]
            transaction.many("INSERT INTO item (word) VALUES (?)", rows)

    with Database(path, V1) as database:
        add(database, *["first" * 500] * 200)
    meanwhile = [rewrite]
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "copyfile", in_halves)
        copy_database(path, tmp_path / "copy.sqlite")
    assert not meanwhile
    with Database(tmp_path / "copy.sqlite", V1) as copied:
        assert copied.check() == []
        assert set(words(copied)) == {"later" * 500}


def test_a_copy_of_what_was_not_closed_has_its_log(path: Path, tmp_path: Path) -> None:
    """The last writer was killed before its checkpoint."""
    folder = tmp_path / "killed"
    folder.mkdir()
    with Database(path, V2) as database:
        add(database, "in the log")
        for suffix in ("", "-wal"):
            (folder / f"a.sqlite{suffix}").write_bytes(Path(f"{path}{suffix}").read_bytes())
    copy_database(folder / "a.sqlite", tmp_path / "copy.sqlite")
    with Database(tmp_path / "copy.sqlite", V2) as copied:
        assert "in the log" in words(copied)


def _killed(path: Path, *, has_log: bool) -> None:
    """What a writer leaves that is killed: in the middle of a commit without a log, after one with it."""
    pid = os.fork()
    if pid == 0:
        writer = apsw.Connection(str(path))
        writer.execute(f"PRAGMA journal_mode = {'WAL' if has_log else 'TRUNCATE'}; PRAGMA cache_size = 5").fetchall()
        writer.execute("CREATE TABLE t (n INTEGER PRIMARY KEY, pad BLOB)")
        rows = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 999) SELECT i, zeroblob(500)"
        writer.execute(f"INSERT INTO t {rows} FROM n")
        writer.execute("BEGIN; UPDATE t SET pad = randomblob(600); DELETE FROM t WHERE n % 2")
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(pid, 0)


@pytest.mark.parametrize("has_log", [False, True], ids=["hot journal", "log without its index"])
def test_a_copy_of_what_sqlite_can_only_recover_by_writing(path: Path, tmp_path: Path, *, has_log: bool) -> None:
    folder = tmp_path / "killed"
    folder.mkdir()
    path, copy = folder / "a.sqlite", tmp_path / "copy.sqlite"
    _killed(path, has_log=has_log)
    Path(f"{path}-shm").unlink(missing_ok=True)
    before = {one.name: one.read_bytes() for one in folder.iterdir()}
    assert len(before) == 2
    folder.chmod(0o500)
    copy_database(path, copy)
    found = apsw.Connection(str(copy))
    assert found.execute("SELECT count(*), max(length(pad)) FROM t").fetchall() == [(999, 500)]
    assert found.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    found.close()
    folder.chmod(0o700)
    assert before.items() <= {one.name: one.read_bytes() for one in folder.iterdir()}.items()


def test_a_copy_leaves_no_trace(database: Database, path: Path, tmp_path: Path) -> None:
    for closed in (False, True):
        if closed:
            database.close()
        before = sorted(os.listdir(tmp_path)), os.stat(tmp_path).st_mtime_ns
        copies = tmp_path.parent / f"{tmp_path.name}-copies-{closed}"
        copies.mkdir()
        copy_database(path, copies / "copy.sqlite")
        assert (sorted(os.listdir(tmp_path)), os.stat(tmp_path).st_mtime_ns) == before
        with Database(copies / "copy.sqlite", V1) as copied:
            assert words(copied) == ["first"]


def test_check_finds_a_sound_file_sound(database: Database) -> None:
    assert database.check() == []


def test_migrations_go_forward(path: Path) -> None:
    with Database(path, V1) as old:
        add(old, "second")
    with Database(path, V2) as new, new.read() as transaction:
        assert list(transaction.rows("SELECT word, size FROM item")) == [("first", 5), ("second", 6)]
        assert transaction.value("PRAGMA user_version") == 2
        assert transaction.value("PRAGMA application_id") == MARK
    before = path.read_bytes()
    with pytest.raises(SchemaTooNew):
        Database(path, V1)
    assert path.read_bytes() == before


def test_a_migration_happens_whole_or_not_at_all(path: Path) -> None:
    Database(path, V1).close()
    with pytest.raises(DatabaseFault):
        Database(path, Schema(MARK, (ONE, BROKEN)))
    with Database(path, V1) as database:
        assert words(database) == ["first"]
    with Database(path, V2) as database:
        assert words(database) == ["first"]


def test_a_creation_that_fails_leaves_nothing_in_the_way(path: Path) -> None:
    with pytest.raises(DatabaseFault):
        Database(path, Schema(MARK, (ONE + BROKEN,)))
    with Database(path, V1) as database:
        assert words(database) == ["first"]


def test_another_application_mark_is_left_alone(path: Path) -> None:
    Database(path, V1).close()
    before = path.read_bytes()
    with failing("HW-DB-06", match="another program"):
        Database(path, Schema(MARK + 1, (ONE,)))
    assert path.read_bytes() == before


def test_an_empty_database_that_another_program_has_marked_is_left_alone(path: Path) -> None:
    """It is about to make its tables."""
    with contextlib.closing(sqlite3.connect(path)) as other:
        other.executescript(f"PRAGMA application_id = {MARK + 1}; CREATE TABLE t (n); DROP TABLE t;")
    before = path.read_bytes()
    with failing("HW-DB-06", match="another program"):
        Database(path, V1)
    assert path.read_bytes() == before


@pytest.mark.parametrize(("held", "wanted", "migrated_from"), [(None, V2, None), (V1, V2, 1), (V2, V2, None)])
def test_only_what_was_migrated_says_from_where(
    path: Path, held: Schema | None, wanted: Schema, migrated_from: int | None
) -> None:
    if held is not None:
        Database(path, held).close()
    with Database(path, wanted) as database:
        assert database.migrated_from == migrated_from


def test_an_older_file_that_may_not_be_migrated_is_refused_and_left_as_it_is(path: Path) -> None:
    Database(path, V1).close()
    before = path.read_bytes()
    with pytest.raises(SchemaTooOld):
        Database(path, Schema(MARK, (ONE, TWO), may_migrate=False))
    assert path.read_bytes() == before
    with Database(path, Schema(MARK, (ONE,), may_migrate=False)) as database:
        assert words(database) == ["first"]


def test_the_version_of_the_data_is_another_one_after_what_others_have_written(database: Database, path: Path) -> None:
    before = database.data_version()
    add(database, "ours")
    assert database.data_version() == before
    with Database(path, V1) as other:
        add(other, "theirs")
    assert database.data_version() != before


def test_a_transaction_that_cannot_be_ended_costs_a_connection_and_nothing_else(database: Database) -> None:
    """The writer is replaced: what was begun is rolled back, and what comes after is written."""

    def fail() -> None:
        with database.write() as transaction:
            transaction.run("DELETE FROM item")
            database._writer.close(True)
            transaction.run("DELETE FROM item")

    with pytest.raises(DatabaseFault):
        fail()
    add(database, "second")
    assert words(database) == ["first", "second"]


def test_a_reader_that_cannot_be_ended_is_not_lent_again(database: Database) -> None:
    def fail() -> None:
        with database.read() as transaction:
            transaction._connection.close(True)
            transaction.fetch("SELECT 1")

    with pytest.raises(DatabaseFault):
        fail()
    assert words(database) == ["first"]


def test_who_closes_a_database_while_he_writes_is_told_by_a_fault_of_ours(database: Database, path: Path) -> None:
    def fail() -> None:
        with database.write() as transaction:
            transaction.run("DELETE FROM item")
            database.close()

    with failing("HW-DB-10"):
        fail()
    with Database(path, V1) as again:
        assert words(again) == ["first"]


@pytest.mark.parametrize("wrong", ["SELECT nothing", "SELECT 1 FROM nowhere"])
def test_a_query_that_is_refused_is_a_fault_however_it_is_made(database: Database, wrong: str) -> None:
    asks: list[Callable[[Transaction], object]] = [
        lambda tx: tx.run(wrong),
        lambda tx: tx.many(wrong, [()]),
        lambda tx: tx.fetch(wrong),
        lambda tx: tx.one(wrong),
        lambda tx: tx.value(wrong),
        lambda tx: list(tx.rows(wrong)),
        lambda tx: list(tx.rows_each(wrong, [()])),
    ]
    for ask in asks:
        with database.read() as transaction, pytest.raises(DatabaseFault):
            ask(transaction)


def test_a_path_that_no_file_can_have_is_refused(tmp_path: Path) -> None:
    with failing("HW-DB-07", match="UTF-8"):
        Database(tmp_path / "a\udcff.db", V1)


def test_a_rollback_journal_file_is_brought_into_wal_mode(path: Path) -> None:
    with closing(sqlite3.connect(path)) as old, old:
        old.executescript(f"{ONE} PRAGMA user_version = 1; PRAGMA application_id = {MARK};")
    old.close()
    with Database(path, V2) as database:
        assert words(database) == ["first"]


OPENER = """
import sys
from tests.storage.test_database import Database, V2, words
from tests.support.failing import failing
with Database(sys.argv[1], V2) as database:
    assert words(database) == ["first"]
"""


def test_processes_that_create_it_at_once_create_it_once(path: Path) -> None:
    command = [sys.executable, "-c", OPENER, str(path)]
    openers = [subprocess.Popen(command, stderr=subprocess.PIPE, text=True) for _ in range(5)]
    for opener in openers:
        _, err = opener.communicate(timeout=60)
        assert (opener.returncode, err) == (0, "")


@pytest.mark.parametrize("is_replaced", [False, True])
def test_nothing_is_recorded_in_a_file_that_is_not_there_any_more(
    database: Database, path: Path, is_replaced: bool
) -> None:
    add(database, "second")
    path.rename(path.with_name("elsewhere"))
    if is_replaced:
        shutil.copy(path.with_name("elsewhere"), path)
    with failing("HW-DB-12"):
        add(database, "third")
    assert words(database) == ["first", "second"]


def test_a_file_that_is_put_back_is_written_again(database: Database, path: Path) -> None:
    path.rename(path.with_name("elsewhere"))
    with failing("HW-DB-12"):
        add(database, "lost")
    path.with_name("elsewhere").rename(path)
    add(database, "second")
    assert words(database) == ["first", "second"]
