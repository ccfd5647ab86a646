"""What a source tells of the packages on demand that it has sent: in its log, and by `headwater status`."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from headwater.cli import run
from headwater.errors import Exit
from tests.support.serving import Process, request
from tests.support.waiting import until

HOSTILE = "h\x9b2J" + "a" * 300


@contextmanager
def serving(base: Path, *options: str) -> Iterator[tuple[Process, list[int]]]:
    """A process that has sent a page, two resources by their URIs, and nothing to a request that it refuses."""
    folder = base / "files"
    folder.mkdir(exist_ok=True)
    for name in ("a", "b", "c"):
        (folder / name).write_text(name * 1_000)
    state = ("--files", str(folder), "--state", str(base / "state"), "--port", "0")
    with Process(*state, *options) as process:
        url = process.ready()
        home, octets = f"{url.rstrip('/')}/files/resources/", list[int]()
        for asked, agent in (
            ({"page": 0}, {"user-agent": "harvester/1"}),
            ({"uris": [home + "a", home + "nothing", home + "b"]}, {}),
            ({"page": 7}, {"user-agent": "harvester/1"}),
            ({"page": 0}, {"user-agent": HOSTILE}),
        ):
            head = {"content-type": "application/json", **agent}
            answer = request(url, "/files/dump", "POST", head, json.dumps(asked).encode())
            if answer.status == 200:
                octets.append(len(answer.body))
        yield process, octets


def test_the_log_says_what_was_asked_for_and_by_whom(tmp_path: Path) -> None:
    with serving(tmp_path) as (process, octets):
        lines = process.stop()[1].splitlines()
    packages = [line.partition("dump")[2] for line in lines if "/files/dump" in line]
    for told in (
        rf'" 200 {octets[0]} [0-9.]+ms page 0: 3 resources "harvester/1"',
        rf'" 200 {octets[1]} [0-9.]+ms 3 URIs: 2 resources',
        r'" 404 \d+ [0-9.]+ms "harvester/1"',
        rf'" 200 {octets[2]} [0-9.]+ms page 0: 3 resources "h\\x9b2Ja{{196}}"',
    ):
        assert len([one for one in packages if re.fullmatch(told, one)]) == 1, told
    assert all(line.isprintable() and len(line) < 500 for line in lines)


def test_json_has_it_as_fields(tmp_path: Path) -> None:
    with serving(tmp_path, "--log-format", "json") as (process, octets):
        lines = [json.loads(line) for line in process.stop()[1].splitlines()]
    fields = [one["fields"] for one in lines if one["event"] == "request" and one["fields"]["target"] == "/files/dump"]
    told = [(one["octets"], one.get("agent"), one.get("asked"), one.get("resources")) for one in fields]
    assert set(told) > {(octets[0], "harvester/1", "page 0", 3), (octets[1], None, "3 URIs", 2)}
    assert ("harvester/1", None, None) in {one[1:] for one in told}


def test_status_tells_the_last_packages_also_of_a_quiet_server(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    state = str(tmp_path / "state")

    def packages(*options: str) -> list[dict[str, object]]:
        capfd.readouterr()
        assert run(["status", state, "--json", *options]) == Exit.DONE
        found: list[dict[str, object]] = json.loads(capfd.readouterr().out).get("packages", [])
        return found

    with serving(tmp_path, "-q") as (process, octets):
        until(lambda: len(packages()) == 3, what="the packages")
        said = process.stop()[1]
        assert "dump" not in said
    found = packages()
    keys = ("set", "asked", "resources", "octets", "complete", "agent")
    assert {tuple(one.get(key) for key in keys) for one in found} > {
        ("files", "page 0", 3, octets[0], True, "harvester/1"),
        ("files", "3 URIs", 2, octets[1], True, None),
    }
    assert "client" not in found[0], "who is behind an address is a matter of the access log"
    assert run(["status", state]) == Exit.DONE
    text = capfd.readouterr().out
    assert "files: package for harvester/1 at " in text
    assert ", page 0: 3 resources, " in text
    assert "\x9b" not in text
    with (tmp_path / "state" / "packages.ndjson").open("ab") as file:
        file.write(b'{"cut o')
    assert len(packages()) == 3
