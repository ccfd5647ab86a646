"""Long bodies over runs: what an interruption, a kill or a broken connection has left is gone on with, and verified."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tools.engines.launch import free_port

from headwater.cli import run
from headwater.errors import Interrupted
from headwater.sync.copy.destination_folder import LONGEST_SECONDS
from headwater.sync.transfer import resources
from headwater.transport.fetch import TransportOptions
from headwater.transport.transport import Transport
from tests.support.copying import DONE, FAILED, check, go, is_clean, run_over, tree
from tests.support.fake_source import Handler, Reply, Site, Source, at
from tests.support.serving import face
from tests.support.waiting import until

BIG = random.Random(11).randbytes(3_000_000)
OTHER = random.Random(12).randbytes(3_000_000)
PATH = "/set/resources/big"
CUT = 1_200_000


class Ranged:
    """`body` by ranges; a request without one gets `cut` octets at most, then `then` happens."""

    def __init__(self, body: bytes = BIG, cut: int | None = None, then: Callable[[], object] = lambda: None) -> None:
        self.body, self.cut, self.then = body, cut, then
        self.tag = '"one"'
        self.more: dict[str, str] = {}
        self.refuses_rest = False
        self.asked: list[str | None] = []

    def __call__(self, handler: Handler) -> Reply:
        wanted = handler.headers.get("Range")
        self.asked.append(wanted)
        if wanted and self.refuses_rest:
            return Reply(b"", 503)
        start = 0
        if wanted and handler.headers.get("If-Range") in (None, self.tag):
            start = int(wanted.removeprefix("bytes=").rstrip("-"))
        return Reply(script=lambda handler: self.send(handler, start))

    def send(self, handler: Handler, start: int) -> None:
        left = self.body[start:]
        fields = {"Content-Length": str(len(left)), "ETag": self.tag, **self.more}
        if start:
            fields["Content-Range"] = f"bytes {start}-{len(self.body) - 1}/{len(self.body)}"
        lines = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
        handler.send(f"HTTP/1.1 {'206 P' if start else '200 OK'}\r\n{lines}\r\n".encode())
        handler.send(left if start or self.cut is None else left[: self.cut])
        if not start and self.cut is not None:
            self.then()


@pytest.fixture
def big(source: Source) -> tuple[Site, Ranged]:
    """A source of one long and one short file; the long one breaks off, and its rest is refused."""
    site = Site(source)
    site.put("small", b"small")
    site.put("big", BIG)
    ranged = Ranged(cut=CUT)
    ranged.refuses_rest = True
    source.pages[PATH] = ranged
    return site.publish(), ranged


def the_part(dest: Path) -> Path:
    (found,) = (dest / ".headwater" / "tmp").glob("part-*")  # a kill may leave other files, which the next run removes
    return found


def heal(ranged: Ranged) -> None:
    ranged.refuses_rest, ranged.cut = False, None
    ranged.asked.clear()


def test_a_broken_file_is_gone_on_with_by_the_next_run(source: Source, big: tuple[Site, Ranged], dest: Path) -> None:
    _, ranged = big
    ran = go(source.base, dest)
    assert (ran.status, ran.one.failed) == (FAILED, 1)
    assert tree(dest) == {"small": b"small"}
    assert the_part(dest).read_bytes() == BIG[:CUT]
    assert check(source.base, dest).sets[0].missing == 1
    heal(ranged)
    ran = go(source.base, dest)
    assert (ran.status, ran.one.octets) == (DONE, len(BIG) - CUT)  # what came in this run
    assert ranged.asked == [f"bytes={CUT}-"]
    assert tree(dest) == {"small": b"small", "big": BIG}
    assert is_clean(dest)
    assert check(source.base, dest).verdict == "in sync"


def test_a_stopped_run_leaves_what_has_come(source: Source, big: tuple[Site, Ranged], dest: Path) -> None:
    _, ranged = big
    stop, goes_on = threading.Event(), threading.Event()

    def hang() -> None:
        stop.set()
        goes_on.wait(60)

    ranged.then = hang
    options = TransportOptions(stopped=lambda: stop.is_set() and any_part(dest) >= CUT)
    with Transport(options) as wire, pytest.raises(Interrupted):
        run_over(wire, source.base, dest)
    goes_on.set()
    assert the_part(dest).stat().st_size == CUT
    heal(ranged)
    assert go(source.base, dest).status == DONE
    assert ranged.asked == [f"bytes={CUT}-"]
    assert tree(dest)["big"] == BIG


def any_part(dest: Path) -> int:
    found = list((dest / ".headwater" / "tmp").glob("part-*"))
    return found[0].stat().st_size if found else 0


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_a_killed_process_leaves_what_has_come(source: Source, big: tuple[Site, Ranged], dest: Path, end) -> None:
    _, ranged = big
    goes_on = threading.Event()
    ranged.then = lambda: goes_on.wait(300)
    command = [sys.executable, "-c", "from headwater.cli import main; main()", "sync", source.base, str(dest)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        until(lambda: any_part(dest) == CUT, 240)
    finally:
        process.send_signal(end)
        process.wait(120)
        goes_on.set()
    assert the_part(dest).read_bytes() == BIG[:CUT]
    heal(ranged)
    assert go(source.base, dest).status == DONE
    assert ranged.asked == [f"bytes={CUT}-"]
    assert tree(dest)["big"] == BIG
    assert is_clean(dest)


def spoil(part: Path, ranged: Ranged, how: str) -> None:
    if how == "damaged":
        part.write_bytes(BIG[: CUT - 4096] + b"\0" * 4096)
    elif how == "another body under the same tag":
        ranged.body = OTHER
    elif how == "complete already":
        part.write_bytes(BIG)
    elif how == "longer than the whole":
        part.write_bytes(BIG + b"more")
    elif how == "empty":
        part.write_bytes(b"")
    elif how == "a link":
        part.rename(part.parent.parent / "elsewhere")
        part.symlink_to(part.parent.parent / "elsewhere")


@pytest.mark.parametrize(
    ("how", "asked"),
    [
        ("damaged", [f"bytes={CUT}-", None]),
        ("complete already", [f"bytes={len(BIG)}-", None]),
        ("longer than the whole", [f"bytes={len(BIG) + 4}-", None]),
        ("empty", [None]),
        ("a link", [None]),
    ],
)
def test_a_spoilt_part_does_no_harm(source: Source, big: tuple[Site, Ranged], dest: Path, how: str, asked) -> None:
    _, ranged = big
    go(source.base, dest)
    spoil(the_part(dest), ranged, how)
    heal(ranged)
    assert go(source.base, dest).status == DONE
    assert ranged.asked == asked
    assert tree(dest)["big"] == BIG
    assert is_clean(dest)


@pytest.mark.parametrize("later", [False, True])
def test_two_states_put_together_are_never_placed(
    source: Source, big: tuple[Site, Ranged], dest: Path, later: bool
) -> None:
    """A server that keeps its tag while the octets change; also where it says that they are newer than listed."""
    _, ranged = big
    go(source.base, dest)
    heal(ranged)
    ranged.body = OTHER
    if later:
        ranged.more = {"Last-Modified": "Tue, 01 Jan 2030 00:00:00 GMT"}
    go(source.base, dest)
    assert ranged.asked[:2] == [f"bytes={CUT}-", None]
    assert tree(dest).get("big") in (None, OTHER)  # what DST-5.3 makes of a whole answer is not decided here


def test_a_list_that_says_something_else_begins_anew(source: Source, big: tuple[Site, Ranged], dest: Path) -> None:
    site, ranged = big
    go(source.base, dest)
    site.put("big", OTHER)
    source.pages[PATH] = ranged
    site.publish()
    heal(ranged)
    ranged.body = OTHER  # and the tag is what it was
    assert go(source.base, dest).status == DONE
    assert ranged.asked == [None]
    assert tree(dest)["big"] == OTHER


def test_a_part_of_what_is_gone_is_removed(source: Source, big: tuple[Site, Ranged], dest: Path) -> None:
    site, _ = big
    go(source.base, dest)
    site.drop("big")
    site.publish()
    assert go(source.base, dest).status == DONE
    assert is_clean(dest)


def test_a_part_of_what_is_not_there_any_more_is_removed(source: Source, big: tuple[Site, Ranged], dest: Path) -> None:
    go(source.base, dest)
    source.pages[PATH] = Reply(b"", 404)
    assert go(source.base, dest).status == FAILED
    assert is_clean(dest)


@pytest.mark.parametrize("what", ["too old", "of no resource", "of an earlier version"])
def test_what_is_of_no_use_is_swept(source: Source, big: tuple[Site, Ranged], dest: Path, what: str) -> None:
    go(source.base, dest)
    part = the_part(dest)
    if what == "too old":
        before = time.time() - LONGEST_SECONDS - 100
        os.utime(part, (before, before))
    else:
        shutil.copy(part, part.with_name("part-1-" + "0" * 32))
    if what == "of an earlier version":
        part.rename(part.with_name("part-" + "0" * 32))
    source.pages[PATH] = Reply(b"", 500)
    go(source.base, dest)
    assert is_clean(dest) or what == "of no resource"
    assert not part.with_name("part-1-" + "0" * 32).exists()


def test_the_parts_of_a_set_that_is_forgotten_are_removed(source: Source, big: tuple[Site, Ranged], dest: Path) -> None:
    go(source.base, dest)
    assert run(["forget", str(dest), "--set", "set", "--dry-run"]) == 0
    assert the_part(dest).exists()
    assert run(["forget", str(dest), "--set", "set"]) == 0
    assert any_part(dest) == 0


def test_parts_are_bounded(source: Source, dest: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resources, "MOST_PARTS", 2)
    site = Site(source)
    for number in range(5):
        site.put(f"big{number}", BIG)
        ranged = source.pages[f"/set/resources/big{number}"] = Ranged(cut=CUT)
        ranged.refuses_rest = True
    site.publish()
    assert go(source.base, dest).one.failed == 5
    kept = list((dest / ".headwater" / "tmp").iterdir())
    assert 1 <= len(kept) <= 2


@pytest.mark.parametrize("digest", ["", '<rs:md hash="quick-1:00"/>'])
def test_without_a_hash_nothing_is_kept(source: Source, big: tuple[Site, Ranged], dest: Path, digest: str) -> None:
    """Nothing tells afterwards whether what was put together is one state; nor does a hash that cannot be computed."""
    site, ranged = big
    site.publish_list(
        [site.resource("small"), f"<url><loc>{site.uri('big')}</loc><lastmod>{at(0)}</lastmod>{digest}</url>"]
    )
    site.publish_changes(site.clock, entries=[])
    go(source.base, dest)
    assert any_part(dest) == 0
    heal(ranged)
    assert go(source.base, dest).status == DONE
    assert ranged.asked == [None]
    assert tree(dest)["big"] == BIG


def test_a_mirror_gets_no_part_of_another(source: Source, big: tuple[Site, Ranged], dest: Path) -> None:
    site, _ = big
    mirror = source.pages["/mirror"] = Ranged()
    link = f'<rs:ln rel="duplicate" href="{source.base}/mirror"/>'
    site.publish_list([site.resource("small"), site.resource("big").replace("</url>", link + "</url>")])
    site.publish_changes(site.clock, entries=[])
    assert go(source.base, dest).status == DONE
    assert mirror.asked == [None]
    assert tree(dest)["big"] == BIG
    assert is_clean(dest)


def test_a_run_that_changes_nothing_touches_no_part(source: Source, big: tuple[Site, Ranged], dest: Path) -> None:
    go(source.base, dest)
    before = the_part(dest).stat().st_mtime_ns
    go(source.base, dest, dry_run=True)
    check(source.base, dest)
    assert the_part(dest).stat().st_mtime_ns == before


def test_a_stop_in_the_middle_of_a_file_from_our_own_server(tmp_path: Path) -> None:
    """`headwater serve` answers Range and If-Range, and its log says so."""
    files, dest = tmp_path / "files", tmp_path / "copy"
    files.mkdir()
    body = random.Random(14).randbytes(6 << 20)
    (files / "big.bin").write_bytes(body)
    with face(files, tmp_path / "state") as server:

        def has_strong_tag() -> bool:
            """What was changed just now might change once more unseen: its tag is weak until it is looked at later."""
            server.source.run_once()
            return server.get("/files/resources/big.bin", "HEAD").headers["etag"].startswith('"')

        until(has_strong_tag, 240)
        passed = [0.0]  # time that passes only when it is slept through: a mebibyte comes in each second of it
        options = TransportOptions(
            octets_per_second=1 << 20,
            stopped=lambda: any_part(dest) >= 2 << 20,
            monotonic=lambda: passed[0],
            sleep=lambda seconds: passed.__setitem__(0, passed[0] + seconds),
        )
        with Transport(options) as wire, pytest.raises(Interrupted):
            run_over(wire, server.url, dest)
        kept = the_part(dest).stat().st_size
        assert go(server.url, dest).status == DONE
        told = [(one.status, one.octets) for one in server.served if "big.bin" in one.target]
    assert tree(dest)["big.bin"] == body
    assert told[-1] == (206, len(body) - kept)


NGINX = shutil.which("nginx") or next((p for p in ("/usr/sbin/nginx",) if os.path.exists(p)), None)
CONFIG = """
daemon off; master_process off; worker_processes 1; pid {folder}/pid; error_log {folder}/error;
events {{ worker_connections 64; }}
http {{
  log_format ranges '$request_uri $status $http_range $http_if_range'; access_log {folder}/access ranges;
  client_body_temp_path {folder}/b; proxy_temp_path {folder}/p; fastcgi_temp_path {folder}/f;
  uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s;
  server {{ listen 127.0.0.1:{port}; root {root}; default_type application/octet-stream;
    location / {{ limit_rate_after 4m; limit_rate 1k; if ($http_range) {{ set $limit_rate 0; }} }} }}
}}
"""


@pytest.mark.skipif(NGINX is None, reason="nginx is not installed (apt-get install nginx-light)")
@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGINT])
def test_a_kill_in_the_middle_of_a_file_from_nginx(tmp_path: Path, end: signal.Signals) -> None:
    files, site, dest, port = tmp_path / "files", tmp_path / "site", tmp_path / "copy", free_port()
    files.mkdir()
    body = random.Random(13).randbytes(12 << 20)
    (files / "big.bin").write_bytes(body)
    os.utime(files / "big.bin", (1_700_000_000, 1_700_000_000))
    from headwater import publish_folder

    publish_folder(files, site, base_url=f"http://127.0.0.1:{port}")
    (tmp_path / "nginx").mkdir()
    config = tmp_path / "nginx" / "conf"
    config.write_text(CONFIG.format(folder=config.parent, port=port, root=site))
    assert NGINX is not None
    server = subprocess.Popen([NGINX, "-c", str(config), "-p", str(config.parent)], stderr=subprocess.DEVNULL)
    try:
        until(lambda: answers(port), 240)
        url = f"http://127.0.0.1:{port}"
        command = [sys.executable, "-c", "from headwater.cli import main; main()", "sync", url, str(dest)]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            until(lambda: any_part(dest) >= 4_000_000, 240)
        finally:
            process.send_signal(end)
            process.wait(120)
        kept = the_part(dest).stat().st_size
        assert go(url, dest).status == DONE
        log = (config.parent / "access").read_text().splitlines()
    finally:
        server.terminate()
        server.wait(60)
    assert tree(dest)["big.bin"] == body
    (rest,) = (line for line in log if "big.bin" in line and " 206 " in line)
    assert f"bytes={kept}-" in rest
    assert is_clean(dest)


def answers(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=10):
        return True
    return False
