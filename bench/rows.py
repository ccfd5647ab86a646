"""One row of the bench table, and how two contestants are measured fairly: in turns, each in a process of its own."""

from __future__ import annotations

import importlib
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

Row = dict[str, Any]
"""`work`: what is done. `ours`, `other`: seconds or another measure as text. `against`: who the other is (a peer or a
limit). `ratio`: other / ours, so that more is better. `bar`, `goal`: the ratio that must and should be reached (None:
none set; a text: said in words). `note`: what else is worth knowing. `met`: when the ratio alone does not tell."""


def rows_of(room: str, quick: bool) -> list[Row]:
    """The rows of one room."""
    rows: list[Row] = importlib.import_module(f"bench.{room}").run(quick)
    return rows


def row(
    work: str,
    ours: float,
    against: str,
    other: float,
    *,
    bar: float | None = None,
    goal: float | None = None,
    note: str = "",
) -> Row:
    """A row for two times in seconds."""
    return {
        "work": work,
        "ours": f"{ours:.3g} s",
        "against": against,
        "other": f"{other:.3g} s",
        "ratio": other / ours,
        "bar": bar,
        "goal": goal,
        "note": note,
    }


def in_turns(contestants: Sequence[Callable[[], float]], rounds: int) -> list[float]:
    """Median seconds of each contestant; all take turns, so that drift of the machine touches all alike."""
    seconds: list[list[float]] = [[] for _ in contestants]
    for _ in range(rounds):
        for taken, contestant in zip(seconds, contestants, strict=True):
            taken.append(contestant())
    return [statistics.median(taken) for taken in seconds]


def timed(arguments: Sequence[str | os.PathLike[str]], **settings: Any) -> float:
    """Seconds that one command takes, its start included; raises CalledProcessError when it fails."""
    started = time.perf_counter()
    subprocess.run(arguments, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **settings)
    return time.perf_counter() - started


def peak_mib(code: str, *arguments: str) -> float:
    """The peak resident memory in MiB of a new Python that runs `code`.

    Read from /proc, because the peak that getrusage tells a child begins with the parent's.
    """
    report = "\nprint(next(line for line in open('/proc/self/status') if line.startswith('VmHWM')).split()[1])"
    done = subprocess.run(
        [sys.executable, "-c", code + report, *arguments], check=True, stdout=subprocess.PIPE, text=True
    )
    return int(done.stdout.split()[-1]) / 1024
