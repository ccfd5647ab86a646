"""A push set for tests: its catalog in a folder, a clock that only tests move."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import msgspec

from headwater.catalog.interface import StateUpdate
from headwater.catalog.sqlite_catalog import SqliteCatalog
from headwater.ingest.dit.documents import read_document
from headwater.ingest.dit.intake import take_documents
from headwater.ingest.push.events import take_lines
from headwater.ingest.push.feed import Feed, Line, Outcome
from headwater.ingest.push.resource_locations import Locations
from tests.support.waiting import START

PREFIX = "http://example.org/data/"


class PushSet:
    """The set `s` below `PREFIX`, its files below /srv/data."""

    def __init__(self, folder: Path, *, loading: bool = False) -> None:
        self.folder = folder
        self.now = START
        self.catalog = SqliteCatalog(folder / "catalog.sqlite")
        self.feed = Feed(self.catalog, "s", Locations(PREFIX, "/srv/data"), lambda: self.now)
        if not loading:
            self.feed.open()

    def close(self) -> None:
        self.catalog.close()

    def later(self, seconds: float) -> None:
        self.now += dt.timedelta(seconds=seconds)

    def events(self, *events: object) -> list[Outcome]:
        """Take events, one a line; octets go as they are."""
        texts = [one if isinstance(one, bytes) else msgspec.json.encode(one) for one in events]
        return take_lines(self.feed, [Line(number, text) for number, text in enumerate(texts, 1)])

    def documents(self, *sources: object) -> list[Outcome]:
        """Take DIT-ES documents as one batch."""
        return take_documents(self.feed, [(line, read_document(one)) for line, one in enumerate(sources, 1)])

    def settle(self, seconds: float | None = None) -> int:
        """How many states are set aside, after so many seconds; all are forgotten without."""
        self.later(seconds or 0)
        if seconds is None:
            gone = StateUpdate(delete=[(one.kind, one.key) for one in self.catalog.rows_of("s", "half")])
            self.catalog.record("s", [], self.now, state=gone)
        self.feed.sweep()
        return self.catalog.row_counts("s").get("half", 0)

    def log(self) -> list[tuple[str, str]]:
        """The changes of the set: what happened, and to what."""
        return [(one.change.value, one.uri) for one in self.catalog.changes("s")]

    def state(self) -> dict[str, str | None]:
        """The live resources and their digests."""
        return {one.uri: one.metadata.hash for one in self.catalog.resources("s")}


def at(second: float) -> str:
    """A time of the seed's pattern (DIT-08), so many seconds after the start."""
    return (START + dt.timedelta(seconds=second)).strftime("%Y-%m-%dT%H:%M:%S+0000")


def resource(path: str, second: float, digest: str = "a", **fields: object) -> dict[str, object]:
    """A `resource` document as a harvester writes it."""
    return {
        "resource_set": "s",
        "location": {"value": path, "type": "rel_path"},
        "length": 10,
        "md5": digest * 32,
        "mime": "text/plain",
        "lastmod": at(second),
        **fields,
    }


def change(path: str, kind: str, second: float, **fields: object) -> dict[str, object]:
    """A `change` document as a harvester writes it."""
    return {
        "resource_set": "s",
        "location": {"value": path, "type": "rel_path"},
        "change": kind,
        "lastmod": at(second),
        "datetime": at(second),
        **fields,
    }
