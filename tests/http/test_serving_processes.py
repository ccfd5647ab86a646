"""Publishing and serving as processes of their own, and several of them on one socket."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

import pytest

from headwater.cli import run
from tests.http.test_serve import fetch
from tests.support.published import look
from tests.support.serving import Process, request
from tests.support.waiting import DEADLINE, until

pytestmark = pytest.mark.long(10)


@contextmanager
def publishing(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    """`headwater publish … --watch`, once it says that it watches."""
    process = subprocess.Popen(
        [sys.executable, "-m", "headwater", "publish", *arguments, "--watch", "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())["event"] == "watching"
        yield process
    finally:
        process.kill()
        process.communicate()


@pytest.fixture
def world(tmp_path: Path) -> tuple[Path, Path, str]:
    """A configuration for both sides, its folder, and the URL that the documents name."""
    folder = tmp_path / "files"
    folder.mkdir()
    for number in range(5):
        (folder / f"f{number}.txt").write_text(f"file {number}")
    config = tmp_path / "source.toml"
    base = "http://source.example/sync"
    config.write_text(
        f'state = "state"\ndocuments = "shared"\nbase_url = "{base}"\n\n[[set]]\nname = "files"\nfiles = "files"\n'
    )
    return config, folder, base


def _at(server: str, base: str, url: str) -> bytes | None:
    assert url.startswith(base)
    return fetch(server + url.removeprefix(base))


def _is_healthy(server: str) -> bool:
    return request(server, "/health").status == 200


def _sees(server: str, base: str, name: str) -> bool:
    return any(uri.endswith(f"/{name}") for uri in look(partial(_at, server, base), base=base).state)


def test_one_publishes_and_any_number_serve(world: tuple[Path, Path, str]) -> None:
    config, folder, base = world
    arguments = (str(config), "--no-publish", "--port", "0")
    with Process(*arguments) as one, Process(*arguments) as two:
        assert one.listening() == two.listening() == base
        servers = [one.address, two.address]
        assert [request(server, "/files/resourcelist.xml").status for server in servers] == [503, 503], "nothing yet"
        with publishing(str(config)) as publisher:
            for server in servers:
                until(partial(_is_healthy, server), what="the first publication")
                assert request(server, "/files/resources/f1.txt").body == b"file 1"
            (folder / "new.txt").write_text("new")
            for server in servers:
                until(partial(_sees, server, base, "new.txt"), what="the new file in every server")
            publisher.kill()
        assert request(servers[0], "/files/resources/new.txt").body == b"new", "served on without the publisher"
        (folder / "later.txt").write_text("later")
        with publishing(str(config)) as publisher:
            until(partial(_sees, servers[1], base, "later.txt"), what="what the next publisher recorded")
            publisher.send_signal(signal.SIGTERM)
            assert publisher.wait(DEADLINE) == 0
        assert one.stop()[0] == two.stop()[0] == 0


def test_two_publishers_do_not_share_a_state(world: tuple[Path, Path, str]) -> None:
    config, _folder, _base = world
    with publishing(str(config)):
        assert run(["publish", str(config)]) == 6


def test_a_quiet_publisher_says_only_what_is_wrong(world: tuple[Path, Path, str]) -> None:
    config, folder, base = world
    shared = config.parent / "shared"
    with publishing(str(config), "-q") as publisher:
        (folder / "new.txt").write_text("new")
        until(lambda: (shared / "files" / "changelist.xml").is_file(), what="the first publication")
        read = partial(_read, shared, base)
        until(lambda: len(look(read, base=base, midway=True).state) == 6, what="the new file")
        (folder / "out").symlink_to("/etc")
        time.sleep(1)
        publisher.send_signal(signal.SIGTERM)
        out, said = publisher.communicate(timeout=DEADLINE)
        assert (publisher.returncode, out) == (0, "")
        assert [line.rpartition(" ")[2] for line in said.splitlines()] in ([], ["[HW-ING-11]"])


def _read(shared: Path, base: str, url: str) -> bytes | None:
    path = shared / url.removeprefix(f"{base}/")
    return path.read_bytes() if path.is_file() else None


def test_a_configuration_is_published_once(world: tuple[Path, Path, str], capsys: pytest.CaptureFixture[str]) -> None:
    config, _folder, base = world
    assert run(["publish", str(config), "--dry-run", "--json"]) == 0
    assert [one["created"] for one in json.loads(capsys.readouterr().out)["sets"]] == [5]
    assert run(["publish", str(config), "--json"]) == 0
    (told,) = json.loads(capsys.readouterr().out)["sets"]
    assert (told["set"], told["resources"]) == ("files", 5)
    shared = config.parent / "shared"
    assert len(look(lambda url: (shared / url.removeprefix(base + "/")).read_bytes(), base=base).state) == 5


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["publish"], "--files DIR is missing"),
        (["publish", "CONFIG", "--to", "x"], "--to and CONFIG exclude each other"),
        (["publish", "CONFIG", "--watch", "--dry-run"], "--watch and --dry-run exclude"),
        (["serve", "--files", ".", "--no-publish"], "no base_url"),
    ],
)
def test_what_cannot_be_is_said(
    world: tuple[Path, Path, str], capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    assert run([str(world[0]) if one == "CONFIG" else one for one in arguments]) == 2
    assert said in capsys.readouterr().err


def _children(pid: int) -> set[int]:
    found = subprocess.run(["ps", "-o", "pid=", "--ppid", str(pid)], capture_output=True, text=True, check=False)
    return {int(one) for one in found.stdout.split()}


def _serving(pid: int) -> set[int]:
    return {one for one in _children(pid) if b"spawn_main" in _command(one)}


def _command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def test_several_processes_serve_one_socket(world: tuple[Path, Path, str]) -> None:
    _config, folder, _base = world
    with Process(
        "--files", str(folder), "--port", "0", "--state", str(folder.parent / "own"), "--workers", "3"
    ) as process:
        url = process.ready()
        parent = process.process.pid
        until(lambda: len(_serving(parent)) == 2, what="two more processes")
        assert all(request(url, "/files/resources/f1.txt").body == b"file 1" for _ in range(30))
        victim = next(iter(_serving(parent)))
        os.kill(victim, signal.SIGKILL)
        until(lambda: len(_serving(parent) - {victim}) == 2, what="another one in its place")
        before = _serving(parent)
        status, said = process.stop()
        assert status == 0
        assert "HW-SRV-03" in said
        until(lambda: not any(_command(one) for one in before), what="their end")


def test_none_imports_from_the_current_folder(
    world: tuple[Path, Path, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be the one that is published, where others may place files."""
    _config, folder, _base = world
    proof = tmp_path / "proof"
    planted = ("multiprocessing", "signal", "struct", "socket", "json", "selectors", "uvicorn", "yaml")
    for name in planted:
        (folder / f"{name}.py").write_text(f"open({str(proof)!r}, 'a').write('{name}')\nraise ImportError\n")
    monkeypatch.chdir(folder)
    with Process("--files", ".", "--port", "0", "--state", str(tmp_path / "own"), "--workers", "2") as process:
        url = process.ready()
        until(lambda: len(_serving(process.process.pid)) == 1, what="one more process")
        assert all(request(url, "/files/resources/struct.py").status == 200 for _ in range(10))
        status, said = process.stop()
    assert (status, "HW-SRV-03" in said) == (0, False)
    assert not proof.exists()
