"""`headwater serve` as people run it: a process, real folders, signals, restarts."""

from __future__ import annotations

import json
import re
import signal
import socket
import time
from functools import partial
from pathlib import Path

import pytest
from tools.engines.launch import free_port

from headwater.cli import run
from headwater.cli.serve_options import default_state
from headwater.source.source import Source
from headwater.spec.records import ChangeKind
from tests.support.documents import read_bytes
from tests.support.published import look
from tests.support.serving import Process, request
from tests.support.waiting import DEADLINE, until


@pytest.fixture
def files(tmp_path: Path) -> Path:
    folder = tmp_path / "files"
    make(folder)
    return folder


def make(folder: Path) -> None:
    folder.mkdir()
    for number in range(5):
        (folder / f"f{number}.txt").write_text(f"file {number}")


def changes(url: str) -> list[tuple[str, ChangeKind | None]]:
    _, entries, _ = read_bytes(request(url, "/files/changelist/open.xml").body)
    return [(entry.loc.rpartition("/")[2], entry.change) for entry in entries]


def listed(url: str, wanted: tuple[str, ChangeKind]) -> bool:
    return wanted in changes(url)


def fetch(url: str) -> bytes | None:
    head, _, target = url.partition("//")[2].partition("/")
    answer = request(f"http://{head}", "/" + target)
    return answer.body if answer.status == 200 else None


def put(path: Path, text: str) -> None:
    """In one step: nobody finds it empty."""
    aside = path.parent.with_name("aside")
    aside.write_text(text)
    aside.replace(path)


def test_changes_in_the_folder_are_listed(files: Path, tmp_path: Path) -> None:
    """By hints: the next full scan is later than the deadline."""
    with Process("--files", str(files), "--port", "0", "--state", str(tmp_path / "state")) as process:
        url = process.ready()
        assert changes(url) == []
        for name, act, expected in (
            ("new.txt", lambda path: put(path, "new"), ChangeKind.CREATED),
            ("f1.txt", lambda path: put(path, "changed"), ChangeKind.UPDATED),
            ("f2.txt", lambda path: path.unlink(), ChangeKind.DELETED),
        ):
            act(files / name)
            until(partial(listed, url, (name, expected)), what=f"{name} in the open Change List")
        seen = look(fetch, base=url)
        assert len(seen.state) == 5
        status, said = process.stop()
    assert status == 0
    assert "Serving" in said
    assert f" at {url}/\n" in said
    assert said.count("files: 5 resources published\n") == 1
    assert said.count("files: published 1 change\n") == 3
    assert '"GET /files/changelist/open.xml" 200' in said


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_signals_end_it_in_order(files: Path, tmp_path: Path, number: signal.Signals, status: int) -> None:
    with Process("--files", str(files), "--port", "0", "--state", str(tmp_path / "state"), "--quiet") as process:
        process.ready()
        began = time.monotonic()
        ended, said = process.stop(number)
    assert ended == status
    assert time.monotonic() - began < DEADLINE / 4
    assert "GET" not in said
    assert "Traceback" not in said


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_a_signal_between_the_start_of_the_source_and_the_first_answer_ends_it_in_order(
    files: Path, tmp_path: Path, number: signal.Signals, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A source publishes already then: without a handler SIGTERM would end it as kill -9 does."""
    closed: list[bool] = []

    def start(_source: Source) -> None:
        assert callable(signal.getsignal(number)), "it would end the test run"
        signal.raise_signal(number)

    def close(source: Source, *_error: object) -> None:
        closed.append(True)
        leave(source, None, None, None)

    leave = Source.__exit__
    monkeypatch.setattr(Source, "start", start)
    monkeypatch.setattr(Source, "__exit__", close)
    assert run(["serve", "--files", str(files), "--port", "0", "--state", str(tmp_path / "state"), "--quiet"]) == status
    assert closed


def test_requests_under_way_are_finished_at_the_end(files: Path, tmp_path: Path) -> None:
    (files / "big.bin").write_bytes(bytes(30_000_000))
    with Process("--files", str(files), "--port", "0", "--state", str(tmp_path / "state")) as process:
        url = process.ready()
        host, _, port = url.removeprefix("http://").partition(":")
        with socket.create_connection((host, int(port)), timeout=DEADLINE) as client:
            client.sendall(b"GET /files/resources/big.bin HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
            received = len(client.recv(1000))
            process.process.send_signal(signal.SIGTERM)
            while block := client.recv(1 << 20):
                received += len(block)
        assert received > 30_000_000
        process.process.communicate(timeout=DEADLINE)
        assert process.process.returncode == 0


def test_restart_shows_at_once_what_was_published_and_catches_up(files: Path, tmp_path: Path) -> None:
    port = free_port()
    arguments = ("--files", str(files), "--port", str(port), "--state", str(tmp_path / "state"))
    with Process(*arguments) as process:
        url = process.ready()
        before = request(url, "/files/resourcelist.xml")
        process.kill()
    (files / "meanwhile.txt").write_text("written while nobody looked")
    (files / "f0.txt").unlink()
    with Process(*arguments) as process:
        url = process.listening()
        after = request(url, "/files/resourcelist.xml")
        assert after.status == 200, "no 503 after a restart"
        assert after.headers["etag"] == before.headers["etag"]
        wanted = {("meanwhile.txt", ChangeKind.CREATED), ("f0.txt", ChangeKind.DELETED)}
        until(lambda: wanted <= set(changes(url)), what="what happened meanwhile")


def test_several_sets_from_a_file(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / f"{name}.txt").write_text(name)
    config = tmp_path / "source.toml"
    config.write_text(
        'state = "state"\nport = 0\ntitle = "Two sets"\nprofile = "both"\n'
        '[[set]]\nname = "alpha"\nfiles = "a"\ntitle = "The first"\n'
        '[[set]]\nname = "beta"\nfiles = "b"\ndescribedby = "http://example.org/beta"\n'
    )
    with Process(str(config), "--log-format", "json") as process:
        url = process.ready()
        until(lambda: request(url, "/.well-known/resourcesync").body.count(b"<url>") == 2)  # named one after the other
        for name, file in (("alpha", "a.txt"), ("beta", "b.txt")):
            assert list(look(fetch, name, url).state) == [f"{url}/{name}/resources/{file}"]
        page = request(url, "/").body.decode()
        assert "Two sets" in page
        assert "The first" in page
        _, said = process.stop()
    lines = [json.loads(line) for line in said.splitlines()]
    assert {"listening", "request", "stopped"} <= {line["event"] for line in lines}
    assert (tmp_path / "state/catalog.sqlite").exists()


def test_a_set_is_described_as_asked(tmp_path: Path) -> None:
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "a").write_text("a")
    options = ("--hash", "sha-1", "--describedby", "http://example.org/about", "--title", "Letters")
    with Process(
        "--files", str(tmp_path / "files"), "--port", "0", "--state", str(tmp_path / "state"), *options
    ) as one:
        url = one.ready()
        listed = request(url, "/files/resourcelist.xml").body
        assert b"sha-1:" in listed
        assert b"md5:" not in listed
        assert b"http://example.org/about" in request(url, "/files/capabilitylist.xml").body
        assert b"Letters" in request(url, "/").body


def test_a_folder_that_is_missing_is_waited_for(tmp_path: Path) -> None:
    missing = tmp_path / "mount"
    missing.mkdir()
    (missing / "a").write_text("a")
    with Process("--files", str(missing), "--port", "0", "--state", str(tmp_path / "state")) as process:
        url = process.ready()
        missing.rename(tmp_path / "elsewhere")
        (tmp_path / "new").mkdir()
        time.sleep(0.5)
        assert list(look(fetch, base=url).state) == [f"{url}/files/resources/a"], "nothing is deleted for that"


def test_what_fails_is_told_to_strangers_by_its_code_alone(tmp_path: Path) -> None:
    """No page names paths, hosts or indices: the log does."""
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "a.txt").write_text("a")
    config = tmp_path / "source.toml"
    config.write_text(
        'state = "own"\nport = 0\nmetrics = true\n[notify]\nhubs = ["http://127.0.0.1:9/"]\n'
        '[[set]]\nname = "a"\nfiles = "a"\n[[set]]\nname = "b"\nfiles = "not-mounted"\n'
        '[[set]]\nname = "c"\ncopy = "no-copy"\n[[set]]\nname = "d"\n'
        'feed = "dit"\nindex = "http://127.0.0.1:9/secret-index"\n'
    )
    pages = ("/", "/health", "/metrics", "/robots.txt", "/.well-known/resourcesync", "/b/resourcelist.xml", "/none")

    def shown() -> str:
        return "".join(request(url, page).body.decode() for page in pages)

    with Process(str(config)) as process:
        url = process.listening()
        until(lambda: len(set(re.findall(r'"error_code": "(HW-[A-Z]+-\d+)', shown()))) >= 4, what="all that fails")
        (tmp_path / "own" / "catalog.sqlite").unlink()
        (tmp_path / "a" / "b.txt").write_text("b")
        until(lambda: "HW-DB-12" in shown(), what="the fault of the catalog")
        told = shown()
        _, said = process.stop()
    for secret in (str(tmp_path), "not-mounted", "no-copy", "secret-index", "sqlite", "Connection", "HTTPConn"):
        assert secret not in told, secret
    assert str(tmp_path / "not-mounted") in said
    assert "secret-index" in said


def test_a_set_that_fails_does_not_hide_the_others(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "a.txt").write_text("a")
    config = tmp_path / "source.toml"
    config.write_text(
        'state = "state"\nport = 0\n[[set]]\nname = "a"\nfiles = "a"\n[[set]]\nname = "b"\nfiles = "not-mounted"\n'
    )
    with Process(str(config)) as process:
        url = process.listening()
        until(lambda: request(url, "/.well-known/resourcesync").status == 200, what="the Source Description")
        assert list(look(fetch, "a", url).state) == [f"{url}/a/resources/a.txt"]
        assert request(url, "/b/resourcelist.xml").status == 503
        health = request(url, "/health")
        assert (health.status, [one["ready"] for one in json.loads(health.body)["sets"]]) == (200, [True, False])
        (tmp_path / "not-mounted").mkdir()
        (tmp_path / "not-mounted" / "b.txt").write_text("b")
        until(lambda: request(url, "/b/resourcelist.xml").status == 200, what="the other set")
        assert list(look(fetch, "b", url).state) == [f"{url}/b/resources/b.txt"]


@pytest.mark.parametrize("trouble", ["large", "missing", "other settings"])
def test_a_new_set_takes_nothing_away_from_the_others(tmp_path: Path, trouble: str) -> None:
    """A restart with one set more, whose first scan takes long or fails; the others stay named, and health is 200."""
    port = free_port()
    config = tmp_path / "source.toml"
    text = f'state = "state"\nport = {port}\n'
    for name in "ab":
        (tmp_path / name).mkdir()
        (tmp_path / name / f"{name}.txt").write_text(name)
        text += f'[[set]]\nname = "{name}"\nfiles = "{name}"\n'
    config.write_text(text)
    with Process(str(config)) as process:
        process.ready()
        process.stop()
    text += '[[set]]\nname = "new"\nfiles = "new"\n'
    if trouble != "missing":
        (tmp_path / "new").mkdir()
        with open(tmp_path / "new" / "large", "wb") as file:
            file.truncate(1 << 30)
    config.write_text(text.replace('files = "a"', 'files = "a"\nclassic = true') if trouble[0] == "o" else text)

    def named() -> list[str]:
        answer = request(url, "/.well-known/resourcesync")
        return [name for name in ("a", "b", "new") if f"/{name}/capabilitylist.xml" in answer.body.decode()]

    with Process(str(config), "--quiet") as process:
        url = process.listening()
        until(lambda: request(url, "/.well-known/resourcesync").status == 200, seconds=2.0)
        for _look in range(5):
            assert named() == ["a", "b"]
            assert request(url, "/robots.txt").status == 200
            until(lambda: request(url, "/health").status == 200, seconds=2.0)
            answer = request(url, "/new/capabilitylist.xml")
            assert (answer.status, "retry-after" in answer.headers) == (503, True)
            time.sleep(0.2)
        if trouble == "missing":
            (tmp_path / "new").mkdir()
        until(lambda: named() == ["a", "b", "new"], what="the new set", pause=0.2)


REFUSED = [
    ((), 2, "nothing to serve"),
    (("--files", "{files}", "--set", "Bad Name"), 2, "set name"),
    (("--files", "{files}", "--set", "health"), 2, "reserved"),
    (("--files", "{files}", "--base-url", "ftp://x"), 2, "http(s) URL"),
    (("--files", "{files}", "--host", "0.0.0.0"), 2, "--base-url"),
    (("--files", "{files}", "--port", "{taken}"), 6, "in use"),
    (("--files", "{files}/nowhere"), 2, "does not exist"),
    (("{config}", "--files", "{files}"), 2, "--files and CONFIG exclude"),
    (("{config}", "--hash", "md5"), 2, "--hash and CONFIG exclude"),
    (("{config}", "--set", "one"), 2, "--set and CONFIG exclude"),
    (("--files", "{files}", "--hash", "crc32"), 2, "crc32"),
    (("{config}",), 2, "unknown key"),
]


@pytest.mark.parametrize(("arguments", "status", "words"), REFUSED, ids=[case[2] for case in REFUSED])
def test_what_cannot_be_is_said(
    arguments: tuple[str, ...],
    status: int,
    words: str,
    files: Path,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "xdg"))
    config = tmp_path / "bad.toml"
    config.write_text('state = "s"\nprot = 1\n[[set]]\nfiles = "f"\n')
    with socket.create_server(("127.0.0.1", 0)) as taken:
        values = {"files": files, "config": config, "taken": taken.getsockname()[1]}
        assert run(["serve", *(one.format(**values) for one in arguments)]) == status
    assert words in capfd.readouterr().err


def test_state_lies_in_the_users_own_folder(files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "xdg"))
    place = default_state(files, "files")
    assert place.parent == tmp_path / "xdg/headwater"
    assert place != default_state(files, "other") != default_state(tmp_path, "files")


def test_two_servers_do_not_share_a_state(files: Path, tmp_path: Path) -> None:
    arguments = ("--files", str(files), "--port", "0", "--state", str(tmp_path / "state"))
    with Process(*arguments) as first:
        first.ready()
        with Process(*arguments) as second:
            _, said = second.process.communicate(timeout=DEADLINE)
            assert second.process.returncode == 6
            assert b"HW-OWN-01" in said
