"""Replaying every Change Dump from the first gives the folder as it was, byte for byte, whatever is killed when.

The test keeps the history: it changes a folder at random, has it published after each round, and notes what it held.
"""

from __future__ import annotations

import datetime as dt
import json
import random
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

from headwater.errors import Exit
from headwater.spec.records import ChangeKind
from tests.publish.change_history import PackedChanges, read_change_dump
from tests.support.kept_versions import damage, kept_octets, make_old
from tests.support.program import run_here
from tests.support.waiting import settle

BASE = "http://source.example/sync"
Tree = dict[str, bytes]


class History:
    """A folder, its published copy, and all states of the folder that were published, by the round."""

    def __init__(self, base: Path, seed: int, *, segment_entries: int = 7) -> None:
        self.base = base
        self.folder, self.state = base / "folder", base / "state"
        self.folder.mkdir()
        self.random = random.Random(seed)
        self.config = base / "source.toml"
        self.config.write_text(
            f"state = {json.dumps(str(self.state))}\nbase_url = {json.dumps(BASE)}\n"
            f"segment_entries = {segment_entries}\nversions_seconds = 0\n"
            f"[[set]]\nfiles = {json.dumps(str(self.folder))}\nmax_delete = 1\n"
            "change_dump = true\npackage_entries = 4\npackage_octets = 2000000\n"
        )
        self.held: list[Tree] = []

    def change(self, count: int) -> None:
        """Create, update, delete, replace folders by files; often with octets that were there before."""
        names = ["a.txt", "b.pdf", "sub/c", "sub/d ä", "sub/deep/e.xml", "%", "large.bin"]
        for _ in range(count):
            path = self.folder / self.random.choice(names)
            if path.exists() and self.random.random() < 0.3:
                path.unlink()
                continue
            path.parent.mkdir(parents=True, exist_ok=True)
            octets = 1_500_000 if path.name == "large.bin" else self.random.choice([0, 1, 3, 5_000])
            path.write_bytes(bytes([self.random.randrange(3)]) * octets)

    def look(self) -> Tree:
        """What the folder has now, by relative path."""
        return {str(one.relative_to(self.folder)): one.read_bytes() for one in self.folder.rglob("*") if one.is_file()}

    def publish(self) -> None:
        """One run, and what the folder held."""
        settle()
        assert run_here("publish", self.config).returncode == Exit.DONE
        self.held.append(self.look())

    def fetch(self, url: str) -> bytes | None:
        """What the server would answer."""
        path = self.state / "documents" / url.removeprefix(BASE + "/")
        return path.read_bytes() if path.is_file() else None

    def dump(self) -> PackedChanges:
        """The Change Dump as it stands, with all that it has to hold by the standard checked."""
        found = read_change_dump(self.fetch, base=BASE)
        assert found is not None
        return found


def replayed(dump: PackedChanges, loaded: Tree) -> list[tuple[dt.datetime, Tree]]:
    """The state after each change, beginning with what was loaded."""
    from urllib.parse import unquote

    prefix = f"{BASE}/files/resources/"
    states, state = [(dump.from_, dict(loaded))], dict(loaded)
    for one in dump.changes:
        name = unquote(one.uri.removeprefix(prefix))
        if one.change is ChangeKind.DELETED:
            del state[name]
        else:
            assert one.content is not None
            assert (name in state) == (one.change is ChangeKind.UPDATED)
            state[name] = one.content
        states.append((one.at, dict(state)))
    return states


def check(history: History) -> None:
    """Every state that was published comes about in the replay, in their order; the last one is the end."""
    states = [state for _, state in replayed(history.dump(), history.held[0])]
    at = 0
    for held in history.held:
        assert held in states[at:]
        at = states.index(held, at)
    assert states[-1] == history.held[-1]


def test_replaying_all_packages_gives_every_state_of_the_folder(tmp_path: Path) -> None:
    """And the end of each closed segment is what the Change Lists come to then, with versions removed as ever."""
    history = History(tmp_path, 1)
    history.change(5)
    history.publish()
    for _ in range(6):
        history.change(history.random.randrange(1, 8))
        history.publish()
        check(history)
        assert run_here("versions", history.config, "--prune").returncode == Exit.DONE
    dump = history.dump()
    assert len(dump.packages) > 4
    if unzip := shutil.which("unzip"):
        for number, data in enumerate(dump.packages):
            package = tmp_path / f"{number}.zip"
            package.write_bytes(data)
            subprocess.run([unzip, "-tqq", package], check=True)


def test_an_old_catalog_in_the_state_folder_does_not_say_what_is_needed(tmp_path: Path) -> None:
    """After the catalog has moved, what the folder still has of one knows nothing of later changes."""
    history = History(tmp_path, 3, segment_entries=2)
    history.publish()
    moved, dump = tmp_path / "moved.sqlite", tmp_path / "sets.dump"
    assert run_here("catalog", "export", history.state, "--output", dump).returncode == Exit.DONE
    assert run_here("catalog", "import", dump, moved).returncode == Exit.DONE
    text = history.config.read_text()
    history.config.write_text(f"catalog = {json.dumps(str(moved))}\n{text}")
    history.publish()  # the log begins anew with the move
    (history.folder / "a").write_bytes(b"needed")
    history.publish()
    versions = history.state / "versions"
    assert list(kept_octets(versions).values()) == [b"needed"]
    make_old(versions)
    done = run_here("versions", history.state, "--prune", "--max-age", "0")
    assert done.returncode == Exit.USAGE
    assert f"the catalog of this state folder is elsewhere: {moved}".encode() in done.stderr
    assert list(kept_octets(versions).values()) == [b"needed"]
    for arguments in ((history.config,), (history.state, "--catalog", moved)):
        done = run_here("versions", *arguments, "--prune", "--max-age", "0", "--json")
        assert json.loads(done.stdout)["needed"] == 1, done
    assert run_here("versions", history.state).returncode == Exit.DONE
    history.config.write_text(text)
    assert run_here("publish", history.config).returncode in (Exit.DONE, Exit.STORE)
    assert run_here("versions", history.state, "--prune", "--dry-run").returncode == Exit.DONE, "it is back"


def test_the_catalog_of_another_source_does_not_say_what_is_needed(tmp_path: Path) -> None:
    """Beside the folder's own catalog, naming another one removed all versions."""
    history = History(tmp_path, 3, segment_entries=9)
    history.publish()
    (history.folder / "a").write_bytes(b"needed")
    history.publish()
    other, versions = tmp_path / "other", history.state / "versions"
    other.mkdir()
    (other / "b").write_bytes(b"b")
    call = ("publish", "--files", other, "--to", tmp_path / "site", "--base-url", "http://other.example")
    assert run_here(*call).returncode == Exit.DONE
    make_old(versions)
    prune = ("versions", history.state, "--prune", "--max-age", "0", "--catalog")
    done = run_here(*prune, tmp_path / "site" / ".headwater" / "catalog.sqlite")
    assert done.returncode == Exit.USAGE
    assert b"another one is named" in done.stderr
    for own in (history.state, history.state / "catalog.sqlite"):
        assert run_here(*prune, own).returncode == Exit.DONE
    assert list(kept_octets(versions).values()) == [b"needed"]


def test_where_the_catalog_is_cannot_be_read_and_nothing_is_pruned(tmp_path: Path) -> None:
    history = History(tmp_path, 3, segment_entries=2)
    (history.folder / "a").write_bytes(b"before")
    history.publish()
    (history.folder / "a").write_bytes(b"after")
    history.publish()
    versions = kept_octets(history.state / "versions")
    assert versions
    (history.state / "catalog-elsewhere").mkdir()
    done = run_here("versions", history.state, "--prune", "--max-age", "0", "--max-octets", "0")
    assert done.returncode == Exit.STORE, done
    assert b"catalog-elsewhere" in done.stderr
    assert kept_octets(history.state / "versions") == versions


def test_what_is_needed_is_kept_and_the_rest_is_removed_in_time(tmp_path: Path) -> None:
    history = History(tmp_path, 3, segment_entries=2)
    history.publish()
    for number in range(3):
        (history.folder / "a").write_bytes(b"%d" % number)
        history.publish()
    versions = history.state / "versions"
    make_old(versions)
    done = run_here("versions", history.config, "--prune", "--json")
    found = json.loads(done.stdout)
    assert (found["versions"], found["needed"], found["removed"]) == (3, 1, 2)
    (history.folder / "a").write_bytes(b"3")
    history.publish()
    check(history)
    assert json.loads(run_here("versions", history.config, "--verify", "--json").stdout)["damaged"] == []
    damage(versions, b"3")
    assert run_here("versions", history.config, "--verify").returncode == Exit.FINDINGS
    assert run_here("versions", history.config, "--dry-run").returncode == Exit.USAGE
    listed = json.loads(run_here("versions", history.config, "--json").stdout)
    assert listed["count"] == len(listed["versions"])


KILLED = """if True:
    import os, signal, sys
    from headwater import cli
    left = int(sys.argv.pop(1))

    def dying(real):
        def call(*arguments, **options):
            global left
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return real(*arguments, **options)
        return call

    for name in ("fsync", "replace", "rename", "link", "unlink", "mkdir", "writev", "pwrite"):
        setattr(os, name, dying(getattr(os, name)))
    cli.main(sys.argv[1:])
"""
"""A run of the program that kills itself before a certain one of its changes to file systems."""


def killed_runs(history: History, steps: Iterable[int]) -> int:
    """Change and publish, each time with a process that is killed at one of its steps; how many were."""
    killed = 0
    for step in steps:
        history.change(6)
        settle()
        command = [sys.executable, "-c", KILLED, str(step), "publish", str(history.config)]
        done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, check=False)
        assert done.returncode in (Exit.DONE, -signal.SIGKILL), done.stderr.decode()
        killed += done.returncode != Exit.DONE
        if (history.state / "documents/files/changedump.xml").exists():
            history.dump()  # what is named is there, whole, whatever was killed
    return killed


@pytest.mark.long(15)
def test_killed_anywhere_the_next_run_goes_on(tmp_path: Path) -> None:
    """kill -9 while octets are set aside, named, packed and published: no recorded change lacks its octets."""
    history = History(tmp_path, 4)
    history.change(5)
    history.publish()
    assert killed_runs(history, range(2, 90, 11)) > 3
    history.publish()
    assert replayed(history.dump(), history.held[0])[-1][1] == history.held[-1]
    first = min(one.at for one in history.dump().changes)
    assert history.dump().from_ <= first
    versions = history.state / "versions" / ".aside"
    assert not versions.exists() or not list(versions.rglob("*"))
