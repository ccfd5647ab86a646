"""A server of push sets, on a socket of its own, and a client that announces to it."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from headwater.cli.server_log import ServerLog
from headwater.http.app import Application
from headwater.http.ingest import IngestEndpoint, IngestLimits
from headwater.http.metrics import RequestCounters
from headwater.http.server import address_url, listen
from headwater.ingest.push.submission import Account
from headwater.source.config import SetConfig, SourceConfig
from headwater.source.source import Source
from tests.support.documents import read_bytes
from tests.support.serving import Answer, answering, request

TOKEN, OTHER = "t" * 32, "o" * 32
PREFIX = "http://files.example.org/"


class PushServer:
    """A running server of two push sets, `s` (events) and `d` (documents), and one that nobody may announce to."""

    def __init__(self, source: Source, url: str, ingest: IngestEndpoint, app: Application) -> None:
        self.source = source
        self.url = url
        self.ingest = ingest
        self.app = app
        self.counts = RequestCounters()
        self.told = io.StringIO()

    def post(self, target: str, body: bytes | list[object], token: str | None = TOKEN, **headers: str) -> Answer:
        octets = body if isinstance(body, bytes) else b"".join(json.dumps(one).encode() + b"\n" for one in body)
        fields = {name.replace("_", "-"): text for name, text in headers.items()}
        if token is not None:
            fields["authorization"] = f"Bearer {token}"
        return request(self.url, target, "POST", fields, octets)

    def listed(self, name: str = "s") -> list[tuple[str, str]]:
        """The open Change List: what happened to which resource."""
        answer = request(self.url, f"/{name}/changelist/open.xml")
        if answer.status != 200:
            return []
        _, entries, _ = read_bytes(answer.body)
        return [(one.change.value, one.loc) for one in entries if one.change is not None]

    def log(self, name: str = "s") -> list[tuple[str, str]]:
        return [(one.change.value, one.uri) for one in self.source.catalog.changes(name)]


SETS = (
    SetConfig(name="s", feed="events", token=TOKEN, resource_base=PREFIX),
    SetConfig(name="d", feed="dit", token=OTHER, resource_base=PREFIX, resource_sets=("s", "d"), pair_seconds=0.5),
    SetConfig(name="shut", feed="events"),
)


@contextmanager
def serving(
    state: Path, limits: IngestLimits | None = None, sets: tuple[SetConfig, ...] = SETS
) -> Iterator[PushServer]:
    listener = listen("127.0.0.1", 0)
    url = address_url(listener)
    config = SourceConfig(state=str(state), sets=sets, base_url=url)
    with Source(config) as source:
        ingest = IngestEndpoint(source.push_sets.targets())
        if limits is not None:
            ingest._limits = limits
        app = Application(source, {}, routes=ingest.routes())
        fed = PushServer(source, url, ingest, app)
        log = ServerLog(fed.told, as_json=True)

        def announced(name: str, account: Account) -> None:
            fed.counts.announced(name, account)
            log.announced(name, account)

        ingest._on_account = announced
        try:
            with answering(app, listener):
                source.start()
                yield fed
        finally:
            ingest.close()


def said(answer: Answer) -> dict[str, object]:
    told = json.loads(answer.body)
    assert isinstance(told, dict)
    return told
