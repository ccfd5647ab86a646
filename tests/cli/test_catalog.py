"""`headwater catalog` as people run it: sets move and destinations notice nothing; recounts find what is wrong."""

from __future__ import annotations

import gzip
import json
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from headwater.catalog.sqlite_catalog import SqliteCatalog
from headwater.errors import Exit
from headwater.source.leadership import Locked, StateLock
from tests.contract.catalog.cases import START, opened, up
from tests.interop.programs import web_server
from tests.support.program import Done, run_here

BASE = "https://example.org/data"


def headwater(*args: object, status: int = 0, octets: bytes = b"") -> Done:
    done = run_here(*args, octets=octets)
    assert done.returncode == status, (done.stdout, done.stderr.decode())
    return done


def publish(files: Path, out: Path, base: str = BASE) -> None:
    headwater("publish", "--files", files, "--to", out, "--base-url", base)


def documents(out: Path) -> dict[str, bytes]:
    found = {
        str(path.relative_to(out)): path.read_bytes() for path in out.rglob("*.xml") if "resources" not in path.parts
    }
    assert found
    return found


@pytest.fixture
def world(tmp_path: Path) -> tuple[Path, Path]:
    """A folder with a past, and where it was published."""
    files, out = tmp_path / "files", tmp_path / "out"
    files.mkdir()
    for number in range(9):
        (files / f"é {number}.txt").write_text(f"{number}")
    publish(files, out)
    (files / "é 1.txt").write_text("changed")
    (files / "é 2.txt").unlink()
    publish(files, out)
    return files, out


@pytest.mark.parametrize("name", ["dump.ndjson", "dump.ndjson.gz"])
def test_a_moved_source_begins_its_change_list_anew_and_copies_fetch_nothing(tmp_path: Path, name: str) -> None:
    files, site, state = tmp_path / "files", tmp_path / "site", tmp_path / "site" / ".headwater"
    files.mkdir()
    with web_server(site) as base:
        for number in range(9):
            (files / f"é {number}.txt").write_text(f"{number}")
        publish(files, site, base)
        (files / "é 1.txt").write_text("changed")
        (files / "é 2.txt").unlink()
        publish(files, site, base)
        assert copy(base, tmp_path)["created"] == 8
        told = json.loads(headwater("catalog", "export", state, "-o", tmp_path / name, "--json").stdout)
        assert told["sets"] == [{"name": "files", "resources": 8, "rows": 1}]  # a row counts the deletion
        assert told["octets"] == (tmp_path / name).stat().st_size
        before = documents(site)
        shutil.rmtree(state)
        headwater("catalog", "import", tmp_path / name, state)
        publish(files, site, base)
        assert before["files/changelist.xml"].count(b"<url>") == 2
        assert documents(site)["files/changelist.xml"].count(b"<url>") == 0
        (files / "new.txt").write_text("new")
        publish(files, site, base)
        done = copy(base, tmp_path)
        assert (done["created"], done["updated"], done["deleted"], done["octets"]) == (1, 0, 0, 3)
    assert b"sound" in headwater("catalog", "verify", state).stdout


def copy(base: str, folder: Path) -> dict[str, int]:
    report = json.loads(headwater("sync", base, folder / "copy", "--json").stdout)
    counts: dict[str, int] = report["sets"][0]
    return counts


def test_documents_that_did_not_move_are_written_anew(world: tuple[Path, Path], tmp_path: Path) -> None:
    files, out = world
    dump = headwater("catalog", "export", out / ".headwater" / "catalog.sqlite").stdout
    (tmp_path / "moved" / ".headwater").mkdir(parents=True)
    headwater("catalog", "import", "-", tmp_path / "moved" / ".headwater", octets=dump)
    publish(files, tmp_path / "moved")
    assert set(documents(tmp_path / "moved")) == set(documents(out))


def test_a_configuration_names_its_catalog(world: tuple[Path, Path], tmp_path: Path) -> None:
    files, out = world
    headwater("catalog", "export", out / ".headwater", "-o", tmp_path / "dump")
    config = tmp_path / "source.toml"
    config.write_text(f'state = "state"\nbase_url = "{BASE}"\n[[set]]\nfiles = "{files}"\n')
    headwater("catalog", "verify", config, status=Exit.USAGE)
    headwater("catalog", "import", tmp_path / "dump", config)
    assert (tmp_path / "state" / "catalog.sqlite").is_file()
    assert b"sound" in headwater("catalog", "verify", config).stdout


def test_a_name_without_an_ending_becomes_a_state_folder(world: tuple[Path, Path], tmp_path: Path) -> None:
    _, out = world
    headwater("catalog", "export", out / ".headwater", "-o", tmp_path / "dump.gz")
    for name, file in (("new/state", "new/state/catalog.sqlite"), ("a.sqlite", "a.sqlite")):
        headwater("catalog", "import", tmp_path / "dump.gz", tmp_path / name)
        assert (tmp_path / file).is_file()
        headwater("catalog", "verify", tmp_path / name)
    StateLock(tmp_path / "new" / "state").release()


def test_a_dump_that_is_cut_off_is_refused(world: tuple[Path, Path], tmp_path: Path) -> None:
    dump = headwater("catalog", "export", world[1] / ".headwater").stdout
    for octets in (dump[:-1], gzip.compress(dump)[:-9], dump[:-300]):
        done = headwater("catalog", "import", "-", tmp_path / "new.db", octets=octets, status=Exit.STORE)
        assert b"HW-DMP-03" in done.stderr
        if octets != dump[:-300]:
            assert (b"imported before that" in done.stderr) is (octets == dump[:-1])
            (tmp_path / "new.db").unlink(missing_ok=True)
    assert phases(tmp_path / "new.db") == {"files": "loading"}
    headwater("catalog", "import", "-", tmp_path / "new.db", octets=dump)
    assert b"sound" in headwater("catalog", "verify", tmp_path / "new.db").stdout


def test_what_cannot_be_is_told(world: tuple[Path, Path], tmp_path: Path) -> None:
    state = world[1] / ".headwater"
    headwater("catalog", "export", state, "-o", tmp_path / "dump")
    for args, status, code in (
        (("export", tmp_path / "nothing", "-o", tmp_path / "x"), Exit.USAGE, "HW-CLI-01"),
        (("export", state, "--set", "nobody", "-o", tmp_path / "x"), Exit.USAGE, "HW-USE-01"),
        (("export", state, "--json"), Exit.USAGE, "HW-USE-01"),
        (("export", state, "-o", "/dev/full"), Exit.STORE, "HW-STO-01"),
        (("import", tmp_path / "dump", state), Exit.USAGE, "HW-CAT-05"),
        (("import", tmp_path / "dump", tmp_path / "x.db", "--set", "nobody"), Exit.USAGE, "HW-USE-01"),
        (("import", state / "catalog.sqlite", tmp_path / "x.db"), Exit.USAGE, "HW-DMP-01"),
        (("import", tmp_path / "nothing", tmp_path / "x.db"), Exit.USAGE, "HW-USE-01"),
        (("verify", tmp_path / "dump"), Exit.STORE, "HW-DB-06"),
        (("verify", "nonsense://host/x"), Exit.USAGE, "HW-CAT-09"),
    ):
        done = headwater("catalog", *args, status=status)
        assert code in done.stderr.decode()
        assert not (tmp_path / "x").exists()
        assert not (tmp_path / "x.db").exists()


@pytest.mark.parametrize("name", ["none/dump.ndjson.gz", "files", "files/é 1.txt/dump.ndjson"])
def test_a_file_that_cannot_be_written_is_told(world: tuple[Path, Path], tmp_path: Path, name: str) -> None:
    """A folder that is not there, a folder in place of a file, and a file in place of a folder."""
    done = headwater("catalog", "export", world[1] / ".headwater", "-o", tmp_path / name, status=Exit.STORE)
    assert "the output cannot be written: " in done.stderr.decode()
    assert f"where: {tmp_path / name}" in done.stderr.decode()


def test_nothing_is_imported_under_a_source_at_work(world: tuple[Path, Path], tmp_path: Path) -> None:
    state = world[1] / ".headwater"
    headwater("catalog", "export", state, "-o", tmp_path / "dump")
    lock = StateLock(state)
    done = headwater("catalog", "import", tmp_path / "dump", state, status=Exit.STORE)
    assert Locked.code.encode() in done.stderr
    headwater("catalog", "verify", state)
    lock.release()


def test_verify_tells_discrepancies(world: tuple[Path, Path]) -> None:
    state = world[1] / ".headwater"
    told = json.loads(headwater("catalog", "verify", state, "--json").stdout)
    assert (told["sound"], told["file"]) == (True, [])
    assert told["sets"] == [{"name": "files", "resources": 8, "changes": 2, "discrepancies": []}]
    with closing(sqlite3.connect(state / "catalog.sqlite")) as wrong, wrong:
        wrong.execute("UPDATE page SET count = count + 1")
    wrong.close()
    done = headwater("catalog", "verify", state, status=Exit.FINDINGS)
    assert b"NOT sound" in done.stdout
    assert b"page 0" in done.stdout
    told = json.loads(headwater("catalog", "verify", state, "--json", status=Exit.FINDINGS).stdout)
    assert told["sets"][0]["discrepancies"][0]["where"] == "page 0"


def test_verify_tells_what_is_wrong_with_the_file(world: tuple[Path, Path]) -> None:
    file = world[1] / ".headwater" / "catalog.sqlite"
    with closing(sqlite3.connect(file)) as wrong, wrong:
        wrong.execute("PRAGMA writable_schema = ON")
        wrong.execute("DELETE FROM sqlite_schema WHERE name = 'resource_uri'")
    wrong.close()
    done = headwater("catalog", "verify", file, status=Exit.FINDINGS)
    assert b"the file itself" in done.stdout


@pytest.fixture
def large(tmp_path: Path) -> Path:
    """A dump of a set that takes more than a megabyte."""
    catalog = SqliteCatalog(tmp_path / "large.db")
    opened(catalog, [up(f"folder/{number:06d}") for number in range(8_000)])
    catalog.record("s", [up(f"folder/{number:06d}") for number in range(500)], START)
    catalog.close()
    headwater("catalog", "export", tmp_path / "large.db", "-o", tmp_path / "large")
    return tmp_path / "large"


def phases(file: Path) -> dict[str, str]:
    """The sets, and how far each is."""
    return {one["name"]: one["phase"] for one in json.loads(headwater("status", file, "--json").stdout)["sets"]}


def test_a_disk_that_is_full_opens_no_half_of_a_set(large: Path, tmp_path: Path) -> None:
    """The limit of a file's size stands in for the disk."""
    command = [sys.executable, "-m", "headwater", "catalog", "import", str(large), str(tmp_path / "new.db")]
    limited = ["bash", "-c", 'ulimit -f 200 && exec "$@"', "bash", *command]
    full = subprocess.run(limited, capture_output=True, check=False, timeout=120)
    assert full.returncode == Exit.STORE, full.stderr
    assert b"HW-DB-" in full.stderr
    assert phases(tmp_path / "new.db") == {"s": "loading"}
    headwater("catalog", "import", large, tmp_path / "new.db")
    assert phases(tmp_path / "new.db") != {"s": "loading"}
    assert b"sound" in headwater("catalog", "verify", tmp_path / "new.db").stdout


def test_an_import_that_is_killed_opens_no_half_of_a_set(large: Path, tmp_path: Path) -> None:
    dump = large.read_bytes()
    command = [sys.executable, "-m", "headwater", "catalog", "import", "-", str(tmp_path / "new.db")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdin is not None
        process.stdin.write(dump[: len(dump) * 3 // 4])  # more than pipe and buffers hold: most of it has been taken
        process.stdin.flush()
        process.kill()
        process.communicate()
    assert phases(tmp_path / "new.db") == {"s": "loading"}
    headwater("catalog", "import", "-", tmp_path / "new.db", octets=dump)
    assert phases(tmp_path / "new.db") != {"s": "loading"}
    assert b"sound" in headwater("catalog", "verify", tmp_path / "new.db").stdout


def test_thousands_of_sets_are_told_as_sums(tmp_path: Path) -> None:
    state, dump, other = tmp_path / "catalog.sqlite", tmp_path / "dump", tmp_path / "other"
    catalog = SqliteCatalog(state)
    for number in range(30):
        catalog.create(f"s{number:02d}")
        catalog.load(f"s{number:02d}", [up("a")])
        catalog.open(f"s{number:02d}", START)
    catalog.close()
    sums = b"30 sets: 30 resources"
    assert headwater("catalog", "export", state, "-o", dump).stderr.startswith(b"exported " + sums + b"\n")
    assert headwater("catalog", "import", dump, other).stderr.startswith(b"imported " + sums + b"\n")
    assert headwater("catalog", "verify", other).stdout.startswith(sums + b", 0 changes; no discrepancies\nsound")
    assert b"s19 and 10 more" in headwater("catalog", "verify", other, "--set", "nope", status=2).stderr
