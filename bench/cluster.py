"""The catalog on a real OpenSearch against bare bulk requests of the same documents: what the protocol costs on top."""

from __future__ import annotations

import itertools
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from tools.engines.engine import Engine
from tools.engines.errors import Unavailable

from bench.catalog import START, clocked, event
from bench.rows import Row, in_turns, row
from headwater.catalog import page_filling
from headwater.catalog.cluster.catalog import ClusterCatalog
from headwater.catalog.cluster.documents import resource_operation
from headwater.catalog.cluster.schema import remove
from headwater.catalog.interface import ClusterOptions, Event, Limits
from headwater.catalog.page_filling import Places
from headwater.storage.cluster import Access, Cluster, Node

LAYOUT = ClusterOptions(replicas=0)


def run(quick: bool) -> list[Row]:
    """Rows of the table; none, and a word about it, where no engine can run. `quick` takes a twentieth."""
    try:
        engine = Engine("opensearch", heap="2g", quick=False)
    except Unavailable as error:
        print(f"bench: no OpenSearch: {error}", file=sys.stderr)
        return []
    with engine:
        return _run(engine, 50_000 if quick else 1_000_000, rounds=1 if quick else 3)


def _run(engine: Engine, size: int, rounds: int) -> list[Row]:
    access = Access(nodes=(Node("127.0.0.1", engine.port),))
    numbers = itertools.count()
    events: list[Event] = [event(number) for number in range(size)]
    operations = _operations(events)
    cluster = Cluster(access)

    @contextmanager
    def fresh() -> Iterator[tuple[str, ClusterCatalog]]:
        prefix = f"bench-{next(numbers)}"
        catalog = ClusterCatalog(access, prefix, options=LAYOUT)
        catalog.create("s")
        yield prefix, catalog
        remove(cluster, prefix)
        catalog.close()

    def load(catalog: ClusterCatalog) -> None:
        batch = catalog.load_batch
        for start in range(0, size, batch):
            catalog.load("s", events[start : start + batch])
        catalog.open("s", START)

    def ours() -> float:
        with fresh() as (_, catalog):
            seconds = clocked(lambda: load(catalog))
            assert catalog.state("s").count == size
        return seconds

    def bare() -> float:
        with fresh() as (prefix, _):
            return clocked(lambda: cluster.stream(f"{prefix}-resource", iter(operations), lambda: None))

    for contestant in (ours, bare):
        contestant()  # the engine compiles what it runs often: one round of each is not counted
    loaded = in_turns([ours, bare], rounds)
    note = f"{size / loaded[0]:,.0f}/s; bare: the same requests, ready, as many at a time"
    rows = [row(f"first load of {size:,} resources into OpenSearch", loaded[0], "bulk", loaded[1], bar=0.5, note=note)]
    with fresh() as (_, catalog):
        rows += _visible(catalog)
    cluster.close()
    return rows


def _operations(events: list[Event]) -> list[bytes]:
    """What our own load sends, ready."""
    places = Places(Limits(), {}, {}, 0)
    page_filling.load(places, events)
    return [resource_operation("s", put, rev) for rev, put in enumerate(places.outcome().fresh, 1)]


def _visible(catalog: ClusterCatalog) -> list[Row]:
    """From the call of `record` to its change in a reader's hands, at 100 events a second."""
    catalog.load("s", [event(number) for number in range(1_000)])
    catalog.open("s", START)
    seconds: list[float] = []
    began = time.perf_counter()
    for number in range(100):
        due = began + number / 10
        time.sleep(max(0.0, due - time.perf_counter()))
        before = time.perf_counter()
        last = catalog.record("s", [event(n, number + 1) for n in range(10)], START).last
        assert catalog.changes("s", last - 1)[0].seq == last
        seconds.append(time.perf_counter() - before)
    seconds.sort()
    return [
        {
            "work": "10 events every 0.1 s into OpenSearch: accepted and read back from the log",
            "ours": f"{seconds[len(seconds) // 2] * 1e3:.0f} ms median, {seconds[-2] * 1e3:.0f} ms the slowest but one",
            "against": "what the open Change List may take",
            "other": "1 s",
            "met": seconds[-2] < 1.0,
        }
    ]
