"""OAI-PMH out: a set of many records harvested over HTTP, beside the handler alone of the `oaipmh` server.

`python -m bench.oai_out [RECORDS]`: builds a harvested set of so many records of about 1 kB, has its index made,
compares the first page with the last, and has four clients harvest it at once while 10,000 changes fall: each must
end with the last state of each record, when it has asked for what changed since it began.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import html
import multiprocessing
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlencode

import pycurl
import uvicorn
from oaipmh.common import Header, Identify, Metadata
from oaipmh.metadata import MetadataRegistry
from oaipmh.server import BatchingServer, oai_dc_writer

from bench.oai import FIELDS
from bench.oai_clients import client_names, start, titles
from headwater.catalog.sqlite_catalog import SqliteCatalog
from headwater.ingest.harvested import Harvested, file_name, metadata_of, take_harvested
from headwater.ingest.push.feed import Feed
from headwater.ingest.push.resource_locations import Locations

CONFIG = """state = "state"
port = {port}
base_url = "http://127.0.0.1:{port}"
[[set]]
name = "s"
feed = "oai"
url = "http://127.0.0.1:9/oai"
prefixes = ["oai_dc"]
oai = true
oai_admin = "admin@repository.example.org"
"""
RECORD = (
    '<record xmlns="http://www.openarchives.org/OAI/2.0/"><header><identifier>{id}</identifier>'
    "<datestamp>2020-01-01</datestamp></header><metadata><oai_dc:dc"
    ' xmlns:oai_dc="http://www.openarchives.org/OAI/2.0/oai_dc/" xmlns:dc="http://purl.org/dc/elements/1.1/">'
    "{fields}</oai_dc:dc></metadata></record>"
)
BATCH, CHANGES, PORT = 2_000, 10_000, 18_734
URL = f"http://127.0.0.1:{PORT}/s/oai"
TOKEN = re.compile(rb"<resumptionToken[^>]*>([^<]+)<")


def identifier_of(number: int) -> str:
    return f"oai:repository.example.org:{number:08}"


def fields_of(number: int, title: str) -> dict[str, str]:
    more = {one: f"the {one} of record {number}, lorem ipsum dolor sit amet" for one in FIELDS}
    return more | {"title": title}


def found(number: int, text: str) -> Harvested:
    identifier = identifier_of(number)
    fields = "".join(f"<dc:{name}>{told}</dc:{name}>" for name, told in fields_of(number, text).items())
    octets = RECORD.format(id=identifier, fields=fields).encode()
    path = f"oai_dc/{file_name(identifier)}"
    return Harvested(path=path, octets=octets, metadata=metadata_of(octets, "application/xml"))


class Fetcher:
    """One connection that is kept."""

    def __init__(self, gzip: bool = False) -> None:
        self._curl = pycurl.Curl()
        if gzip:
            self._curl.setopt(pycurl.ACCEPT_ENCODING, "gzip")

    def get(self, url: str) -> bytes:
        """The answer, waited for while the server is not ready."""
        while True:
            body: list[bytes] = []
            self._curl.setopt(pycurl.URL, url)
            self._curl.setopt(pycurl.WRITEFUNCTION, body.append)
            with contextlib.suppress(pycurl.error):
                self._curl.perform()
                if self._curl.getinfo(pycurl.RESPONSE_CODE) == 200:
                    return b"".join(body)
            time.sleep(0.2)


def harvest(url: str, verb: str, *, gzip: bool) -> tuple[int, list[float]]:
    """How many records came, and the seconds that each page took."""
    fetcher, query, took = Fetcher(gzip), f"verb={verb}&metadataPrefix=oai_dc", list[float]()
    count = 0
    while True:
        began = time.perf_counter()
        body = fetcher.get(f"{url}?{query}")
        took.append(time.perf_counter() - began)
        count += body.count(b"<identifier>")
        token = TOKEN.search(body)
        if token is None:
            return count, took
        query = urlencode({"verb": verb, "resumptionToken": html.unescape(token[1].decode())})


def clients(home: Path, feed: Feed, root: Path, records: int) -> None:
    """Have all clients harvest while changes fall, and say what each of them has in the end."""
    expected = {identifier_of(n): f"record {n}" for n in range(records)}
    names, began = client_names(), time.perf_counter()
    since = f"{dt.datetime.now(dt.UTC):%Y-%m-%dT%H:%M:%SZ}"
    running = {name: start(name, URL, "", home / f"{number}.first") for number, name in enumerate(names)}
    step = records // CHANGES
    for first in range(0, CHANGES, 100):
        some = [step * n for n in range(first, first + 100)]
        new, gone = some[10:], some[:10]
        paths = [f"oai_dc/{file_name(identifier_of(n))}" for n in gone]
        take_harvested(feed, root, [found(n, f"changed {n}") for n in new], paths, {})
        expected |= {identifier_of(n): f"changed {n}" for n in new} | dict.fromkeys(map(identifier_of, gone), "")
        time.sleep(records / 500_000)
    while running:
        ended = next((one for one in running if running[one].poll() is not None), None)
        if ended is None:
            time.sleep(0.1)
            continue
        seconds, number = time.perf_counter() - began, names.index(ended)
        del running[ended]
        news = home / f"{number}.news"
        start(ended, URL, since, news).wait()
        whole = titles(home / f"{number}.first")
        state = whole | titles(news)
        wrong = sum(state.get(identifier) != title for identifier, title in expected.items())
        speed = f"{len(whole):,} records in {seconds:.0f} s"
        print(f"{ended}: {speed} beside the others, {wrong + len(state.keys() - expected.keys())} wrong", flush=True)


class Peer:
    """What the `oaipmh` server asks of a repository: the records are there, and in order."""

    def __init__(self, count: int) -> None:
        at = dt.datetime(2020, 1, 1)
        told = [{name: [text] for name, text in fields_of(n, f"record {n}").items()} for n in range(count)]
        self._records = [
            (Header(None, identifier_of(n), at, [], False), Metadata(None, one), None) for n, one in enumerate(told)
        ]

    def identify(self) -> Identify:
        url, start = "http://repository.example.org/oai", dt.datetime(2020, 1, 1)
        return Identify(
            "r", url, "2.0", ["a@example.org"], start, "no", "YYYY-MM-DDThh:mm:ssZ", [], toolkit_description=False
        )

    def listRecords(self, cursor: int = 0, batch_size: int = 10, **_asked: object) -> list[Any]:
        return self._records[cursor : cursor + batch_size]


class PeerApplication:
    """The `oaipmh` server as an ASGI application, which does nothing else."""

    def __init__(self, count: int) -> None:
        registry = MetadataRegistry()
        registry.registerWriter("oai_dc", oai_dc_writer)
        self._server = BatchingServer(Peer(count), registry, resumption_batch_size=500)

    async def __call__(self, scope: Any, _receive: Any, send: Any) -> None:
        octets = self._server.handleRequest(dict(parse_qsl(scope["query_string"].decode())))
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/xml")]})
        await send({"type": "http.response.body", "body": octets})


def serve_peer(count: int, port: int) -> None:
    """Serve it, until the process is ended."""
    uvicorn.run(PeerApplication(count), port=port, log_level="warning", lifespan="off", access_log=False)


def told_of(name: str, url: str, verb: str = "ListRecords", *, gzip: bool = False) -> None:
    """Harvest once, and say how fast it was."""
    began = time.perf_counter()
    count, took = harvest(url, verb, gzip=gzip)
    seconds = time.perf_counter() - began
    first, last = sorted(took[1:6])[2], sorted(took[-6:-1])[2]
    told = f"{count / seconds:,.0f} records/s, in answers {count / sum(took):,.0f}"
    pages = f"first page {first * 1e3:.2f} ms, last {last * 1e3:.2f} ms"
    print(f"{name} {verb}{' gzip' * gzip}: {count:,}, {told}; {pages}", flush=True)


def main(records: int = 1_000_000) -> None:
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        home = Path(folder)
        (home / "c.toml").write_text(CONFIG.format(port=PORT))
        (home / "state").mkdir()
        catalog, root = SqliteCatalog(home / "state" / "catalog.sqlite"), home / "state" / "harvested" / "s"
        locations = Locations(f"http://127.0.0.1:{PORT}/s/resources/")
        feed = Feed(catalog, "s", locations, lambda: dt.datetime.now(dt.UTC))
        began = time.perf_counter()
        for start in range(0, records, BATCH):
            take_harvested(
                feed, root, [found(n, f"record {n}") for n in range(start, min(start + BATCH, records))], [], {}
            )
        feed.open()
        print(f"{records:,} records taken in {time.perf_counter() - began:.1f} s", flush=True)
        command = [sys.executable, "-m", "headwater", "serve", "-q", str(home / "c.toml")]
        with subprocess.Popen(command, stderr=subprocess.DEVNULL) as server:
            try:
                began = time.perf_counter()
                Fetcher().get(f"{URL}?verb=Identify")
                print(f"published, and the index made, in {time.perf_counter() - began:.1f} s", flush=True)
                theirs = multiprocessing.get_context("spawn").Process(target=serve_peer, args=(20_000, PORT + 1))
                theirs.start()
                for _ in range(2):
                    told_of("oaipmh", f"http://127.0.0.1:{PORT + 1}/oai")
                    for verb, gzip in (("ListRecords", False), ("ListRecords", True), ("ListIdentifiers", False)):
                        told_of("ours", URL, verb, gzip=gzip)
                theirs.terminate()
                theirs.join()
                clients(home, feed, root, records)
            finally:
                server.terminate()
        catalog.close()


if __name__ == "__main__":
    main(*map(int, sys.argv[1:2]))
