"""The server is killed with -9 at random moments while files change: no reader ever loses, doubles or alters a change.

A writer in a process of its own changes files and logs what it writes. After every restart, and at random moments
before every kill, a referee reads the whole source. At the end, when the writer rests, it holds that

- every reading is a prefix of the final history: no change is lost, doubled, altered or given another time;
- a closed Change List never changes an octet;
- from every Resource List that was ever read, its later changes lead to what lies in the folder;
- every digest in the history is of something that the writer wrote.

HEADWATER_KILLS sets how often (default 4).
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

import pytest
from tools.engines.launch import free_port

from headwater.spec.records import ChangeKind, Entry
from tests.http.killed_source import KILLS, write_config
from tests.support.documents import read_bytes
from tests.support.published import Look, look
from tests.support.serving import Process, request
from tests.support.waiting import DEADLINE, until

pytestmark = pytest.mark.long(10)

SETTINGS = """refresh_changes = 8
refresh_seconds = 0.2
renew_seconds = 1
"""


@contextmanager
def writer(folder: Path, log: Path, seed: int) -> Iterator[None]:
    process = subprocess.Popen(
        [sys.executable, str(Path(__file__).with_name("busy_writer.py")), folder, log, str(seed)]
    )
    try:
        yield
    finally:
        folder.with_name("stop").touch()
        assert process.wait(DEADLINE) == 0


class Referee:
    """Keeps every reading, and judges them all at the end."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.looks: list[Look] = []
        self.closed: dict[str, bytes] = {}

    def fetch(self, url: str) -> bytes | None:
        answer = request(self.url, url.removeprefix(self.url))
        assert answer.status in (200, 404), (url, answer)
        return answer.body if answer.status == 200 else None

    def look(self) -> Look:
        seen = look(self.fetch, base=self.url, midway=True)
        self.looks.append(seen)
        for url, data in seen.documents.items():
            if "/changelist/0" in url and read_bytes(data)[0].until is not None:
                assert self.closed.setdefault(url, data) == data, "a closed Change List never changes"
        return seen

    def judge(self, truth: dict[str, str], written: set[str]) -> None:
        final = self.looks[-1]
        assert shas(final.state) == truth
        history = [identity(entry) for entry in final.changes]
        times = [one[0] for one in history]
        assert len(set(times)) == len(times)
        last = 0
        for number, seen in enumerate(self.looks):
            own = [identity(entry) for entry in seen.changes]
            assert own == history[: len(own)], f"reading {number} is no prefix of the final history"
            assert len(own) >= last, "what was published stays published"
            last = len(own)
            assert shas(replayed(seen, final.changes)) == truth, f"from the Resource List of reading {number}"
        assert {sha(str(entry.hash)) for entry in final.changes if entry.hash} <= written


def identity(entry: Entry) -> tuple[object, ...]:
    return (entry.datetime, entry.loc, entry.change, entry.hash, entry.length)


def sha(attribute: str) -> str:
    return attribute.partition("sha-256:")[2][:64]


def shas(state: dict[str, str]) -> dict[str, str]:
    return {uri: sha(attribute) for uri, attribute in state.items()}


def replayed(seen: Look, changes: list[Entry]) -> dict[str, str]:
    state = dict(seen.listed)
    for entry in changes:
        if entry.datetime is not None and entry.datetime > seen.at:
            if entry.change is ChangeKind.DELETED:
                state.pop(entry.loc, None)
            else:
                state[entry.loc] = str(entry.hash)
    return state


def lying(folder: Path, url: str) -> dict[str, str]:
    return {
        f"{url}/files/resources/{quote(str(path.relative_to(folder)))}": hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.rglob("*")
        if path.is_file()
    }


@pytest.mark.timeout(300 + 10 * KILLS)
def test_killed_server_never_loses_a_change(tmp_path: Path) -> None:
    seed = int(os.environ.get("HEADWATER_SEED", str(random.randrange(10**6))))
    chance = random.Random(seed)
    print(f"HEADWATER_SEED={seed}")
    folder, log = tmp_path / "files", tmp_path / "log"
    folder.mkdir()
    for number in range(30):
        (folder / f"first {number}").write_text(str(number))
    port = free_port()
    config = write_config(tmp_path, port, SETTINGS)
    referee = Referee(f"http://127.0.0.1:{port}")
    first = lying(folder, referee.url)
    with writer(folder, log, seed):
        for kill in range(KILLS):
            with Process(str(config), "--quiet") as process:
                process.listening()
                if kill and referee.looks:
                    referee.look()  # what is shown at once after a restart is whole
                end = time.monotonic() + chance.uniform(0, 1.5)
                while time.monotonic() < end:
                    if request(referee.url, "/health").status == 200 and chance.random() < 0.3:
                        referee.look()
                    time.sleep(chance.uniform(0, 0.2))
                process.kill()
    with Process(str(config), "--quiet") as process:
        process.ready()
        truth = lying(folder, referee.url)
        until(lambda: shas(referee.look().state) == truth, what="what lies in the folder")
        process.stop()
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    written = {line["sha256"] for line in lines} | set(first.values()) | {hashlib.sha256(b"").hexdigest()}
    referee.judge(truth, written)
    assert len(referee.looks[-1].changes) > min(20, 2 * KILLS)
