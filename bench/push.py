"""From a change on disk to the copy of a subscriber, by way of a hub; and what a subscriber of quiet sources costs."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlencode

from bench.latency import wait_until_ready
from bench.rows import Row

BAR_SECONDS, GOAL_SECONDS, MOST_SECONDS = 0.15, 0.05, 1.0
RATES = (5, 50, 200)
TOKEN = "0123456789abcdef"
COMMAND = (sys.executable, "-m", "headwater")


def run(quick: bool) -> list[Row]:
    """A row for each rate, and one for sources that are quiet."""
    shm = Path("/dev/shm")
    rows = []
    for rate in RATES[:1] if quick else RATES:
        with tempfile.TemporaryDirectory(dir=shm if os.access(shm, os.W_OK) else None) as folder:
            rows.append(rate_row(Path(folder), rate, seconds=2 if quick else 10, count=200 if quick else 5_000))
    with tempfile.TemporaryDirectory(dir=shm if os.access(shm, os.W_OK) else None) as folder:
        rows.append(idle_row(Path(folder), 20 if quick else 1_000, seconds=5 if quick else 20))
    return rows


def rate_row(base: Path, rate: int, *, seconds: int, count: int) -> Row:
    """From the end of the write of a new file to its place in the copy: what the file system says of both."""
    for number in range(count):
        path = base / "files" / f"{number // 200:03}" / f"{number % 200:03}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    with ExitStack() as processes:
        hub = started(processes, "hub", "--listen", "127.0.0.1:0", "--state", str(base / "hub"), "--token", TOKEN,
                      "--allow-private", "--quiet", "--json")["url"]  # fmt: skip
        config = base / "source.toml"
        told = f'hubs = ["{hub}"]\ntoken = "{TOKEN}"'
        config.write_text(f'state = "state"\nport = 0\n[notify]\n{told}\n[[set]]\nfiles = "files"\n')
        source = started(processes, "serve", "--json", "--quiet", str(config))["address"]
        wait_until_ready(source)
        copy = base / "copy"
        started(processes, "sync", source, str(copy), "--follow", "600", "--push", "--json", "--quiet")
        wait_until_pushed(copy)
        latencies = sorted(latencies_of(base / "files" / "000", copy / "000", rate, rate * seconds))
    median, late = statistics.median(latencies), latencies[int(0.99 * len(latencies))]
    met = median <= BAR_SECONDS and late <= MOST_SECONDS
    return {
        "work": f"change on disk to the copy of a subscriber by a hub, {rate} changes/s among {count:,}",
        "ours": f"{1_000 * median:.0f} ms median",
        "against": "the bar",
        "other": f"{1_000 * BAR_SECONDS:.0f} ms, goal {1_000 * GOAL_SECONDS:.0f} ms",
        "met": met,
        "verdict": "goal" if met and median <= GOAL_SECONDS else "bar" if met else "below the bar",
        "note": f"{len(latencies)} changes; 99 % within {1_000 * late:.0f} ms (bar {MOST_SECONDS:g} s),"
        f" at most {1_000 * latencies[-1]:.0f} ms",
    }


def started(processes: ExitStack, *arguments: str) -> dict[str, str]:
    """Start a program that says on a line where it listens; it ends with the stack."""
    process = subprocess.Popen([*COMMAND, *arguments], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)

    def end() -> None:
        process.send_signal(signal.SIGTERM)
        process.communicate()

    processes.callback(end)
    assert process.stdout is not None
    told: dict[str, str] = json.loads(process.stdout.readline())
    os.set_blocking(process.stdout.fileno(), False)
    return told


def wait_until_pushed(copy: Path) -> None:
    """Wait until the copy's subscription holds, and it has read the Change List once more."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        done = subprocess.run([*COMMAND, "status", "--json", str(copy)], capture_output=True, check=False)
        if done.stdout and (json.loads(done.stdout).get("push") or {}).get("mode") == "push":
            time.sleep(1.0)
            return
        time.sleep(0.2)
    raise AssertionError("push has not come to work")


def latencies_of(folder: Path, copy: Path, rate: int, changes: int) -> list[float]:
    """Write new files at a steady rate, and wait until all are in the copy."""
    wrote = {}
    began = time.monotonic()
    for number in range(changes):
        time.sleep(max(0.0, began + number / rate - time.monotonic()))
        (folder / f"new{number}").write_text(f"new {number}")
        wrote[f"new{number}"] = time.time()
    deadline = time.monotonic() + 60
    while not all((copy / name).exists() for name in wrote) and time.monotonic() < deadline:
        time.sleep(0.1)
    return [max(0.0, (copy / name).stat().st_ctime - at) for name, at in wrote.items()]


# -- a thousand sources that are quiet


def idle_row(base: Path, count: int, seconds: float) -> Row:
    """What a subscriber of so many sources asks of them and of their hub, and what it takes, while nothing happens."""
    with ExitStack() as stack:
        server = multiprocessing.get_context("spawn").Process(target=_quiet_sources, args=(str(base / "port"),))
        server.start()
        stack.callback(server.join)
        stack.callback(server.terminate)
        while not (base / "port").is_file() or not (base / "port").read_text():
            time.sleep(0.05)
        at = f"http://127.0.0.1:{(base / 'port').read_text()}"
        also = [
            part for n in range(1, count) for part in ("--also", f"{at}/{n}/capabilitylist.xml", str(base / f"c{n}"))
        ]
        command = [*COMMAND, "sync", f"{at}/0/capabilitylist.xml", str(base / "c0"), "--follow", "600", "--push", *also]
        process = subprocess.Popen([*command, "--quiet"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        stack.callback(process.wait)
        stack.callback(process.terminate)
        began = time.monotonic()
        while asked(at)["confirmed"] < count:
            assert time.monotonic() - began < 600, asked(at)
            time.sleep(0.5)
        took = time.monotonic() - began
        time.sleep(10.0)  # each is polled once more when its subscription holds
        before, spent = asked(at)["requests"], processor_seconds(process.pid)
        time.sleep(seconds)
        requests = asked(at)["requests"] - before - 1
        spent = (processor_seconds(process.pid) - spent) / seconds
        octets = resident_octets(process.pid)
    return {
        "work": f"a subscriber of {count:,} sources, {seconds:g} s in which nothing changes",
        "ours": f"{requests} requests",
        "against": "the bar",
        "other": "none but renewals and the slow poll",
        "met": requests == 0,
        "note": f"{spent:.1%} of a processor, {octets >> 20} MiB; all subscribed after {took:.0f} s",
    }


def asked(at: str) -> dict[str, int]:
    """What the sources count."""
    with urllib.request.urlopen(f"{at}/counts", timeout=60) as answer:
        counts: dict[str, int] = json.load(answer)
    return counts


def processor_seconds(pid: int) -> float:
    """What a process has taken of processors so far."""
    told = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(told[11]) + int(told[12])) / os.sysconf("SC_CLK_TCK")


def resident_octets(pid: int) -> int:
    """The memory that a process has."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


_HEAD = (
    '<?xml version="1.0" encoding="UTF-8"?><urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9"'
    ' xmlns:rs="http://www.openarchives.org/rs/terms/">'
)


def _document(at: str, source: str, name: str) -> str | None:
    """One document of one of the sources."""
    here = f"{at}/{source}"
    if name == "capabilitylist.xml":
        kinds = ("resourcelist", "changelist", "change-notification")
        return f'{_HEAD}<rs:md capability="capabilitylist"/>' + "".join(
            f'<url><loc>{here}/{kind}.xml</loc><rs:md capability="{kind}"/><rs:ln rel="hub" href="{at}/hub"/></url>'
            for kind in kinds
        )
    if name == "resourcelist.xml":
        return f'{_HEAD}<rs:md capability="resourcelist" at="2026-01-01T00:00:00Z"/>' + (
            f'<url><loc>{here}/one.txt</loc><rs:md length="3"/></url>'
        )
    if name == "changelist.xml":
        return f'{_HEAD}<rs:md capability="changelist" from="2026-01-01T00:00:00Z"/>'
    return None


def _quiet_sources(port: str) -> None:
    """Serve sources, as many as are asked for, and a hub; count what is asked."""
    counts = {"requests": 0, "confirmed": 0}
    waiting: list[dict[str, str]] = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_GET(self) -> None:
            counts["requests"] += 1
            _, source, name = (*self.path.split("/"), "")[:3]
            if source == "counts":
                self.answer(json.dumps(counts).encode())
            elif name == "one.txt":
                self.answer(b"one")
            elif name == "change-notification.xml":
                self.answer(b"", f'<http://{self.headers["host"]}{self.path}>; rel="self"')
            else:
                told = _document(f"http://{self.headers['host']}", source, name)
                self.answer(b"" if told is None else f"{told}</urlset>".encode(), status=200 if told else 404)

        def do_POST(self) -> None:
            counts["requests"] += 1
            form = parse_qs(self.rfile.read(int(self.headers["content-length"])).decode())
            waiting.append({key: values[0] for key, values in form.items()})
            self.answer(b"", status=202)

        def answer(self, body: bytes, link: str = "", status: int = 200) -> None:
            self.send_response(status)
            self.send_header("etag", f'"{len(body)}"')
            if link:
                self.send_header("link", link)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    def verify() -> None:
        while True:
            while waiting:
                form = waiting.pop()
                query = {"hub.mode": form["hub.mode"], "hub.topic": form["hub.topic"], "hub.challenge": "c"}
                url = f"{form['hub.callback']}?{urlencode(query | {'hub.lease_seconds': '864000'})}"
                with urllib.request.urlopen(url, timeout=60):
                    counts["confirmed"] += 1
            time.sleep(0.05)

    class Server(ThreadingHTTPServer):
        request_queue_size = 1_024
        daemon_threads = True

    server = Server(("127.0.0.1", 0), Handler)
    threading.Thread(target=verify, daemon=True).start()
    Path(port).write_text(str(server.server_port))
    server.serve_forever(0.05)
