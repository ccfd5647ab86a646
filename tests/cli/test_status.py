"""`headwater status` as people run it: on a file, a folder, a configuration; once or again; older, newer catalogs."""

from __future__ import annotations

import datetime as dt
import json
import re
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import pytest

from headwater.catalog import sqlite_catalog as backend
from headwater.catalog.sqlite_catalog import SCHEMA, SqliteCatalog
from headwater.cli import run
from headwater.errors import Exit
from headwater.ingest.deletion_guard import DeletionGuard, DeletionHold, HoldReason
from headwater.publish.publisher import Publisher
from headwater.publish.site import SetSettings, Site
from headwater.storage import cluster
from headwater.storage.database import Schema
from headwater.storage.folder_store import FolderStore
from tests.contract.catalog.cases import START, opened, up
from tests.support.push_set import PushSet, at, change, resource
from tests.support.serving import Process, request
from tests.support.waiting import START as PUSH_START
from tests.support.waiting import until

FIELDS = {
    "name", "phase", "resources", "last_seq", "last_at", "published", "published_seq", "changes_waiting",
    "changes_lag_seconds", "pages", "pages_stale", "pages_pending", "pages_lag_seconds", "resource_list_at",
    "refreshed_at", "last_look_at", "entries_octets", "segments", "open_segment", "change_dump", "resource_dump",
    "archive",
}  # fmt: skip
"""Stable: docs/reference/outputs.md promises them."""
SUMS = {
    "catalog", "time", "catalog_octets", "free_octets", "resources", "lag_seconds", "pages_lag_seconds",
    "waiting", "unpaired", "sets",
}  # fmt: skip
MANUAL = Path(__file__).parents[2] / "docs" / "reference" / "outputs.md"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    catalog = SqliteCatalog(tmp_path / "catalog.sqlite")
    opened(catalog, [up("a"), up("b")])
    catalog.record("s", [up("a")], START)
    catalog.create("\x1b[31mred")
    catalog.close()
    return tmp_path / "catalog.sqlite"


def test_json_is_what_the_manual_promises(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["status", str(file), "--json", "--set", "s"]) == Exit.DONE
    told = json.loads(capsys.readouterr().out)
    assert set(told) == SUMS
    (one,) = told["sets"]
    assert set(one) == FIELDS
    assert set(one["open_segment"]) == {"number", "changes", "octets", "from"}
    assert (one["resources"], one["last_seq"], one["changes_waiting"], one["pages_stale"]) == (2, 1, 1, 1)
    assert told["lag_seconds"] == max(one["changes_lag_seconds"], one["pages_lag_seconds"]) > 0, "never published"
    assert told["pages_lag_seconds"] == one["pages_lag_seconds"]
    assert told["free_octets"] > 0
    assert told["catalog_octets"] >= file.stat().st_size
    manual = MANUAL.read_text("utf-8")
    assert [name for name in sorted(FIELDS | SUMS | {"number", "changes"}) if f"`{name}`" not in manual] == []


def test_a_person_gets_a_table_that_steers_no_terminal(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["status", str(file.parent)]) == Exit.DONE
    out = capsys.readouterr().out
    assert "nothing" in out
    assert "loading" in out
    assert "\\x1b[31mred" in out
    assert "\x1b" not in out


def test_the_lag_is_that_of_changes_and_not_of_pages(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Pages wait by design, for up to an hour, while every change is published."""
    catalog = SqliteCatalog(tmp_path / "catalog.sqlite")
    opened(catalog, [up("a")])
    site = Site(base_url="http://x.example", sets=(SetSettings(name="s"),))
    publisher = Publisher(catalog, FolderStore(tmp_path / "d", durable=False), site, lambda: START)
    publisher.publish("s", START)
    catalog.record("s", [up("a"), up("b")], START)
    publisher.publish("s", START)
    catalog.close()
    assert run(["status", str(tmp_path / "catalog.sqlite"), "--json"]) == Exit.DONE
    told = json.loads(capsys.readouterr().out)
    assert told["lag_seconds"] == 0.0
    assert told["pages_lag_seconds"] > 1_000


def test_documents_that_were_set_aside_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A resource that is older than what is known, until its own change comes."""
    fed = PushSet(tmp_path)
    fed.documents(*(one for name in "abcd" for one in (resource(name, 9), change(name, "created", 9))))
    fed.documents(resource("a", 1, "b"))
    fed.later(60)
    fed.documents(resource("b", 1, "b"), resource("c", 1, "b"))
    fed.close()
    assert run(["status", str(tmp_path / "catalog.sqlite"), "--json"]) == Exit.DONE
    told = json.loads(capsys.readouterr().out)
    (one,) = told["unpaired"]
    age = (dt.datetime.fromisoformat(told["time"]) - PUSH_START).total_seconds()
    assert one == {"set": "s", "count": 3, "oldest_seconds": pytest.approx(age)}
    assert run(["status", str(tmp_path)]) == Exit.DONE
    assert "resource documents set aside until their changes come:\n  s: 3, the oldest for " in capsys.readouterr().out


def test_what_its_change_has_brought_back_is_told_no_more(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fed = PushSet(tmp_path)
    fed.documents(resource("a", 9), change("a", "created", 9))
    fed.documents(resource("a", 1, "b"))
    fed.later(60)
    fed.documents(change("a", "updated", 20, lastmod=at(1)))
    fed.close()
    assert run(["status", str(tmp_path / "catalog.sqlite"), "--json"]) == Exit.DONE
    assert json.loads(capsys.readouterr().out)["unpaired"] == []
    assert run(["status", str(tmp_path / "catalog.sqlite")]) == Exit.DONE
    assert "set aside" not in capsys.readouterr().out


def test_sets_that_wait_and_a_full_disk_are_told(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "source.toml"
    config.write_text('state = "."\n' + "".join(f'[[set]]\nname = "w{n:02}"\nfeed = "events"\n' for n in range(12)))
    assert run(["status", str(config), "--json"]) == Exit.DONE
    assert json.loads(capsys.readouterr().out)["waiting"] == [f"w{n:02}" for n in range(12)]
    assert run(["status", str(config)]) == Exit.DONE
    out = capsys.readouterr().out
    assert "waiting for first records: w00, w01" in out
    assert "w09 and 2 more" in out
    assert "no room" not in out
    monkeypatch.setattr("headwater.cli.catalog_argument.CatalogArgument.free_octets", 4096)
    assert run(["status", str(config)]) == Exit.STORE
    assert "no room: 4.00 KiB left" in capsys.readouterr().out
    assert run(["status", str(config), "--json"]) == Exit.STORE
    assert list(json.loads(capsys.readouterr().out)["no_room"].values()) == [4096]


def test_a_state_is_told_where_the_users_own_folder_cannot_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A service's user often has no home that it may enter; here its name is too long for any system."""
    monkeypatch.setenv("XDG_STATE_HOME", f"/{'x' * 300}")
    for folder in ("files", "state"):
        (tmp_path / folder).mkdir()
    opened(SqliteCatalog(tmp_path / "state" / "catalog.sqlite"), [up("a")])
    config = tmp_path / "source.toml"
    config.write_text('state = "state"\n[[set]]\nname = "s"\nfiles = "files"\n')
    assert run(["status", str(config)]) == Exit.DONE
    assert capsys.readouterr().err == ""
    assert run(["status", str(tmp_path / "files")]) == Exit.USAGE


def test_a_look_at_a_set_has_an_age(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Also where nobody publishes any more; of a look in the future, before the clock was set back, nobody knows it."""
    catalog = SqliteCatalog(tmp_path / "catalog.sqlite")
    opened(catalog, [up("a")])
    site = Site(base_url="http://x.example", sets=(SetSettings(name="s"),))
    now = dt.datetime.now(dt.UTC)
    publisher = Publisher(catalog, FolderStore(tmp_path / "d", durable=False), site, lambda: START)
    place = str(tmp_path / "catalog.sqlite")

    def status(ago: float | None, *args: str) -> tuple[int, object]:
        looked_at = None if ago is None else now - dt.timedelta(seconds=ago)
        publisher.publish("s", START, looked_at=looked_at)
        ended = run(["status", place, "--json", *args])
        return ended, json.loads(capsys.readouterr().out)["sets"][0]["last_look_at"]

    assert status(None) == (Exit.DONE, None)
    assert status(None, "--max-age", "10m") == (Exit.FINDINGS, None)
    ended, first = status(700)
    assert (ended, isinstance(first, str)) == (Exit.DONE, True)
    assert status(699, "--max-age", "11m") == (Exit.FINDINGS, first), "a moment later: nothing is written"
    assert status(699, "--max-age", "20 min") == (Exit.DONE, first)
    assert status(300, "--max-age", "10m")[0] == Exit.DONE
    assert status(-700, "--max-age", "10m")[0] == Exit.FINDINGS
    assert status(1, "--max-age", "10m")[0] == Exit.DONE
    assert run(["status", place]) == Exit.DONE
    assert "looked at" in capsys.readouterr().out
    catalog.close()


def test_times_ahead_of_the_clock_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """After a jump of the clock and back, changes are stamped from the later time on."""
    catalog = SqliteCatalog(tmp_path / "catalog.sqlite")
    opened(catalog, [up("a")])
    catalog.record("s", [up("b")], dt.datetime.now(dt.UTC))
    assert run(["status", str(tmp_path)]) == Exit.DONE
    assert "ahead of the clock" not in capsys.readouterr().out
    catalog.record("s", [up("b")], dt.datetime.now(dt.UTC) + dt.timedelta(hours=2))
    assert run(["status", str(tmp_path)]) == Exit.DONE
    assert re.search(r"s: changes get times (2 h 0|1 h 59|119) min.* ahead of the clock", capsys.readouterr().out)
    catalog.close()


def test_looks_are_told_while_deletions_are_held_back(tmp_path: Path) -> None:
    """The publisher is well; only the Resource List states no later time, since it still lists what has vanished."""
    files, config = tmp_path / "files", tmp_path / "source.toml"
    files.mkdir()
    for number in range(20):
        (files / f"{number}.txt").write_text("a")
    config.write_text('state = "state"\n[[set]]\nfiles = "files"\nrescan_seconds = 1\n')
    with Process(str(config), "--port", "0") as server:
        server.ready()

        def told(key: str) -> str:
            return str(json.loads(request(server.address, "/health").body)["sets"][0].get(key))

        for one in files.iterdir():
            one.unlink()
        until(lambda: told("held_back") != "None", what="a report of deletions that are held back")
        looked, at = told("last_look_at"), told("resource_list_at")
        until(lambda: told("last_look_at") > looked, what="a later look")
        assert (told("resource_list_at"), told("resources")) == (at, "20")


def test_a_publisher_that_is_dead_is_noticed(tmp_path: Path) -> None:
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "a.txt").write_text("a")
    config = tmp_path / "source.toml"
    config.write_text(
        'state = "state"\nbase_url = "http://x.example"\nmetrics = true\n[[set]]\nfiles = "files"\nrescan_seconds = 1\n'
    )
    command = [sys.executable, "-m", "headwater"]
    with (
        Process(str(config), "--no-publish", "--port", "0") as server,
        subprocess.Popen([*command, "publish", str(config), "--watch"], stderr=subprocess.PIPE) as publisher,
    ):
        try:
            server.listening()

            def looked() -> float:
                page = request(server.address, "/metrics").body.decode()
                found = re.search(r'headwater_set_last_look_timestamp_seconds\{set="files"\} (\S+)', page)
                return 0.0 if found is None else float(found[1])

            until(lambda: time.time() - looked() < 5, what="a look")
            first = looked()
            until(lambda: looked() > first, what="the next look, with nothing new")
            assert subprocess.run([*command, "status", str(config), "--max-age", "30"], check=False).returncode == 0
        finally:
            publisher.kill()
        last = looked()
        (one,) = json.loads(request(server.address, "/health").body)["sets"]
        assert dt.datetime.fromisoformat(one["last_look_at"]).timestamp() == pytest.approx(last, abs=0.001)
        time.sleep(2)
        for place in (config, tmp_path / "state"):
            done = subprocess.run([*command, "status", str(place), "--max-age", "1"], check=False)
            assert done.returncode == Exit.FINDINGS


def test_a_configuration_is_a_place_too(file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = tmp_path / "source.toml"
    config.write_text('state = "."\n[[set]]\nfiles = "nowhere"\n')
    assert run(["status", str(config), "--json"]) == Exit.DONE
    assert len(json.loads(capsys.readouterr().out)["sets"]) == 2


def test_a_set_that_has_left_the_configuration_alarms_nobody(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "source.toml"
    catalog = SqliteCatalog(file)
    hold = DeletionHold(HoldReason.ROOT_MISSING, 2, 2)
    noted = DeletionGuard(catalog, "s", 0.2, lambda: START).after_scan(hold, is_whole=True, deleted=0)
    assert noted is not None
    catalog.record("s", [], START, state=noted)
    catalog.close()
    config.write_text('state = "."\n[[set]]\nname = "s"\nfiles = "nowhere"\n')
    assert run(["status", str(config), "--json"]) == Exit.TRANSFERS_FAILED
    assert [one["set"] for one in json.loads(capsys.readouterr().out)["held_back"]] == ["s"]
    config.write_text('state = "."\n[[set]]\nname = "renamed"\nfiles = "nowhere"\n')
    assert run(["status", str(config), "--json"]) == Exit.DONE
    assert len(json.loads(capsys.readouterr().out)["sets"]) == 2


@pytest.mark.parametrize(
    ("args", "status", "code"),
    [
        (["nowhere"], Exit.USAGE, "HW-CLI-01"),
        (["{folder}/empty"], Exit.USAGE, "HW-CLI-01"),
        (["{folder}/catalog.sqlite", "--set", "nobody"], Exit.USAGE, "HW-USE-01"),
        (["{folder}/text"], Exit.STORE, "HW-DB-06"),
        (["{folder}/wrong.toml"], Exit.USAGE, "HW-CFG-01"),
    ],
)
def test_what_cannot_be_is_told(
    file: Path, args: list[str], status: Exit, code: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (file.parent / "empty").mkdir()
    (file.parent / "text").write_text("no database, but longer than the head of one is" * 9)
    (file.parent / "wrong.toml").write_text("state = 1")
    assert run(["status", *(arg.format(folder=file.parent) for arg in args)]) == status
    assert code in capsys.readouterr().err
    assert not Path("nowhere").exists()


def test_an_older_catalog_is_migrated_and_that_is_said(
    file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    newer = Schema(SCHEMA.application_id, (*SCHEMA.migrations, "CREATE TABLE tomorrow (x)"))
    monkeypatch.setattr(backend, "SCHEMA", newer)
    assert run(["status", str(file)]) == Exit.DONE
    err = capsys.readouterr().err
    assert f"schema version {SCHEMA.version} and is migrated" in err
    assert "HW-CAT-11" in err
    assert run(["status", str(file)]) == Exit.DONE
    assert "HW-CAT-11" not in capsys.readouterr().err


def test_a_newer_catalog_is_refused_and_left_as_it_is(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with closing(sqlite3.connect(file)) as newer, newer:
        newer.execute(f"PRAGMA user_version = {SCHEMA.version + 1}")
    newer.close()
    before = file.read_bytes()
    assert run(["status", str(file)]) == Exit.STORE
    err = capsys.readouterr().err
    assert "HW-CAT-03" in err
    assert "Upgrade Headwater" in err
    assert file.read_bytes() == before


def test_it_is_shown_again_until_it_is_interrupted(file: Path) -> None:
    command = [sys.executable, "-m", "headwater", "status", str(file), "--watch", "0.1", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        lines = [json.loads(process.stdout.readline()) for _ in range(3)]
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
        assert process.returncode == Exit.INTERRUPTED
    assert lines[0]["time"] < lines[1]["time"] < lines[2]["time"]


def test_it_reads_beside_a_server_at_work(tmp_path: Path) -> None:
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "a.txt").write_text("a")
    state = tmp_path / "state"
    with Process("--files", str(tmp_path / "files"), "--port", "0", "--state", str(state)) as process:
        process.ready()
        command = [sys.executable, "-m", "headwater", "status", str(state), "--json"]
        done = subprocess.run(command, capture_output=True, timeout=60, check=True)
        (one,) = json.loads(done.stdout)["sets"]
        assert (one["name"], one["resources"], one["published"]) == ("files", 1, True)


def test_an_engine_that_is_away_is_told_once_and_not_waited_for_long(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A person waits: five seconds, by the clock that the waits go by, and one note."""
    slept: list[float] = []
    start = time.monotonic()
    clock = {**vars(time), "monotonic": lambda: start + sum(slept), "sleep": slept.append}
    monkeypatch.setattr(cluster, "time", SimpleNamespace(**clock))
    assert run(["status", "opensearch://127.0.0.1:9/x"]) == Exit.STORE
    assert 2 < sum(slept) < 6
    err = capsys.readouterr().err
    assert err.count("note:") == 1
    assert err.count("error:") == 1
