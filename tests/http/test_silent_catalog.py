"""A catalog that is reached by network holds up nobody but those who need its answer."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from headwater.catalog import sqlite_catalog as sqlite
from headwater.catalog.interface import Resource, SetState
from headwater.errors import StoreFault
from headwater.http import app as application
from headwater.http import resources, source_access
from tests.support.serving import Face, face
from tests.support.waiting import DEADLINE, settle, until

COUNT = 60


class Remote(sqlite.SqliteCatalog):
    """A catalog whose answers take their time, or do not come as long as `open` is not set."""

    is_remote = True
    gate = threading.Event()
    fails = False
    asked: list[tuple[str, int]] = []  # noqa: RUF012

    def _wait(self, what: str, count: int) -> None:
        if threading.current_thread().name.startswith("headwater-ask"):
            self.asked.append((what, count))
            assert self.gate.wait(DEADLINE)
            if self.fails:
                raise StoreFault("the cluster does not answer")
            time.sleep(0.003)
        else:
            assert threading.current_thread().name != "serve", "the loop must not ask"

    def sets(self) -> list[SetState]:
        self._wait("sets", 1)
        return super().sets()

    def state(self, name: str) -> SetState:
        self._wait("state", 1)
        return super().state(name)

    def get(self, name: str, uris: Sequence[str]) -> dict[str, Resource]:
        self._wait("get", len(uris))
        return super().get(name, uris)


@pytest.fixture
def remote(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Face]:
    monkeypatch.setattr(sqlite, "SqliteCatalog", Remote)
    monkeypatch.setattr(Remote, "asked", [])
    monkeypatch.setattr(Remote, "gate", threading.Event())
    monkeypatch.setattr(Remote, "fails", False)
    Remote.gate.set()
    files = tmp_path / "files"
    files.mkdir()
    for number in range(COUNT):
        (files / f"{number:04d}.txt").write_text(f"text {number}")
    settle()  # at rest for longer than a tick, so that the tags are strong
    with face(files, tmp_path / "state") as running:
        yield running


def get(remote: Face, number: int) -> bytes:
    answer = remote.get(f"/files/resources/{number:04d}.txt")
    assert answer.status == 200
    assert answer.headers["etag"].startswith('"'), "the listed digest"
    return answer.body


def test_resources_that_were_asked_for_are_served_without_the_catalog(remote: Face) -> None:
    with ThreadPoolExecutor(16) as clients:
        bodies = list(clients.map(lambda number: get(remote, number), range(COUNT)))
        assert bodies == [b"text %d" % number for number in range(COUNT)]
        asked = len(Remote.asked)
        assert list(clients.map(lambda number: get(remote, number), range(COUNT))) == bodies
    assert len(Remote.asked) == asked


def test_nobody_else_waits(remote: Face) -> None:
    """Documents, and resources that were asked for before, are answered while the catalog is silent."""
    get(remote, 1)
    remote.get("/files/resourcelist.xml")
    Remote.gate.clear()
    with ThreadPoolExecutor(5) as clients:
        slow = [clients.submit(remote.get, target) for target in ("/files/resources/0059.txt", "/health", "/")]
        until(lambda: len({what for what, _ in Remote.asked if what in ("get", "sets")}) == 2, what="the questions")
        began = time.monotonic()
        for _ in range(20):
            assert get(remote, 1) == b"text 1"
            assert remote.get("/files/resourcelist.xml").status == 200
        assert time.monotonic() - began < DEADLINE / 2, "nothing has waited for the gate"
        assert not any(one.done() for one in slow)
        Remote.gate.set()
        assert [one.result().status for one in slow] == [200, 200, 200]


def test_what_is_not_there_and_what_has_changed(remote: Face) -> None:
    assert remote.get("/files/resources/none.txt").status == 404
    assert get(remote, 2) == b"text 2"
    (Path(remote.source.config.sets[0].files) / "0002.txt").write_text("changed")
    answer = remote.get("/files/resources/0002.txt")
    assert (answer.status, answer.body) == (200, b"changed")
    assert answer.headers["etag"].startswith("W/"), "not what was listed"


def test_a_fault_is_told_and_passes(remote: Face) -> None:
    get(remote, 3)
    Remote.fails = True
    answers = [remote.get("/files/resources/0050.txt"), remote.get("/health")]
    assert [one.status for one in answers] == [503, 503]
    assert get(remote, 3) == b"text 3"
    Remote.fails = False
    assert get(remote, 50) == b"text 50"


def test_health_does_not_wait_for_a_catalog_that_is_silent(remote: Face, monkeypatch: pytest.MonkeyPatch) -> None:
    """Monitors ask every few seconds: they get an answer, and take no thread from the others however many they are."""
    monkeypatch.setattr(application, "WAITING_SECONDS", 1.0)
    get(remote, 1)
    Remote.asked.clear()
    Remote.gate.clear()
    began = time.monotonic()
    for _ in range(6):
        answer = remote.get("/health")
        told = json.loads(answer.body)
        assert (answer.status, told["ready"], told["well"]) == (503, False, False)
        assert told["error"] == "the catalog does not answer"
        assert [one["name"] for one in told["sets"]] == ["files"]
    assert [what for what, _ in Remote.asked] == ["sets"], "one question"
    assert time.monotonic() - began < 4.0, "once nobody has answered in time, that is told at once"
    with ThreadPoolExecutor(1) as clients:
        waiting = clients.submit(get, remote, 50)
        until(lambda: ("get", 1) in Remote.asked, what="the question of another")
        Remote.gate.set()
        assert waiting.result() == b"text 50"
    until(lambda: remote.get("/health").status == 200, what="the answer")
    Remote.fails = True
    answer = remote.get("/health")
    told = json.loads(answer.body)
    assert (answer.status, told["well"], told["error_code"]) == (503, False, StoreFault.code)
    assert "the cluster does not answer" not in answer.body.decode(), "words are for the log: they name hosts"
    assert answer.headers["content-type"] == "application/json"


def test_who_asks_a_catalog_that_is_silent_is_told_soon(remote: Face, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was asked for before is served, of the rest it is said at once that it is not known; and then it is."""
    monkeypatch.setattr(source_access, "ANSWER_SECONDS", 0.3)
    get(remote, 1)
    Remote.gate.clear()
    began = time.monotonic()
    for target in ("/files/resources/0050.txt", "/files/resources/0051.txt", "/files/resources/none.txt", "/"):
        answer = remote.get(target)
        assert (answer.status, answer.headers["retry-after"]) == (503, "10")
        assert get(remote, 1) == b"text 1"
        assert remote.get("/files/resourcelist.xml").status == 200
    assert time.monotonic() - began < DEADLINE / 2
    Remote.gate.set()
    until(lambda: remote.get("/files/resources/0050.txt").body == b"text 50", what="its answer")
    assert remote.get("/files/resources/none.txt").status == 404


def test_of_many_files_those_asked_for_last_are_served_without_the_catalog(
    remote: Face, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resources, "KEPT", 4)
    monkeypatch.setattr(source_access, "ANSWER_SECONDS", 0.3)
    for number in (10, 1, 20, 1, 30, 1, 40, 1):
        get(remote, number)
    Remote.gate.clear()
    assert [get(remote, number) for number in (1, 20, 30, 40)] == [b"text %d" % number for number in (1, 20, 30, 40)]
    assert remote.get("/files/resources/0010.txt").status == 503
    Remote.gate.set()
