"""The server against a bare uvicorn application that returns the same octets: what being right costs."""

from __future__ import annotations

import contextlib
import gzip
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path

import pycurl

from bench.rows import Row, row

CONNECTIONS = 8
BARE = """
import sys, uvicorn, socket
status, path, coded = int(sys.argv[1]), sys.argv[2], sys.argv[3]
body = open(path, "rb").read() if status == 200 else b""
headers = [(b"content-type", b"application/xml"), (b"etag", b'"x"'), (b"cache-control", b"no-cache")]
if status == 200: headers.append((b"content-length", str(len(body)).encode()))
if coded: headers.append((b"content-encoding", b"gzip"))
start = {"type": "http.response.start", "status": status, "headers": headers}
end = {"type": "http.response.body", "body": body}
async def app(scope, receive, send):
    await send(start); await send(end)
listener = socket.create_server(("127.0.0.1", 0)); print(f"http://127.0.0.1:{listener.getsockname()[1]}", flush=True)
options = {"loop": "uvloop", "http": "httptools", "lifespan": "off", "ws": "none", "log_config": None}
config = uvicorn.Config(app, access_log=False, **options)
uvicorn.Server(config).run(sockets=[listener])
"""
OURS = """
import sys
from pathlib import Path
from headwater.http.app import Application
from headwater.source.config import SetConfig, SourceConfig
from headwater.http.server import make_server
from headwater.http.server import address_url, listen
from headwater.source.source import Source
listener = listen("127.0.0.1", 0)
config = SourceConfig(state=sys.argv[2], sets=(SetConfig(files=sys.argv[1]),), base_url=address_url(listener))
with Source(config) as source:
    source.run_once()
    print(address_url(listener), flush=True)
    make_server(Application(source, {"files": sys.argv[1]})).run(sockets=[listener])
"""


@contextlib.contextmanager
def served(code: str, *arguments: str) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    process = subprocess.Popen([sys.executable, "-c", code, *arguments], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield process.stdout.readline().strip(), process
    finally:
        process.kill()
        process.communicate()


def cpu_seconds(process: subprocess.Popen[str]) -> float:
    fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def load(url: str, headers: list[str], expected: int, count: int) -> None:
    """So many requests, a few at a time, over kept connections; raises when an answer is not the expected one."""
    multi, idle, left, running = pycurl.CurlMulti(), [], count, 0
    for _ in range(CONNECTIONS):
        handle = pycurl.Curl()
        handle.setopt(pycurl.URL, url)
        handle.setopt(pycurl.HTTPHEADER, headers)
        handle.setopt(pycurl.WRITEFUNCTION, len)
        idle.append(handle)
    while left or running:
        while idle and left:
            multi.add_handle(idle.pop())
            left, running = left - 1, running + 1
        multi.perform()
        _, done, failed = multi.info_read()
        assert not failed, failed
        for handle in done:
            assert handle.getinfo(pycurl.RESPONSE_CODE) == expected
            multi.remove_handle(handle)
            idle.append(handle)
            running -= 1
        if not done:
            multi.select(0.05)


def fetched(url: str, *headers: str) -> tuple[bytes, str]:
    body, lines = BytesIO(), []
    handle = pycurl.Curl()
    handle.setopt(pycurl.URL, url)
    handle.setopt(pycurl.HTTPHEADER, list(headers))
    handle.setopt(pycurl.WRITEDATA, body)
    handle.setopt(pycurl.HEADERFUNCTION, lambda line: lines.append(line.decode("latin-1")))
    handle.perform()
    tags = [line.partition(":")[2].strip() for line in lines if line.lower().startswith("etag:")]
    return body.getvalue(), tags[0]


def contest(
    ours: tuple[str, subprocess.Popen[str]],
    theirs: tuple[str, subprocess.Popen[str]],
    target: str,
    headers: list[str],
    expected: int,
    count: int,
    rounds: int,
) -> tuple[float, float, float, float]:
    """Seconds a request of both (the best of the rounds, in turns), and server CPU seconds a request of both."""
    taken: list[list[float]] = [[], []]
    used: list[list[float]] = [[], []]
    for turn in range(rounds + 1):
        for number, (url, process) in enumerate((ours, theirs)):
            before, began = cpu_seconds(process), time.perf_counter()
            load(url + target, headers, expected, count)
            if turn:
                taken[number].append((time.perf_counter() - began) / count)
                used[number].append((cpu_seconds(process) - before) / count)
    return min(taken[0]), min(taken[1]), min(used[0]), min(used[1])


def run(quick: bool) -> list[Row]:
    """304 of a list, a resource of 4 KiB, a list of many entries as gzip."""
    count, rounds, entries = (300, 1, 500) if quick else (6_000, 3, 20_000)
    with tempfile.TemporaryDirectory() as place:
        files = Path(place, "files")
        files.mkdir()
        chance = random.Random(1)
        for number in range(entries):
            (files / f"{number:06d}.bin").write_bytes(chance.randbytes(16 if number else 4096))
        time.sleep(0.2)
        with served(OURS, str(files), str(Path(place, "state"))) as ours:
            return list(_rows(ours, Path(place), count, rounds))


def _rows(ours: tuple[str, subprocess.Popen[str]], place: Path, count: int, rounds: int) -> Iterator[Row]:
    top = ours[0] + "/files/resourcelist.xml"
    coded, tag = fetched(top, "Accept-Encoding: gzip")
    assert len(gzip.decompress(coded)) > len(coded)
    body = place / "coded"
    body.write_bytes(coded)
    small = place / "files" / "000000.bin"
    cases: list[tuple[str, str, list[str], int, Path, str, int, float | None]] = [
        ("poll: 304 of a list", "/files/resourcelist.xml", [f"If-None-Match: {tag}"], 304, small, "", count, None),
        ("serve a resource of 4 KiB", "/files/resources/000000.bin", [], 200, small, "", count, 0.5),
        (
            f"serve a list of {len(coded) / 1e6:.1f} MB gzip",
            "/files/resourcelist.xml",
            ["Accept-Encoding: gzip"],
            200,
            body,
            "gzip",
            max(20, count // 20),
            None,
        ),
    ]
    for work, target, headers, status, path, coding, requests, bar in cases:
        asked = [*headers, "Accept-Encoding: gzip"] if status == 304 else headers
        with served(BARE, str(status), str(path), coding) as theirs:
            mine, bare, mine_cpu, bare_cpu = contest(ours, theirs, target, asked, status, requests, rounds)
        note = f"server CPU a request: {mine_cpu * 1e6:.0f} µs, bare {bare_cpu * 1e6:.0f} µs"
        yield row(work, mine, "bare uvicorn, same octets", bare, bar=bar, note=note)
