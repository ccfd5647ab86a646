"""Publishing and serving as processes of their own, and several of them on one socket."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager, suppress
from functools import partial
from http.client import HTTPConnection
from operator import truth
from pathlib import Path
from typing import cast
from urllib.parse import urlsplit

import pytest

from headwater.cli import run
from headwater.http import workers
from tests.http.test_serve import fetch
from tests.support.published import look
from tests.support.serving import Process, request
from tests.support.waiting import DEADLINE, until

pytestmark = pytest.mark.long(30)


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
        until(lambda: (shared / ".well-known" / "resourcesync").is_file(), what="the first publication")
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
        (["publish", "CONFIG", "--files", "x"], "--files and CONFIG exclude each other"),
        (["publish", "CONFIG", "--to", "x"], "documents does not go with a static tree"),
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


@pytest.mark.parametrize("publishes", [True, False])
def test_every_process_of_a_socket_says_the_same(world: tuple[Path, Path, str], *, publishes: bool) -> None:
    """Only the first one knows what fails: whoever is asked says what it says, also that it cannot record."""
    config, folder, _base = world
    config.write_text(f"metrics = true\n{config.read_text()}rescan_seconds = 1\n")
    assert run(["publish", str(config), "--quiet"]) == 0
    with Process(str(config), "--port", "0", "--workers", "4", *([] if publishes else ["--no-publish"])) as process:
        process.listening()
        url, parent = process.address, process.process.pid
        until(lambda: len(_serving(parent)) == 3, what="three more processes")
        until(lambda: all(_is_healthy(url) for _ in range(20)), what="their health")
        first = request(url, "/health").body
        if not publishes:
            assert {request(url, "/health").body for _ in range(20)} == {first}
            return
        for left in (config.parent / "state").glob("catalog.sqlite*"):
            left.unlink()
        (folder / "f1.txt").write_text("changed")
        until(lambda: not _is_healthy(url), what="the failure")
        for _ in range(20):
            answer = request(url, "/health")
            told = json.loads(answer.body)
            assert (answer.status, told["well"], told["turn"]) == (503, False, "ours")
            assert [one["error_code"] for one in told["sets"]] == ["HW-DB-12"]
        time.sleep(1.1)  # the page may be a second old
        for _ in range(20):
            figures = request(url, "/metrics").body.decode()
            assert re.search(r'headwater_set_failures\{set="files"\} [1-9]', figures), figures
            assert 'headwater_set_held_back{set="files"} 0' in figures


def test_a_first_process_that_is_busy_delays_none_of_the_others(world: tuple[Path, Path, str]) -> None:
    """Whoever asks for figures meanwhile holds no thread that finds resources."""
    config, _folder, _base = world
    config.write_text(f"metrics = true\n{config.read_text()}")
    assert run(["publish", str(config), "--quiet"]) == 0
    with Process(str(config), "--port", "0", "--workers", "2", "--no-publish") as process:
        process.listening()
        url, parent = process.address, process.process.pid
        until(lambda: len(_serving(parent)) == 1, what="one more process")
        until(lambda: all(_is_healthy(url) for _ in range(20)), what="their health")
        os.kill(parent, signal.SIGSTOP)
        try:
            with ThreadPoolExecutor(8) as askers:
                asked = [askers.submit(_status_in_a_second, url, "/metrics") for _ in range(8)]
                list(map(Future.result, asked))
                found = [_status_in_a_second(url, "/files/resources/f1.txt") for _ in range(20)]
            assert 200 in found
            assert set(found) <= {200, None}, "None is one of the process that is stopped"
        finally:
            os.kill(parent, signal.SIGCONT)


def _status_in_a_second(url: str, path: str) -> int | None:
    address = urlsplit(url)
    connection = HTTPConnection(address.hostname or "", address.port, timeout=1)
    with closing(connection), suppress(TimeoutError):
        connection.request("GET", path)
        return connection.getresponse().status
    return None


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


HANGUP = {
    "serve": "serve --files files --port 0 --state own --json",
    "serve with more processes": "serve --files files --port 0 --state own --json --workers 2",
    "serve with a hub": "serve --files files --port 0 --state own --json --hub",
    "publish": "publish --files files --state own --to tree --base-url http://s.example/ --watch --json",
    "hub": "hub --listen 127.0.0.1:0 --state own --json",
    "simulate": "simulate --port 0 --state own --resources 10 --json",
    "sync": "sync --follow 60 URL copy --json",
    "sync by push": "sync --follow 60 --push URL copy --json",
}


@pytest.mark.parametrize("case", HANGUP)
def test_sighup_ends_nothing(world: tuple[Path, Path, str], case: str) -> None:
    """Log rotation and service managers send it, to all processes of a service; it is told."""
    _config, folder, _base = world
    with ExitStack() as stack:
        url = ""
        if case.startswith("sync"):
            source = Process("--files", str(folder), "--port", "0", "--state", str(folder.parent / "source"), "--hub")
            url = stack.enter_context(source).ready()
        words = [url if word == "URL" else word for word in HANGUP[case].split()]
        process = stack.enter_context(
            subprocess.Popen(
                [sys.executable, "-m", "headwater", *words],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                cwd=folder.parent,
                preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL),
            )
        )
        stack.callback(process.kill)
        assert process.stdout is not None
        assert process.stdout.readline()
        count = 2 if "more" in case else 1
        until(lambda: len(_serving(process.pid)) == count - 1, what="the other process")
        time.sleep(0.5 * count)  # until it is at work
        for _ in range(2):
            for pid in (process.pid, *_children(process.pid)):
                os.kill(pid, signal.SIGHUP)
            time.sleep(0.3)
        assert process.poll() is None
        assert len(_serving(process.pid)) == count - 1
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=DEADLINE)
        assert process.returncode == 0, said
        assert "[HW-SRV-15]" in said
        assert "HW-SRV-03" not in said


def test_they_end_with_the_first_one_however_it_ends(world: tuple[Path, Path, str]) -> None:
    _config, folder, _base = world
    arguments = ("--files", str(folder), "--port", "0", "--state", str(folder.parent / "own"), "--workers", "2")
    with Process(*arguments) as process:
        process.ready()
        parent = process.process.pid
        until(lambda: len(_serving(parent)) == 1, what="one more process")
        before = _serving(parent)
        time.sleep(0.5)  # until it watches its parent
        process.kill()
        until(lambda: not any(_command(one) for one in before), what="its end")


def test_one_that_cannot_open_the_catalog_says_why(world: tuple[Path, Path, str]) -> None:
    """What it meets is a fault of the store, told as such, and no end of the program."""
    _config, folder, _base = world
    own = folder.parent / "own"
    with Process("--files", str(folder), "--port", "0", "--state", str(own), "--workers", "2") as process:
        url = process.ready()
        parent = process.process.pid
        until(lambda: len(_serving(parent)) == 1, what="one more process")
        (own / "catalog.sqlite").unlink()
        (own / "catalog.sqlite").mkdir()
        (victim,) = _serving(parent)
        os.kill(victim, signal.SIGKILL)
        until(lambda: _serving(parent) - {victim}, what="another one in its place")
        until(lambda: not _serving(parent), what="its end")
        until(lambda: _serving(parent), what="one more: the end of the one before has been told")
        assert request(url, "/files/resources/f1.txt").body == b"file 1"
        status, said = process.stop()
        assert status == 0
        assert "HW-DB-07" in said
        assert "Traceback" not in said
        assert "ended with status 6" in said


def test_one_that_ends_again_and_again_is_started_after_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "_PAUSE_SECONDS", 0.5)
    monkeypatch.setenv("PYTHONSAFEPATH", "1")  # `start` sets it, for good
    ends = list[float]()
    target = cast("Callable[..., None]", truth)  # it returns at once
    processes = workers.ServingProcesses(target, (), 2, "HW-SRV-03", {}, lambda _notice: ends.append(time.monotonic()))
    processes.start()
    try:
        until(lambda: len(ends) >= 8, what="their ends")
    finally:
        processes.stop()
    assert ends[7] - ends[0] > 3 * 0.4


def test_the_first_one_decides_what_an_interruption_means(world: tuple[Path, Path, str]) -> None:
    _config, folder, _base = world
    arguments = ("--files", str(folder), "--port", "0", "--state", str(folder.parent / "own"), "--workers", "3")
    with Process(*arguments) as process:
        process.ready()
        parent = process.process.pid
        until(lambda: len(_serving(parent)) == 2, what="two more processes")
        before = _serving(parent)
        for one in before:  # as a terminal does, at whatever they are
            os.kill(one, signal.SIGINT)
        time.sleep(0.5)
        assert _serving(parent) == before
        status, said = process.stop(signal.SIGINT)
        assert status == 130
        assert "HW-SRV-03" not in said


def test_they_end_with_the_first_one_while_they_begin(
    world: tuple[Path, Path, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the port stays taken for as long as they wait for the catalog of a cluster."""
    _config, folder, _base = world
    aside = tmp_path / "aside"
    aside.mkdir()
    monkeypatch.setenv("TMPDIR", str(aside))
    arguments = ("--files", str(folder), "--port", "0", "--state", str(folder.parent / "own"), "--workers", "2")
    with Process(*arguments) as process:
        process.ready()
        parent = process.process.pid
        until(lambda: len(_serving(parent)) == 1, what="one more process")
        (note,) = aside.glob("headwater-*/config.json")
        note.unlink()
        os.mkfifo(note)  # nobody writes there: the next one waits
        victim = next(iter(_serving(parent)))
        os.kill(victim, signal.SIGKILL)
        until(lambda: _serving(parent) - {victim}, what="another one in its place")
        (waiting,) = _serving(parent) - {victim}
        with _waited_for(note):
            process.kill()
            until(lambda: not _command(waiting), what="its end")


@contextmanager
def _waited_for(fifo: Path) -> Iterator[None]:
    """Once somebody reads from it; they get nothing, and no end."""
    opened: list[int] = []

    def is_read() -> bool:
        with suppress(OSError):  # nobody does
            opened.append(os.open(fifo, os.O_WRONLY | os.O_NONBLOCK))
        return bool(opened)

    until(is_read, what="a reader")
    try:
        yield
    finally:
        os.close(opened[0])
