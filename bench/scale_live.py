"""Processes at work on simulated sources: how much memory they hold, and how soon an accepted event can be seen.

`headwater simulate` feeds, publishes and serves in one process, so that its memory bounds that of each part. Events are
looked for over HTTP, as a destination would, by asking for the end of the open Change List again and again.

`python -m bench.scale_live --resources 100000 --catalog opensearch://127.0.0.1:9200/bench?replicas=0` does the same
with a catalog elsewhere, which is loaded first if it is empty.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime as dt
import http.client
import json
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from urllib.parse import urlsplit

from bench.rows import Row
from headwater.catalog.catalog_url import open_catalog
from headwater.simulate.resources import ChangeSettings, SourceSettings, read_mix
from headwater.simulate.simulation import Simulation
from headwater.source.configured_source import CATALOG

SEED = 1
BASE_URL = "http://127.0.0.1:8999"
"""What the documents say; the server is asked at a port of its own."""
RATE = 100
NEARLY_FULL = 45_000
MIX = "created=1,updated=9"
"""Nothing is deleted, so that `bench.scale` finds its first pages as they were, whenever it comes."""
MOST_MIB = 300.0
MOST_SECONDS = 1.0
OPEN = "/files/changelist/open.xml"
_DATETIME = re.compile(rb'datetime="([^"]+)"')


def live_rows(folder: Path, sizes: Sequence[int], seconds: float, catalog: str | None = None) -> list[Row]:
    """Two rows for each size."""
    rows = []
    for size in sizes:
        place = catalog or str(folder / str(size) / CATALOG)
        fill(place, size)
        with served(folder / str(size), size, place) as (process, origin):
            rows.append(visible(origin, size, seconds))
            rows.append(memory(process, origin, size))
    return rows


def fill(place: str, size: int) -> None:
    """Let the open Change List be nearly full: it is written as a whole with every publication."""
    catalog = open_catalog(place)
    world = SourceSettings(resources=size, sets=("files",), seed=SEED)
    Simulation(catalog, world, ChangeSettings()).prepare()
    segment = catalog.segments("files")[-1]
    missing = NEARLY_FULL - (segment.last - segment.first + 1)
    simulation = Simulation(
        catalog, world, ChangeSettings(warp=None, rate=1e6, changes=max(0, missing), mix=read_mix(MIX))
    )
    simulation.prepare()
    while not simulation.is_over:
        simulation.advance()
    catalog.close()


@contextlib.contextmanager
def served(state: Path, size: int, place: str) -> Iterator[tuple[subprocess.Popen[str], tuple[str, int]]]:
    """`headwater simulate` on a source that is there already."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "headwater", "simulate", "--json", "--quiet", "--state", str(state)]
    command += ["--resources", str(size), "--seed", str(SEED), "--rate", str(RATE), "--mix", MIX]
    command += ["--base-url", BASE_URL, "--catalog", place]
    process = subprocess.Popen(
        [*command, "--port", str(port)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, "the simulation has not begun"
        assert urlsplit(json.loads(line)["url"]).port
        yield process, ("127.0.0.1", port)
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)


def visible(origin: tuple[str, int], size: int, seconds: float) -> Row:
    """The age of events when they are first seen, from the moment that they were accepted at."""
    connection = http.client.HTTPConnection(*origin, timeout=30)
    begins = tail(connection, 0)
    position, ages, until = begins[0], list[float](), time.monotonic() + seconds
    while time.monotonic() < until:
        end, entries = tail(connection, position)
        seen_at = time.time()
        ages += [seen_at - moment(text) for text in entries]
        position = end if end >= position else 0
        time.sleep(0.02)
    connection.close()
    ages.sort()
    half, most = ages[len(ages) // 2], ages[-1]
    return {
        "work": f"accepted event visible in the open Change List, {RATE} a second among {size:,}",
        "ours": f"{most:.3g} s at most",
        "against": "the bar",
        "other": f"{MOST_SECONDS:.3g} s",
        "met": most <= MOST_SECONDS and len(ages) > seconds * RATE / 2,
        "note": f"{len(ages):,} events; half within {half:.3g} s; the list had {position / 1e6:.3g} MB",
    }


def tail(connection: http.client.HTTPConnection, position: int) -> tuple[int, list[bytes]]:
    """The size of the open list without its end tag, and the times of the entries from `position` on."""
    connection.request("GET", OPEN, headers={"Range": f"bytes={position}-"})
    answer = connection.getresponse()
    body = answer.read()
    if answer.status == 416:  # a new list has been begun
        return tail(connection, 0)
    assert answer.status == 206, answer.status
    end = body.rfind(b"</url>") + len(b"</url>")
    return (position + end, _DATETIME.findall(body[:end])) if end > 6 else (position, [])


def moment(text: bytes) -> float:
    return dt.datetime.fromisoformat(text.decode().replace("Z", "+00:00")).timestamp()


def memory(process: subprocess.Popen[str], origin: tuple[str, int], size: int) -> Row:
    """The resident memory after lists and resources have been asked for."""
    connection = http.client.HTTPConnection(*origin, timeout=60)
    for number in range(min(20, size // 50_000)):
        connection.request("GET", f"/files/resourcelist/{number:05d}.xml", headers={"Accept-Encoding": "gzip"})
        connection.getresponse().read()
    for number in range(0, size, max(1, size // 2_000)):
        path = f"/files/resources/{number // 1_000_000:03d}/{number // 1_000 % 1_000:03d}/{number:09d}.pdf"
        connection.request("GET", path)
        connection.getresponse().read()
    connection.close()
    steady, peak = resident(process.pid, "VmRSS"), resident(process.pid, "VmHWM")
    return {
        "work": f"memory of publisher and server together, {size:,} resources",
        "ours": f"{steady:.0f} MiB",
        "against": "the bar, for each",
        "other": f"{MOST_MIB:.0f} MiB",
        "met": steady <= MOST_MIB,
        "note": f"peak {peak:.0f} MiB, the simulator's {size / 2**20:.0f} MiB included; {RATE} changes a second",
    }


def resident(pid: int, field: str) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(field)).split()[1]) / 1024


def main() -> None:
    from bench.__main__ import judged, machine, table

    parser = argparse.ArgumentParser(prog="bench.scale_live")
    parser.add_argument("--resources", type=int, default=100_000)
    parser.add_argument("--catalog", required=True, help="a cluster's URL, or a file")
    parser.add_argument("--seconds", type=float, default=30.0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="headwater-bench-") as scratch:
        rows = live_rows(Path(scratch), [options.resources], options.seconds, options.catalog)
    print(f"{machine()}\n\n{table([judged(one) for one in rows])}")


if __name__ == "__main__":
    main()
