"""A published catalog that keeps every change's octets, and a reader of Change Dumps that knows only the standard.

The reader goes from the Capability List to the packages, opens them with Python's `zipfile`, and asserts what must be.
"""

from __future__ import annotations

import datetime as dt
import hashlib
from collections.abc import Iterator
from pathlib import Path

import msgspec

from headwater.catalog.interface import Delete, Metadata, Upsert
from headwater.progress import Notice, Progress
from headwater.publish.change_dump import KeptContents
from headwater.publish.publisher import Publisher, PublisherOptions
from headwater.publish.site import SetSettings, Site
from headwater.spec.kinds import Kind
from headwater.spec.records import ChangeKind, Entry
from headwater.versions.store import VersionStore
from tests.publish.dump_reader import Fetch, ReadPackage, href, read_named
from tests.support.kept_versions import keep_octets
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
        self.versions = VersionStore(folder / "versions")
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
            keep_octets(self.versions, content)
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


def read_change_dump(fetch: Fetch, name: str = "files", base: str = BASE) -> PackedChanges | None:
    """Read the Change Dump of a set and all its packages; None when the Capability List names none."""
    own = f"{base}/{name}/capabilitylist.xml"
    _, offered = read_named(fetch, own)
    dumps = [one.loc for one in offered if one.capability == "changedump"]
    if not dumps:
        return None
    (url,) = dumps
    head, entries = read_named(fetch, url)
    assert head.from_ is not None, "RS-CD-01"
    assert head.until is None
    assert href(head, "up") == own, "RS-CD-01"
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
    package = ReadPackage(fetch, entry, Kind.CHANGE_DUMP_MANIFEST, own)
    found.packages.append(package.octets)
    head, paths = package.head, []
    assert (head.from_, head.until) == (entry.from_, entry.until), "RS-CDM-02"
    for one in package.entries:
        assert one.change is not None, "RS-CDM-05"
        assert one.datetime is not None, "RS-CDM-09"
        assert head.from_ is not None
        assert head.until is not None
        assert head.from_ <= one.datetime < head.until, "AMB-11: half-open"
        content = None
        if one.change is ChangeKind.DELETED:
            assert one.path is None, "RS-CDM-06"
        else:
            content = package.content(one)
            assert str(one.path).startswith("/changes/")
            paths.append(str(one.path)[1:])
            assert one.type, "RS-CDM-07"
        yield PackedChange(one.loc, one.change, one.datetime, content)
    assert package.members == paths, "RS-CD-10: a member for each bitstream, in order"
