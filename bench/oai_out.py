"""OAI-PMH out: a set of many records harvested over HTTP, beside the `oaipmh` server in its handler alone.

`python -m bench.oai_out [RECORDS]`: builds a harvested set of so many records of about 1 kB, has its index made,
harvests it while 10,000 changes fall, and compares the first page with the last.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import re
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import pycurl

from headwater.catalog.interface import Metadata
from headwater.catalog.sqlite_catalog import SqliteCatalog
from headwater.ingest.harvested import Harvested, file_name, take_harvested
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
    "<dc:title>{text}</dc:title><dc:description>{more}</dc:description></oai_dc:dc></metadata></record>"
)
MORE = "The quick brown fox jumps over the lazy dog. " * 14
BATCH, CHANGES, PORT = 2_000, 10_000, 18_734
TOKEN = re.compile(rb"<resumptionToken[^>]*>([^<]+)<")
IDENTIFIER = re.compile(rb"<identifier>([^<]+)</identifier>.*?<dc:title>([^<]*)<", re.DOTALL)


def found(number: int, text: str) -> Harvested:
    identifier = f"oai:repository.example.org:{number:08}"
    octets = RECORD.format(id=identifier, text=text, more=MORE).encode()
    path = f"oai_dc/{file_name(identifier)}"
    return Harvested(path=path, octets=octets, metadata=Metadata(type="application/xml"))


class Fetcher:
    """One connection that is kept."""

    def __init__(self, gzip: bool = False) -> None:
        self._curl = pycurl.Curl()
        if gzip:
            self._curl.setopt(pycurl.ACCEPT_ENCODING, "gzip")

    def get(self, query: str) -> bytes:
        """The answer, waited for while the server is not ready."""
        while True:
            body: list[bytes] = []
            self._curl.setopt(pycurl.URL, f"http://127.0.0.1:{PORT}/s/oai?{query}")
            self._curl.setopt(pycurl.WRITEFUNCTION, body.append)
            with contextlib.suppress(pycurl.error):
                self._curl.perform()
                if self._curl.getinfo(pycurl.RESPONSE_CODE) == 200:
                    return b"".join(body)
            time.sleep(0.2)


def harvest(verb: str = "ListRecords", *, gzip: bool = False) -> tuple[dict[bytes, bytes], int, list[float]]:
    """Title by identifier, records that came, and the seconds that each page took."""
    fetcher, query, took = Fetcher(gzip), f"verb={verb}&metadataPrefix=oai_dc", list[float]()
    state, count = dict[bytes, bytes](), 0
    while True:
        began = time.perf_counter()
        body = fetcher.get(query)
        took.append(time.perf_counter() - began)
        if verb == "ListRecords":
            pairs = IDENTIFIER.findall(body)
            state.update(pairs)
            count += len(pairs)
        else:
            count += body.count(b"<identifier>")
        token = TOKEN.search(body)
        if token is None:
            return state, count, took
        query = f"verb={verb}&resumptionToken={token[1].decode()}"


def main(records: int = 1_000_000) -> None:
    with tempfile.TemporaryDirectory() as folder:
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
                Fetcher().get("verb=Identify")
                print(f"published, and the index made, in {time.perf_counter() - began:.1f} s", flush=True)
                for verb, gzip in (("ListRecords", False), ("ListRecords", True), ("ListIdentifiers", False)):
                    began = time.perf_counter()
                    _state, count, took = harvest(verb, gzip=gzip)
                    seconds = time.perf_counter() - began
                    first, last = sorted(took[1:6])[2], sorted(took[-6:-1])[2]
                    told = f"{count / seconds:,.0f} records/s, in answers {count / sum(took):,.0f}"
                    pages = f"first page {first * 1e3:.2f} ms, last {last * 1e3:.2f} ms"
                    print(f"{verb}{' gzip' * gzip}: {count:,}, {told}; {pages}", flush=True)
                expected = {n: f"record {n}" for n in range(records)}

                def change() -> None:
                    step = records // CHANGES
                    for start in range(0, CHANGES, 100):
                        some = [step * n for n in range(start, start + 100)]
                        take_harvested(feed, root, [found(n, f"changed {n}") for n in some], [], {})
                        expected.update({n: f"changed {n}" for n in some})
                        time.sleep(0.05)

                changing = threading.Thread(target=change)
                changing.start()
                state, count, _took = harvest()
                changing.join()
                news = harvest()[0]
                wrong = sum(state.get(b"oai:repository.example.org:%08d" % n) is None for n in expected)
                stale = sum(
                    news.get(b"oai:repository.example.org:%08d" % n) != text.encode() for n, text in expected.items()
                )
                print(f"while {CHANGES:,} changes fell {count:,} came, {wrong} were lost; {stale} are stale at the end")
            finally:
                server.terminate()
        catalog.close()


if __name__ == "__main__":
    main(*map(int, sys.argv[1:2]))
