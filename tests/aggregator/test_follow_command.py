"""`headwater follow` and the commands of an operator, as programs: whole runs, reload, signals, kills."""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tools.engines.launch import free_port

from headwater.aggregator.sqlite_store import FILE, HOME, SqliteStore
from headwater.aggregator.store import Event, Life, Question, Retirement, SourceState
from tests.aggregator.following import Fleet, fleet
from tests.support.fake_source import Reply
from tests.support.program import run_here
from tests.support.serving import request
from tests.support.waiting import until

pytestmark = pytest.mark.long(60)

SECONDS = 40.0


class Program:
    """A fleet, the file that says how it is followed, and the service as a process."""

    def __init__(self, many: Fleet, folder: Path) -> None:
        self.many, self.folder = many, folder
        self.file = folder / "aggregate.toml"
        self.state = many.state

    def write(self, more: str = "", **keys: str) -> None:
        """Write the configuration: all sources of the fleet, each with these keys."""
        text = f'state = "agg"\nkeep_free = 0\n{more}\n[defaults]\nevery = "0.3"\njitter = 0\n'
        text += "".join(f"{key} = {value}\n" for key, value in keys.items())
        for name, server in self.many.servers.items():
            text += f'[[source]]\nname = "{name}"\nurl = "{server.base}"\n'
        self.file.write_text(text)

    @contextmanager
    def following(self, *options: str) -> Iterator[subprocess.Popen[bytes]]:
        command = [sys.executable, "-m", "headwater", "follow", str(self.file), *options]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        try:
            yield process
        finally:
            if process.poll() is None:
                process.terminate()
            process.communicate(timeout=20)

    @contextmanager
    def store(self) -> Iterator[SqliteStore]:
        with SqliteStore(self.state / HOME / FILE) as store:
            yield store

    def source(self, name: str) -> SourceState | None:
        if not (self.state / HOME / FILE).exists():
            return None
        with self.store() as store:
            return store.source(name)

    def has_life(self, name: str, life: Life) -> bool:
        found = self.source(name)
        return found is not None and found.life is life

    def events(self) -> list[Event]:
        with self.store() as store:
            return store.events(0, 100_000)


@pytest.fixture
def program(tmp_path: Path) -> Iterator[Program]:
    with fleet(tmp_path / "agg") as many:
        yield Program(many, tmp_path)


def test_once_runs_each_source_and_says_whether_all_is_well(program: Program) -> None:
    program.many.add("a")
    program.many.add("b")
    program.write()
    done = run_here("follow", program.file, "--once")
    assert (done.returncode, done.stderr) == (0, b"")
    assert sorted(line.split(" ", 1)[1] for line in done.stdout.decode().splitlines()) == [
        "a: 3 created",
        "b: 3 created",
    ]
    assert program.many.is_same("a")
    assert run_here("follow", program.file, "--once").stdout == b""
    program.many.servers["b"].pages = {}
    done = run_here("follow", program.file, "--once", "--json")
    assert done.returncode == 3
    statuses = {line["name"]: line["exit_status"] for line in map(json.loads, done.stdout.splitlines())}
    assert statuses == {"a": 0, "b": 3}


def test_check_tries_everything_and_writes_nothing(program: Program) -> None:
    program.many.add("a", files=7)
    program.many.add("b")
    program.many.servers["b"].pages = {}
    program.write()
    done = run_here("follow", program.file, "--check")
    assert done.returncode == 3
    lines = done.stdout.decode().splitlines()
    assert lines[0].startswith("a: Resource List, 7 resources, 7 to fetch, 21 B")
    assert lines[1].startswith("b: status 3: no ResourceSync document was found")
    assert lines[-1] == "1 of 2 sources can be followed"
    assert not program.state.exists()
    told = json.loads(run_here("follow", program.file, "--check", "--json").stdout)
    assert [(one["name"], one["resources"], one["exit_status"]) for one in told["sources"]] == [
        ("a", 7, 0),
        ("b", 0, 3),
    ]
    assert not program.state.exists()
    program.write(evry="1")
    done = run_here("follow", program.file, "--check")
    assert done.returncode == 2
    assert b"unknown key: evry (did you mean every?)" in done.stderr


UNUSABLE = """
listen = "127.0.0.1:{port}"
[publish]
listen = "127.0.0.1:{port}"
[[sink]]
name = "index"
kind = "command"
command = "headwater-has-no-such-command"
[[alert]]
name = "page"
kind = "command"
on = "dead"
command = "headwater-has-no-such-command --now"
[[alert]]
name = "mail"
kind = "mail"
on = "dead"
mail = "operator@example.org"
smtp = "127.0.0.1:{closed}"
"""


def test_check_tries_addresses_commands_and_mail_servers(program: Program) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        program.write(UNUSABLE.format(port=port, closed=closed.getsockname()[1]))
        done = run_here("follow", program.file, "--check", "--json")
    faults = json.loads(done.stdout)["faults"]
    told = [(one["what"].partition(":")[0], one["where"].removeprefix(f"{program.file}: ")) for one in faults]
    assert done.returncode == 6
    assert told == [
        ("there is no command 'headwater-has-no-such-command'", "index"),
        ("there is no command 'headwater-has-no-such-command'", "page"),
        ("the alert mail could not be delivered", "mail"),
        ("the address is in use", f"127.0.0.1:{port}"),
        ("the address is in use", f"127.0.0.1:{port}"),
    ]
    assert b"error: there is no command" in done.stderr
    assert not program.state.exists()


def test_a_file_is_read_again_by_sighup_and_by_post_and_a_broken_one_is_told(program: Program) -> None:
    program.many.add("a")
    port, token = free_port(), "0123456789abcdef"
    pages = f'listen = "{port}"\noperator_token = "{token}"'
    program.write(pages)
    with program.following() as process:
        until(lambda: program.has_life("a", Life.FOLLOWING), SECONDS)
        whole = program.file.read_text()
        program.file.write_text("state = \n")
        process.send_signal(signal.SIGHUP)
        time.sleep(1.0)
        program.many.add("b")
        assert process.poll() is None
        with program.store() as store:
            before = len(store.runs("a", 200))
            until(lambda: len(store.runs("a", 200)) > before, SECONDS)
        program.file.write_text(whole)
        program.write(pages.replace(str(port), "127.0.0.1:0"))
        given = {"Authorization": f"Bearer {token}"}
        usable = program.file.read_text()
        program.file.write_text(f'{usable}\n[[sink]]\nname = "other"\nkind = "fiel"\n')
        refused = request(f"http://127.0.0.1:{port}", "/reload", "POST", given, b"")
        assert (refused.status, b"kind of sink" in refused.body) == (409, True)
        program.file.write_text(usable)
        assert request(f"http://127.0.0.1:{port}", "/reload", "POST", given, b"").status == 303
        until(lambda: program.has_life("b", Life.FOLLOWING), SECONDS)
        process.terminate()
        _, err = process.communicate(timeout=20)
    assert b"not TOML" in err
    assert b"the configuration that was read before stays in force" in err
    assert b"the configuration was read again" in err
    assert b"listen and [publish] are used when the service is started again" in err


def test_a_hangup_while_it_ends_changes_nothing(program: Program) -> None:
    program.many.add("a")
    begun = program.folder / "begun"
    program.write(f"""[[sink]]\nname = "index"\nkind = "command"\ncommand = "sh -c 'touch {begun}; exec sleep 30'"\n""")
    with program.following() as process:
        until(begun.exists, SECONDS)
        process.terminate()
        time.sleep(1.0)
        process.send_signal(signal.SIGHUP)
        assert process.wait(20) == 0


def test_sigterm_ends_it_within_ten_seconds(program: Program) -> None:
    program.many.add("a")
    program.many.servers["a"].pages["/set/resourcelist.xml"] = Reply(script=lambda _handler: time.sleep(600))
    program.write(timeout="600")
    with program.following() as process:
        until(lambda: program.many.servers["a"].requests("/set/resourcelist.xml"), SECONDS)
        began = time.monotonic()
        process.terminate()
        assert process.wait(20) == 0
        assert time.monotonic() - began < 10
    with program.store() as store:
        assert store.running() == []
        assert store.runs("a")[0].exit_status == 130


def test_what_an_operator_says_of_a_source(program: Program) -> None:
    site = program.many.add("a", files=40)
    program.write()
    assert run_here("follow", program.file, "--once").returncode == 0
    assert b"asks nothing" in run_here("approve", program.file, "a").stderr
    assert run_here("pause", program.file, "a", "other").returncode == 2
    state = program.source("a")
    assert state is not None
    assert not state.is_paused
    assert run_here("pause", program.file, "a").returncode == 0
    assert b"`resume` it first" in run_here("run", program.file, "a").stderr
    assert run_here("resume", program.file, "a").returncode == 0
    for number in range(30):
        site.drop(f"{number:03}.txt")
    site.publish()
    assert run_here("follow", program.file, "--once").returncode == 4
    assert b"30 of 40 files would be deleted" in run_here("refuse", program.file, "a").stdout
    assert run_here("follow", program.file, "--once").returncode == 4
    state = program.source("a")
    assert state is not None
    assert (state.question, len(program.many.files("a"))) == (None, 40)
    assert b"you have refused: 30 of 40 files" in run_here("status", program.file, "a").stdout
    assert b"asked again" in run_here("approve", program.file, "a").stdout
    assert run_here("follow", program.file, "--once").returncode == 4
    state = program.source("a")
    assert state is not None
    assert (state.question, state.refused_text) == (Question.DELETIONS, "")
    assert run_here("refuse", program.file, "a").returncode == 0
    assert run_here("follow", program.file, "--once").returncode == 4
    site.drop("030.txt")
    site.publish()
    assert run_here("follow", program.file, "--once").returncode == 4
    assert run_here("approve", program.file, "a").returncode == 0
    assert run_here("follow", program.file, "--once").returncode == 0
    assert len(program.many.files("a")) == 9
    assert run_here("pause", program.file, "--all").returncode == 0
    state = program.source("a")
    assert state is not None
    assert state.is_paused
    assert run_here("resume", program.file, "a").returncode == 0
    assert run_here("run", program.file, "a").returncode == 0
    state = program.source("a")
    assert state is not None
    assert (state.is_paused, state.is_wanted_now) == (False, True)


def test_a_retired_source_is_deleted_at_sinks_too(program: Program) -> None:
    program.many.add("a")
    program.many.add("b")
    program.write()
    assert run_here("follow", program.file, "--once").returncode == 0
    assert run_here("retire", program.file, "a").returncode == 2
    assert run_here("retire", program.file, "b", "--freeze").returncode == 0
    done = run_here("retire", program.file, "a", "--delete")
    assert done.stdout == b"a: retired (delete), and sinks get 3 deletions\n"
    assert not (program.state / "a").exists()
    told = [(one.source, one.action) for one in program.events()[6:]]
    assert told == [("a", "deleted")] * 3
    state = program.source("a")
    assert state is not None
    assert (state.retirement, state.life, state.resources) == (Retirement.DELETE, Life.NEW, 0)
    assert run_here("follow", program.file, "--once").stdout == b""
    assert run_here("resume", program.file, "a").returncode == 0
    assert b"a: 3 created" in run_here("follow", program.file, "--once").stdout


def processes_of(pid: int) -> list[int]:
    found = []
    for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        found += [int(child), *processes_of(int(child))]
    return found


@pytest.mark.parametrize("seed", [1, 2])
def test_whatever_is_killed_nothing_is_stuck_or_lost(program: Program, seed: int) -> None:
    """Service, template and runs are killed at random while sources change: at the end journal, copy, source agree."""
    chance = random.Random(seed)
    names = ("a", "b", "c")
    for name in names:
        program.many.add(name, files=20)
    program.write()

    def change() -> None:
        site = program.many.sites[chance.choice(names)]
        for _ in range(3):
            site.put(f"{chance.randrange(30):03}.txt", b"%d" % chance.randrange(1 << 30))
        if len(site.files) > 15 and chance.random() < 0.5:
            site.drop(chance.choice(sorted(site.files)))
        site.publish()

    kills = 0
    while kills < 12:
        with program.following() as process:
            for _ in range(chance.randrange(3, 6)):
                time.sleep(chance.uniform(0.05, 0.8))
                change()
                victims = processes_of(process.pid)
                if victims and chance.random() < 0.7:
                    os.kill(chance.choice(victims), signal.SIGKILL)
                    kills += 1
            process.kill()
            kills += 1
    with program.following():
        until(lambda: all(program.many.is_same(name) for name in names), SECONDS)
        until(lambda: all(program.has_life(name, Life.FOLLOWING) for name in names), SECONDS)
        time.sleep(1.0)
    held: dict[tuple[str, str], str | None] = {}
    numbers = [one.number for one in program.events()]
    assert numbers == sorted(set(numbers))
    for event in program.events():
        if event.action == "deleted":
            held.pop((event.source, event.path), None)
        else:
            held[event.source, event.path] = event.hash
    from headwater.sync.copy_status import copy_records

    assert held == {(name, one.path): one.hash for name in names for one in copy_records(program.state / name)}
    with program.store() as store:
        assert store.running() == []
