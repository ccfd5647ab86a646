"""A public OAI-PMH server (PyPI `oaipmh`) that is harvested while its records change."""

from __future__ import annotations

import datetime as dt
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from oaipmh.common import Header, Identify, Metadata
from oaipmh.metadata import MetadataRegistry
from oaipmh.server import BatchingServer, oai_dc_writer

from tests.source.test_oai_harvest import Harvest
from tests.support.scripted_server import Request, ScriptedServer, answer


class Repository:
    """What the server asks: records are a title, a time, and whether they are deleted."""

    def __init__(self) -> None:
        self.records: dict[str, tuple[str, dt.datetime, bool]] = {}
        self.url = ""

    def identify(self) -> Identify:
        start = dt.datetime(2020, 1, 1)
        return Identify(
            "Public", self.url, "2.0", ["a@example.org"], start, "persistent", "YYYY-MM-DDThh:mm:ssZ", [], False
        )

    def listMetadataFormats(self, identifier: str | None = None) -> list[tuple[str, str, str]]:
        return [("oai_dc", "http://example.org/oai_dc.xsd", "http://www.openarchives.org/OAI/2.0/oai_dc/")]

    def _found(self, from_: Any, until: Any, cursor: int, batch_size: int) -> Iterator[tuple[Header, Metadata, None]]:
        some = sorted((at, name, title, gone) for name, (title, at, gone) in self.records.items())
        some = [one for one in some if (from_ is None or one[0] >= from_) and (until is None or one[0] <= until)]
        for at, name, title, gone in some[cursor : cursor + batch_size]:
            yield Header(None, name, at, ["a"], gone), Metadata(None, {"title": [title]}), None

    def listRecords(
        self,
        metadataPrefix: str,
        set: Any = None,
        from_: Any = None,
        until: Any = None,
        cursor: int = 0,
        batch_size: int = 10,
    ) -> list[Any]:
        return list(self._found(from_, until, cursor, batch_size))

    def listIdentifiers(
        self,
        metadataPrefix: str,
        set: Any = None,
        from_: Any = None,
        until: Any = None,
        cursor: int = 0,
        batch_size: int = 10,
    ) -> list[Any]:
        return [one[0] for one in self._found(from_, until, cursor, batch_size)]


class Web(ScriptedServer):
    """The server on a socket."""

    def __init__(self, repository: Repository) -> None:
        super().__init__({})
        registry = MetadataRegistry()
        registry.registerWriter("oai_dc", oai_dc_writer)
        self._server = BatchingServer(repository, registry, resumption_batch_size=25)
        self.asked: list[dict[str, str]] = []
        self.url = repository.url = f"{self.base}/oai"

    def respond(self, request: Request, connection: socket.socket) -> bytes:
        query = dict(parse_qsl(urlsplit(request.target).query))
        self.asked.append(query)
        return answer(self._server.handleRequest(query), Content_Type="text/xml")


def test_a_public_server_is_harvested(tmp_path: Path) -> None:
    repository = Repository()
    web = Web(repository)
    try:
        for number in range(160):
            at = dt.datetime(2024, 1, 1 + number % 28, 1, 2, 3)
            repository.records[f"oai:example.org:{number}"] = f"title {number}", at, number % 16 == 0
        harvest = Harvest(tmp_path, web)  # type: ignore[arg-type]
        told = harvest.done()
        assert (told["created"], told["requests"]) == (150, 8)
        now = dt.datetime.now(dt.UTC).replace(tzinfo=None, microsecond=0)
        repository.records["oai:example.org:1"] = "new", now, False
        repository.records["oai:example.org:2"] = "", now, True
        repository.records["oai:example.org:999"] = "999", now, False
        told = harvest.done()
        assert (told["created"], told["updated"], told["deleted"]) == (1, 1, 1)
        titles = {path.name: path.read_text() for path in (harvest.root / "oai_dc").iterdir()}
        live = {name: title for name, (title, _at, gone) in repository.records.items() if not gone}
        assert titles.keys() == {f"{name}.xml" for name in live}
        assert all(f">{title}</dc:title>" in titles[f"{name}.xml"] for name, title in live.items())
    finally:
        web.close()
