"""How soon a change of a file can be seen in the open Change List, and how soon the program says how it is used."""

from __future__ import annotations

import json
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

from bench.rows import Row

COMMAND = [sys.executable, "-m", "headwater"]
MOST_SECONDS = 2.0
"""What the manual promises of a change of a watched folder."""
HELP_SECONDS, HELP_GOAL = 1.0, 0.25
CHANGES = 20


def run(quick: bool) -> list[Row]:
    """One row for a folder, one for `--help`."""
    shm = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=shm if os.access(shm, os.W_OK) else None) as folder:
        return [change_row(Path(folder), 2_000 if quick else 100_000), help_row()]


def change_row(base: Path, count: int) -> Row:
    """The longest time from a write to the entry, over changes at any moment, in a full scan and between two."""
    for number in range(count):
        path = base / "files" / f"{number // 200:03}" / f"{number % 200:03}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    options = ["--files", str(base / "files"), "--state", str(base / "state"), "--port", "0", "--rescan", "1"]
    with subprocess.Popen(
        [*COMMAND, "serve", "--json", "--quiet", *options], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as server:
        try:
            assert server.stdout is not None
            address = json.loads(server.stdout.readline())["address"]
            wait_until_ready(address)
            chance = random.Random(1)
            latencies = []
            for number in range(CHANGES):
                time.sleep(chance.random())
                latencies.append(latency(address, base / "files" / f"{number:03}" / f"new{number}"))
        finally:
            server.terminate()
    latencies.sort()
    return {
        "work": f"changed file visible in the open Change List, among {count:,}",
        "ours": f"{latencies[-1]:.3g} s at most",
        "against": "the bar",
        "other": f"{MOST_SECONDS:.3g} s",
        "met": latencies[-1] <= MOST_SECONDS,
        "note": f"{CHANGES} changes while full scans go on; half within {latencies[CHANGES // 2]:.3g} s",
    }


def latency(address: str, path: Path) -> float:
    """Write a new file, and wait for its entry."""
    path.parent.mkdir(exist_ok=True)
    path.write_text("new")
    began = time.monotonic()
    while f"/{path.parent.name}/{path.name}<".encode() not in body(f"{address}/files/changelist/open.xml"):
        time.sleep(0.01)
    return time.monotonic() - began


def wait_until_ready(address: str) -> None:
    while not json.loads(body(f"{address}/health") or b"{}").get("ready"):
        time.sleep(0.1)


def body(url: str) -> bytes:
    """The body of an answer; nothing when it is none."""
    try:
        with urllib.request.urlopen(url, timeout=60) as answer:
            return bytes(answer.read())
    except OSError:
        return b""


def help_row() -> Row:
    """Processor time, so that a busy machine does not count."""
    spent = []
    for _ in range(5):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([*COMMAND, "--help"], check=True, stdout=subprocess.DEVNULL)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        spent.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return {
        "work": "headwater --help",
        "ours": f"{min(spent):.3g} s of processor time",
        "against": "the bar",
        "other": f"{HELP_SECONDS:.3g} s",
        "met": min(spent) <= HELP_SECONDS,
        "verdict": "goal" if min(spent) <= HELP_GOAL else "bar" if min(spent) <= HELP_SECONDS else "below the bar",
        "note": f"the goal is {HELP_GOAL:.3g} s",
    }
