"""Flask-WebSub 0.4.1, unmodified, at our hub and at our source: its subscriber, its publisher."""

from __future__ import annotations

import contextlib
import json
import sqlite3
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.interop.programs import serving
from tests.notify.hub_process import TOKEN, HubProcess
from tests.support.waiting import until

TOPIC = "http://t.example/topic"


class Program:
    """The program, running."""

    def __init__(self, folder: Path, hub_url: str) -> None:
        command = [sys.executable, "-W", "ignore", "-m", "tests.interop.websub_program", str(folder), hub_url]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        assert self.process.stdout is not None
        self.url = json.loads(self.process.stdout.readline())["url"]

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()

    def seen(self, what: str, topic: str) -> list[str]:
        """What it has seen of one kind of a topic."""
        with urllib.request.urlopen(f"{self.url}/seen", timeout=30) as answer:
            return [text for kind, of, text in json.load(answer) if (kind, of) == (what, topic)]

    def do(self, what: str, **told: object) -> str:
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(f"{self.url}/do/{what}", json.dumps(told).encode(), headers)
        with urllib.request.urlopen(request, timeout=30) as answer:
            return str(answer.read().decode())


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[HubProcess]:
    one = HubProcess(tmp_path / "hub")
    yield one
    one.stop()


@pytest.fixture
def program(tmp_path: Path, hub: HubProcess) -> Iterator[Program]:
    (tmp_path / "program").mkdir()
    one = Program(tmp_path / "program", hub.url)
    yield one
    one.close()


def test_its_subscriber_at_our_hub(hub: HubProcess, program: Program) -> None:
    """RS-NT-09 to RS-NT-17: subscribe, receive, renew, unsubscribe."""
    number = program.do("subscribe", topic_url=TOPIC, hub_url=hub.url, lease_seconds=600)
    until(lambda: hub.counts()["subscriptions"] == 1)
    assert program.seen("subscribe", TOPIC) == [""]
    assert hub.publish(TOPIC, b"<urlset/>")[0] == 200
    until(lambda: program.seen("content", TOPIC) == ["<urlset/>"])
    program.do("renew", id=number)
    until(lambda: program.seen("subscribe", TOPIC) == ["", ""])
    program.do("unsubscribe", id=number)
    until(lambda: hub.counts()["subscriptions"] == 0)
    assert program.seen("unsubscribe", TOPIC) == [""]


def test_our_hub_denies_its_subscriber(tmp_path: Path) -> None:
    """WS-H-06: the topic is at an address that is not allowed, the callback at one that is."""
    hub = HubProcess(tmp_path, "--allow-private", "127.0.0.1", private=False)
    program = Program(tmp_path, hub.url)
    try:
        program.do("subscribe", topic_url="http://10.0.0.1/t", hub_url=hub.url)
        until(lambda: program.seen("denied", "http://10.0.0.1/t"))
    finally:
        program.close()
        hub.stop()


def test_its_publisher_and_its_subscriber_meet_at_our_hub(hub: HubProcess, program: Program) -> None:
    """WS-P-01 to WS-P-03: it finds our hub in its own topic's headers; of strangers the topic is fetched."""
    topic = f"{program.url}/topic"
    program.do("discover", url=topic)
    until(lambda: hub.counts()["subscriptions"] == 1)
    for content in ("one", "two"):
        program.do("publish", content=content)
        assert hub.form({"hub.mode": "publish", "hub.url": topic})[0] == 202
        until(lambda expected=content: program.seen("content", topic)[-1:] == [expected])  # type: ignore[misc]


def test_its_subscriber_hears_of_our_changes(hub: HubProcess, program: Program, tmp_path: Path) -> None:
    """RS-NT-01, WS-S-01: found by the headers of our topic, and told by our hub."""
    files = tmp_path / "files"
    files.mkdir()
    (files / "a").write_bytes(b"a")
    config = tmp_path / "source.toml"
    config.write_text(
        f'state = "state"\n[notify]\nhubs = ["{hub.url}"]\ntoken = "{TOKEN}"\nbatch_seconds = 0.1\n'
        f'[[set]]\nname = "files"\nfiles = "{files}"\n'
    )
    with serving(config) as url:
        topic = f"{url}/files/changenotification.xml"
        program.do("discover", url=topic)
        until(lambda: hub.counts()["subscriptions"] == 1)
        (tmp_path / "b").write_bytes(b"b")
        (tmp_path / "b").rename(files / "b")
        until(lambda: any(f"{url}/files/resources/b" in text for text in program.seen("content", topic)))
        assert 'capability="change-notification"' in program.seen("content", topic)[-1]


def test_our_source_and_our_subscriber_at_its_hub(tmp_path: Path) -> None:
    """RS-NT-08, RS-NT-12, WS-P-03, WS-S-12: it takes no payloads, so it is told of our topic; it signs by SHA-512.

    What it fetches too late for is found in the Change List.
    """
    for name in ("files", "program"):
        (tmp_path / name).mkdir()
    program, copy = Program(tmp_path / "program", "http://none.example/"), tmp_path / "copy"
    config = tmp_path / "source.toml"
    config.write_text(
        f'state = "state"\n[notify]\nhubs = ["{program.url}/hub"]\nbatch_seconds = 0.1\n'
        f'[[set]]\nname = "files"\nfiles = "{tmp_path / "files"}"\n'
    )
    (tmp_path / "files" / "a").write_bytes(b"a")
    with contextlib.closing(program), serving(config) as url:
        command = [sys.executable, "-m", "headwater", "sync", url, str(copy), "--follow", "600", "--push"]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as follower:
            try:
                until(lambda: _subscriptions(tmp_path / "program") == 2, what="subscriptions to both channels")
                for name in ("b", "c", "d"):
                    (tmp_path / name).write_bytes(name.encode())
                    (tmp_path / name).rename(tmp_path / "files" / name)
                    until(lambda name=name: (copy / name).exists(), what=name)  # type: ignore[misc]
            finally:
                follower.terminate()


def _subscriptions(folder: Path) -> int:
    state = sqlite3.connect(folder / "h.sqlite")
    try:
        return int(state.execute("SELECT count(*) FROM hub").fetchone()[0])
    except sqlite3.OperationalError:  # it has no table yet
        return 0
    finally:
        state.close()
