"""The catalog on SQLite against the driver alone: what pages, log and limits cost on top of bare rows."""

from __future__ import annotations

import datetime as dt
import hashlib
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import apsw

from bench.rows import Row, in_turns, row
from headwater.catalog.interface import Metadata, Rendered, Upsert
from headwater.catalog.sqlite_catalog import SqliteCatalog
from headwater.storage.database import Durability

START = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
BATCH = 10_000
BARE = """
CREATE TABLE resource (set_id INTEGER, uri TEXT, lastmod INTEGER, hash TEXT, length INTEGER, type TEXT, memo BLOB,
                       PRIMARY KEY (set_id, uri)) WITHOUT ROWID
"""
INSERT = "INSERT OR REPLACE INTO resource VALUES (?, ?, ?, ?, ?, ?, ?)"
SELECT = "SELECT * FROM resource WHERE set_id = 1 AND uri >= ? ORDER BY uri LIMIT 50000"


def event(number: int, version: int = 0) -> Upsert:
    seed = b"%d %d" % (number, version)
    metadata = Metadata(
        lastmod=START + dt.timedelta(seconds=number),
        hash=f"md5:{hashlib.md5(seed).hexdigest()} sha-256:{hashlib.sha256(seed).hexdigest()}",
        length=number * 7,
        type="application/pdf",
    )
    return Upsert(f"files/{number // 1000:05d}/{number:09d}.pdf", metadata, b"123456789012")


def bare_row(upsert: Upsert) -> tuple[object, ...]:
    metadata = upsert.metadata
    assert metadata.lastmod is not None
    lastmod = round(metadata.lastmod.timestamp() * 1_000_000)
    return (1, upsert.uri, lastmod, metadata.hash, metadata.length, metadata.type, upsert.memo)


class Bare:
    """The driver alone: ready rows into one table, the same durability, the same batches."""

    def __init__(self, path: Path, durability: Durability) -> None:
        self.connection = apsw.Connection(str(path))
        for pragma in ("journal_mode = WAL", f"synchronous = {durability.value}", "cache_size = -16384"):
            self.connection.execute(f"PRAGMA {pragma}").fetchall()
        self.connection.execute(BARE)

    def put(self, rows: list[tuple[object, ...]]) -> None:
        for start in range(0, len(rows), BATCH):
            with self.connection:
                self.connection.executemany(INSERT, rows[start : start + BATCH])


def clocked(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def run(quick: bool) -> list[Row]:
    """Rows of the table; `quick` takes a twentieth of the resources."""
    size = 50_000 if quick else 1_000_000
    with tempfile.TemporaryDirectory(prefix="headwater-bench-") as folder:
        return _run(Path(folder), size, rounds=1 if quick else 3)


def _run(folder: Path, size: int, rounds: int) -> list[Row]:
    events = [event(number) for number in range(size)]
    rows = [bare_row(upsert) for upsert in events]
    numbers = iter(range(10**9))
    catalogs: list[SqliteCatalog] = []
    bares: list[Bare] = []

    def load() -> float:
        catalog = SqliteCatalog(folder / f"ours{next(numbers)}.db")
        catalog.create("s")
        catalogs.append(catalog)

        def work() -> None:
            for start in range(0, size, BATCH):
                catalog.load("s", events[start : start + BATCH])
            catalog.open("s", START)

        return clocked(work)

    def bare_load() -> float:
        bares.append(Bare(folder / f"bare{next(numbers)}.db", Durability.FULL))
        return clocked(lambda: bares[-1].put(rows))

    loaded = in_turns([load, bare_load], rounds)
    catalog, bare = catalogs[-1], bares[-1]
    found = [
        row(
            f"first load of {size:,} resources",
            loaded[0],
            "apsw, bare INSERT of ready rows",
            loaded[1],
            bar=0.35,
            note=f"{size / loaded[0]:,.0f}/s; goal 200,000/s",
        )
    ]
    found.append(_record(catalog, bare, size))
    found.append(_page(catalog, bare, rounds))
    found.append(_touched(catalog, size))
    for one in catalogs:
        one.close()
    for other in bares:
        other.connection.close()
    return found


def _record(catalog: SqliteCatalog, bare: Bare, size: int) -> Row:
    versions = iter(range(1, 10**6))

    def changed() -> list[Upsert]:
        version = next(versions)
        return [event((number * 7919 + version * 31) % size, version) for number in range(1_000)]

    def ours() -> float:
        batch = changed()
        return clocked(lambda: catalog.record("s", batch, START))

    def theirs() -> float:
        rows = [bare_row(upsert) for upsert in changed()]
        return clocked(lambda: bare.put(rows))

    seconds = in_turns([ours, theirs], 7)
    note = "ours also writes the log, the pages' and the segment's books; goal 25 ms"
    return row(f"record 1,000 changes among {size:,}", seconds[0], "apsw, bare upserts", seconds[1], note=note)


def _page(catalog: SqliteCatalog, bare: Bare, rounds: int) -> Row:
    number = max(0, catalog.state("s").page_count // 2 - 1)
    first = next(catalog.page("s", number)).uri

    def ours() -> float:
        return clocked(lambda: sum(1 for _ in catalog.page("s", number)))

    def theirs() -> float:
        return clocked(lambda: sum(1 for _ in bare.connection.execute(SELECT, (first,))))

    seconds = in_turns([ours, theirs], rounds + 2)
    note = "ours yields records with times; goal 0.1 s"
    return row("read a page of 50,000 in order", seconds[0], "apsw, bare SELECT", seconds[1], note=note)


def _touched(catalog: SqliteCatalog, size: int) -> Row:
    """Not a race: how many pages 100 changes in one place and one new resource make stale."""
    pages = catalog.pages("s")
    catalog.rendered("s", [Rendered(page.number, page.touched, START, START) for page in pages])
    catalog.record("s", [event(number, 10**6) for number in range(100)], START)
    catalog.record("s", [event(size + 1)], START)
    stale = sum(page.touched > page.rendered for page in catalog.pages("s"))
    wanted = min(2, len(pages))
    return {
        "work": f"pages made stale by 100 changes in one place and one addition, of {len(pages)}",
        "ours": str(stale),
        "against": "pages that hold them",
        "other": str(wanted),
        "met": stale <= wanted + 1,
        "note": "a full last page makes one more",
    }
