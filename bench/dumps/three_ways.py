"""One set of 100,000 records copied by lists, from dumps and on demand, side by side, over 20 ms and on loopback."""

from __future__ import annotations

import itertools
import tempfile
from pathlib import Path
from typing import Any

from bench.dumps import tools
from bench.dumps.content import text_files
from bench.dumps.copying import way
from bench.dumps.latency import distant
from bench.dumps.program import answers, can, not_there, report, served
from bench.rows import Row

RECORDS, QUICK_RECORDS = 100_000, 2_000
OCTETS = 1_000
WAYS = (("lists", "lists"), ("dumps", "dumps"), ("on demand", "dumps"), ("auto", "auto"))
"""The name of a way, and what `--prefer` is then; only the sources of `dumps` and `auto` have written dumps."""


def run(quick: bool) -> list[Row]:
    """A row for each way and distance; the ratio is against single GETs at the same distance."""
    count = QUICK_RECORDS if quick else RECORDS
    work = f"{count:,} records of {OCTETS:,} octets"
    if not (can("serve", "--dump") and can("sync", "--prefer")):
        return [not_there(work, "serve", "--dump, or `sync` no --prefer")]
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="headwater-bench-") as name:
        base = Path(name)
        files = text_files(base / "files", count, OCTETS)
        names = itertools.count()
        for place, source in (("over 20 ms", distant), ("on loopback", served)):
            states = (base / f"state{next(names)}", base / f"state{next(names)}")
            with source(files, states[0], "--dump") as dumping, source(files, states[1]) as bare:
                tools.until(lambda url=dumping: b".zip" in answers(f"{url}/files/resourcedump.xml"))  # type: ignore[misc]
                found = []
                for name_of_way, preferred in WAYS:
                    url = bare if name_of_way == "on demand" else dumping
                    found.append(report("sync", "--prefer", preferred, url, str(base / f"copy{next(names)}")))
            rows += rows_of(f"{work}, {place}", count, found)
    return rows


def rows_of(work: str, count: int, found: list[dict[str, Any]]) -> list[Row]:
    """One row for each way."""
    taken = [float(one["bench_seconds"]) for one in found]
    return [
        {
            "work": f"{work}: {name}",
            "ours": f"{seconds:.3g} s",
            "against": "single GETs",
            "other": f"{taken[0]:.3g} s",
            "ratio": taken[0] / seconds,
            "note": f"{count / seconds:,.0f} records/s; {way(one)}",
        }
        for (name, _), seconds, one in zip(WAYS, taken, found, strict=True)
    ]
