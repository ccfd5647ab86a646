"""How soon a change of a file reaches a hub: from the write to the notification, at several rates of changes."""

from __future__ import annotations

import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from bench.latency import wait_until_ready
from bench.rows import Row

BAR_SECONDS, GOAL_SECONDS = 0.15, 0.05
"""Those of the whole way, to a subscriber that has applied the change: what is measured here is a part of it."""
RATES = (5, 50, 200)


class Sink:
    """A hub that takes everything, and notes when it has heard of each file."""

    def __init__(self) -> None:
        self.heard: dict[str, float] = {}
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def do_POST(self) -> None:
                payload = self.rfile.read(int(self.headers["content-length"]))
                at = time.monotonic()
                if b'"change-notification"' in payload:
                    for name in re.findall(rb"/(new\d+)<", payload):
                        outer.heard.setdefault(name.decode(), at)
                self.send_response(200)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}/"
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


def run(quick: bool) -> list[Row]:
    """A row for each rate."""
    shm = Path("/dev/shm")
    rows = []
    for rate in RATES[:1] if quick else RATES:
        with tempfile.TemporaryDirectory(dir=shm if os.access(shm, os.W_OK) else None) as folder:
            rows.append(rate_row(Path(folder), rate, seconds=2 if quick else 10, count=200 if quick else 20_000))
    return rows


def rate_row(base: Path, rate: int, *, seconds: int, count: int) -> Row:
    """From the end of the write of a new file to the arrival of the notification that names it."""
    for number in range(count):
        path = base / "files" / f"{number // 200:03}" / f"{number % 200:03}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    sink = Sink()
    config = base / "source.toml"
    config.write_text(f'state = "state"\nport = 0\n[notify]\nhubs = ["{sink.url}"]\n[[set]]\nfiles = "files"\n')
    with subprocess.Popen(
        [sys.executable, "-m", "headwater", "serve", "--json", "--quiet", str(config)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as server:
        try:
            assert server.stdout is not None
            wait_until_ready(json.loads(server.stdout.readline())["address"])
            time.sleep(1.0)
            latencies = sorted(latencies_of(base / "files" / "000", sink, rate, rate * seconds))
        finally:
            server.terminate()
            sink.close()
    median, most = statistics.median(latencies), latencies[-1]
    return {
        "work": f"change on disk to its notification at a hub, {rate} changes/s among {count:,}",
        "ours": f"{1_000 * median:.0f} ms median",
        "against": "the bar",
        "other": f"{1_000 * BAR_SECONDS:.0f} ms, goal {1_000 * GOAL_SECONDS:.0f} ms",
        "met": median <= BAR_SECONDS,
        "verdict": "goal" if median <= GOAL_SECONDS else "bar" if median <= BAR_SECONDS else "below the bar",
        "note": f"{len(latencies)} changes; 99 % within {1_000 * latencies[int(0.99 * len(latencies))]:.0f} ms,"
        f" at most {1_000 * most:.0f} ms",
    }


def latencies_of(folder: Path, sink: Sink, rate: int, changes: int) -> list[float]:
    """Write new files at a steady rate, and wait until the hub has heard of all."""
    wrote = {}
    began = time.monotonic()
    for number in range(changes):
        time.sleep(max(0.0, began + number / rate - time.monotonic()))
        (folder / f"new{number}").write_text("new")
        wrote[f"new{number}"] = time.monotonic()
    deadline = time.monotonic() + 60
    while len(sink.heard) < changes and time.monotonic() < deadline:
        time.sleep(0.05)
    assert len(sink.heard) == changes, "the hub has not heard of all changes"
    return [sink.heard[name] - at for name, at in wrote.items()]
