"""Copying: baseline, audit, a poll without changes and an increment, against resync-sync and sha256sum.

All tools talk to the same `headwater serve` on loopback, each in a process of its own, start included; the server
shares the cores with them. No copy is removed before the end: creating files soon after deleting many is slow on ext4.
"""

from __future__ import annotations

import datetime as dt
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar
from urllib.request import urlopen

from bench.rows import Row, in_turns, row, timed

FILES, QUICK_FILES = 20_000, 1_000
CHANGES, QUICK_CHANGES = 1_000, 100
OCTETS = 4096

Found = TypeVar("Found")

HEADWATER = [sys.executable, "-c", "from headwater.cli import main; main()"]
RESYNC = str(Path(sys.executable).parent / "resync-sync")


def run(quick: bool) -> list[Row]:
    """The rows of this room."""
    rounds = 1 if quick else 3
    with tempfile.TemporaryDirectory(prefix="headwater-bench-") as name:
        bench = Bench(Path(name), QUICK_FILES if quick else FILES, QUICK_CHANGES if quick else CHANGES)
        with bench.serving():
            return [bench.baseline(rounds), bench.audit(rounds), *bench.nothing(rounds), bench.increment(rounds)]


class Bench:
    """One served folder and the copies of it."""

    def __init__(self, base: Path, count: int, changes: int) -> None:
        self.base = base
        self.count = count
        self.changes = changes
        self.files = base / "files"
        self.copies = 0
        self.url = ""
        self.environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        self.environment["PYTHONPYCACHEPREFIX"] = str(base / "bytecode")  # as after an installation: compiled once
        chance = random.Random(1)
        for number in range(count):
            folder = self.files / f"{number // 200:03d}"
            folder.mkdir(parents=True, exist_ok=True)
            (folder / f"f{number:05d}").write_bytes(chance.randbytes(OCTETS))

    @property
    def source(self) -> list[str]:
        """What `headwater serve` is given."""
        return ["--files", str(self.files), "--port", "0", "--state", str(self.base / "state")]

    @contextmanager
    def serving(self) -> Iterator[None]:
        """`headwater serve` on the folder, until everything is published."""
        command = [*HEADWATER, "serve", *self.source]
        log = self.base / "serve.log"
        with log.open("w") as out, subprocess.Popen(command, stdout=out, stderr=out, env=self.environment) as process:
            try:
                self.url = wait_until(lambda: _address(log))
                wait_until(lambda: read_text(f"{self.url}/.well-known/resourcesync"))
                self.ours("sync", "--help")
                self.theirs("--help")
                self.ours("sync", "--dry-run", self.url, str(self.base / "nothing"))
                yield
            finally:
                process.send_signal(signal.SIGTERM)
                process.wait(30)

    def fresh(self) -> Path:
        """The name of a copy that is not there yet."""
        self.copies += 1
        return self.base / f"copy{self.copies}"

    def ours(self, *words: str) -> float:
        return timed([*HEADWATER, *words], env=self.environment)

    def theirs(self, *words: str) -> float:
        return timed([RESYNC, *words], cwd=self.base, env=self.environment)

    def baseline(self, rounds: int) -> Row:
        """Everything, verified by sha-256 and length, into an empty folder."""
        ours, theirs = in_turns(
            [
                lambda: self.ours("sync", self.url, str(self.fresh())),
                lambda: self.theirs("--baseline", "--hash", "sha-256", self.url, str(self.fresh())),
            ],
            rounds,
        )
        work = f"baseline of {self.count:,} × 4 KiB, verified"
        note = f"{ours / self.count * 1e6:.0f} µs a resource, replaced atomically"
        return row(work, ours, "resync-sync --hash sha-256", theirs, bar=4, goal=7, note=note)

    def audit(self, rounds: int) -> Row:
        """Every file by its hash; the limit is to hash them alone, in one process."""
        copy = self.base / "copy1"
        sums = self.base / "sums"
        with sums.open("w") as out:
            command = f"find {copy} -path '*/.headwater' -prune -o -type f -print0 | xargs -0 sha256sum"
            subprocess.run(["bash", "-c", command], stdout=out, check=True)
        ours, limit = in_turns(
            [
                lambda: self.ours("audit", self.url, str(copy)),
                lambda: timed(["sha256sum", "--quiet", "-c", str(sums)]),
            ],
            rounds,
        )
        theirs = self.theirs("--audit", self.url, str(copy))
        note = f"resync-sync --audit, without hashes: {theirs:.3g} s, {theirs / ours:.1f} times ours"
        return row(f"audit of {self.count:,} files", ours, "sha256sum -c", limit, goal=1.25, note=note)

    def nothing(self, rounds: int) -> list[Row]:
        """A poll where nothing has changed."""
        copy = self.base / "copy1"
        since = now()
        ours, theirs, limit = in_turns(
            [
                lambda: self.ours("sync", self.url, str(copy)),
                lambda: self.theirs(*self.incremental(since), str(self.base / "copy2")),
                lambda: timed([sys.executable, "-c", "pass"]),
            ],
            rounds + 2,
        )
        return [
            row("poll, nothing changed", ours, "resync-sync --incremental", theirs, goal=4),
            row("poll, nothing changed", ours, "starting Python", limit, goal=0.25),
        ]

    def incremental(self, since: str) -> list[str]:
        changes = f"{self.url}/files/changelist/open.xml"
        return ["--incremental", "--delete", "--from", since, "--changelist-uri", changes, self.url]

    def increment(self, rounds: int) -> Row:
        """Changes of all kinds, over copies as they were before."""
        copies = [self.fresh() for _ in range(2 * rounds)]
        for number, copy in enumerate(copies):
            shutil.copytree(self.base / f"copy{1 + number % 2}", copy)
        since = now()
        time.sleep(1.1)  # resync-sync knows whole seconds only
        self.change()
        left = iter(copies)
        ours, theirs = in_turns(
            [
                lambda: self.ours("sync", self.url, str(next(left))),
                lambda: self.theirs(*self.incremental(since), str(next(left))),
            ],
            rounds,
        )
        work = f"increment of {self.changes:,} changes over {self.count:,}"
        return row(work, ours, "resync-sync, unverified", theirs, goal=3, note="ours is verified")

    def change(self) -> None:
        """Update, create and delete files, and wait until the Change List shows all of it."""
        chance = random.Random(2)
        for number in range(self.changes):
            path = self.files / f"{number // 200:03d}" / f"f{number:05d}"
            if number % 10 == 0:
                path.unlink()
            elif number % 10 == 1:
                path.with_name(f"n{number:05d}").write_bytes(chance.randbytes(OCTETS))
            else:
                path.write_bytes(chance.randbytes(OCTETS))
        wait_until(lambda: read_text(f"{self.url}/files/changelist.xml").count("<url>") >= self.changes)


def now() -> str:
    return dt.datetime.now(dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _address(log: Path) -> str:
    found = [word for word in log.read_text().split() if word.startswith("http://")]
    return found[0].rstrip(".,/") if found else ""


def read_text(url: str) -> str:
    try:
        with urlopen(url, timeout=10) as answer:  # loopback
            return str(answer.read().decode())
    except OSError:
        return ""


def wait_until(look: Callable[[], Found], seconds: float = 120.0) -> Found:
    """Look until there is something."""
    deadline = time.monotonic() + seconds
    while not (found := look()):
        if time.monotonic() > deadline:
            raise TimeoutError("the server has not published in time")
        time.sleep(0.1)
    return found
