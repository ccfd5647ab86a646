"""Records harvested by OAI-PMH from a server that costs nothing: kept, hashed and recorded, against oaipmh-scythe.

The peer only reads: it keeps nothing. Both run in processes of their own, in turns, and report the time of the harvest.
"""

from __future__ import annotations

import multiprocessing
import os
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path

from bench.rows import Row, in_turns

PAGE = 100
FIELDS = ["title", "creator", "subject", "description", "publisher", "date", "type", "format", "identifier", "language"]
HEAD = (
    '<?xml version="1.0" encoding="UTF-8"?>\n<OAI-PMH xmlns="http://www.openarchives.org/OAI/2.0/"'
    ' xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance" xsi:schemaLocation="http://www.openarchives.org/OAI/2.0/'
    ' http://www.openarchives.org/OAI/2.0/OAI-PMH.xsd"><responseDate>2024-06-01T00:00:00Z</responseDate>'
    "<request>http://example.org/oai</request>"
)
OURS = """
import datetime as dt, sys, time
from pathlib import Path
from headwater.catalog.sqlite_catalog import SqliteCatalog
from headwater.ingest.oai.harvester import OaiHarvester, OaiLists
from headwater.ingest.push.feed import Feed
from headwater.ingest.push.resource_locations import Locations
state = Path(sys.argv[2])
catalog = SqliteCatalog(state / "catalog.sqlite")
feed = Feed(catalog, "s", Locations("http://example.org/s/resources/"), lambda: dt.datetime.now(dt.UTC))
harvester = OaiHarvester(feed, state / "octets", OaiLists(url=sys.argv[1]))
started = time.perf_counter()
tally = harvester.harvest()
print(tally.requests if len(sys.argv) > 4 else time.perf_counter() - started)
assert catalog.state("s").count == int(sys.argv[3]) and not tally.faults
"""
SCYTHE = """
import sys, time
from oaipmh_scythe import Scythe
started = time.perf_counter()
with Scythe(sys.argv[1]) as scythe:
    count = sum(1 for _ in scythe.list_records(metadata_prefix="oai_dc"))
print(time.perf_counter() - started)
assert count == int(sys.argv[2])
"""


def run(quick: bool) -> list[Row]:
    """A row for the first harvest, and one for a run without news."""
    count, rounds = (2_000, 1) if quick else (20_000, 5)
    shm = Path("/dev/shm")
    with repository(count) as url, tempfile.TemporaryDirectory(dir=shm if os.access(shm, os.W_OK) else None) as base:
        numbers = iter(range(rounds))
        ours, scythe = in_turns(
            [lambda: kept(url, Path(base) / f"{next(numbers)}", count), partial(read, url, count)], rounds
        )
    many = 5 * count
    with repository(many) as url, tempfile.TemporaryDirectory(dir=shm if os.access(shm, os.W_OK) else None) as base:
        kept(url, Path(base) / "many", many)
        requests = float(told(OURS, url, Path(base) / "many", many, "requests"))
    return [
        {
            "work": f"{count:,} records of oai_dc harvested, kept as files and recorded, {PAGE} a page",
            "ours": f"{count / ours:,.0f} records/s",
            "against": "oaipmh-scythe, which only reads",
            "other": f"{count / scythe:,.0f} records/s",
            "ratio": scythe / ours,
            "bar": 2.0,
        },
        {
            "work": f"the next harvest of {many:,} records of one prefix, without news",
            "ours": f"{requests:.0f} requests",
            "against": "the bar",
            "other": "3 requests",
            "met": requests <= 3,
        },
    ]


def told(code: str, *arguments: object) -> str:
    """What a process says that runs this code."""
    command = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def kept(url: str, state: Path, count: int) -> float:
    """Seconds that our harvest takes."""
    state.mkdir()
    return float(told(OURS, url, state, count))


def read(url: str, count: int) -> float:
    """Seconds that the peer takes."""
    return float(told(SCYTHE, url, count))


@contextmanager
def repository(count: int) -> Iterator[str]:
    """The base URL of a repository in a process of its own, whose answers are there before they are asked for."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve, args=(count, theirs), daemon=True)
    process.start()
    try:
        yield f"http://127.0.0.1:{ours.recv()}/oai"
    finally:
        process.terminate()
        process.join()


def _record(number: int) -> str:
    fields = "".join(f"<dc:{one}>{one} of the record number {number} lorem ipsum</dc:{one}>" for one in FIELDS)
    at = f"2024-01-{number % 28 + 1:02d}T00:00:{number % 60:02d}Z"
    return (
        f"<record><header><identifier>oai:example.org:{number}</identifier><datestamp>{at}</datestamp>"
        '<setSpec>a</setSpec></header><metadata><oai_dc:dc xmlns:oai_dc="http://www.openarchives.org/OAI/2.0/oai_dc/"'
        ' xmlns:dc="http://purl.org/dc/elements/1.1/" xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance"'
        ' xsi:schemaLocation="http://www.openarchives.org/OAI/2.0/oai_dc/'
        f' http://www.openarchives.org/OAI/2.0/oai_dc.xsd">{fields}</oai_dc:dc></metadata></record>'
    )


def _answer(body: str) -> bytes:
    octets = f"{HEAD}{body}</OAI-PMH>".encode()
    return b"HTTP/1.1 200 OK\r\nContent-Type: text/xml\r\nContent-Length: %d\r\n\r\n%b" % (len(octets), octets)


def _serve(count: int, told: Connection) -> None:
    pages = []
    for start in range(0, count, PAGE):
        token = start + PAGE if start + PAGE < count else ""
        records = "".join(map(_record, range(start, start + PAGE)))
        said = f'<resumptionToken completeListSize="{count}" cursor="{start}">{token}</resumptionToken>'
        pages.append(_answer(f"<ListRecords>{records}{said}</ListRecords>"))
    described = _answer(
        "<Identify><repositoryName>r</repositoryName><deletedRecord>persistent</deletedRecord><earliestDatestamp>"
        "2020-01-01T00:00:00Z</earliestDatestamp><granularity>YYYY-MM-DDThh:mm:ssZ</granularity></Identify>"
    )
    newest = _answer(f"<ListRecords>{_record(count - count % 28 - 1)}</ListRecords>")

    def answer(connection: socket.socket) -> None:
        received = b""
        while block := connection.recv(1 << 16):
            received += block
            while b"\r\n\r\n" in received:
                head, _, received = received.partition(b"\r\n\r\n")
                query = head.split(b" ", 2)[1].partition(b"?")[2]
                if b"resumptionToken=" in query:
                    sent = pages[int(query.partition(b"resumptionToken=")[2].partition(b"&")[0]) // PAGE]
                elif b"Identify" in query:
                    sent = described
                else:
                    sent = newest if b"from=" in query else pages[0]
                connection.sendall(sent)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        told.send(listener.getsockname()[1])
        while True:
            connection, _ = listener.accept()
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=answer, args=(connection,), daemon=True).start()
