"""A million records of 500 octets over 20 ms: copied, verified and audited, against a feed that is read page by page.

The source is `headwater simulate`; its octets are made when they are asked for. Records a second count the seconds of
`sync` and `audit` together. The feed has the same records, ready, a thousand a page (`bench.dumps.record_feed`); what
its harvester gets is not verified, because such a feed states no digests.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path

from bench.dumps.copying import way
from bench.dumps.delaying_proxy import delayed
from bench.dumps.latency import MILLISECONDS
from bench.dumps.program import can, free_port, headwater, not_there, report, running
from bench.dumps.record_feed import A_PAGE, OCTETS, SEED, feed, harvest
from bench.rows import Row

RECORDS, QUICK_RECORDS = 1_000_000, 20_000
BAR, GOAL = 10_000, 20_000
"""Records a second."""


def run(quick: bool) -> list[Row]:
    """Ours against the bar, then against the feed, read only and placed."""
    count = QUICK_RECORDS if quick else RECORDS
    work = f"{count:,} records of {OCTETS} octets over 20 ms, on demand, audited"
    if not can("sync", "--prefer"):
        return [not_there(work, "sync", "--prefer")]
    with tempfile.TemporaryDirectory(prefix="headwater-bench-") as name:
        base = Path(name)
        with simulated(count, base / "state") as url:
            taken = report("sync", "--prefer", "dumps", url, str(base / "copy"))
            copied = float(taken["bench_seconds"])
            audited = headwater("audit", url, str(base / "copy"))
        with feed(count) as address, delayed(address, MILLISECONDS) as url:
            read, reading = harvest(url, None)
            placed, placing = harvest(url, base / "harvest")
        assert read == placed == count
    seconds = copied + audited
    rate = count / seconds
    ours = f"{rate:,.0f} records/s"
    verdict = "" if quick else "goal" if rate >= GOAL else "bar" if rate >= BAR else "below the bar"
    note = f"sync {copied:.3g} s ({count / copied:,.0f}/s), audit {audited:.3g} s; {way(taken)}"
    first: Row = {"work": work, "ours": ours, "against": "the bar", "other": f"{BAR:,} records/s", "note": note}
    rows = [first | {"met": None if quick else rate >= BAR, "verdict": verdict}]
    for against, others in (
        (f"a feed, {A_PAGE:,} a page: a file each", placing),
        (f"a feed, {A_PAGE:,} a page: parsed only", reading),
    ):
        other = f"{count / others:,.0f} records/s"
        more = "nothing of it is verified; its pages are ready"
        rows.append({"work": work, "ours": ours, "against": against, "other": other, "ratio": others / seconds})
        rows[-1]["note"] = more
    return rows


@contextlib.contextmanager
def simulated(count: int, state: Path) -> Iterator[str]:
    """The URL of a simulated source that does not change, 20 ms away."""
    port = free_port()
    words = ["--resources", str(count), "--size", str(OCTETS), "--seed", str(SEED), "--rate", "0"]
    words += ["--hash", "sha-256", "--state", str(state), "--base-url", f"http://127.0.0.1:{port}"]
    with (
        running("simulate", *words) as (address, _),
        delayed(address.removeprefix("http://"), MILLISECONDS, port) as url,
    ):
        yield url
