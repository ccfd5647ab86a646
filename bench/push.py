"""From a change on disk to the copy of a subscriber, by way of a hub."""

from __future__ import annotations

import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from bench.latency import wait_until_ready
from bench.rows import Row

BAR_SECONDS, GOAL_SECONDS, MOST_SECONDS = 0.15, 0.05, 1.0
RATES = (5, 50, 200)
TOKEN = "0123456789abcdef"
COMMAND = (sys.executable, "-m", "headwater")


def run(quick: bool) -> list[Row]:
    """A row for each rate."""
    shm = Path("/dev/shm")
    rows = []
    for rate in RATES[:1] if quick else RATES:
        with tempfile.TemporaryDirectory(dir=shm if os.access(shm, os.W_OK) else None) as folder:
            rows.append(rate_row(Path(folder), rate, seconds=2 if quick else 10, count=200 if quick else 5_000))
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
