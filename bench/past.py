"""Copies of the past: a set of which a tenth has changed since, by archive and versions, against a baseline."""

from __future__ import annotations

import random
import tempfile
import time
from pathlib import Path

from bench.rows import Row, in_turns, row
from bench.sync import FILES, OCTETS, QUICK_FILES, Bench, now, read_text, wait_until

CONFIG = """
state = {state}
port = 0

[[set]]
files = {files}
max_delete = 1.0
versions = true
archive = true
archive_seconds = 1.0
"""
SNAPSHOT_SECONDS = 3.0


def run(quick: bool) -> list[Row]:
    """The rows of this room."""
    with tempfile.TemporaryDirectory(prefix="headwater-bench-") as name:
        bench = PastBench(Path(name), QUICK_FILES if quick else FILES)
        with bench.serving():
            return [bench.past(1 if quick else 3)]


class PastBench(Bench):
    """A served folder whose states are kept."""

    def __init__(self, base: Path, count: int) -> None:
        super().__init__(base, count, count // 10)

    @property
    def source(self) -> list[str]:
        """What `headwater serve` is given: a configuration."""
        config = self.base / "source.toml"
        config.write_text(CONFIG.format(state=f'"{self.base / "state"}"', files=f'"{self.files}"'))
        return [str(config)]

    def past(self, rounds: int) -> Row:
        """The set as it was before a tenth of it changed."""
        time.sleep(SNAPSHOT_SECONDS)
        moment = now()
        time.sleep(SNAPSHOT_SECONDS)
        self.change()
        time.sleep(SNAPSHOT_SECONDS)
        assert "resourcelist" in read_text(f"{self.url}/files/archive/resourcelist.xml")
        ours, plain = in_turns(
            [
                lambda: self.ours("sync", "--at", moment, self.url, str(self.fresh())),
                lambda: self.ours("sync", self.url, str(self.fresh())),
            ],
            rounds,
        )
        copy = self.base / f"copy{self.copies - 1}"
        assert sum(path.is_file() for path in copy.rglob("f*")) == self.count
        work = f"copy of {self.count:,} × {OCTETS // 1024} KiB as they were, a tenth changed since"
        return row(work, ours, "baseline of the present", plain, bar=0.7)

    def change(self) -> None:
        """Update a tenth, delete a tenth of that, and wait until the Change List shows all of it."""
        chance = random.Random(2)
        for number in range(self.changes):
            path = self.files / f"{number // 200:03d}" / f"f{number:05d}"
            if number % 10 == 0:
                path.unlink()
            else:
                path.write_bytes(chance.randbytes(OCTETS))
        wait_until(lambda: read_text(f"{self.url}/files/changelist.xml").count("<url>") >= self.changes)
