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
from contextlib import ExitStack
from pathlib import Path

from bench.rows import Row

COMMAND = [sys.executable, "-m", "headwater"]
MOST_SECONDS = 2.0
"""What the manual promises of a change of a watched folder."""
HELP_SECONDS, HELP_GOAL = 1.0, 0.25
CHANGES = 20
HOPS, HOPS_SECONDS = 3, 4.0
"""Sources in a row, each but the first over a copy of the one before, and how soon the last one tells."""


def run(quick: bool) -> list[Row]:
    """One row for a folder, one for three sources in a row, one for `--help`."""
    shm = Path("/dev/shm")
    where = shm if os.access(shm, os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=where) as folder, tempfile.TemporaryDirectory(dir=where) as chain:
        return [
            change_row(Path(folder), 2_000 if quick else 100_000),
            hops_row(Path(chain), 5 if quick else 20),
            help_row(),
        ]


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


def hops_row(base: Path, changes: int) -> Row:
    """From a write at the source to the entry of the third source: two copies, each followed once a second."""
    (base / "files" / "000").mkdir(parents=True)
    (base / "files" / "000" / "first").touch()
    with ExitStack() as processes:

        def started(*arguments: str) -> subprocess.Popen[bytes]:
            process = subprocess.Popen([*COMMAND, *arguments], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
            processes.callback(process.communicate)
            processes.callback(process.terminate)
            return process

        address, what = "", ["--files", str(base / "files")]
        for hop in range(HOPS):
            state = ["--state", str(base / f"state{hop}"), "--set", "files"]
            server = started("serve", "--json", "--quiet", "--port", "0", *what, *state)
            assert server.stdout is not None
            address = json.loads(server.stdout.readline())["address"]
            wait_until_ready(address)
            copy = base / f"copy{hop}"
            if hop < HOPS - 1:
                subprocess.run([*COMMAND, "sync", address, str(copy)], check=True, stdout=subprocess.DEVNULL)
                started("sync", address, str(copy), "--follow", "1")
                what = ["--copy", str(copy)]
        chance = random.Random(1)
        latencies = []
        for number in range(changes):
            time.sleep(chance.random())
            latencies.append(latency(address, base / "files" / "000" / f"new{number}"))
    latencies.sort()
    return {
        "work": "change at a source visible in the Change List of the third source, `sync --follow 1` at each hop",
        "ours": f"{latencies[-1]:.3g} s at most",
        "against": "the bar",
        "other": f"{HOPS_SECONDS:.3g} s",
        "met": latencies[-1] <= HOPS_SECONDS,
        "note": f"{changes} changes; half within {latencies[changes // 2]:.3g} s",
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
