"""RDF datasets: what comparing files and reading patches takes, against `sort`, `comm` and a parser in native code."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from bench.rows import Row, in_turns, row, timed

QUADS = 10_000_000
UNSORTED = 3_000_000
LINES = 1_000_000
MOST_MIB = 200

SORTED = "comm -3 <(sort {0}) <(sort {1})"
UNSORTED_ONES = "sort -u {0} > {2}/a; sort -u {1} > {2}/b; comm -3 {2}/a {2}/b"
READ_PATCH = """
import sys, time
from collections import deque
from headwater.rdf.unified_diff import read_patch
with open(sys.argv[1], "rb") as file:
    began = time.perf_counter()
    deque(read_patch(file, strict=True), 0)
print(time.perf_counter() - began)
"""
READ_QUADS = """
import sys, time
from collections import deque
from pyoxigraph import RdfFormat, parse
with open(sys.argv[1], "rb") as file:
    began = time.perf_counter()
    deque(parse(file, RdfFormat.N_QUADS), 0)
print(time.perf_counter() - began)
"""


def run(quick: bool) -> list[Row]:
    """Two differences and a patch that is read."""
    divisor = 50 if quick else 1
    with tempfile.TemporaryDirectory() as folder:
        base = Path(folder)
        return [
            *_sorted(base, QUADS // divisor),
            _unsorted(base, UNSORTED // divisor),
            _patch(base, LINES // divisor),
        ]


def _sorted(base: Path, quads: int) -> list[Row]:
    old, new = _datasets(base, quads)
    peaks: list[float] = []
    ours, theirs = in_turns(
        [lambda: _ours(base, old, new, peaks), lambda: _theirs(SORTED, old, new, base)], 1 if quads == QUADS else 2
    )
    return [
        row(
            f"patch between two sorted datasets of {quads:,} statements", ours, "sort | comm", theirs, bar=0.5, goal=1.0
        ),
        {
            "work": f"memory of it, over all processes, {quads:,} statements",
            "ours": f"{max(peaks):.0f} MiB",
            "bar": f"≤ {MOST_MIB} MiB",
            "met": max(peaks) <= MOST_MIB,
        },
    ]


def _unsorted(base: Path, quads: int) -> Row:
    old, new = _datasets(base, quads)
    for path in (old, new):
        subprocess.run(["shuf", path, "-o", path], check=True)
    ours, theirs = in_turns([lambda: _ours(base, old, new, []), lambda: _theirs(UNSORTED_ONES, old, new, base)], 1)
    work = f"patch between two datasets of {quads:,} statements in any order"
    return row(work, ours, "sort -u twice, comm", theirs, bar=0.5)


def _patch(base: Path, lines: int) -> Row:
    dataset, _new = _datasets(base, lines)
    patch = base / "patch.nqud"
    with dataset.open("rb") as source, patch.open("wb") as target:
        target.writelines(b"+" + line for line in source)
    ours, theirs = in_turns([lambda: _read(READ_PATCH, patch), lambda: _read(READ_QUADS, dataset)], 3)
    work = f"read N-Quads Unified Diff of {lines:,} lines"
    return row(work, ours, "pyoxigraph, N-Quads", theirs, bar=0.5, goal=0.8)


def _datasets(base: Path, quads: int) -> tuple[Path, Path]:
    """Two sorted files: of 1,000 statements of the new one one is missing, and one has another graph."""
    old, new = base / "old.nq", base / "new.nq"
    with old.open("wb", 1 << 20) as before, new.open("wb", 1 << 20) as after:
        for number in range(quads):
            line = _statement(number)
            before.write(line)
            if number % 1000 == 500:
                after.write(line.replace(b"/g> .", b"/h> ."))
            elif number % 1000:
                after.write(line)
    return old, new


def _statement(number: int) -> bytes:
    subject, kind = divmod(number, 8)
    values = (
        '"Title of the record {0}, with some words"',
        "<http://example.org/person/{0}>",
        '"2026-01-11"^^<http://www.w3.org/2001/XMLSchema#date>',
        '"Über die Verhältnisse {0}"@de',
        '"a \\"quoted\\" line\\nand {0}"',
    )
    value = values[kind % 5].format(subject * 7919 % 9973)
    return (
        f"<http://example.org/record/{subject:09d}> <http://purl.org/dc/terms/p{kind}> {value}"
        " <http://example.org/g> .\n"
    ).encode()


def _ours(base: Path, old: Path, new: Path, peaks: list[float]) -> float:
    started = time.perf_counter()
    command = [sys.executable, "-m", "headwater", "rdf", "diff", str(old), str(new), "-o", str(base / "patch")]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    watched = threading.Thread(target=_watch, args=(process, peaks))
    watched.start()
    assert process.wait() == 0
    taken = time.perf_counter() - started
    watched.join()
    return taken


def _watch(process: subprocess.Popen[bytes], peaks: list[float]) -> None:
    """Note the resident memory of a process and its children, time and again, until it ends."""
    while process.poll() is None:
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        try:
            pids = [str(process.pid), *children.read_text().split()]
            peaks.append(sum(map(_resident, pids)) / 1024)
        except OSError:
            continue
        finally:
            time.sleep(0.1)


def _resident(pid: str) -> int:
    """Its own memory in KiB, in shares of what it has in common with others."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("Pss:")).split()[1])


def _theirs(command: str, old: Path, new: Path, base: Path) -> float:
    shell = command.format(old, new, base)
    return timed(["bash", "-c", shell], env={**os.environ, "LC_ALL": "C"})


def _read(code: str, path: Path) -> float:
    return float(subprocess.run([sys.executable, "-c", code, path], check=True, stdout=subprocess.PIPE).stdout)
