"""A published catalog with a Resource Dump of octets in memory, and a reader of dumps that knows only the standard."""

from __future__ import annotations

import datetime as dt
import hashlib
from pathlib import Path

import msgspec

from headwater.catalog.content import Absence, NoContent, OpenContent, RecordedResource
from headwater.catalog.interface import Delete, Event, Metadata, Upsert
from headwater.publish.publisher import Publisher, PublisherOptions
from headwater.publish.site import SetSettings, Site
from headwater.spec.kinds import Kind
from headwater.spec.records import Entry
from tests.publish.dump_reader import Fetch, ReadPackage, href, read_named
from tests.support.published import BASE, PublishedCatalog


class _Octets(msgspec.Struct, frozen=True):
    content: bytes
    is_vouched: bool

    @property
    def octets(self) -> int:
        return len(self.content)

    def read(self, start: int, octets: int) -> bytes:
        return self.content[start : start + octets]

    def is_unchanged(self) -> bool:
        return True

    def close(self) -> None: ...


class HeldContents:
    """A content reader of octets in memory; those that were changed without being recorded are told as such."""

    def __init__(self) -> None:
        self.held: dict[str, bytes] = {}
        self.absent: dict[str, Absence] = {}
        self.is_vouched = False
        self.opened = 0

    def open(self, set_name: str, resource: RecordedResource) -> OpenContent | NoContent:
        self.opened += 1
        uri = resource.uri
        if uri in self.absent:
            return NoContent(self.absent[uri])
        if uri not in self.held:
            return NoContent(Absence.GONE)
        return _Octets(self.held[uri], self.is_vouched)


class PackedCatalog(PublishedCatalog):
    """A set with a Resource Dump; `change` sets a resource's octets and records it."""

    def __init__(self, folder: Path, *, page_entries: int = 4, **settings: object) -> None:
        super().__init__(folder, page_entries=page_entries, segment_entries=1_000)
        self.contents = HeldContents()
        self.configure(**settings)

    def configure(self, **settings: object) -> None:
        """Publish with other settings from now on."""
        self.site = Site(base_url=BASE, sets=(SetSettings(**{"dump": True, **settings}),))  # type: ignore[arg-type]
        options = PublisherOptions(contents=self.contents, spool=self.folder)
        self.publisher = Publisher(self.catalog, self.store, self.site, self.now, options=options)

    def load(self, contents: dict[str, bytes], type_: str = "text/plain") -> None:
        """Load these resources and open the set."""
        self.catalog.create("files")
        self.contents.held.update(contents)
        self.catalog.load("files", [upsert(uri, content, type_) for uri, content in contents.items()])
        self.catalog.open("files", self.now())

    def change(self, uri: str, content: bytes | None, type_: str = "text/plain") -> None:
        """A resource has these octets from now on, or is gone; recorded."""
        if content is None:
            self.contents.held.pop(uri, None)
            self.record(Delete(uri))
            return
        self.contents.held[uri] = content
        self.record(upsert(uri, content, type_))

    def pack(self) -> int:
        """Make all packages that are due; how many pages."""
        count = 0
        while self.publisher.pack_resources("files").is_done:
            count += 1
        return count


def upsert(uri: str, content: bytes, type_: str = "text/plain") -> Event:
    """The resource as it is recorded."""
    sha256 = hashlib.sha256(content).hexdigest()
    return Upsert(uri, Metadata(hash=f"sha-256:{sha256}", length=len(content), type=type_))


class PackedResources(msgspec.Struct):
    """All that a Resource Dump tells: its `at`, its resources, and of each package its name and octets."""

    at: dt.datetime
    resources: dict[str, bytes]
    packages: dict[str, bytes]
    paths: dict[str, str]


def read_resource_dump(fetch: Fetch, name: str = "files", base: str = BASE) -> PackedResources | None:
    """Read the Resource Dump of a set and all its packages; None when the Capability List names none."""
    own = f"{base}/{name}/capabilitylist.xml"
    _, offered = read_named(fetch, own)
    dumps = [one.loc for one in offered if one.capability == "resourcedump"]
    if not dumps:
        return None
    head, entries = read_named(fetch, dumps[0])
    assert head.at is not None, "RS-RD-01"
    assert head.completed is not None
    assert href(head, "up") == own, "RS-RD-02"
    assert head.kind is Kind.RESOURCE_DUMP
    assert head.link("index") is None
    found = PackedResources(head.at, {}, {}, {})
    for entry in entries:
        _package(fetch, entry, own, found)
        assert entry.at is not None, "RS-RD-07"
        assert entry.completed is not None
        assert head.at <= entry.at <= entry.completed <= head.completed, "AMB-24"
    return found


def _package(fetch: Fetch, entry: Entry, own: str, found: PackedResources) -> None:
    package = ReadPackage(fetch, entry, Kind.RESOURCE_DUMP_MANIFEST, own)
    found.packages[entry.loc] = package.octets
    assert package.head.at == entry.at, "DST-P8"
    uris = [one.loc for one in package.entries]
    assert len(uris) == len(set(uris)), "RS-RDM-04"
    for one in package.entries:
        assert "sha-256:" in str(one.hash)
        found.resources[one.loc], found.paths[one.loc] = package.content(one), str(one.path)
    assert package.members == [str(one.path)[1:] for one in package.entries], "RS-RDM-07"
