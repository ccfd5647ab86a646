"""`headwater status` of a copy, `retry` and `forget`: what a copy remembers, told, made due, and dropped (DST-F6)."""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from headwater.cli import run
from headwater.copy_state import SCHEMA
from headwater.storage.database import Database
from headwater.sync.copy import destination_folder
from headwater.sync.copy.destination_folder import DestinationFolder, writable_state
from headwater.sync.copy_status import copy_status
from tests.support.copying import DONE, FAILED, FINDINGS, SOURCE, STORE, UNDETERMINED, USAGE, check, go, tree
from tests.support.fake_source import Reply, Site, Source, url

Asked = Callable[..., Any]


@pytest.fixture
def ask(capsys: pytest.CaptureFixture[str]) -> Asked:
    """Carries out a command line with `--json`; returns its exit status and what it says."""

    def asked(*arguments: object) -> tuple[int, Any]:
        capsys.readouterr()
        status = run([*map(str, arguments), "--json"])
        return status, json.loads(capsys.readouterr().out)

    return asked


def only(told: Any) -> Any:
    (one,) = told["sets"]
    return one


def hold_back(source: Source, site: Site, dest: Path) -> None:
    """Everything is dropped at the source, and its deletion held back in the copy (DST-B4)."""
    for name in list(site.files):
        site.drop(name)
    site.clock += 10
    site.publish_changes(10)
    assert go(source.base, dest).one.held_back == 5


def test_a_copy_that_is_well(source: Source, site: Site, dest: Path, ask: Asked) -> None:
    assert go(source.base, dest).status == DONE
    status, told = ask("status", dest)
    one = only(told)
    assert status == told["exit_status"] == told["last_run"]["exit_status"] == DONE
    assert (told["source"], told["destination"]) == (f"{source.base}/", str(dest))
    assert (told["files"], told["octets"], told["failed"], told["held_back"]) == (5, 35, 0, 0)
    assert (told["running"], told["partial_files"], told["partial_octets"]) == (False, 0, 0)
    assert one["position"].startswith("2026-01-01")
    assert one["position_age_seconds"] > 0
    assert one["sound_at"] == one["checked_at"]
    assert (one["last"]["created"], one["unsound_since"]) == (5, None)
    assert ask("status", dest / ".headwater")[0] == DONE
    assert ask("status", dest, "--max-age", "3600")[0] == DONE
    assert ask("status", dest, "--max-age", "0")[0] == FINDINGS
    assert ask("status", dest, "--set", "nobody")[0] == USAGE


def test_what_failed_is_told_until_it_is_there(source: Source, site: Site, dest: Path, ask: Asked) -> None:
    source.pages["/set/resources/f1.txt"] = Reply(b"gone", 404)
    source.pages["/set/resources/f2.txt"] = Reply(b"later", 503, headers={"Retry-After": "3600"})
    go(source.base, dest)
    assert go(source.base, dest).status == FAILED
    status, told = ask("status", dest)
    first, second = sorted(only(told)["failures"], key=lambda one: one["uri"])
    assert (status, told["failed"]) == (FAILED, 2)
    assert (first["uri"], first["waits_until"]) == (site.uri("f1.txt"), None)
    assert first["tries"] > 1
    assert "404" in first["reason"]
    assert first["since"] < first["last_at"] < first["follow_at"]
    assert second["uri"] == site.uri("f2.txt")
    assert second["tries"] == 1  # the second run has not asked: it was told to wait
    assert second["waits_until"] == second["follow_at"] > second["last_at"]
    assert only(told)["unsound_since"] < only(told)["checked_at"]
    site.publish()
    source.pages["/set/resources/f1.txt"] = Reply(b"body 1\n")
    source.pages["/set/resources/f2.txt"] = Reply(b"body 2\n")
    assert ask("retry", dest, site.uri("f2.txt")) == (DONE, {"due": 1})
    assert go(source.base, dest).status == DONE
    status, told = ask("status", dest)
    assert (status, told["failed"], only(told)["unsound_since"]) == (DONE, 0, None)


def test_what_is_refused_is_told(source: Source, site: Site, dest: Path, ask: Asked) -> None:
    entries = [site.resource(name) for name in site.files]
    site.publish_list([*entries, url("http://cdn.example/x", "2026-01-01T00:00:00Z")])
    assert go(source.base, dest).status == FAILED
    status, told = ask("status", dest)
    assert (status, told["refused"], only(told)["refused"], told["failed"]) == (FAILED, 1, 1, 0)
    assert "cdn.example" in only(told)["refusals"][0]
    assert run(["status", str(dest)]) == FAILED


def test_what_has_failed_and_is_left_out_by_now_is_not_tried_again(source: Source, site: Site, dest: Path) -> None:
    """DST-F6: the user's choice holds for what earlier runs have left, too."""
    source.pages["/set/resources/f1.txt"] = Reply(b"", 500)
    assert go(source.base, dest).one.failed == 1
    source.pages["/set/resources/f1.txt"] = Reply(b"body 1\n")
    source.forget()
    for _ in range(2):
        go(source.base, dest, exclude=("f1.txt",))
        assert source.requests("/set/resources/f1.txt") == []
        assert "f1.txt" not in tree(dest)
    assert go(source.base, dest).status == DONE
    assert tree(dest) == dict(site.files)


def test_retry_ends_every_wait(source: Source, site: Site, dest: Path, ask: Asked) -> None:
    """DST-F6, DST-F8: without it a `Retry-After` of an hour, and a follower's own clock, are kept."""
    source.pages["/set/resources/f2.txt"] = Reply(b"later", 503, headers={"Retry-After": "3600"})
    go(source.base, dest)
    source.pages["/set/resources/f2.txt"] = Reply(b"body 2\n")
    assert go(source.base, dest).one.failed == 1
    assert ask("retry", dest, "http://nowhere/")[0] == USAGE
    assert ask("retry", dest) == (DONE, {"due": 1})
    assert go(source.base, dest, patient=True).one.failed == 0
    assert ask("retry", dest) == (DONE, {"due": 0})


def test_a_run_that_came_to_nothing_is_told_with_its_first_time(
    source: Source, site: Site, dest: Path, ask: Asked
) -> None:
    go(source.base, dest)
    for path in list(source.pages):
        source.pages[path] = Reply(b"", 500)
    go(source.base, dest)
    status, told = ask("status", dest)
    since = only(told)["unsound_since"]
    assert status == SOURCE
    assert "500" in only(told)["last"]["fault"]
    assert told["last_run"]["fault"] == f"set: {only(told)['last']['fault']}"
    assert (told["last_run"]["exit_status"], told["last_run"]["fault_count"]) == (SOURCE, 1)
    go(source.base, dest)
    assert ask("status", dest)[1]["last_run"]["fault_count"] == 2
    assert ask("status", dest)[1]["last_run"]["fault_since"] == told["last_run"]["fault_since"]
    assert only(ask("status", dest)[1])["unsound_since"] == since
    for _ in range(2):
        assert go("http://127.0.0.1:1/", dest).status == SOURCE
    last = ask("status", dest)[1]["last_run"]
    assert last["fault_count"] == 2
    assert last["fault_since"] < last["ended_at"]
    assert "HW-SYN" in last["fault"] or "DST-F1" in last["fault"]


def test_a_copy_whose_first_run_has_not_ended(source: Source, site: Site, dest: Path, ask: Asked) -> None:
    go(source.base, dest)
    with writable_state(DestinationFolder(dest)) as database, database.write() as t:
        t.run("DELETE FROM set_history")
        t.run("DELETE FROM facts WHERE name = 'last run'")
    status, told = ask("status", dest)
    assert (status, told["last_run"], only(told)["last"]) == (UNDETERMINED, None, None)
    assert run(["status", str(dest)]) == UNDETERMINED


def test_a_deletion_held_back_is_told_and_forgotten_with_its_file_left(
    source: Source, site: Site, dest: Path, ask: Asked
) -> None:
    go(source.base, dest)
    hold_back(source, site, dest)
    before = tree(dest)
    status, told = ask("status", dest)
    assert (status, told["held_back"]) == (FAILED, 5)
    assert only(told)["deletions"][0]["uri"] == site.uri("f0.txt")
    assert only(told)["deletions"][0]["path"] == "f0.txt"
    state = (dest / ".headwater" / "state.sqlite").read_bytes()
    assert ask("forget", dest, "--held-back", "--dry-run")[1]["forgotten"]["deletions"] == 5
    assert (dest / ".headwater" / "state.sqlite").read_bytes() == state
    done = ask("forget", dest, site.uri("f0.txt"))[1]["forgotten"]
    assert (done["deletions"], done["files"], done["released"]) == (1, 1, ["f0.txt"])
    assert ask("status", dest)[1]["held_back"] == 4
    (proof,) = check(source.base, dest).sets
    assert "f0.txt" in [one.path for one in proof.findings if one.verdict == "extra"]
    assert go(source.base, dest, max_delete=1.0).one.deleted == 4
    assert tree(dest) == {"f0.txt": before["f0.txt"]}
    assert ask("status", dest)[0] == DONE


def test_a_file_that_was_let_go_is_taken_back_without_a_transfer(
    source: Source, site: Site, dest: Path, ask: Asked
) -> None:
    go(source.base, dest)
    hold_back(source, site, dest)
    ask("forget", dest, "--held-back")
    for number in range(5):
        site.put(f"f{number}.txt", b"body %d\n" % number)
    site.clock += 10
    site.publish(since=10)
    source.forget()
    ran = go(source.base, dest, baseline=True)
    assert (ran.status, ran.one.adopted, ran.one.held) == (DONE, 5, 5)
    assert not [path for path in source.requests() if path.endswith(".txt")]


def test_a_failure_that_was_forgotten_is_found_again_by_the_list(
    source: Source, site: Site, dest: Path, ask: Asked
) -> None:
    source.pages["/set/resources/f1.txt"] = Reply(b"gone", 404)
    go(source.base, dest)
    assert ask("forget", dest, site.uri("f1.txt"))[1]["forgotten"]["failures"] == 1
    assert ask("status", dest)[0] == DONE
    source.forget()
    assert go(source.base, dest).status == DONE
    assert source.requests("/set/resources/f1.txt") == []
    source.pages["/set/resources/f1.txt"] = Reply(b"body 1\n")
    assert go(source.base, dest, baseline=True).one.created == 1
    assert len(tree(dest)) == 5


def test_paths_name_what_failed_and_what_is_held_back(source: Source, site: Site, dest: Path, ask: Asked) -> None:
    """And `why` says of what was forgotten how it is found again, and that a file stays."""

    def why(path: str) -> str:
        told = ask("why", dest, path)[1]
        return str(only(told)["reasons"][0]["message"])

    source.pages["/set/resources/f1.txt"] = Reply(b"later", 503, {"Retry-After": "600"})
    go(source.base, dest)
    assert "; not again before 2" in why("f1.txt")
    assert ask("retry", dest, "f1.txt") == (DONE, {"due": 1})
    assert ask("forget", dest, dest / "f1.txt")[1]["forgotten"]["failures"] == 1
    assert why("f1.txt").endswith(", or its failure was forgotten: `headwater sync --baseline` looks again")
    source.pages["/set/resources/f1.txt"] = Reply(b"body 1\n")
    assert go(source.base, dest, baseline=True).status == DONE
    hold_back(source, site, dest)
    assert ask("forget", dest, "f0.txt", site.uri("f2.txt"))[1]["forgotten"]["released"] == ["f0.txt", "f2.txt"]
    assert why("f0.txt") == "the source has deleted it; a file lies there, outside the copy"
    (dest / "f0.txt").unlink()
    assert why("f0.txt") == "the source has deleted it"
    assert run(["forget", str(dest), "f0.txt"]) == USAGE


def test_the_table_of_copies_says_why_each_ended_so(
    source: Source, site: Site, dest: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    go(source.base, dest)
    fine, failed, away = dest, dest.with_name("failed"), dest.with_name("away")
    source.pages["/set/resources/f1.txt"] = Reply(b"gone", 404)
    assert go(source.base, failed).status == FAILED
    assert go("http://127.0.0.1:1/", away).status == SOURCE
    capsys.readouterr()
    assert run(["status", str(fine), str(failed), str(away)]) == SOURCE
    _, first, second, third, _ = capsys.readouterr().out.splitlines()
    assert first.endswith("  nothing failed, nothing is held back")
    assert second.endswith("  1 resource failed; the last run ended with 4")
    assert "  the last run ended with 3: " in third
    assert "Could not connect" in third


def test_damage_that_was_forgotten_is_not_taken_for_whole(source: Source, site: Site, dest: Path, ask: Asked) -> None:
    """A file that `--repair` found damaged, and could not fetch, is not believed because its failure is forgotten."""
    go(source.base, dest)
    found = (dest / "f1.txt").stat()
    (dest / "f1.txt").write_bytes(b"BODY 1\n")
    os.utime(dest / "f1.txt", ns=(found.st_atime_ns, found.st_mtime_ns))  # size and time as they were
    good = source.pages["/set/resources/f1.txt"]
    source.pages["/set/resources/f1.txt"] = Reply(b"", 500)
    assert go(source.base, dest, repair=True).status == FAILED
    ask("forget", dest, "--failed")
    source.pages["/set/resources/f1.txt"] = good
    assert go(source.base, dest, baseline=True).status == DONE
    assert tree(dest)["f1.txt"] == b"body 1\n"


def test_a_set_is_forgotten_and_its_files_stay(source: Source, dest: Path, ask: Asked) -> None:
    for name in ("one", "two"):
        made = Site(source, name)
        made.put("a.txt", name.encode())
        made.publish()
    made.publish_description("one", "two")
    go(source.base, dest)
    before = tree(dest)
    made.publish_description("one")
    assert "DST-Q" in go(source.base, dest).rules()
    assert ask("forget", dest, "--set", "two", "--dry-run")[1]["forgotten"]["sets"] == ["two"]
    done = ask("forget", dest, "--set", "two")[1]["forgotten"]
    assert (done["sets"], done["files"], done["released"]) == (["two"], 1, ["two/a.txt"])
    ran = go(source.base, dest)
    assert (ran.status, ran.rules()) == (DONE, set())
    assert tree(dest) == before
    made.publish_description("one", "two")
    source.forget()
    ran = go(source.base, dest)
    assert ran.status == DONE
    assert [(one.name, one.adopted) for one in ran.report.sets] == [("one", 0), ("two", 1)]  # type: ignore[union-attr]
    assert source.requests("/two/resources/a.txt") == []
    assert tree(dest) == before


@pytest.mark.parametrize(
    ("arguments", "status", "code"),
    [
        (["forget"], USAGE, "HW-USE-01"),
        (["forget", "--failed", "--set", "set"], USAGE, "HW-USE-01"),
        (["forget", "http://nowhere/"], USAGE, "HW-SYN-21"),
        (["forget", "--set", "nobody"], USAGE, "HW-SYN-06"),
    ],
)
def test_what_cannot_be_forgotten(
    arguments: list[str], status: int, code: str, source: Source, site: Site, dest: Path, ask: Asked
) -> None:
    go(source.base, dest)
    command, *rest = arguments
    said, told = ask(command, dest, *rest)
    assert (said, told["error"]["code"]) == (status, code)


def test_one_wrong_uri_and_nothing_is_forgotten(source: Source, site: Site, dest: Path, ask: Asked) -> None:
    source.pages["/set/resources/f1.txt"] = Reply(b"gone", 404)
    go(source.base, dest)
    assert ask("forget", dest, site.uri("f1.txt"), "http://nowhere/")[0] == USAGE
    assert ask("status", dest)[1]["failed"] == 1


@pytest.mark.parametrize("command", ["retry", "forget"])
def test_a_folder_that_is_no_copy(command: str, tmp_path: Path, ask: Asked) -> None:
    status, told = ask(command, tmp_path, *(["--failed"] if command == "forget" else []))
    assert (status, told["error"]["code"]) == (USAGE, "HW-SYN-20")
    assert list(tmp_path.iterdir()) == []


def test_while_a_run_is_at_work_it_is_told_and_nothing_is_changed(
    source: Source, site: Site, dest: Path, ask: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    source.pages["/set/resources/f1.txt"] = Reply(b"gone", 404)
    go(source.base, dest)
    monkeypatch.setattr(destination_folder, "WAIT_SECONDS", 0.05)
    home = DestinationFolder(dest)
    home.prepare()
    try:
        (dest / ".headwater" / "tmp" / "1-0").write_bytes(b"half")
        with home.open() as database, database.write() as t:
            t.run("DELETE FROM failures")
            status, told = ask("status", dest)  # neither waits for the run nor sees what it has not committed
            assert (status, told["running"], told["failed"]) == (FAILED, True, 1)
            assert (told["partial_files"], told["partial_octets"]) == (1, 4)
        assert ask("retry", dest)[0] == STORE
        assert ask("forget", dest, "--failed")[0] == STORE
    finally:
        home.release()


def _as_of_version(path: Path, version: int) -> None:
    """Write the state as an older version would have: its tables and columns, with what is in them by now."""
    older = path.with_name("older.sqlite")
    with closing(sqlite3.connect(older)) as old, old:
        old.executescript("\n".join(SCHEMA.migrations[:version]))
        old.execute(f"PRAGMA application_id = {SCHEMA.application_id}")
        old.execute(f"PRAGMA user_version = {version}")
        old.execute("ATTACH ? AS present", (str(path),))
        for (table,) in old.execute("SELECT name FROM main.sqlite_master WHERE type = 'table'").fetchall():
            now = {row[1] for row in old.execute(f"PRAGMA present.table_info({table})")}
            names = [row[1] for row in old.execute(f"PRAGMA main.table_info({table})")]
            columns = ", ".join(name for name in names if name in now)
            old.execute(f"INSERT INTO main.{table}({columns}) SELECT {columns} FROM present.{table}")
        old.execute("DELETE FROM facts WHERE name = 'last run'")
    old.close()
    for suffix in ("-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)
    older.rename(path)


def test_the_state_of_an_older_version_is_read_as_it_is_and_goes_on(
    source: Source, site: Site, dest: Path, ask: Asked
) -> None:
    go(source.base, dest)
    path = dest / ".headwater" / "state.sqlite"
    _as_of_version(path, 2)
    before = path.read_bytes()
    status, told = ask("status", dest)
    assert (status, told["files"], only(told)["last"]) == (UNDETERMINED, 5, None)
    assert path.read_bytes() == before
    assert go(source.base, dest).status == DONE
    assert ask("status", dest)[0] == DONE
    with Database(path, SCHEMA) as database, database.read() as t:
        assert t.value("PRAGMA user_version") == SCHEMA.version


def test_a_person_is_told_what_matters_and_no_terminal_is_steered(
    source: Source, site: Site, dest: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source.pages["/set/resources/f1.txt"] = Reply(b"gone", 404)
    go(source.base, dest)
    with writable_state(DestinationFolder(dest)) as database, database.write() as t:
        t.run("UPDATE failures SET reason = 'red \x1b[31m'")
    assert run(["status", str(dest)]) == FAILED
    out = capsys.readouterr().out
    assert "4 files, 28 B" in out
    assert "1 failed" in out
    assert f"{site.uri('f1.txt')}: red \\x1b[31m (1 try since 20" in out
    assert run(["retry", str(dest)]) == DONE
    assert f"headwater sync {source.base}/ {dest}" in capsys.readouterr().out
    assert run(["forget", str(dest), "--failed"]) == DONE
    assert "forgot 1 failure" in capsys.readouterr().out


def test_a_dry_run_leaves_no_trace_in_what_is_told(source: Source, site: Site, dest: Path) -> None:
    go(source.base, dest)
    before = copy_status(dest).last_run
    go(source.base, dest, dry_run=True)
    assert copy_status(dest).last_run == before


@pytest.mark.parametrize("dry_run", [False, True])
def test_the_counts_of_a_run_add_up(dry_run: bool, source: Source, site: Site, dest: Path) -> None:
    """A baseline, and then the changes since its list: a file that both find the same is counted once."""
    site.publish_list(when=0)
    site.publish_changes(0)
    go(source.base, dest)
    one = go(source.base, dest, baseline=True, dry_run=dry_run).one
    assert (one.created, one.updated, one.unchanged, one.held) == (0, 0, 5, 5)
    site.put("f9.txt", b"new")
    site.put("f0.txt", b"newer")
    site.publish_list(when=0)
    site.publish_changes(0)
    one = go(source.base, dest, baseline=True, dry_run=dry_run).one
    assert one.created + one.updated + one.unchanged == one.held + (one.created if dry_run else 0)


def test_a_repair_drops_the_record_of_what_the_filters_leave_out_and_is_gone(
    source: Source, site: Site, dest: Path, ask: Asked, tmp_path: Path
) -> None:
    """Who has copied too much removes it himself: what is altered stays, what is missing is told as deleted."""
    go(source.base, dest)
    for name in ("f0.txt", "f1.txt"):
        (dest / name).unlink()
    (dest / "f2.txt").write_bytes(b"altered")
    fewer: dict[str, Any] = {"exclude": ("f[0-2].txt",)}
    assert go(source.base, dest, **fewer).status == DONE
    assert ask("status", dest)[1]["files"] == 5
    told = tmp_path / "changes.jsonl"
    options = ["--repair", "--exclude", "f[0-2].txt", "--changes", str(told)]
    assert run(["sync", *options, source.base, str(dest)]) == DONE
    lines = [json.loads(line) for line in told.read_text().splitlines()]
    assert {(one["action"], one["path"]) for one in lines} == {("deleted", "f0.txt"), ("deleted", "f1.txt")}
    status = ask("status", dest)
    assert (status[0], status[1]["files"], status[1]["failed"]) == (DONE, 3, 0)
    assert sorted(tree(dest)) == ["f2.txt", "f3.txt", "f4.txt"]
    assert go(source.base, dest).status == DONE  # and without filters all of it comes again
    assert tree(dest) == site.files


def test_many_that_are_gone_wait_for_consent_as_well(source: Source, site: Site, dest: Path, ask: Asked) -> None:
    """A disk that is not mounted looks like that."""
    go(source.base, dest)
    fewer: dict[str, Any] = {"exclude": ("*.txt",), "repair": True}
    for path in dest.glob("*.txt"):
        path.unlink()
    ran = go(source.base, dest, **fewer)
    assert (ran.status, ran.one.failed, ran.one.held_back) == (FAILED, 0, 5)
    assert go(source.base, dest, **fewer, max_delete=1).status == DONE
    assert ask("status", dest)[1]["files"] == 0


def test_what_the_filters_leave_out_by_now_has_not_failed(source: Source, site: Site, dest: Path) -> None:
    source.pages["/set/resources/f1.txt"] = Reply(b"gone", 404)
    assert go(source.base, dest).status == FAILED
    assert go(source.base, dest, exclude=("f1.txt",)).status == DONE
    source.pages["/set/resources/f1.txt"] = Reply(b"body 1\n")
    assert (go(source.base, dest).status, tree(dest)) == (DONE, site.files)


def test_of_a_copy_without_any_good_run_the_code_and_that_are_told(
    source: Source, dest: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source.pages["/"] = Reply(b"<html></html>", headers={"Content-Type": "text/html"})
    assert run(["sync", source.base, str(dest)]) == SOURCE
    capsys.readouterr()
    assert run(["status", str(dest)]) == SOURCE
    assert "[HW-SYN-02, DST-A2]" in capsys.readouterr().out
    assert run(["why", str(dest), "f0.txt"]) == FINDINGS
    assert f"no run has been without fault: `headwater status {dest}` says why" in capsys.readouterr().out


def test_of_a_set_whose_lists_were_never_read_that_is_told(source: Source, site: Site, dest: Path, ask: Asked) -> None:
    source.pages["/set/resourcelist.xml"] = source.pages["/set/changelist.xml"] = Reply(b"gone", 404)
    assert go(source.base, dest).status == SOURCE
    (reason,) = only(ask("why", dest, site.uri("f0.txt"))[1])["reasons"]
    assert reason["message"] == "no run has read the lists of this set to their end yet"
