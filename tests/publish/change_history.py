"""A published catalog that keeps every change's octets, and a reader of Change Dumps that knows only the standard.

The reader goes from the Capability List to the packages, opens them with Python's `zipfile`, and asserts what must be.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import io
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from headwater.catalog.interface import Delete, Metadata, Upsert
from headwater.progress import Notice, Progress
from headwater.publish.change_dumps.change_contents import KeptContents
from headwater.publish.publisher import Publisher, PublisherOptions
from headwater.publish.site import SetSettings, Site
from headwater.spec.kinds import Kind
from headwater.spec.records import ChangeKind, Document, Entry
from headwater.versions.folder_store import FolderVersionStore
from tests.support.documents import read_bytes
from tests.support.published import BASE, PublishedCatalog


class NoResources:
    """A content reader for which every resource is somewhere else."""

    def open(self, set_name: str, resource: object) -> object:
        from headwater.catalog.content import Absence, NoContent

        return NoContent(Absence.ELSEWHERE)


class ChangingCatalog(PublishedCatalog):
    """A set with a Change Dump; `change` records a change whose octets are in the version store."""

    def __init__(self, folder: Path, *, segment_entries: int = 5, **settings: object) -> None:
        super().__init__(folder, segment_entries=segment_entries)
        self.rules: list[str] = []
        self.versions = FolderVersionStore(folder / "versions")
        self.configure(**settings)

    def configure(self, **settings: object) -> None:
        """Publish with other settings from now on."""
        self.site = Site(base_url=BASE, sets=(SetSettings(**{"change_dump": True, **settings}),))  # type: ignore[arg-type]
        contents = KeptContents(self.versions, self.catalog, NoResources())  # type: ignore[arg-type]
        options = PublisherOptions(change_contents=contents, spool=self.folder)
        self.publisher = Publisher(self.catalog, self.store, self.site, self.now, self._listen, options)

    def _listen(self, event: Notice | Progress) -> None:
        if isinstance(event, Notice):
            self.rules.append(event.rule)

    def change(self, name: str, content: bytes | None, *, keep: bool = True, type_: str = "text/plain") -> None:
        """Record one change; without content a deletion. Without `keep` its octets are lost."""
        if content is None:
            self.record(Delete(name))
            return
        sha256 = hashlib.sha256(content).hexdigest()
        if keep:
            self.versions.put(sha256, [content])
        self.record(Upsert(name, Metadata(hash=f"sha-256:{sha256}", length=len(content), type=type_)))

    def pack(self, *, at_once: bool = True) -> int:
        """Make all packages that are due; how many."""
        count = 0
        while self.publisher.pack_changes("files", at_once=at_once).is_done:
            count += 1
        return count


class PackedChange(msgspec.Struct):
    """One change as a package tells it."""

    uri: str
    change: ChangeKind
    at: dt.datetime
    content: bytes | None


class PackedChanges(msgspec.Struct):
    """All that a Change Dump tells: where it begins, the ends of its packages, its changes, its packages' octets."""

    from_: dt.datetime
    ends: list[dt.datetime]
    changes: list[PackedChange]
    packages: list[bytes]
    names: list[str]


Fetch = Callable[[str], bytes | None]


def read_change_dump(fetch: Fetch, name: str = "files", base: str = BASE) -> PackedChanges | None:
    """Read the Change Dump of a set and all its packages; None when the Capability List names none."""
    own = f"{base}/{name}/capabilitylist.xml"
    _, offered = _read(fetch, own)
    dumps = [one.loc for one in offered if one.capability == "changedump"]
    if not dumps:
        return None
    (url,) = dumps
    head, entries = _read(fetch, url)
    assert head.from_ is not None, "RS-CD-01"
    assert head.until is None
    assert _href(head, "up") == own, "RS-CD-01"
    if head.kind is Kind.CHANGE_DUMP_INDEX:  # RS-CDI-01
        assert [one.from_ for one in entries] == sorted(one.from_ for one in entries if one.from_)
        parts = [_read(fetch, one.loc) for one in entries]
        assert all(_href(part, "index") == url for part, _ in parts), "RS-CD-02"
        assert [part.from_ for part, _ in parts] == [one.from_ for one in entries]
        entries = [one for _, some in parts for one in some]
    else:
        assert head.kind is Kind.CHANGE_DUMP
    found = PackedChanges(head.from_, [], [], [], [])
    end = head.from_
    for entry in entries:
        assert entry.from_ == end, "AMB-11, RS-CD-03: packages follow each other without a gap"
        assert entry.until is not None, "RS-CD-06"
        end = entry.until
        found.ends.append(end)
        found.names.append(entry.loc)
        found.changes += _package(fetch, entry, own, found)
    times = [one.at for one in found.changes]
    assert times == sorted(set(times)), "RS-CDM-03"
    return found


def _package(fetch: Fetch, entry: Entry, own: str, found: PackedChanges) -> Iterator[PackedChange]:
    data = fetch(entry.loc)
    assert data is not None, "AMB-63"
    found.packages.append(data)
    assert (entry.type, entry.length) == ("application/zip", len(data)), "RS-CD-05"
    assert entry.hash == f"sha-256:{hashlib.sha256(data).hexdigest()}", "RS-CD-07"
    package = zipfile.ZipFile(io.BytesIO(data))
    assert package.testzip() is None
    names = package.namelist()
    assert names[0] == "manifest.xml", "RS-CDM-01"
    manifest = package.read("manifest.xml")
    contents = entry.link("contents")
    assert contents is not None
    assert fetch(contents.href) == manifest, "RS-CD-08"
    head, changes, warnings = read_bytes(manifest, entry.loc)
    assert not warnings
    assert head.kind is Kind.CHANGE_DUMP_MANIFEST
    assert (head.from_, head.until) == (entry.from_, entry.until), "RS-CDM-02"
    assert _href(head, "up") == own, "RS-CDM-02"
    paths = []
    for one in changes:
        assert one.change is not None, "RS-CDM-05"
        assert one.datetime is not None, "RS-CDM-09"
        assert head.from_ is not None
        assert head.until is not None
        assert head.from_ <= one.datetime < head.until, "AMB-11: half-open"
        content = None
        if one.change is ChangeKind.DELETED:
            assert one.path is None, "RS-CDM-06"
        else:
            assert one.path is not None, "RS-CDM-06"
            assert one.path.startswith("/changes/")
            paths.append(one.path[1:])
            content = package.read(one.path[1:])
            assert one.length == len(content)
            if "sha-256:" in str(one.hash):
                assert f"sha-256:{hashlib.sha256(content).hexdigest()}" in str(one.hash)
            assert one.type, "RS-CDM-07"
        yield PackedChange(one.loc, one.change, one.datetime, content)
    assert names[1:] == paths, "RS-CD-10: a member for each bitstream, in order"


def _href(document: Document, rel: str) -> str:
    link = document.link(rel)
    assert link is not None, rel
    return link.href


def _read(fetch: Fetch, url: str) -> tuple[Document, list[Entry]]:
    data = fetch(url)
    assert data is not None, f"{url} is named and is not there (AMB-63)"
    head, entries, warnings = read_bytes(data, url)
    assert not [one for one in warnings if one.rule != "AMB-03"], warnings
    return head, list(entries)
