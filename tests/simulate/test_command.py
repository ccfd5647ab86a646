"""`headwater simulate` as a process: served, copied and audited while it changes, killed and begun again."""

from __future__ import annotations

import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tools.engines.launch import free_port

from headwater.catalog.sqlite_catalog import SqliteCatalog
from headwater.cli import run
from headwater.simulate.resources import Filler, SourceSettings, SyntheticResources, read_version
from headwater.spec.records import parse_hash
from tests.support.copying import check, go, tree
from tests.support.serving import request
from tests.support.waiting import DEADLINE, until

pytestmark = pytest.mark.long(10)

WORLD = SourceSettings(resources=300, sets=("files",), seed=7, sizes=(1, 9_000), hashes=("md5", "sha-256"))
SETTINGS = ("--resources", "300", "--seed", "7", "--size", "1-9000", "--hash", "md5", "--hash", "sha-256")


class Process:
    """One `headwater simulate`."""

    def __init__(self, *arguments: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "headwater", "simulate", "--json", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, "PYTHONDEVMODE": ""},
        )

    def listening(self) -> dict[str, Any]:
        """What it says once everything is published."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, self.process.communicate()[1].decode()
        told: dict[str, Any] = json.loads(line)
        return told

    def end(self, number: signal.Signals) -> tuple[int, bytes]:
        self.process.send_signal(number)
        output, _ = self.process.communicate(timeout=DEADLINE)
        return self.process.returncode, output


@contextmanager
def simulated(*arguments: str) -> Iterator[Process]:
    process = Process(*arguments)
    try:
        yield process
    finally:
        if process.process.poll() is None:
            process.end(signal.SIGKILL)
        for pipe in (process.process.stdout, process.process.stderr):
            if pipe is not None:
                pipe.close()


def health(url: str) -> dict[str, Any]:
    told: dict[str, Any] = json.loads(request(url, "/health").body)
    return told


def changes(url: str) -> int:
    count: int = health(url)["simulation"]["changes"]
    return count


def expected(state: Path) -> dict[str, bytes]:
    """Every resource of the catalog as the settings make it, asked of nobody else."""
    resources = SyntheticResources(WORLD, "files", Filler(WORLD.seed, WORLD.hashes))
    catalog = SqliteCatalog(state / "catalog.sqlite")
    found = {}
    for held in catalog.resources("files"):
        number = resources.number(held.uri)
        assert number is not None
        content = resources.content(number, read_version(held.memo))
        found[held.uri] = content.read(0, content.octets)
    catalog.close()
    return found


def test_a_copy_of_a_simulation_that_was_killed_has_every_octet(tmp_path: Path) -> None:
    state, copy, port = tmp_path / "state", tmp_path / "copy", str(free_port())
    options = (
        *SETTINGS,
        "--rate",
        "300",
        "--state",
        str(state),
        "--port",
        port,
        "--mix",
        "created=3,updated=5,deleted=2",
    )
    with simulated(*options) as first:
        url = first.listening()["url"]
        go(url, copy, max_delete=1.0)  # while it changes
        until(lambda: changes(url) > 250)
        first.end(signal.SIGKILL)
    with simulated(*options, "--changes", "400") as second:
        told = second.listening()
        assert told["url"] == url
        assert told["changes_ever"] > 250
        until(lambda: changes(url) == 400)
        total = told["changes_ever"] + 400
        until(lambda: health(url)["sets"][0]["published_changes"] == total)
        assert go(url, copy, max_delete=1.0).status == 0
        report = check(url, copy)
        assert report.exit_status == 0, report
        assert second.end(signal.SIGTERM)[0] == 0
    copied = tree(copy)
    assert copied == expected(state)
    assert report.sets[0].same == len(copied) > 250


def test_a_load_and_changes_broken_off_anywhere_come_out_the_same(tmp_path: Path) -> None:
    """Killed as by a power cut, several times: what was recorded stays, and what comes is what would have come."""
    options = ["--resources", "25000", "--size", "9", "--rate", "100", "--warp", "max", "--no-serve"]
    options += ["--mix", "created=1,updated=1,deleted=1", "--start", "2020-01-01T00:00:00Z"]
    whole, parts, total = tmp_path / "whole", tmp_path / "parts", 12_000
    assert run(["simulate", *options, "--changes", str(total), "--state", str(whole), "--json"]) == 0
    chance, done = random.Random(5), 0
    for _attempt in range(5):
        with simulated(*options, "--changes", str(total - done), "--state", str(parts)) as process:
            time.sleep(0.3 + chance.random() * 0.5)  # somewhere between the first batch and the last
            process.end(signal.SIGKILL)
        done = recorded(parts)
    assert run(["simulate", *options, "--changes", str(total - done), "--state", str(parts), "--json"]) == 0
    assert log(parts) == log(whole)
    assert len(log(whole)) == total


def recorded(state: Path) -> int:
    if not (state / "catalog.sqlite").exists():
        return 0
    catalog = SqliteCatalog(state / "catalog.sqlite")
    count = sum(one.last_seq for one in catalog.sets())
    catalog.close()
    return count


def log(state: Path) -> list[object]:
    """All changes, but for their times."""
    catalog = SqliteCatalog(state / "catalog.sqlite")
    rows = catalog.changes("files", limit=1_000_000)
    catalog.close()
    return [(row.seq, row.uri, row.change, row.metadata.hash, row.metadata.length) for row in rows]


def test_resources_are_served_whole_in_parts_and_by_condition(tmp_path: Path) -> None:
    options = ["--resources", "3", "--rate", "0", "--size", "300000", "--hash", "sha-256", "--suffix", "html"]
    with simulated(*options, "--set", "a", "--set", "b", "--port", "0", "--state", str(tmp_path / "state")) as process:
        told = process.listening()
        url = told["url"]
        catalog = SqliteCatalog(tmp_path / "state" / "catalog.sqlite")
        held = catalog.resources("a")[1]
        catalog.close()
        target = f"/a/resources/{held.uri}"
        whole = request(url, target)
        assert whole.status == 200
        assert len(whole.body) == held.metadata.length == 300_000
        (digest,) = parse_hash(held.metadata.hash or "").digests
        assert hashlib.sha256(whole.body).hexdigest() == digest.hex
        assert whole.headers["etag"] == f'"{digest.hex}"'
        assert whole.headers["content-type"] == "text/html"
        assert whole.headers["link"] == f'<{url}/a/capabilitylist.xml>; rel="resourcesync"'
        part = request(url, target, headers={"range": "bytes=299990-"})
        assert (part.status, part.body) == (206, whole.body[-10:])
        part = request(url, target, headers={"range": "bytes=100-199999"})
        assert (part.status, part.body) == (206, whole.body[100:200_000])
        assert request(url, target, headers={"range": "bytes=300000-"}).status == 416
        assert request(url, target, headers={"if-none-match": whole.headers["etag"]}).status == 304
        assert request(url, target, headers={"if-modified-since": whole.headers["last-modified"]}).status == 304
        head = request(url, target, "HEAD")
        assert (head.status, head.body, head.headers["content-length"]) == (200, b"", "300000")
        for missing in ("000/000/000000009.html", "000/000/000000001.pdf", "x", "000/000/"):
            assert request(url, f"/a/resources/{missing}").status == 404
        assert request(url, f"/c/resources/{held.uri}").status == 404
        assert {one["name"]: one["resources"] for one in health(url)["sets"]} == {"a": 2, "b": 1}
        assert process.end(signal.SIGINT)[0] == 130


def test_feeding_ends_in_order_at_a_signal(tmp_path: Path) -> None:
    options = ["--resources", "10", "--rate", "50", "--no-serve", "--state", str(tmp_path)]
    with simulated(*options) as process:
        until(lambda: recorded(tmp_path) > 5)
        status, output = process.end(signal.SIGTERM)
        assert status == 0
        assert json.loads(output)["changes"] == recorded(tmp_path)
    with simulated(*options) as process:
        before = recorded(tmp_path)
        until(lambda: recorded(tmp_path) > before)
        status, output = process.end(signal.SIGINT)
        assert status == 130
        assert json.loads(output)["changes_ever"] == recorded(tmp_path)


def test_a_preset_is_less_than_an_option(tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    words = ["simulate", "--preset", "core", "--scale", "0.001", "--resources", "80", "--duration", "86400"]
    assert run([*words, "--warp", "max", "--no-serve", "--state", str(tmp_path), "--json"]) == 0
    told = json.loads(capfdbinary.readouterr().out)
    assert (told["sets"], told["changes"]) == (4, 135)


def test_other_settings_than_before_end_with_advice(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["simulate", "--resources", "5", "--changes", "0", "--no-serve", "--catalog", str(tmp_path / "c.sqlite")]
    assert run(words) == 0
    assert run([*words, "--seed", "1"]) == 2
    assert "HW-SIM-02" in capsys.readouterr().err


WRONG = {
    "nothing kept": ["--no-serve"],
    "no end": ["--no-serve", "--state", "x", "--warp", "max"],
    "a scale of nothing": ["--scale", "2"],
    "sets by name and number": ["--set", "a", "--sets", "2"],
    "no warp": ["--warp", "fast"],
    "a warp backwards": ["--warp", "-1"],
    "no time": ["--start", "yesterday"],
    "a time before all times": ["--start", "0001-01-01"],
    "a duration without end": ["--duration", "inf"],
    "a duration that is no number": ["--duration", "nan"],
    "no mix": ["--mix", "moved=1"],
    "no size": ["--size", "large"],
    "no hash": ["--hash", "crc"],
    "no set name": ["--set", "A B"],
    "no base URL": ["--base-url", "ftp://x"],
    "every address": ["--host", "0.0.0.0"],
    "below nothing": ["--resources", "-1"],
}


@pytest.mark.parametrize("words", WRONG.values(), ids=WRONG.keys())
def test_what_cannot_be_ends_with_status_2(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(["simulate", "--resources", "1", "--port", "0", *words]) == 2
    assert "do: " in capsys.readouterr().err
