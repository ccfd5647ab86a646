"""A feed of records page by page, as OAI-PMH has it, and a harvester of it: what many small records are compared with.

`python -m bench.dumps.record_feed COUNT` serves the records of `headwater simulate --resources COUNT --size 500`, a
thousand in each answer, with a resumption token. The answers are made before they are asked for, so that a harvester
measures the protocol and itself rather than this server.
"""

from __future__ import annotations

import argparse
import base64
import contextlib
import http.client
import subprocess
import sys
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import ClassVar
from urllib.parse import urlsplit

from lxml import etree

from headwater.simulate.resources import Filler, SourceSettings, SyntheticResources, read_sizes

A_PAGE = 1_000
OCTETS = 500
SEED = 1
_NAMESPACE = "http://www.openarchives.org/OAI/2.0/"
_RECORD = f"{{{_NAMESPACE}}}record"
_TOKEN = f"{{{_NAMESPACE}}}resumptionToken"
_HEAD = (
    f'<?xml version="1.0" encoding="UTF-8"?>\n<OAI-PMH xmlns="{_NAMESPACE}"><responseDate>2026-01-01T00:00:00Z'
    '</responseDate><request verb="ListRecords" metadataPrefix="text">http://127.0.0.1/oai</request><ListRecords>'
)
_END = "</ListRecords></OAI-PMH>"


@contextlib.contextmanager
def feed(count: int) -> Iterator[str]:
    """HOST:PORT of a feed of so many records, in a process of its own, when all pages are made."""
    command = [sys.executable, "-m", __name__, str(count)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield process.stdout.readline().strip()
        finally:
            process.terminate()


def harvest(url: str, copy: Path | None) -> tuple[int, float]:
    """Ask for page after page: the number of records, and seconds.

    Each page names the next, so there is one request at a time. Each record's octets become a file below `copy`, not
    verified (the feed states no digest), or lines of nothing when that is None.
    """
    began, number, token = time.perf_counter(), 0, ""
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=60)
    folders = set[str]()
    while True:
        words = f"&resumptionToken={token}" if token else "&metadataPrefix=text"
        connection.request("GET", f"/oai?verb=ListRecords{words}")
        page = etree.fromstring(connection.getresponse().read())
        records = page.iter(_RECORD)
        for record in records:
            number += 1
            identifier, octets = record[0][0].text or "", (record[1][0].text or "").encode()
            if copy is not None:
                folder, _, _ = identifier.rpartition("/")
                if folder not in folders:
                    folders.add(folder)
                    (copy / folder).mkdir(parents=True, exist_ok=True)
                with open(f"{copy}/{identifier}", "wb") as file:
                    file.write(octets)
        last = page.find(f".//{_TOKEN}")
        token = last.text or "" if last is not None else ""
        if not token:
            return number, time.perf_counter() - began


def pages(count: int) -> list[bytes]:
    """All answers."""
    settings = SourceSettings(resources=count, sets=("files",), seed=SEED, sizes=read_sizes(str(OCTETS)))
    resources = SyntheticResources(settings, "files", Filler(SEED, settings.hashes))
    made = []
    for first in range(0, count, A_PAGE):
        end = min(first + A_PAGE, count)
        token = base64.urlsafe_b64encode(b"%d" % end).decode() if end < count else ""
        records = "".join(_record(resources, number) for number in range(first, end))
        made.append(f"{_HEAD}{records}<resumptionToken>{token}</resumptionToken>{_END}".encode())
    return made


def _record(resources: SyntheticResources, number: int) -> str:
    content = resources.content(number, 0)
    text = content.read(0, content.octets).decode()
    return (
        f"<record><header><identifier>{resources.path(number)}</identifier><datestamp>2025-01-01</datestamp></header>"
        f"<metadata><text>{text}</text></metadata></record>"
    )


class FeedHandler(BaseHTTPRequestHandler):
    """Answers with the page that a resumption token names."""

    protocol_version = "HTTP/1.1"
    answers: ClassVar[list[bytes]] = []

    def do_GET(self) -> None:
        _, _, token = self.path.partition("resumptionToken=")
        first = int(base64.urlsafe_b64decode(token)) if token else 0
        body = self.answers[first // A_PAGE]
        self.send_response(200)
        self.send_header("Content-Type", "text/xml")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Nothing is logged."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench.dumps.record_feed")
    parser.add_argument("count", type=int)
    options = parser.parse_args()
    FeedHandler.answers = pages(options.count)
    server = HTTPServer(("127.0.0.1", 0), FeedHandler)
    print(f"127.0.0.1:{server.server_port}", flush=True)
    with contextlib.suppress(KeyboardInterrupt):
        server.serve_forever()


if __name__ == "__main__":
    main()
