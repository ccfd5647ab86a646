"""Keeping versions at ingest: the first scan of a folder of small files, with and without."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path
from tempfile import TemporaryDirectory

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
        without, kept = ([], [])
        for _ in range(RUNS):
            without.append(_scan(files, Path(place) / "state", versions=False))
            kept.append(_scan(files, Path(place) / "state", versions=True))
    plain, ours = min(without), min(kept)
    return [
        {
            "work": f"first scan of {count:,} files of 4 KiB that keeps versions, against one that keeps none",
            "ours": f"{ours:.1f} s",
            "against": "without versions",
            "other": f"{plain:.1f} s",
            "ratio": plain / ours,
            "bar": 1 / 1.5,
        }
    ]


def _scan(files: Path, state: Path, *, versions: bool) -> float:
    """Seconds of a first scan and its publication."""
    config = SourceConfig(
        state=str(state), sets=(SetConfig(files=str(files), versions=versions),), base_url="http://bench.example"
    )
    began = time.perf_counter()
    with Source(config) as source:
        source.run_once()
    seconds = time.perf_counter() - began
    shutil.rmtree(state)
    return seconds
