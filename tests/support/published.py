"""A source small enough to see through: tiny pages and segments, a clock in hand, and a referee that reads documents.

The referee knows nothing of the publisher: it goes from the Source Description to Resource List and Change Lists as any
destination does, and says which state they come to and what in them cannot be.
"""

from __future__ import annotations

import datetime as dt
import hashlib
from collections.abc import Callable, Iterable
from itertools import pairwise
from pathlib import Path

import msgspec

from headwater.catalog.interface import Change, Event, Limits, Metadata, Upsert
from headwater.catalog.sqlite_catalog import SqliteCatalog
from headwater.publish.plan import Refresh
from headwater.publish.publisher import Publisher, PublishResult
from headwater.publish.site import SOURCE_DESCRIPTION, SetSettings, Site
from headwater.spec.kinds import Kind
from headwater.spec.records import ChangeKind, Document, Entry
from headwater.spec.writer import Profile
from headwater.storage.folder_store import FolderStore
from tests.support.documents import read_bytes
from tests.support.waiting import START, Clock

BASE = "http://source.example/sync"


def digest(text: str) -> str:
    """A hash attribute that says which version of a resource is meant."""
    return f"md5:{hashlib.md5(text.encode()).hexdigest()} sha-256:{hashlib.sha256(text.encode()).hexdigest()}"


def put(uri: str, version: int, change: ChangeKind | None = None) -> Upsert:
    """The resource `uri` in its version so-and-so."""
    stated = Metadata(
        lastmod=START + dt.timedelta(seconds=version),
        hash=digest(f"{uri}/{version}"),
        length=version,
        type="text/plain",
    )
    return Upsert(uri, stated, b"", change)


class PublishedCatalog:
    """A catalog, a store and a publisher over them."""

    def __init__(
        self,
        folder: Path,
        *,
        page_entries: int = 4,
        segment_entries: int = 5,
        sets: tuple[SetSettings, ...] = (SetSettings(),),
        profile: Profile = Profile.V11,
        clock: Callable[[], dt.datetime] | None = None,
    ) -> None:
        self.folder = folder
        self.clock = Clock()
        self.now = clock or self.clock
        limits = Limits(page_entries=page_entries, segment_entries=segment_entries)
        self.catalog = SqliteCatalog(folder / "catalog.sqlite", limits=limits)
        self.store = FolderStore(folder / "documents", durable=False)
        self.site = Site(base_url=BASE, sets=sets, profile=profile)
        self.publisher = Publisher(self.catalog, self.store, self.site, self.now)

    def begin(self, count: int, name: str = "files") -> None:
        """Load a set with so many resources and open it."""
        self.catalog.create(name)
        at = self.now()
        self.catalog.load(name, [put(f"r{number}", 0) for number in range(count)])
        self.catalog.open(name, at)

    def record(self, *events: Event, name: str = "files") -> None:
        """Log events."""
        self.catalog.record(name, events, self.now())

    def publish(self, *, force: bool = False, name: str = "files") -> PublishResult:
        """Publish with an `at` of this moment: nothing outside the catalog exists here."""
        return self.publisher.publish(
            name, self.catalog.mark(name, self.now()), Refresh.STALE if force else Refresh.DUE
        )

    def truth(self, name: str = "files") -> dict[str, str]:
        """What the catalog holds: absolute URI and hash."""
        prefix = self.site.resource_prefix(name)
        return {prefix + row.uri: str(row.metadata.hash) for row in self.catalog.resources(name)}

    def fetch(self, url: str) -> bytes | None:
        """What a web server of the store's folder answers."""
        path = self.folder / "documents" / url.removeprefix(BASE + "/")
        return path.read_bytes() if path.is_file() else None

    def look(self, name: str = "files") -> Look:
        """What a destination comes to that reads everything now."""
        return look(self.fetch, name)

    def files(self) -> dict[str, tuple[int, int, bytes]]:
        """Every document with inode, mtime and octets."""
        return {
            name: (path.stat().st_ino, path.stat().st_mtime_ns, path.read_bytes())
            for name in self.store.names()
            for path in [self.folder / "documents" / name]
        }


class Look(msgspec.Struct):
    """What one reading of a source comes to."""

    state: dict[str, str]
    at: dt.datetime
    changes: list[Entry]
    listed: dict[str, str]
    documents: dict[str, bytes]


Fetch = Callable[[str], bytes | None]


class _Reading:
    def __init__(self, fetch: Fetch) -> None:
        self._fetch = fetch
        self.documents: dict[str, bytes] = {}

    def read(self, url: str) -> tuple[Document, list[Entry]]:
        data = self._fetch(url)
        assert data is not None, f"{url} is named and is not there (AMB-63)"
        self.documents[url] = data
        document, entries, warnings = read_bytes(data, url)
        assert not [one for one in warnings if one.rule != "AMB-03"], (url, warnings)
        return document, list(entries)

    def up(self, document: Document, url: str) -> None:
        link = document.link("up")
        assert link is not None, "RS-NAV-01"
        assert link.href == url


def look(fetch: Fetch, name: str = "files", base: str = BASE, *, midway: bool = False) -> Look:
    """Read a source from its Source Description down and replay it; what cannot be is an assertion.

    `midway`: pages may be replaced while they are read, so that a URI that moves can be met on both (AMB-89).
    """
    reading = _Reading(fetch)
    description, sets = reading.read(f"{base}/{SOURCE_DESCRIPTION}")
    assert description.kind is Kind.SOURCE_DESCRIPTION
    (own,) = [entry.loc for entry in sets if entry.loc == f"{base}/{name}/capabilitylist.xml"]
    capabilities, offered = reading.read(own)
    reading.up(capabilities, f"{base}/{SOURCE_DESCRIPTION}")
    by_name = {entry.capability: entry.loc for entry in offered}
    assert len(by_name) == len(offered), "RS-CAP-05: one entry for each capability"
    listed, at = _resource_list(reading, by_name["resourcelist"], own, midway)
    changes = _change_list(reading, by_name["changelist"], own, at)
    state = dict(listed)
    for entry in changes:
        assert entry.datetime is not None
        if entry.datetime <= at:
            continue
        if entry.change is ChangeKind.DELETED:
            state.pop(entry.loc, None)
        else:
            state[entry.loc] = str(entry.hash)
    return Look(state, at, changes, listed, reading.documents)


def _resource_list(reading: _Reading, url: str, own: str, midway: bool) -> tuple[dict[str, str], dt.datetime]:
    top, entries = reading.read(url)
    reading.up(top, own)
    assert top.at is not None, "RS-RL-01"
    if top.kind is Kind.RESOURCE_LIST:
        assert top.link("index") is None, "RS-NAV-02: only leaves of an index have one"
        return _once(entries, midway), top.at
    assert top.kind is Kind.RESOURCE_LIST_INDEX
    times, listed = [top.at], []
    for part in entries:
        leaf, resources = reading.read(part.loc)
        reading.up(leaf, own)
        index = leaf.link("index")
        assert index is not None, "RS-RL-05"
        assert index.href == url
        assert leaf.at is not None
        assert leaf.completed is not None
        assert part.at is not None
        assert top.at <= part.at <= leaf.at <= leaf.completed, "RS-TIME-07, RS-TIME-14"
        times += [leaf.at, part.at]
        listed += resources
    return _once(listed, midway), min(times)


def _once(entries: Iterable[Entry], midway: bool) -> dict[str, str]:
    listed: dict[str, str] = {}
    for entry in entries:
        assert midway or entry.loc not in listed, "RS-RL-08: a URI occurs once"
        listed[entry.loc] = str(entry.hash)
    return listed


def _change_list(reading: _Reading, url: str, own: str, at: dt.datetime) -> list[Entry]:
    top, entries = reading.read(url)
    reading.up(top, own)
    assert top.from_ is not None, "RS-CL-01"
    assert top.from_ <= at, "no gap between Resource List and Change Lists"
    if top.kind is Kind.CHANGE_LIST:
        assert top.link("index") is None, "RS-NAV-02"
        assert top.until is None
        return _ordered(entries, top)
    assert top.kind is Kind.CHANGE_LIST_INDEX
    changes: list[Entry] = []
    until: dt.datetime | None = top.from_
    for number, part in enumerate(entries):
        leaf, found = reading.read(part.loc)
        reading.up(leaf, own)
        index = leaf.link("index")
        assert index is not None, "RS-CL-04"
        assert index.href == url
        assert leaf.from_ == part.from_ == until, "RS-CLI-06, RS-CLI-07, AMB-23"
        last = number == len(entries) - 1
        assert (part.until is None) == last, "RS-CLI-04"
        assert last or leaf.until == part.until, "RS-CLI-06"
        changes += _ordered(found, leaf)
        until = part.until
    times = [entry.datetime for entry in changes if entry.datetime]
    assert all(one < two for one, two in pairwise(times)), "RS-CL-05 over all lists"
    return changes


def _ordered(entries: list[Entry], leaf: Document) -> list[Entry]:
    before = leaf.from_
    assert before is not None
    for entry in entries:
        assert entry.datetime is not None, "AMB-17"
        assert entry.datetime > before, "RS-CL-05, RS-TIME-11"
        assert leaf.until is None or entry.datetime < leaf.until, "AMB-11: half-open"
        before = entry.datetime
    return entries


def replay(rows: Iterable[Change], prefix: str, loaded: dict[str, str]) -> dict[str, str]:
    """The state that changes of the catalog's own log lead to."""
    state = dict(loaded)
    for row in rows:
        if row.change is ChangeKind.DELETED:
            state.pop(prefix + row.uri, None)
        else:
            state[prefix + row.uri] = str(row.metadata.hash)
    return state
