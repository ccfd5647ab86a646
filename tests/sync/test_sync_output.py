"""`sync` as it speaks: `--quiet`, `--verbose`, and `--exec`, a command that is told of changes."""

from __future__ import annotations

import csv
import datetime as dt
import json
import os
import re
import resource
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote, unquote

import msgspec
import pytest

from headwater.cli import run
from headwater.cli.changes_file import ChangesFile
from headwater.cli.progress_output import ProgressOutput, Reminders
from headwater.errors import Interrupted
from headwater.progress import Notice, Progress, silent
from headwater.storage.transaction import Transaction
from headwater.sync.copy.destination_folder import DestinationFolder, writable_state
from headwater.sync.options import SyncOptions
from headwater.sync.reports import Done, SyncReport
from headwater.sync.run import SyncTask, sync, synchronise
from headwater.sync.sets.polling import PollInterval
from tests.support.copying import DONE, FAILED, FINDINGS, IMPATIENT, SOURCE, STORE, USAGE, go
from tests.support.failing import failing
from tests.support.fake_source import Reply, Site, Source, at, document, url
from tests.sync.past.history import History, moment_of

Said = pytest.CaptureFixture[str]


def test_quiet_says_nothing_when_all_is_well(source: Source, site: Site, dest: Path, capsys: Said) -> None:
    assert run(["sync", "-q", source.base, str(dest)]) == DONE
    assert capsys.readouterr() == ("", "")


def test_quiet_says_what_is_wrong(source: Source, site: Site, dest: Path, capsys: Said) -> None:
    source.pages["/set/resources/f1.txt"] = Reply(b"gone", 404)
    assert run(["sync", "-q", source.base, str(dest)]) == FAILED
    out, err = capsys.readouterr()
    assert "1 failed" in out
    assert "HTTP status 404" in err


def test_verbose_says_each_resource(source: Source, site: Site, dest: Path, capsys: Said) -> None:
    dest.mkdir()
    (dest / "f3.txt").write_bytes(b"body 3\n")
    source.pages["/set/resources/f1.txt"] = Reply(b"gone", 404)
    assert run(["sync", "-v", source.base, str(dest)]) == FAILED
    out = capsys.readouterr().out
    assert "adopted f3.txt\n" in out
    assert "created f0.txt: 7 B\n" in out
    assert "failed f1.txt: HTTP status 404\n" in out
    site.put("f0.txt", b"new")
    site.drop("f2.txt")
    site.publish_changes(10)
    run(["sync", "-v", "--json", source.base, str(dest)])
    told = capsys.readouterr()
    assert json.loads(told.out)["sets"][0]["deleted"] == 1
    assert "updated f0.txt: 3 B\n" in told.err
    assert "deleted f2.txt\n" in told.err


def test_what_was_done_is_told_in_a_file(source: Source, site: Site, dest: Path, tmp_path: Path, capsys: Said) -> None:
    """A line for each resource; a later run appends, and nothing else is said more than without."""
    source.pages["/set/resources/f1.txt"] = Reply(b"gone", 404)
    told, table = tmp_path / "changes.jsonl", tmp_path / "changes.csv"
    site.put("=1+2.txt", b"a sum\n")
    site.publish()
    assert run(["sync", "-q", "--changes", str(told), source.base, str(dest)]) == FAILED
    lines = [json.loads(line) for line in told.read_text().splitlines()]
    assert all(dt.datetime.fromisoformat(one.pop("time")).tzinfo == dt.UTC for one in lines)
    uri = f"{source.base}/set/resources/f1.txt"
    gone = {"action": "failed", "uri": uri, "path": "f1.txt", "octets": 0, "reason": "HTTP status 404", "set": "set"}
    assert any(gone.items() <= one.items() for one in lines)
    assert sorted(one["action"] for one in lines) == ["created"] * 5 + ["failed"]
    del source.pages["/set/resources/f1.txt"]
    site.drop("=1+2.txt")
    site.put("f1.txt", b"body 1\n")
    site.publish_changes(10)
    capsys.readouterr()
    for _ in range(2):
        assert run(["sync", "-q", "--max-delete", "1", "--changes", str(table), source.base, str(dest)]) == DONE
    assert capsys.readouterr() == ("", "")
    with table.open(newline="") as file:
        names, *rows = csv.reader(file)
    assert names[:7] == ["time", "action", "uri", "path", "octets", "reason", "set"]
    assert sorted((row[1], row[3], row[4]) for row in rows) == [
        ("created", "f1.txt", "7"), ("deleted", "'=1+2.txt", "0"),
    ]  # fmt: skip


def test_what_is_withdrawn_in_the_same_run_is_not_told_as_failed(
    source: Source, site: Site, dest: Path, tmp_path: Path, capsys: Said
) -> None:
    """Neither in the file nor in the end; what fails still is told once, however often it was tried."""
    for name in ("f1.txt", "f2.txt"):
        source.pages[f"/set/resources/{name}"] = Reply(b"gone", 404)
    later = site.clock + 1
    changes = [site.change(later, "deleted", "f1.txt"), site.change(later, "updated", "f2.txt", b"new")]
    site.publish_changes(entries=changes)
    told = tmp_path / "changes.jsonl"
    assert run(["sync", "-v", "--changes", str(told), source.base, str(dest)]) == FAILED
    said = capsys.readouterr()
    lines = [json.loads(line) for line in told.read_text().splitlines()]
    assert [(one["path"], one["set"]) for one in lines if one["action"] == "failed"] == [("f2.txt", "set")]
    assert "1 failed" in said.out
    assert (said.out + said.err).count("f1.txt") == 0
    assert said.out.count("failed f2.txt: HTTP status 404\n") == 1


def test_a_run_ends_by_its_source_and_time(source: Source, site: Site, dest: Path, capsys: Said) -> None:
    """So that the output of many sources can be told apart in one file."""
    assert run(["sync", source.base, str(dest)]) == DONE
    last = capsys.readouterr().out.splitlines()[-1]
    assert re.fullmatch(rf".* of content in .*, from {source.base}/ at \d{{4}}-\d\d-\d\d \d\d:\d\d:\d\d UTC", last)


def test_waiting_for_a_source_whose_clock_lags_is_told(source: Source, tmp_path: Path) -> None:
    """`Date` has whole seconds: a list that is younger tells of changes that a Change List may not have yet."""
    past, events = History(source), list[Notice | Progress]()
    past.put(1, "f.txt", b"first")
    past.snapshot(90)
    past.changelist(0, None)
    url = past.publish()
    source.date = lambda: moment_of(88 if len(source.requests("/set/changelist.xml")) < 3 else 95)
    report = sync(url, tmp_path / "copy", SyncOptions(at=at(50)), listener=events.append)
    assert report.exit_status == DONE
    told = [(one.done, one.total) for one in events if isinstance(one, Progress) and "source's clock" in one.phase]
    assert told == [(1, 8), (2, 8)]


def test_a_file_of_changes_that_cannot_be(source: Source, site: Site, dest: Path, tmp_path: Path, capsys: Said) -> None:
    def ends(name: str, status: int, *more: str) -> str:
        assert run(["sync", "--changes", name, *more, source.base, str(dest)]) == status
        return capsys.readouterr().err

    assert "lies in the copy" in ends(str(dest / "changes.csv"), USAGE)
    assert "--dry-run --json shows the plan" in ends(str(tmp_path / "c"), USAGE, "--dry-run")
    assert "code: HW-CLI-04" in ends(str(tmp_path / "none" / "c"), STORE)
    assert source.requests() == [], "told before anything is asked for or copied"
    full = ends("/dev/full", STORE)
    assert "No space left" in full
    assert "tells what has not been told" in full
    told = tmp_path / "changes.jsonl"
    assert run(["sync", "--changes", str(told), source.base, str(dest)]) == DONE
    assert sorted({json.loads(line)["path"] for line in told.read_text().splitlines()}) == sorted(site.files)


@pytest.mark.parametrize("name", ["changes.jsonl", "changes.csv"])
def test_a_pipe_gets_all_changes_of_a_run(name: str, source: Source, site: Site, dest: Path, tmp_path: Path) -> None:
    """Its reader has its end when the run ends, not after the first line."""
    pipe = tmp_path / name
    os.mkfifo(pipe)
    got: list[str] = []
    reader = threading.Thread(target=lambda: got.extend(pipe.read_text().splitlines()), daemon=True)
    reader.start()
    assert run(["sync", "-q", "--changes", str(pipe), source.base, str(dest)]) == DONE
    reader.join(10)
    assert len(got) == len(site.files) + name.endswith(".csv")


def test_a_line_of_changes_that_is_written_in_part_is_a_fault(tmp_path: Path) -> None:
    """As by a file system that fills up: the rest of the line is not lost without a word."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    told = ChangesFile(tmp_path / "changes.jsonl", tmp_path / "copy")
    resource.setrlimit(resource.RLIMIT_FSIZE, (20, before[1]))
    try:
        with failing("HW-CLI-04", match="cannot be written"):
            told.tell(Done("created", "http://h.example/a", "a", 1))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("name", ["changes.jsonl", "changes.csv"])
def test_a_file_of_changes_that_was_moved_away_is_begun_anew(tmp_path: Path, name: str) -> None:
    """As `logrotate` does, without a signal; what is moved stays whole."""
    path, moved = tmp_path / name, tmp_path / "moved"
    told = ChangesFile(path, tmp_path / "copy")
    told.tell(Done("created", "http://h.example/a", "a", 1))
    path.rename(moved)
    told.tell(Done("updated", "http://h.example/b", "b", 1))
    told.tell(Done("updated", "http://h.example/c", "c", 1))
    path.unlink()
    told.tell(Done("deleted", "http://h.example/d", "d", set_name="one"))
    is_table = name.endswith(".csv")
    assert len(moved.read_text().splitlines()) == 1 + is_table
    line = path.read_text().splitlines()[is_table:]
    assert len(line) == 1
    assert "http://h.example/d" in line[0]
    assert (",one," if is_table else '"set":"one",') in line[0]


def test_a_quiet_audit_speaks_only_where_something_is_wrong(
    source: Source, site: Site, dest: Path, capsys: Said
) -> None:
    assert run(["sync", "-q", source.base, str(dest)]) == DONE
    assert run(["audit", "-q", source.base, str(dest)]) == DONE
    assert capsys.readouterr() == ("", "")
    (dest / "f1.txt").write_bytes(b"other\n")
    assert run(["audit", "-q", source.base, str(dest)]) == FINDINGS
    assert "  different: f1.txt\n" in capsys.readouterr().out


def test_verbose_steers_no_terminal(source: Source, site: Site, dest: Path, capsys: Said) -> None:
    site.put("red%1B%5B31m", b"x")
    site.publish()
    assert run(["sync", "-v", source.base, str(dest)]) == DONE
    assert "\x1b" not in capsys.readouterr().out


def test_each_hears_of_every_resource(source: Source, site: Site, dest: Path) -> None:
    heard: list[Done] = []
    sync(source.base, dest, each=heard.append)
    assert sorted((one.action, one.path, one.octets) for one in heard) == [
        ("created", f"f{n}.txt", 7) for n in range(5)
    ]


def test_what_each_raises_ends_the_call_and_that_resource_is_told_again(source: Source, site: Site, dest: Path) -> None:
    kept: list[str] = []

    def each(done: Done) -> None:
        if len(kept) == 3:
            raise RuntimeError(done.path)
        kept.append(done.path)

    with pytest.raises(RuntimeError):
        sync(source.base, dest, each=each)
    heard: list[Done] = []
    sync(source.base, dest, each=heard.append)
    assert {*kept, *(one.path for one in heard)} == {f"f{n}.txt" for n in range(5)}


def test_quiet_and_verbose_exclude_each_other(dest: Path, capsys: Said) -> None:
    assert run(["sync", "-q", "-v", "http://127.0.0.1:1/", str(dest)]) == USAGE


def test_a_wait_that_the_source_asks_for_is_told_with_its_end(
    source: Source, site: Site, dest: Path, capsys: Said
) -> None:
    source.pages["/set/resources/f1.txt"] = Reply(b"", 429, {"Retry-After": "3600"})
    assert run(["sync", "--json", source.base, str(dest)]) == FAILED
    (failure,) = json.loads(capsys.readouterr().out)["sets"][0]["failures"]
    until = dt.datetime.fromisoformat(failure["waits_until"])
    assert dt.timedelta(minutes=59) < until - dt.datetime.now(dt.UTC) < dt.timedelta(minutes=61)
    assert run(["sync", source.base, str(dest)]) == FAILED
    said = capsys.readouterr().err
    assert f"HTTP status 429, not to be requested again before {failure['waits_until']}" in said


def test_a_file_where_the_copy_is_to_be(source: Source, site: Site, dest: Path, capsys: Said) -> None:
    dest.write_text("a file")
    assert run(["sync", source.base, str(dest)]) == USAGE
    assert "the destination is no folder: something else has this name" in capsys.readouterr().err


# one cause, told once


def away(source: Source, how: str) -> None:
    """Make the source be away, whatever it is asked for."""
    if how == "refused":
        source.close()
        return
    reply = Reply(b"", 503) if how == "overloaded" else Reply(script=lambda _handler: time.sleep(2))
    source.pages = dict.fromkeys(source.pages, reply)


@pytest.mark.parametrize("how", ["refused", "overloaded", "silent"])
@pytest.mark.parametrize("several", [False, True])
def test_that_a_known_source_is_away_is_told_once_and_with_advice(
    several: bool, how: str, source: Source, dest: Path
) -> None:
    names = ["one", "two"] if several else ["one"]
    for name in names:
        site = Site(source, name)
        site.put("a.txt", name.encode())
        site.publish().publish_description(*names)
    assert go(source.base, dest).status == DONE
    away(source, how)
    ran = go(source.base, dest, msgspec.structs.replace(IMPATIENT, retries=0, stall_timeout_seconds=1))
    assert ran.status == SOURCE
    (told,) = ran.notices
    assert told.where == f"{source.base}/.well-known/resourcesync"
    advice = "Check the address and the network, then run the same command again: nothing was lost."
    if how == "overloaded":
        advice = "The source asks to come back later: run the same command again in a while; nothing was lost."
    assert told.message.endswith(advice)
    assert ran.report is not None
    assert all("cannot be fetched" in str(one.fault) for one in ran.report.sets)  # what ails each set is in the report
    assert len(ran.report.sets) == len(names)


def test_what_makes_a_list_incomplete_is_told_once(source: Source, site: Site, dest: Path) -> None:
    """Then what follows from that; the report has both in one."""
    parts = [f"<sitemap><loc>{site.root}/{name}.xml</loc></sitemap>" for name in ("gone", "there")]
    index = {"root": "sitemapindex", "links": site.up(), "capability": "resourcelist", "at": at(site.clock)}
    site.serve("/set/there.xml", source.reply("/set/resourcelist.xml").body)
    for entries, cause in ((parts, "a component is missing: HTTP status 404"), ([], "an index without components")):
        site.serve("/set/resourcelist.xml", document(entries, **index))
        ran = go(source.base, dest, baseline=True)
        told = [one.message for one in ran.notices if one.rule == "DST-B2"]
        assert [cause in one for one in told] == [True, False]
        assert told[1].startswith("the Resource List is incomplete: it deletes nothing. ")
        assert (ran.status, ran.one.fault.startswith(f"the Resource List is incomplete: {cause}")) == (SOURCE, True)


def test_that_nobody_is_let_in_any_more_is_told_once(source: Source, site: Site, dest: Path, capsys: Said) -> None:
    assert run(["sync", "-q", source.base, str(dest)]) == DONE
    source.pages = dict.fromkeys(source.pages, Reply(b"", 401, {"WWW-Authenticate": "Basic"}))
    assert run(["sync", "--json", source.base, str(dest)]) == SOURCE
    out, err = capsys.readouterr()
    assert json.loads(out)["sets"][0]["fault"].startswith("the source requires authentication")
    assert err.count("the source requires authentication") == 1
    assert err.count("--user or HEADWATER_USER") == 1


def test_faults_of_single_documents_are_told_each(source: Source, site: Site, dest: Path) -> None:
    go(source.base, dest)
    source.pages["/.well-known/resourcesync"] = source.pages["/set/changelist.xml"] = Reply(b"", 500)
    assert [one.rule for one in go(source.base, dest).notices] == ["DST-F4", "DST-F1"]


def test_without_a_change_list_that_the_source_is_away_is_told_once(source: Source, site: Site, dest: Path) -> None:
    site.publish_capabilities("resourcelist")
    assert go(f"{site.root}/capabilitylist.xml", dest).status == DONE
    away(source, "overloaded")
    ran = go(f"{site.root}/capabilitylist.xml", dest)
    assert ran.status == SOURCE
    assert [one.message.split(". ")[0] for one in ran.notices] == [
        "the Capability List cannot be read: HTTP status 503"
    ]


# the command that is told


class Told:
    """A command that keeps what it was told, and ends as the file `status` says."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.script = folder / "hook.py"
        self.script.write_text(
            "import os, sys\n"
            f"folder = {str(folder)!r}\n"
            "number = len([name for name in os.listdir(folder) if name.startswith('told')])\n"
            "open(f'{folder}/told{number}', 'wb').write(sys.stdin.buffer.read())\n"
            "print('said by the command', *sys.argv[1:])\n"
            "sys.exit(int(open(f'{folder}/status').read()))\n"
        )
        self.ends(0)

    def ends(self, status: int) -> None:
        (self.folder / "status").write_text(str(status))

    @property
    def command(self) -> str:
        return f"{sys.executable} {self.script} 'two words' '$(touch {self.folder}/bad)'"

    @property
    def times(self) -> int:
        return len(list(self.folder.glob("told*")))


@pytest.fixture
def told(tmp_path: Path) -> Told:
    (tmp_path / "hook").mkdir()
    return Told(tmp_path / "hook")


def test_the_command_is_told_after_changes_and_only_then(
    source: Source, site: Site, dest: Path, told: Told, capfd: pytest.CaptureFixture[str]
) -> None:
    arguments = ["sync", "--exec", told.command, "--json", source.base, str(dest)]
    assert run([*arguments, "--dry-run"]) == DONE
    assert told.times == 0
    capfd.readouterr()
    assert run(arguments) == DONE
    out, err = capfd.readouterr()
    report = json.loads((told.folder / "told0").read_bytes())
    assert report["untold"] is not None
    assert report | {"untold": None} == json.loads(out)  # and what the command says does not stand in it
    assert report["sets"][0]["created"] == 5
    assert f"said by the command two words $(touch {told.folder}/bad)" in err
    assert not (told.folder / "bad").exists()  # no shell has read it
    assert run(arguments) == DONE
    assert told.times == 1
    site.put("f0.txt", b"new")
    site.publish_changes(10)
    assert run(arguments) == DONE
    assert json.loads((told.folder / "told1").read_bytes())["sets"][0]["updated"] == 1


def test_a_command_that_fails_is_told_again(
    source: Source, site: Site, dest: Path, told: Told, capfd: pytest.CaptureFixture[str]
) -> None:
    arguments = ["sync", "--exec", told.command, source.base, str(dest)]
    told.ends(3)
    assert run(arguments) == FINDINGS
    err = capfd.readouterr().err
    assert "ended with exit status 3" in err
    assert "HW-CLI-03" in err
    assert run(arguments) == FINDINGS  # nothing has changed since, and nobody has been told
    told.ends(0)
    assert run(arguments) == DONE
    assert run(arguments) == DONE
    assert told.times == 3


def test_json_says_what_came_of_the_command(
    source: Source, site: Site, dest: Path, told: Told, capfd: pytest.CaptureFixture[str]
) -> None:
    """Without a command nothing waits to be told; after one that failed the object has the exit status of the run."""

    def ran(*more: str) -> tuple[int, int, bool]:
        capfd.readouterr()
        status = run(["sync", "--json", *more, source.base, str(dest)])
        report = json.loads(capfd.readouterr().out)
        return status, report["exit_status"], report["untold"] is None

    told.ends(3)
    assert ran() == (DONE, DONE, True)
    assert ran("--exec", told.command) == (FINDINGS, FINDINGS, False)
    told.ends(0)
    assert ran("--exec", told.command) == (DONE, DONE, True)
    assert told.times == 2
    assert ran("--exec", told.command) == (DONE, DONE, True)


def test_the_status_of_the_run_goes_before_that_of_the_command(
    source: Source, site: Site, dest: Path, told: Told, capfd: pytest.CaptureFixture[str]
) -> None:
    source.pages["/set/resources/f1.txt"] = Reply(b"gone", 404)
    told.ends(3)
    assert run(["sync", "--exec", told.command, source.base, str(dest)]) == FAILED


@pytest.mark.parametrize("how", ["interrupted", "killed"])
def test_changes_of_a_run_that_was_cut_short_are_told_by_the_next(
    how: str, source: Source, site: Site, dest: Path, told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    if how == "killed":
        go(source.base, dest)
        with writable_state(DestinationFolder(dest)) as database, database.write() as t:
            t.run("DELETE FROM facts WHERE name = 'changes not told'")
            t.run("UPDATE runs SET ended_at = NULL")
    else:
        placed: list[str] = []
        with pytest.raises(Interrupted):
            sync(source.base, dest, each=lambda done: placed.append(done.path), stopped=lambda: len(placed) == 5)
    assert len(list(dest.glob("*.txt"))) == 5
    assert run(["sync", "--exec", told.command, source.base, str(dest)]) == DONE
    assert told.times == 1
    assert run(["sync", "--exec", told.command, source.base, str(dest)]) == DONE
    assert told.times == 1


def test_changes_that_come_while_the_command_works_are_not_lost(
    source: Source, site: Site, dest: Path, told: Told
) -> None:
    """Another run may change the copy before the command has ended: what that did is told, too."""

    def marks(t: Transaction) -> None:
        t.run("UPDATE facts SET value = 'later' WHERE name = 'changes not told'")

    report = sync(source.base, dest)
    with writable_state(DestinationFolder(dest)) as database, database.write() as t:
        marks(t)
    from headwater.cli.run_output import RunHook

    assert RunHook(told.command).tell(report, dest)
    assert run(["sync", "--exec", told.command, source.base, str(dest)]) == DONE
    assert told.times == 2


@pytest.mark.parametrize("command", ["", "'open"])
def test_a_command_that_is_none(command: str, source: Source, site: Site, dest: Path) -> None:
    assert run(["sync", "--exec", command, source.base, str(dest)]) == USAGE
    assert not dest.exists()


def test_a_command_that_is_not_there(source: Source, site: Site, dest: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["sync", "--exec", "/nowhere/hook", source.base, str(dest)]) == FINDINGS
    assert "cannot be run" in capfd.readouterr().err


@pytest.mark.parametrize("quiet", [False, True])
def test_a_service_tells_the_command_after_each_look_that_changed_something(
    quiet: bool, source: Source, site: Site, dest: Path, told: Told, monkeypatch: pytest.MonkeyPatch, capfd: Said
) -> None:
    """Also when the command fails the service goes on."""
    import headwater.sync.run

    def three_looks(task: SyncTask, _interval: PollInterval, tell: Callable[[SyncReport], None], **_: object) -> None:
        for _look in range(2):
            tell(synchronise(task))
        source.pages["/set/changelist.xml"] = Reply(b"", 500)
        told.ends(3)
        tell(synchronise(task))

    monkeypatch.setattr(headwater.sync.run, "follow", three_looks)
    arguments = ["sync", "--follow", "1", "--exec", told.command, source.base, str(dest)]
    assert run([*arguments, *(["-q"] if quiet else [])]) == DONE
    assert told.times == 1
    out, err = capfd.readouterr()
    assert ("5 created" in out) is not quiet
    assert "set: incomplete; 5 files held" in out  # of the last look, which failed
    assert "nothing to do" not in out
    assert "HTTP status 500" in err


def test_a_note_of_two_things_is_told_of_each_once(capsys: Said) -> None:
    """Also in a later run; what two sets have in common by chance, as a number, is not added up."""
    teller = ProgressOutput()
    for _run in range(2):
        for place in ("http://h/a", "http://h/b", "http://h/a"):
            teller(Notice("R", "no hash of 57 resources", place))
        teller.close(0)
    told = [f"note: no hash of 57 resources (http://h/{name}) [R]" for name in "ab"]
    assert capsys.readouterr().err.splitlines() == told


@pytest.mark.parametrize("quiet", [False, True])
def test_a_service_tells_once_what_goes_on_being_wrong(
    quiet: bool, source: Source, site: Site, dest: Path, monkeypatch: pytest.MonkeyPatch, capsys: Said
) -> None:
    """The same again after a minute; anything else at once, and so is what is wrong again."""
    import headwater.sync.run

    now, shown = [0.0], list[str]()
    monkeypatch.setattr("headwater.cli.progress_output.Reminders", lambda *_: Reminders(lambda: now[0]))

    def probe_many(task: SyncTask, _interval: PollInterval, tell: Callable[[SyncReport], None], **_: object) -> None:
        def probe() -> None:
            tell(synchronise(msgspec.structs.replace(task, listener=silent)))
            out = capsys.readouterr().out
            shown.append(out.split(";")[0])

        for now[0] in (0.0, 10.0, 59.0, 61.0, 170.0, 190.0):
            probe()
        source.pages["/set/resources/f2.txt"] = Reply(b"gone", 404)
        site.publish_changes(10, entries=[site.change(90, "updated", "f2.txt", b"other")])
        probe()

    source.pages["/set/resources/f1.txt"] = Reply(b"gone", 404)
    monkeypatch.setattr(headwater.sync.run, "follow", probe_many)
    assert run(["sync", "--follow", "1", *(["-q"] if quiet else []), source.base, str(dest)]) == DONE
    first = "set: 4 created, 1 failed"
    assert shown == [first, "", "", "set: 1 failed", "", "set: 1 failed", "set: 2 failed"]


STEERING = "\x1b[31m\x07\x7f\u0085\u009b31m\u061c\u200e\u200f\u2028\u2029\u202a\u202e\u2066\u2069"
_STEERS = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


def _in_xml(text: str) -> str:
    """What of it a document may hold."""
    return "".join(one for one in text if one > "\x1f")


@pytest.mark.parametrize("changes", ["changes.csv", "changes.json"])
def test_no_output_steers_a_terminal(
    changes: str, source: Source, site: Site, dest: Path, tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    """Names, attributes, links and faults of a source: in text, JSON and CSV (control, direction, line separators)."""
    raw = _in_xml(STEERING)
    names = [quote(f"n{one}x") for one in STEERING]
    for name in names:
        site.put(name, name.encode())
    link = f'<rs:ln rel="x{raw}" href="{site.uri(raw)}" type="a/{raw}"/>'
    odd = site.resource("f0.txt", type=f"a/{raw}", hash=f"md5:{raw}").replace("</url>", f"{link}</url>")
    entries = [
        odd,
        *(site.resource(name) for name in names),
        url(f"http://{raw}/"),
        url(f"ftp://{raw}"),
        url(site.uri(f"a{raw}")),
    ]
    site.publish()
    site.publish_list(entries)
    source.pages[f"/set/resources/{names[0]}"] = Reply(b"", 404)
    listed, at_list = f"{site.root}/resourcelist.xml", tmp_path / changes
    for command in (
        ["sync", "-v", "--changes", str(at_list), source.base, str(dest)],
        ["sync", "--json", "--baseline", source.base, str(dest)],
        ["sync", "--dry-run", source.base, str(tmp_path / "other")],
        ["sync", "--dry-run", "--json", source.base, str(tmp_path / "other")],
        ["status", str(dest)],
        ["status", "--json", str(dest)],
        ["retry", "--list", str(dest)],
        ["audit", source.base, str(tmp_path / "missing")],
        ["audit", "--json", source.base, str(dest)],
        ["audit", source.base, str(dest)],
        ["explore", source.base],
        ["explore", "--json", source.base],
        ["explore", "--resource", site.uri(names[0]), source.base],
        ["inspect", "--all", listed],
        ["inspect", "--json", listed],
        ["inspect", "--lines", listed],
        ["inspect", f"{source.base}/{quote(raw)}"],
        ["inspect", str(tmp_path / f"no{STEERING.replace(chr(0), '')}file")],
    ):
        run(command)
        told = capfdbinary.readouterr()
        for stream in told:
            assert not _STEERS.search(stream.decode()), (command, stream)
    assert not _STEERS.search(at_list.read_text()), at_list.read_text()
    if changes.endswith(".json"):
        paths = {json.loads(line)["path"] for line in at_list.read_text().splitlines()}
        assert {unquote(name) for name in names[1:]} <= paths
