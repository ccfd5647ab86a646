"""A baseline over 20 ms of latency with on-demand dumps alone: against curl with 64 transfers at once and resync-sync.

`resync-sync` asks for one resource after the other, 400 s for 20,000: it copies a folder with a part of them, and its
time is multiplied.
"""

from __future__ import annotations

import contextlib
import itertools
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench.dumps import tools
from bench.dumps.content import FILES, QUICK_FILES, text_files
from bench.dumps.copying import way
from bench.dumps.delaying_proxy import delayed
from bench.dumps.program import can, free_port, not_there, report, served
from bench.rows import Row, in_turns, row

MILLISECONDS = 20.0
A_PART = 20
"""resync-sync gets one file in so many."""


def run(quick: bool) -> list[Row]:
    """Two rows, and one of what the proxy costs."""
    count, rounds = (QUICK_FILES, 1) if quick else (FILES, 3)
    work = f"baseline of {count:,} × 4 KiB over 20 ms, on demand, verified"
    if gone := tools.missing(work, "curl"):
        return [gone]
    if not can("sync", "--prefer"):
        return [not_there(work, "sync", "--prefer")]
    with tempfile.TemporaryDirectory(prefix="headwater-bench-") as name:
        base = Path(name)
        files = text_files(base / "files", count)
        part = text_files(base / "part", count // A_PART)
        with distant(files, base / "state") as url, distant(part, base / "state-of-part") as url_of_part:
            names = (base / f"copy{number}" for number in itertools.count())
            urls = [f"{url}/files/resources/{path.relative_to(files)}" for path in sorted(files.rglob("*.json"))]
            taken: dict[str, Any] = {}

            def ours() -> float:
                taken.update(report("sync", "--prefer", "dumps", url, str(next(names))))
                return float(taken["bench_seconds"])

            seconds, curled = in_turns([ours, lambda: tools.curled(urls, next(names), base)], rounds)
            resync = A_PART * tools.resync_copied(url_of_part, url_of_part, next(names))
    note = f"{seconds / count * 1e6:.0f} µs a resource; {way(taken)}"
    scaled = f"resync-sync: {count // A_PART:,} files, times {A_PART}"
    return [
        row(work, seconds, "curl --parallel-max 64, unverified", curled, bar=1.5, goal=3, note=note),
        row(work, seconds, "resync-sync --hash sha-256", resync, bar=250, note=scaled),
    ]


@contextlib.contextmanager
def distant(folder: Path, state: Path, *options: str) -> Iterator[str]:
    """The URL of `headwater serve` on a folder, 20 ms away: its documents name the proxy."""
    port = free_port()
    with (
        served(folder, state, "--base-url", f"http://127.0.0.1:{port}", *options) as address,
        delayed(address.removeprefix("http://"), MILLISECONDS, port) as url,
    ):
        yield url
