"""A baseline from a Resource Dump, verified and placed: against `rsync -a` over its daemon and `resync-sync`."""

from __future__ import annotations

import itertools
import tempfile
from pathlib import Path
from typing import Any

from bench.dumps import tools
from bench.dumps.content import FILES, QUICK_FILES, text_files
from bench.dumps.program import answers, can, not_there, report, served
from bench.rows import Row, in_turns, row


def run(quick: bool) -> list[Row]:
    """On loopback, all from one folder; no copy is removed before the end."""
    count, rounds = (QUICK_FILES, 1) if quick else (FILES, 3)
    work = f"baseline of {count:,} × 4 KiB from a dump, verified"
    if gone := tools.missing(work, "rsync"):
        return [gone]
    if not can("serve", "--dump"):
        return [not_there(work, "serve", "--dump")]
    with tempfile.TemporaryDirectory(prefix="headwater-bench-") as name:
        base = Path(name)
        files = text_files(base / "files", count)
        with served(files, base / "state", "--dump") as url, tools.rsync_daemon(files, base) as daemon:
            tools.until(lambda: b".zip" in answers(f"{url}/files/resourcedump.xml"))
            names = (base / f"copy{number}" for number in itertools.count())
            taken: dict[str, Any] = {}

            def ours() -> float:
                taken.update(report("sync", "--prefer", "dumps", url, str(next(names))))
                return float(taken["bench_seconds"])

            seconds, rsynced, resync = in_turns(
                [
                    ours,
                    lambda: tools.rsynced(daemon, next(names)),
                    lambda: tools.resync_copied(url, url, next(names)),
                ],
                rounds,
            )
            note = f"{seconds / count * 1e6:.0f} µs a resource; {way(taken)}"
            return [
                row(work, seconds, "rsync -a from its daemon", rsynced, bar=0.7, goal=1, note=note),
                row(work, seconds, "resync-sync --hash sha-256", resync, bar=12),
            ]


def way(report: dict[str, Any]) -> str:
    """What a report says of the ways that resources came."""
    ways = [one for each in report["sets"] for one in each.get("ways", ()) if one["taken"]]
    told = [f"{one['resources']:,} by {one['way']} in {one['requests']} requests" for one in ways]
    return "; ".join(told) or "all by single requests"
