"""`make bench`: one table of what we do, how fast, against whom, and whether the bars are cleared.

`python -m bench [--quick] [--write] [ROOM ...]`; each room has `run(quick)`, which returns rows (see `bench.rows`).
"""

from __future__ import annotations

import argparse
import datetime
import importlib.util
import multiprocessing
import os
import platform
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from bench import charts
from bench.rows import Row, rows_of

ROOMS = (
    "codec",
    "catalog",
    "cluster",
    "dumps",
    "fleet",
    "hub",
    "latency",
    "lists",
    "notifications",
    "oai",
    "past",
    "patches",
    "publish",
    "push",
    "rdf",
    "rdf_source",
    "rdf_store",
    "scale",
    "serve",
    "sync",
    "versions",
)
COLUMNS = ("work", "ours", "against", "other", "ratio", "bar", "goal", "verdict", "note")
BEGIN, END = "<!-- table: begin (written by `make bench ARGS=--write`) -->", "<!-- table: end -->"


def main() -> int:
    parser = argparse.ArgumentParser(prog="bench")
    parser.add_argument("rooms", nargs="*", metavar="ROOM", help=f"some of {', '.join(ROOMS)}; all by default")
    parser.add_argument("--quick", action="store_true", help="small sizes: shows that it runs, not how fast")
    parser.add_argument(
        "--write", action="store_true", help="put the tables into bench/results.md, and draw its charts"
    )
    options = parser.parse_args()
    rows: list[Row] = []
    started = time.monotonic()
    for room in options.rooms or ROOMS:
        if importlib.util.find_spec(f"bench.{room}") is None:
            print(f"bench: no bench.{room}", file=sys.stderr)
            continue
        print(f"bench: {room} ({time.monotonic() - started:.0f} s)", file=sys.stderr, flush=True)
        rows += [judged(row) for row in apart(room, options.quick)]
    report = f"{machine()}\n\n{table(rows)}\n"
    print(report)
    if options.write:
        write(report)
    return 1 if any(row["verdict"] == "below the bar" for row in rows) and not options.quick else 0


def apart(room: str, quick: bool) -> list[Row]:
    """The rows of one room, from a process of its own: what others hold in memory is not counted for its children."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(rows_of, room, quick).result()


def judged(row: Row) -> Row:
    """The row with its verdict: against the bar first, then the goal."""
    ratio, bar, goal = row.get("ratio"), row.get("bar"), row.get("goal")
    met = row.get("met")
    if met is None and isinstance(ratio, int | float) and isinstance(bar, int | float):
        met = ratio >= bar
    reached = isinstance(ratio, int | float) and isinstance(goal, int | float) and ratio >= goal
    verdict = "below the bar" if met is False else "goal" if reached else "bar" if met else ""
    return {**row, "verdict": row.get("verdict", verdict)}


def table(rows: list[Row]) -> str:
    columns = [name for name in COLUMNS if any(row.get(name) not in (None, "") for row in rows)]
    lines = ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    lines += ["| " + " | ".join(cell(name, row.get(name)) for name in columns) + " |" for row in rows]
    return "\n".join(lines)


def cell(name: str, value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, int | float) and not isinstance(value, bool):
        times = name in ("ratio", "bar", "goal")
        return f"{'≥ ' if name in ('bar', 'goal') else ''}{value:.3g}{'×' if times else ''}"
    return str(value).replace("|", "\\|").replace("\n", " ")


def machine() -> str:
    """What the figures were measured on."""
    model = "unknown processor"
    info = Path("/proc/cpuinfo")
    if info.exists():
        names = [
            line.split(":", 1)[1].strip() for line in info.read_text().splitlines() if line.startswith("model name")
        ]
        model = names[0] if names else model
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    now = datetime.datetime.now(datetime.UTC)
    return (
        f"{now:%Y-%m-%d %H:%M} UTC; {os.cpu_count()} cores ({model}), {memory:.0f} GiB, "
        f"{platform.system()} {platform.release()}, Python {platform.python_version()}; "
        "client, server and peer share the machine. Ratio: the other's time by ours, so that more is better."
    )


def write(report: str) -> None:
    text = charts.PAGE.read_text("utf-8")
    start, end = text.index(BEGIN) + len(BEGIN), text.index(END)
    charts.PAGE.write_text(f"{text[:start]}\n\n{report}\n{text[end:]}", "utf-8")
    charts.main()


if __name__ == "__main__":
    sys.exit(main())
