"""Three hops as processes, each killed in turn: the ends are equal, and each change came once."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tools.engines.launch import free_port

from headwater.catalog.interface import Change
from headwater.catalog.sqlite_catalog import SqliteCatalog
from headwater.spec.records import ChangeKind
from tests.support.copying import DONE, check, tree
from tests.support.serving import request
from tests.support.waiting import until

pytestmark = pytest.mark.long(10)

KILLS = int(os.environ.get("HEADWATER_KILLS", "6"))
"""Kills; set the variable for a longer siege."""

HOPS = 3
_LONGEST_SECONDS = 120.0


class Chain:
    """The processes: a source over a folder, then for each hop a `sync --follow` and a `serve --copy` of its copy."""

    def __init__(self, folder: Path) -> None:
        self.files = folder / "origin"
        self.files.mkdir()
        self.copies = [folder / f"copy{hop}" for hop in range(HOPS)]
        self.states = [folder / f"state{hop}" for hop in range(HOPS)]
        self.urls = [f"http://127.0.0.1:{port}/" for port in (free_port() for _ in range(HOPS))]
        self._log = (folder / "log").open("ab")
        ports = [url.rstrip("/").rpartition(":")[2] for url in self.urls]
        self.commands: list[list[str]] = []
        for hop in range(HOPS):
            what = ["--files", str(self.files)] if hop == 0 else ["--copy", str(self.copies[hop - 1]), "--set", "files"]
            serve = ["serve", *what, "--port", ports[hop], "--state", str(self.states[hop]), "--quiet", "--rescan", "5"]
            sync = ["sync", self.urls[hop], str(self.copies[hop]), "--follow", "1", "--max-delete", "1.0"]
            self.commands += [serve if hop == 0 else serve[:-2], sync]
        self.processes = [self._start(command) for command in self.commands]

    def _start(self, command: list[str]) -> subprocess.Popen[bytes]:
        whole = [sys.executable, "-m", "headwater", *command]
        return subprocess.Popen(whole, stdout=self._log, stderr=self._log, env={**os.environ, "PYTHONDEVMODE": ""})

    def kill(self, number: int) -> None:
        """Kill one as its kernel does, and start it again."""
        process = self.processes[number]
        process.send_signal(signal.SIGKILL)
        process.wait(_LONGEST_SECONDS)
        self.processes[number] = self._start(self.commands[number])

    def keep_up(self) -> None:
        """Start what has ended by itself: a first run that found no source, say."""
        for number, process in enumerate(self.processes):
            if process.poll() is not None:
                self.processes[number] = self._start(self.commands[number])

    def is_equal(self) -> bool:
        """Whether all copies are what the origin has."""
        wanted = tree(self.files)
        with contextlib.suppress(OSError):  # of a file that went while we looked
            return all(tree(copy) == wanted for copy in self.copies)
        return False

    def close(self) -> None:
        for process in self.processes:
            process.send_signal(signal.SIGTERM)
        for process in self.processes:
            process.wait(_LONGEST_SECONDS)
        self._log.close()


def test_killed_in_turn_the_ends_are_equal_and_each_change_came_once(tmp_path: Path) -> None:
    """RS-REL-12, RS-TIME-13, DST-F7: whatever is killed where."""
    chance = random.Random(47)
    chain = Chain(tmp_path)
    try:
        for number in range(20):
            (chain.files / f"f{number}").write_bytes(chance.randbytes(60))
        _settle(chain)
        for number in range(KILLS):
            _edit(chain.files, chance)
            time.sleep(chance.random())
            chain.kill(number % len(chain.processes))
            chain.keep_up()
            if number % 10 == 9:
                _settle(chain)
        _settle(chain)
        until(lambda: _is_told(chain), _LONGEST_SECONDS, pause=0.2, what="the last source")
        for url, copy in zip(chain.urls, chain.copies, strict=True):
            assert check(url, copy).exit_status == DONE
    finally:
        chain.close()
    for state in chain.states[1:]:
        catalog = SqliteCatalog(state / "catalog.sqlite")
        try:
            _is_each_once(catalog.changes("files", limit=1_000_000))
            held = catalog.resources("files")
            assert {one.uri for one in held} == tree(chain.files).keys()
            origin = f"{chain.urls[0]}files/resources/"
            vias = [(link.rel, link.href) for one in held for link in one.metadata.links]
            assert vias == [("via", origin + one.uri) for one in held]
        finally:
            catalog.close()


def _settle(chain: Chain) -> None:
    def is_settled() -> bool:
        chain.keep_up()
        return chain.is_equal()

    until(is_settled, _LONGEST_SECONDS, pause=0.2, what="equal copies")


def _is_told(chain: Chain) -> bool:
    with contextlib.suppress(OSError):
        body = request(chain.urls[-1], "/health").body
        return b'"well": true' in body and b'"resources": %d,' % len(tree(chain.files)) in body
    return False


def _edit(files: Path, chance: random.Random) -> None:
    for _ in range(4):
        path = files / f"f{chance.randrange(40)}"
        if path.exists() and chance.random() < 0.3:
            path.unlink()
        else:
            aside = files.parent / "aside"
            aside.write_bytes(chance.randbytes(60))
            aside.rename(path)


def _is_each_once(changes: list[Change]) -> None:
    """Of each resource no change says what the one before has said, and none is before its creation."""
    last: dict[str, str | None] = {}
    for change in changes:
        now = None if change.change is ChangeKind.DELETED else change.metadata.hash
        assert change.uri not in last or last[change.uri] != now, change
        last[change.uri] = now
    times = [change.at for change in changes]
    assert times == sorted(set(times))
