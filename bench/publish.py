"""Publishing a folder: against resync-build with the same hashes, against `find`, and how much is written anew.

Each contestant runs in a process of its own, start included; both write their lists for the same files.
"""

from __future__ import annotations

import datetime as dt
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from bench.rows import Row, in_turns, row
from headwater.catalog.interface import Metadata, Upsert
from headwater.catalog.sqlite_catalog import SqliteCatalog
from headwater.publish.plan import Refresh
from headwater.publish.publisher import Publisher
from headwater.publish.site import Site
from headwater.source.configured_source import utc_now
from headwater.storage.folder_store import FolderStore

BASE = "http://localhost/data"
FILES, QUICK_FILES = 100_000, 2_000
RESOURCES, QUICK_RESOURCES = 1_000_000, 100_000
CHANGES = 1_000
START = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)


def run(quick: bool) -> list[Row]:
    """The rows of this room."""
    count = QUICK_FILES if quick else FILES
    with tempfile.TemporaryDirectory(prefix="headwater-bench-") as name:
        bench = Bench(Path(name), count, rounds=1 if quick else 3)
        rows = [bench.first(), bench.placed(), bench.nothing(), bench.changed()]
    return [*rows, _pages(QUICK_RESOURCES if quick else RESOURCES)]


class Bench:
    """One folder of files of 2 to 8 KiB, published again and again."""

    def __init__(self, base: Path, count: int, rounds: int) -> None:
        self.base = base
        self.count = count
        self.rounds = rounds
        self.files = base / "files"
        self.out = base / "out"
        self.peak = 0.0
        _fill(self.files, count)

    def ours(self, *more: str) -> float:
        where = ["--files", str(self.files), "--to", str(self.out), "--base-url", BASE]
        command = [sys.executable, "-m", "headwater", "publish", *where, *more]
        seconds, self.peak = _measured(command)
        return seconds

    def afresh(self, *more: str) -> float:
        shutil.rmtree(self.out, ignore_errors=True)
        return self.ours(*more)

    def peer(self) -> float:
        """resync-build writes more than 50,000 entries only into a folder that is itself mapped to a URI."""
        out = self.base / "peer"
        shutil.rmtree(out, ignore_errors=True)
        out.mkdir()
        program = str(Path(sys.executable).with_name("resync-build"))
        hashes = ["--hash", "md5", "--hash", "sha-256"]
        lists = ["--write-resourcelist", "--outfile", str(out / "resourcelist.xml"), "--paths", str(self.files)]
        maps = [f"{BASE}/files/resources={self.files}", f"{BASE}/files={out}"]
        return _measured([program, *hashes, *lists, *maps])[0]

    def first(self) -> Row:
        ours, peer = in_turns([lambda: self.afresh("--resources", "none"), self.peer], self.rounds)
        work = f"publish {self.count:,} files, md5 and sha-256"
        note = f"{self.count / ours:,.0f} files/s, peak {self.peak:.0f} MiB"
        return row(work, ours, "resync-build, same hashes", peer, bar=2, goal=3.5, note=note)

    def placed(self) -> Row:
        ours, peer = in_turns([self.afresh, self.peer], 1)
        note = "the peer writes lists only; ours places every file as well"
        return row(f"publish {self.count:,} files with hard links", ours, "resync-build, same hashes", peer, note=note)

    def nothing(self) -> Row:
        self.ours()  # links have moved every ctime: from here on nothing is read
        find = ["find", str(self.files), "-type", "f", "-printf", "%s %T@ %C@ %i %p\\n"]
        ours, limit = in_turns([self.ours, lambda: _measured(find)[0]], self.rounds)
        met = ours <= 1.0 * self.count / FILES if self.count == FILES else None
        note = f"within 1 s for 100,000 files asked for; peak {self.peak:.0f} MiB"
        return row(f"republish {self.count:,} files, nothing changed", ours, "find -printf", limit, note=note) | {
            "met": met
        }

    def changed(self) -> Row:
        chance = random.Random(7)
        names = sorted(self.files.rglob("*.txt"))
        changes = min(CHANGES, self.count // 10)
        for path in chance.sample(names, changes):
            path.write_bytes(path.read_bytes() + b"+")
        before = {path: path.stat().st_ino for path in self.out.glob("files/**/*.xml")}
        ours, peer = in_turns([self.ours, self.peer], 1)
        after = {path: path.stat().st_ino for path in self.out.glob("files/**/*.xml")}
        written = sum(before.get(path) != inode for path, inode in after.items())
        note = f"{written} of {len(after)} documents written (changes lie on all pages)"
        work = f"republish {self.count:,} files after {changes:,} changes"
        return row(work, ours, "resync-build, same hashes", peer, note=note)


def _pages(count: int) -> Row:
    """1,000 neighbouring changes among many resources: only their page, the open list and indexes are written."""
    with tempfile.TemporaryDirectory(prefix="headwater-bench-") as name:
        place = Path(name) / "catalog.sqlite"
        catalog = SqliteCatalog(place)
        store = FolderStore(Path(name) / "documents")
        publisher = Publisher(catalog, store, Site(base_url=BASE), utc_now)
        catalog.create("files")
        for first in range(0, count, 10_000):
            catalog.load("files", [_event(number, 0) for number in range(first, min(first + 10_000, count))])
        catalog.open("files", START)
        began = time.perf_counter()
        everything = publisher.publish("files", START, Refresh.STALE)
        whole = time.perf_counter() - began
        catalog.record("files", [_event(number, 1) for number in range(CHANGES)], dt.datetime.now(dt.UTC))
        began = time.perf_counter()
        done = publisher.publish("files", dt.datetime.now(dt.UTC), Refresh.STALE)
        seconds = time.perf_counter() - began
        catalog.close()
    pages = [one for one in done.written if "resourcelist/" in one]
    expected = {"files/resourcelist.xml", "files/changelist.xml", "files/changelist/open.xml", *pages}
    note = f"{len(done.written)} of {len(everything.written)} documents written, {len(pages)} of them a page"
    work = f"documents after {CHANGES:,} changes among {count:,} resources"
    met = set(done.written) <= expected and len(pages) <= 1
    result = row(work, seconds, "publishing all of it", whole, note=note)
    return result | {"met": met, "bar": None}


def _event(number: int, version: int) -> Upsert:
    seed = f"{number:016x}{version:016x}"
    hash_ = f"md5:{seed} sha-256:{seed}{seed}"
    lastmod = START + dt.timedelta(seconds=number % 86_400)
    return Upsert(f"{number // 1000:04d}/{number:08d}.pdf", Metadata(lastmod=lastmod, hash=hash_, length=number))


def _fill(folder: Path, count: int) -> None:
    chance = random.Random(1)
    data = chance.randbytes(1 << 20)
    for number in range(count):
        where = folder / f"{number // 1000:03d}" / f"{number // 100 % 10}"
        if number % 100 == 0:
            where.mkdir(parents=True, exist_ok=True)
        start = chance.randrange((1 << 20) - 8192)
        (where / f"file-{number:06d}.txt").write_bytes(data[start : start + chance.randrange(2048, 8192)])


def _measured(command: Sequence[str]) -> tuple[float, float]:
    """Seconds, and the peak memory in MiB of the process itself."""
    began = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _pid, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command)
    return time.perf_counter() - began, usage.ru_maxrss / 1024
