"""What is in a catalog's way is said by its name, and nothing that was accepted is lost by it."""

from __future__ import annotations

import datetime as dt
import os
import resource
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path

import pytest

from headwater.catalog.interface import Event, Metadata
from headwater.catalog.sqlite_catalog import SqliteCatalog
from headwater.catalog.verify import verify
from headwater.errors import Exit, StoreFault
from headwater.storage.transaction import DatabaseFault, DatabaseFull
from tests.contract.catalog.cases import START, at, opened, up
from tests.contract.catalog.model import observed
from tests.support.failing import failing

FAT = Metadata(type="t/" + "t" * 2_000)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "catalog.db"


@pytest.fixture
def tmpfs(tmp_path: Path) -> Iterator[Path]:
    """A file system of one megabyte, where this user may mount one."""
    folder = tmp_path / "tmpfs"
    folder.mkdir()
    mount = shutil.which("mount")
    command = [mount or "mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)]
    if mount is None or os.geteuid() != 0 or subprocess.run(command, capture_output=True).returncode:
        pytest.skip("mounting a tmpfs is not permitted here")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def made(path: Path, loaded: Sequence[Event] = ()) -> SqliteCatalog:
    catalog = SqliteCatalog(path)
    opened(catalog, loaded)
    return catalog


def fill(catalog: SqliteCatalog) -> int:
    """Record until it fails; the number of batches that were accepted. The fault is raised on."""
    for number in range(10_000):
        try:
            catalog.record("s", [up(f"{number}/{n}", FAT) for n in range(20)], at(number))
        except StoreFault:
            return number
    raise AssertionError("the disk never filled")


def test_a_full_disk_halves_nothing_and_goes_on_when_there_is_room(tmpfs: Path) -> None:
    ballast = tmpfs / "ballast"
    ballast.write_bytes(bytes(400_000))
    catalog = SqliteCatalog(tmpfs / "catalog.db")
    opened(catalog, [up("a")])
    accepted = fill(catalog)
    before = observed(catalog, "s")
    with pytest.raises(DatabaseFull) as full:
        catalog.record("s", [up(f"more/{n}", FAT) for n in range(200)], at(1))
    assert full.value.exit_status is Exit.STORE
    assert "Free space" in full.value.todo
    assert observed(catalog, "s") == before
    assert before["state"].last_seq == accepted * 20
    assert verify(catalog, "s") == []
    ballast.unlink()
    catalog.record("s", [up("b")], at(1))
    assert catalog.state("s").last_seq == accepted * 20 + 1
    catalog.close()
    catalog = SqliteCatalog(tmpfs / "catalog.db")
    assert verify(catalog, "s") == []
    assert catalog.check() == []
    catalog.close()


def test_a_full_disk_at_creation(tmpfs: Path) -> None:
    (tmpfs / "ballast").write_bytes(bytes(1_020_000))
    with pytest.raises(DatabaseFull):
        SqliteCatalog(tmpfs / "catalog.db")
    (tmpfs / "ballast").unlink()
    made(tmpfs / "catalog.db").close()


def test_a_database_that_may_not_grow(path: Path) -> None:
    catalog = SqliteCatalog(path)
    opened(catalog, [up("a")])
    writer = catalog._database._writer
    writer.execute("PRAGMA max_page_count = 60").fetchall()
    accepted = fill(catalog)
    assert catalog.state("s").last_seq == accepted * 20
    assert verify(catalog, "s") == []
    writer.execute("PRAGMA max_page_count = 100000").fetchall()
    catalog.record("s", [up("b")], at(1))
    assert verify(catalog, "s") == []
    catalog.close()


LIMITED = """
import resource, sys
from tests.catalog.test_faults import fill, made, DatabaseFault, at, up, FAT
resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, 300_000))
catalog = made(sys.argv[1])
accepted = fill(catalog)
try:
    catalog.record("s", [up(f"more/{n}", FAT) for n in range(200)], at(1))
except DatabaseFault as fault:
    print(accepted, fault.code)
"""


def test_a_limit_on_the_size_of_files(path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", LIMITED, path], capture_output=True, text=True, check=True)
    accepted, code = done.stdout.split()
    assert code in ("HW-DB-02", "HW-DB-08")
    catalog = SqliteCatalog(path)
    assert catalog.state("s").last_seq == int(accepted) * 20
    assert verify(catalog, "s") == []
    assert catalog.check() == []
    catalog.close()
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] == resource.RLIM_INFINITY


def test_a_read_only_file_system(tmpfs: Path) -> None:
    made(tmpfs / "catalog.db", [up("a")]).close()
    subprocess.run(["mount", "-o", "remount,ro", str(tmpfs)], check=True)
    with failing("HW-DB-03") as fault:
        SqliteCatalog(tmpfs / "catalog.db")
    assert "write permission" in fault.value.todo
    with failing("HW-DB-03"):
        SqliteCatalog(tmpfs / "another.db")


@pytest.mark.skipif(os.geteuid() == 0, reason="permission bits do not bind root")
@pytest.mark.parametrize("which", ["file", "folder"])
def test_no_permission_to_write(path: Path, which: str) -> None:
    made(path, [up("a")]).close()
    target = path if which == "file" else path.parent
    target.chmod(0o400 if which == "file" else 0o500)
    try:
        with pytest.raises(DatabaseFault) as fault:
            made(path)
        assert fault.value.code in ("HW-DB-03", "HW-DB-07")
    finally:
        target.chmod(0o700)


def _no_folder(path: Path) -> Path:
    return path.parent / "nowhere" / "catalog.db"


def _folder_in_its_place(path: Path) -> Path:
    path.mkdir()
    return path


def _text(path: Path) -> Path:
    path.write_text("This is not a database. " * 500)
    return path


def _another_program(path: Path) -> Path:
    with closing(sqlite3.connect(path)) as other, other:
        other.execute("CREATE TABLE bookmark (url TEXT)")
    other.close()
    return path


def _not_utf8(path: Path) -> Path:
    return path.parent / os.fsdecode(b"\xff.db")


@pytest.mark.parametrize(
    ("prepare", "code"),
    [
        (_no_folder, "HW-DB-07"),
        (_folder_in_its_place, "HW-DB-07"),
        (_text, "HW-DB-06"),
        (_another_program, "HW-DB-06"),
        (_not_utf8, "HW-DB-07"),
    ],
)
def test_what_is_no_catalog_is_left_alone(path: Path, prepare: Callable[[Path], Path], code: str) -> None:
    target = prepare(path)
    before = target.read_bytes() if target.is_file() else None
    with failing(code) as raised:
        SqliteCatalog(target)
    assert raised.value.where
    assert (target.read_bytes() if target.is_file() else None) == before


def test_an_empty_file_becomes_a_catalog(path: Path) -> None:
    path.touch()
    made(path).close()


def test_a_corrupt_file_is_named(path: Path) -> None:
    catalog = made(path, [up(f"r{n}", FAT) for n in range(500)])
    catalog.close()
    content = bytearray(path.read_bytes())
    for offset in range(4096 * 9, len(content), 4096 * 2):
        content[offset : offset + 200] = b"\xa5" * 200
    path.write_bytes(content)
    catalog = SqliteCatalog(path)
    with failing("HW-DB-05") as raised:
        verify(catalog, "s")
    assert "backup" in raised.value.todo
    assert catalog.check() != []
    catalog.close()


def test_a_truncated_file_is_named(path: Path) -> None:
    made(path, [up(f"r{n}", FAT) for n in range(500)]).close()
    os.truncate(path, path.stat().st_size // 2)

    def use() -> None:
        catalog = SqliteCatalog(path)
        try:
            verify(catalog, "s")
            assert catalog.check() == []
        finally:
            catalog.close()

    with failing("HW-DB-05"):
        use()


def test_a_newer_schema_is_left_alone(path: Path) -> None:
    made(path, [up("a")]).close()
    with closing(sqlite3.connect(path)) as newer, newer:
        newer.execute("PRAGMA user_version = 99")
    newer.close()
    before = path.read_bytes()
    with failing("HW-CAT-03") as raised:
        SqliteCatalog(path)
    assert raised.value.code == "HW-CAT-03"
    assert "99" in raised.value.what
    assert path.read_bytes() == before


KEEPER = """
import sqlite3, sys
keeper = sqlite3.connect(sys.argv[1], isolation_level=None)
keeper.execute("BEGIN IMMEDIATE")
print("locked", flush=True)
sys.stdin.read()
"""


def test_a_lock_that_another_process_keeps(path: Path) -> None:
    catalog = SqliteCatalog(path, busy_seconds=0.2)
    opened(catalog, [up("a")])
    before = observed(catalog, "s")
    command = [sys.executable, "-c", KEEPER, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as keeper:
        assert keeper.stdout is not None
        assert keeper.stdout.readline() == "locked\n"
        with failing("HW-DB-04") as raised:
            catalog.record("s", [up("b")], at(1))
        assert "other process" in raised.value.todo
        assert observed(catalog, "s") == before  # readers do not wait for a writer
        keeper.communicate()
    catalog.record("s", [up("b")], at(1))
    assert catalog.state("s").last_seq == 1
    catalog.close()


def test_an_interrupt_in_the_middle_records_nothing(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    catalog = made(path, [up("a")])
    before = observed(catalog, "s")

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("headwater.catalog.sqlite_catalog._Set.write_log", interrupted)
        with pytest.raises(KeyboardInterrupt):
            catalog.record("s", [up("a"), up("b")], at(1))
    assert observed(catalog, "s") == before
    catalog.record("s", [up("a")], at(1))
    assert catalog.state("s").last_seq == 1
    catalog.close()


def test_a_closed_catalog_says_so(path: Path) -> None:
    catalog = made(path, [up("a"), up("b")])
    reading = catalog.page("s", 0)
    next(reading)
    catalog.close()
    catalog.close()
    for use in (lambda: next(reading), lambda: catalog.state("s"), lambda: catalog.mark("s", START)):
        with failing("HW-DB-10"):
            use()
    assert not path.with_name("catalog.db-wal").exists()


def test_half_read_pages_do_not_pile_up(path: Path) -> None:
    catalog = made(path, [up("a"), up("b")])
    for _ in range(50):
        next(catalog.page("s", 0))
    assert catalog._database._lent == set()
    assert len(catalog._database._idle) <= 8
    catalog.close()


def test_the_file_is_private_whatever_the_umask(path: Path) -> None:
    old = os.umask(0)
    try:
        catalog = made(path)
    finally:
        os.umask(old)
    assert {oct(file.stat().st_mode & 0o777) for file in path.parent.glob("catalog.db*")} == {"0o600"}
    catalog.close()


def test_times_never_exceed_what_a_datetime_holds(path: Path) -> None:
    catalog = made(path)
    assert catalog.mark("s", dt.datetime(2026, 1, 1, tzinfo=dt.timezone(dt.timedelta(hours=5)))) == START
    catalog.close()
