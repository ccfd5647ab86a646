"""Simulated sources on SQLite from small to large: what grows with the source, and what only with what changes.

`python -m bench.scale --sizes 100000,1000000,10000000 --folder DIR` measures at sizes of one's own choice and keeps the
catalogs in DIR, so that a second run need not load them again. The rows of processes at work are in `bench.scale_live`.
"""

from __future__ import annotations

import argparse
import hashlib
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from bench.rows import Row, row
from bench.scale_live import BASE_URL, SEED, live_rows
from headwater.catalog.interface import Event, Upsert
from headwater.catalog.sqlite_catalog import SqliteCatalog
from headwater.publish.plan import Refresh
from headwater.publish.publisher import Publisher
from headwater.publish.site import SetSettings, Site
from headwater.simulate.resources import ChangeSettings, Filler, SourceSettings, SyntheticResources
from headwater.simulate.simulation import Simulation
from headwater.source.configured_source import CATALOG, DOCUMENTS, utc_now
from headwater.spec.records import ChangeKind
from headwater.storage.folder_store import FolderStore

CHANGES = 1_000
PAGES = 2
"""The pages that these changes lie on; the smallest source has no more."""


class Cost(msgspec.Struct):
    """Seconds of the clock and of our processor."""

    clock: float
    cpu: float


class Refreshed(msgspec.Struct, kw_only=True):
    """What it takes at one size: to record the changes, to publish them, and to render their pages, too."""

    size: int
    record: Cost
    changes: Cost
    pages: Cost
    rendered: int


def run(quick: bool) -> list[Row]:
    """The rows of this room; the largest sizes only on demand."""
    sizes, seconds = ((100_000, 200_000), 5.0) if quick else ((100_000, 1_000_000), 20.0)
    with tempfile.TemporaryDirectory(prefix="headwater-bench-") as folder:
        return rows_of(Path(folder), sizes, rounds=3 if quick else 5, seconds=seconds)


def rows_of(folder: Path, sizes: Sequence[int], rounds: int, seconds: float, parts: str = "all") -> list[Row]:
    """Load what is not there yet, and measure."""
    rows = [made()]
    loads = [loaded(folder / str(size), size) for size in sizes]
    rows += [one for one in loads if one is not None]
    if parts in ("all", "refresh"):
        rows += refresh_rows([refreshed(folder / str(size), size, rounds) for size in sizes])
    if parts in ("all", "live"):
        rows += live_rows(folder, sizes, seconds)
    return rows


def world_of(size: int) -> SourceSettings:
    return SourceSettings(resources=size, sets=("files",), seed=SEED)


def made() -> Row:
    """The price of a true entry, against hashing what it stands for."""
    world = world_of(1)
    resources, count = SyntheticResources(world, "files", Filler(SEED, world.hashes)), 50_000
    resources.initial(range(1_000), utc_now())
    ours = cost(lambda: resources.initial(range(count), utc_now())).cpu
    content = resources.content(1, 0)
    octets = content.read(0, content.octets)
    theirs = cost(lambda: [hashlib.md5(octets, usedforsecurity=False).hexdigest() for _ in range(count)]).cpu
    return row(f"make {count:,} entries of 4 KiB", ours, "md5 of ready octets", theirs, note="CPU; digests are true")


def loaded(state: Path, size: int) -> Row | None:
    """Load and publish a source of this size, unless it is there."""
    if (state / "published").exists():
        return None
    state.mkdir(parents=True, exist_ok=True)
    catalog = SqliteCatalog(state / CATALOG)
    load = cost(Simulation(catalog, world_of(size), ChangeSettings()).prepare)
    publisher = publisher_of(catalog, state)
    publish = cost(lambda: publisher.publish("files", utc_now(), Refresh.STALE))
    publisher.site_documents.publish_site()
    catalog.close()
    (state / "published").touch()
    disk = sum(path.stat().st_size for path in state.rglob("*") if path.is_file())
    return {
        "work": f"load {size:,} simulated resources, and publish all",
        "ours": f"{load.clock:.3g} s, {publish.clock:.3g} s",
        "note": f"{size / load.clock:,.0f}/s, {size / publish.clock:,.0f}/s; CPU {load.cpu:.3g} s, {publish.cpu:.3g} s;"
        f" {disk / size:.0f} octets on disk for each",
    }


def publisher_of(catalog: SqliteCatalog, state: Path) -> Publisher:
    site = Site(base_url=BASE_URL, sets=(SetSettings(name="files"),))
    return Publisher(catalog, FolderStore(state / DOCUMENTS), site, utc_now)


def refreshed(state: Path, size: int, rounds: int) -> Refreshed:
    """The median of some rounds of changes, which all lie on the same number of pages whatever the size."""
    catalog = SqliteCatalog(state / CATALOG)
    world = world_of(size)
    resources = SyntheticResources(world, "files", Filler(SEED, world.hashes))
    publisher = publisher_of(catalog, state)
    catalog.close_segment("files", utc_now())  # the open Change List is as long at every size
    publisher.publish("files", utc_now(), Refresh.STALE)
    found: list[tuple[Cost, Cost, Cost]] = []
    rendered = set[int]()
    for version in range(1, rounds + 1):
        events = changed(resources, size, version)
        record = cost(lambda events=events: catalog.record("files", events, utc_now()))  # type: ignore[misc]
        changes = cost(lambda: publisher.publish("files", utc_now()))
        pages = cost(lambda: rendered.add(publisher.publish("files", utc_now(), Refresh.STALE).pages_rendered))
        found.append((record, changes, pages))
    catalog.close()
    medians = [median(column) for column in zip(*found, strict=True)]
    return Refreshed(size=size, record=medians[0], changes=medians[1], pages=medians[2], rendered=max(rendered))


def changed(resources: SyntheticResources, size: int, version: int) -> list[Event]:
    """Updates spread over the first pages: a change is an update of its number, so nobody has to be asked."""
    width = min(size, PAGES * 50_000)
    numbers = [(place * width // CHANGES + version * 7) % width for place in range(CHANGES)]
    events = [resources.event(ChangeKind.UPDATED, number, version, utc_now()) for number in numbers]
    assert all(isinstance(event, Upsert) for event in events)
    return events


def refresh_rows(found: Sequence[Refreshed]) -> list[Row]:
    """Each size against the smallest: what is touched is the same, so the cost should be."""
    small, rows = found[0], []
    for large in found[1:]:
        for work, ours, theirs in (
            (f"record {CHANGES:,} changes", large.record, small.record),
            (f"publish {CHANGES:,} changes, no page due", large.changes, small.changes),
            (f"refresh after {CHANGES:,} changes: {PAGES} pages, lists, index", large.pages, small.pages),
        ):
            note = f"CPU {ours.cpu:.3g} s, {theirs.cpu:.3g} s"
            bar = 0.5 if work.startswith("refresh") else None
            name = f"{work}, among {large.size:,}"
            one = row(name, ours.clock, f"the same among {small.size:,}", theirs.clock, bar=bar, note=note)
            # What is compared must be the same: as many pages, of as many entries.
            rows.append(one if large.rendered == small.rendered == PAGES else one | {"met": False})
    return rows


def cost(work: Callable[[], object]) -> Cost:
    began, used = time.perf_counter(), _used()
    work()
    return Cost(time.perf_counter() - began, _used() - used)


def _used() -> float:
    """Seconds of processor, of this process and of those that it has started and that have ended."""
    return sum(sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))


def median(costs: Sequence[Cost]) -> Cost:
    return Cost(statistics.median(one.clock for one in costs), statistics.median(one.cpu for one in costs))


def main() -> None:
    from bench.__main__ import judged, machine, table

    parser = argparse.ArgumentParser(prog="bench.scale")
    parser.add_argument("--sizes", default="100000,1000000,10000000", help="numbers of resources, the smallest first")
    parser.add_argument("--folder", type=Path, help="keep the catalogs here; a temporary folder by default")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=30.0, help="how long each process at work is watched")
    parser.add_argument("--parts", choices=("all", "refresh", "live"), default="all")
    options = parser.parse_args()
    sizes = sorted(int(size) for size in options.sizes.split(","))
    with tempfile.TemporaryDirectory(prefix="headwater-bench-") as scratch:
        rows = rows_of(options.folder or Path(scratch), sizes, options.rounds, options.seconds, options.parts)
    print(f"{machine()}\n\n{table([judged(one) for one in rows])}", file=sys.stdout)


if __name__ == "__main__":
    main()
