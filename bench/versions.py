"""Keeping versions at ingest: the first scan of a folder of small files, with and without."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from bench.rows import Row
from headwater.source.config import SetConfig, SourceConfig
from headwater.source.source import Source

OCTETS = 4_096
RUNS = 3


def run(quick: bool) -> list[Row]:
    count = 2_000 if quick else 100_000
    with TemporaryDirectory(prefix="bench-versions-") as place:
        files = Path(place) / "files"
        for number in range(count):
            folder = files / f"{number // 1_000:03}"
            folder.mkdir(parents=True, exist_ok=True)
            (folder / f"{number}.bin").write_bytes(os.urandom(OCTETS))
        time.sleep(0.3)
        without: list[Seconds] = []
        kept: list[Seconds] = []
        for _ in range(RUNS):
            without.append(_first_run(files, Path(place) / "state", versions=False))
            kept.append(_first_run(files, Path(place) / "state", versions=True))
    some = f"{count:,} files of 4 KiB"
    scan = f"first scan of {some} that keeps versions, against one that keeps none"
    whole = f"first scan of {some} that keeps versions, and its publication with links to them, against one without"
    return [
        _row(scan, min(one.scan for one in kept), min(one.scan for one in without), 1 / 1.6),
        _row(whole, min(one.whole for one in kept), min(one.whole for one in without), None),
    ]


class Seconds(NamedTuple):
    """What a first run took: but for its publication, and as a whole."""

    scan: float
    whole: float


def _row(work: str, ours: float, plain: float, bar: float | None) -> Row:
    row: Row = {
        "work": work,
        "ours": f"{ours:.1f} s",
        "against": "without versions",
        "other": f"{plain:.1f} s",
        "ratio": plain / ours,
    }
    return row if bar is None else {**row, "bar": bar}


def _first_run(files: Path, state: Path, *, versions: bool) -> Seconds:
    config = SourceConfig(
        state=str(state), sets=(SetConfig(files=str(files), versions=versions),), base_url="http://bench.example"
    )
    began = time.perf_counter()
    with Source(config) as source:
        publish, publishing = source.publisher.publish, 0.0

        def timed(*arguments: Any, **options: Any) -> Any:
            nonlocal publishing
            start = time.perf_counter()
            try:
                return publish(*arguments, **options)
            finally:
                publishing += time.perf_counter() - start

        source.publisher.publish = timed  # type: ignore[method-assign]
        source.run_once()
    seconds = time.perf_counter() - began
    shutil.rmtree(state)
    return Seconds(seconds - publishing, seconds)
