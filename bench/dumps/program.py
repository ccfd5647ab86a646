"""Headwater's own programs as the benchmarks of dumps run them: each in a process of its own, start included."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.request import urlopen

from bench.dumps.tools import ENVIRONMENT, until
from bench.rows import timed

HEADWATER = (sys.executable, "-m", "headwater")
BASE_URL = "http://127.0.0.1:8999"
"""What documents say that nobody asks for over HTTP."""


def headwater(*words: str) -> float:
    """Seconds of one command."""
    return timed([*HEADWATER, *words], env=ENVIRONMENT)


def report(*words: str) -> dict[str, Any]:
    """What one command reports with `--json`, and its seconds as `bench_seconds`. Raises when it fails."""
    began = time.perf_counter()
    done = subprocess.run(
        [*HEADWATER, *words, "--json"], check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=ENVIRONMENT
    )
    found: dict[str, Any] = json.loads(done.stdout)
    return found | {"bench_seconds": time.perf_counter() - began}


@functools.cache
def can(command: str, option: str) -> bool:
    """Whether a command has this option."""
    done = subprocess.run([*HEADWATER, command, "--help"], check=True, stdout=subprocess.PIPE, text=True)
    return f"{option} " in done.stdout


def not_there(work: str, command: str, option: str) -> dict[str, Any]:
    """A row that says that the program cannot do that."""
    return {"work": work, "verdict": "NOT MEASURED", "note": f"`headwater {command}` has no {option}"}


@contextlib.contextmanager
def served(folder: Path, state: Path, *options: str) -> Iterator[str]:
    """The URL of `headwater serve` on a folder, when everything is published."""
    with running("serve", "--files", str(folder), "--state", str(state), *options) as (address, _):
        yield address


@contextlib.contextmanager
def running(*words: str) -> Iterator[tuple[str, int]]:
    """The address and the process of a serving command on a free port, when everything is published."""
    port = free_port()
    address = f"http://127.0.0.1:{port}"
    command = [*HEADWATER, *words, "--port", str(port), "--json", "--quiet"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=ENVIRONMENT) as process:
        try:
            until(lambda: process.poll() is not None or answers(f"{address}/.well-known/resourcesync"))
            assert process.poll() is None, f"it has ended: {command}"
            yield address, process.pid
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(60)


def free_port() -> int:
    """A port that nobody listens on at the moment."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])


def answers(url: str) -> bytes:
    """The body of an answer with status 200; nothing otherwise."""
    try:
        with urlopen(url, timeout=60) as answer:  # loopback
            return bytes(answer.read())
    except OSError:
        return b""


class PeakMemory:
    """The most memory that a command and its children have held together, looked at ten times a second.

    The proportional share (Pss) is counted, so that what processes share counts once.
    """

    def __init__(self) -> None:
        self.mib = 0.0

    def run(self, command: Sequence[str], cwd: Path | None = None) -> float:
        """Seconds of the command. Raises CalledProcessError when it fails."""
        began = time.perf_counter()
        with (
            subprocess.Popen(
                command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=cwd, env=ENVIRONMENT
            ) as process,
            self.watching(process.pid),
        ):
            status = process.wait()
        if status:
            raise subprocess.CalledProcessError(status, list(command))
        return time.perf_counter() - began

    @contextlib.contextmanager
    def watching(self, pid: int) -> Iterator[None]:
        """Look at this process and its children until the block is left."""
        ended = threading.Event()

        def watch() -> None:
            while not ended.wait(0.1):
                self.mib = max(self.mib, sum(map(_held_mib, family(pid))))

        thread = threading.Thread(target=watch, daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()


def family(pid: int) -> list[int]:
    """A process and all its descendants."""
    found = [pid]
    for one in found:
        with contextlib.suppress(OSError):
            for task in os.listdir(f"/proc/{one}/task"):
                found += [int(word) for word in Path(f"/proc/{one}/task/{task}/children").read_text().split()]
    return found


def processor_seconds(pid: int) -> float:
    """Processor seconds of a process and its living descendants so far."""
    ticks = 0
    for one in family(pid):
        with contextlib.suppress(OSError):
            fields = Path(f"/proc/{one}/stat").read_text().rpartition(")")[2].split()
            ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def _held_mib(pid: int) -> float:
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) / 1024
    return 0.0
