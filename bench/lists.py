"""A baseline by lists from a plain web server (nginx): a request for each resource, verified by length and SHA-256.

Against `curl` with 64 transfers at once and `sha256sum` after it, and against the least that such a baseline takes
(`bench.least`). Nothing of these is tried again, bounded or recorded as a sync must; they are the limits.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

from bench.dumps import tools
from bench.rows import Row, in_turns, row, timed
from bench.sync import HEADWATER, Bench

FILES, QUICK_FILES = 20_000, 1_000


def run(quick: bool) -> list[Row]:
    """The rows of this room."""
    with tempfile.TemporaryDirectory(prefix="headwater-bench-") as name:
        return _rows(Path(name), QUICK_FILES if quick else FILES, 1 if quick else 5)


def _rows(base: Path, files: int, rounds: int) -> list[Row]:
    work = f"baseline of {files:,} × 4 KiB by lists, verified"
    if gone := tools.missing(work, "nginx", "curl", "sha256sum"):
        return [gone]
    bench = Bench(base, files, 0)
    site, numbers = base / "site", count()
    with _nginx(site, base) as url:
        words = ["publish", "--files", str(bench.files), "--to", str(site), "--base-url", url]
        bench.ours(*words, "--hash", "sha-256", "--settle", "0", "--state", str(base / "state"))
        sums = base / "sums"
        with sums.open("w") as out:
            command = "find . -type f -print0 | xargs -0 sha256sum"
            subprocess.run(["bash", "-c", command], stdout=out, check=True, cwd=bench.files)
        below = site / "files" / "resources"
        urls = [f"{url}/{path.relative_to(site)}" for path in below.glob("*/*")]
        assert len(urls) == files, f"{len(urls)} files are served"

        def fresh() -> Path:
            return base / f"lists{next(numbers)}"

        def ours() -> float:
            return timed([*HEADWATER, "sync", "--prefer", "lists", url, str(fresh())], env=bench.environment)

        def curled() -> float:
            copy = fresh()
            copy.mkdir()
            seconds = tools.curled(urls, copy, base)
            return seconds + timed(["sha256sum", "--quiet", "-c", str(sums)], cwd=copy)

        def least() -> float:
            words = ["-m", "bench.least", f"{url}/files/resourcelist.xml", str(fresh())]
            return timed([sys.executable, *words], env=bench.environment)

        seconds, by_curl, at_least = in_turns([ours, curled, least], rounds)
    note = f"{seconds / files * 1e6:.0f} µs a resource"
    return [
        row(work, seconds, "curl, 64 at once, then sha256sum", by_curl, bar=0.9, goal=1.1, note=note),
        row(work, seconds, "the least it takes, two processes", at_least, bar=1 / 1.3, note="bench/least.py"),
    ]


@contextmanager
def _nginx(site: Path, base: Path) -> Iterator[str]:
    """The URL of an nginx on loopback that serves `site`."""
    site.mkdir()
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    settings = base / "nginx.conf"
    owner = "user root;" if os.geteuid() == 0 else ""
    settings.write_text(
        f"{owner} daemon off; worker_processes 1; pid {base}/nginx.pid; error_log {base}/nginx.log;"
        "events { worker_connections 1024; }"
        " http { access_log off; sendfile on; tcp_nopush on; keepalive_requests 100000;"
        f" server {{ listen 127.0.0.1:{port}; root {site}; location ~ /\\. {{ deny all; }}"
        " location /.well-known/ { } } }"
    )
    program = shutil.which("nginx") or "/usr/sbin/nginx"
    with subprocess.Popen([program, "-p", str(base), "-c", str(settings)]) as process:
        try:
            tools.until(lambda: tools.listens(port), 30)
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()
