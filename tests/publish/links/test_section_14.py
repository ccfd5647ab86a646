"""The printed examples of section 14 of the standard: a source that is told what they say writes what they show."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from lxml import etree

from headwater.catalog.interface import Metadata, Unacceptable, Upsert
from headwater.catalog.sqlite_catalog import SqliteCatalog
from headwater.publish.publisher import Publisher
from headwater.publish.site import SetSettings, Site
from headwater.spec.kinds import PATCH, RS
from headwater.spec.records import Link
from headwater.storage.folder_store import FolderStore
from tests.support.documents import EXAMPLES, read_bytes

WRITTEN = {24: ["duplicate"] * 3, 25: ["alternate"] * 2, 29: ["memento", "timegate", "timemap"], 31: [], 32: ["via"]}


def example(number: int) -> bytes:
    return (EXAMPLES / "core-1.1" / f"resourcesync_ex_{number}.xml").read_bytes()


def canonical(data: bytes) -> bytes:
    """Canonical XML, without blanks between elements and without `datetime`, which we always write (AMB-17)."""
    root = etree.fromstring(data, etree.XMLParser(remove_blank_text=True, resolve_entities=False))
    for one in root.iter(f"{{{RS}}}md"):
        one.attrib.pop("datetime", None)
    return etree.tostring(root, method="c14n2", strip_text=True)


@pytest.mark.parametrize("number", WRITTEN)
def test_what_an_example_of_section_14_says_is_written_as_it_shows(tmp_path: Path, number: int) -> None:
    """RS-REL-01, RS-REL-02, RS-REL-08, RS-REL-09, RS-REL-10, RS-REL-12: each link as it was given."""
    head, entries, _warnings = read_bytes(example(number))
    (entry,) = entries
    up = urlsplit(head.links[0].href)
    name = up.path.split("/")[1]
    catalog = SqliteCatalog(tmp_path / "catalog.sqlite")
    store = FolderStore(tmp_path / "documents", durable=False)
    now = dt.datetime(2013, 1, 4, tzinfo=dt.UTC)
    site = Site(base_url=f"{up.scheme}://{up.netloc}", sets=(SetSettings(name=name),))
    publisher = Publisher(catalog, store, site, lambda: now)
    catalog.create(name)
    assert head.from_ is not None
    catalog.open(name, head.from_)
    metadata = Metadata(lastmod=entry.lastmod, hash=entry.hash, length=entry.length, type=entry.type, links=entry.links)
    catalog.record(name, [Upsert(entry.loc, metadata, b"", entry.change)], now)
    publisher.publish(name, now)
    written = (tmp_path / "documents" / name / "changelist.xml").read_bytes()
    assert [link.rel for link in entry.links] == WRITTEN[number]
    assert canonical(written) == canonical(example(number))


def test_the_example_of_patches_is_read_with_digests_that_nobody_can_verify() -> None:
    """RS-REL-04, AMB-28: its hash values are not hexadecimal, so a source could not write them."""
    _head, entries, _warnings = read_bytes(example(27))
    assert [[link.rel for link in one.links] for one in entries] == [[PATCH], [PATCH]]
    assert [link.digests for one in entries for link in one.links] == [(), ()]


ANY = (
    Link(rel="duplicate", href="gsiftp://g.example/a", pri=7),
    Link(rel="duplicate", href="http://m.example/a", pri=7),
    Link(rel="collection", href="urn:uuid:00000000-0000-0000-0000-000000000000"),
    Link(rel="profile", href="http://purl.org/dc/terms/"),
    Link(rel="describedby", href="http://example.com/a.xml", type="application/xml", profile="http://p.example/"),
    Link(rel="license", href="https://licence.example/", extra=(("{http://e.example/}note", "kept"),)),
    Link(rel="https://example.com/terms/made-from", href="http://example.com/raw", encoding="gzip", length=1 << 40),
)


def test_links_of_a_record_are_kept_without_loss(tmp_path: Path) -> None:
    """RS-REL-14: any relation, in its order, with all attributes; a pri that repeats is an equal rank (RS-LN-03)."""
    catalog = SqliteCatalog(tmp_path / "catalog.sqlite")
    store = FolderStore(tmp_path / "documents", durable=False)
    now = dt.datetime(2024, 1, 1, tzinfo=dt.UTC)
    catalog.create("files")
    catalog.load("files", [Upsert("a", Metadata(links=ANY))])
    catalog.open("files", now)
    Publisher(catalog, store, Site(base_url="http://example.com"), lambda: now).publish("files", now)
    _head, entries, _warnings = read_bytes((tmp_path / "documents/files/resourcelist.xml").read_bytes())
    assert entries[0].links == ANY


@pytest.mark.parametrize("pri", [0, -1, 1_000_000])
def test_a_record_with_a_pri_out_of_range_is_refused(tmp_path: Path, pri: int) -> None:
    """RS-LN-03: before it is recorded, because its document could not be written."""
    catalog = SqliteCatalog(tmp_path / "catalog.sqlite")
    catalog.create("files")
    with pytest.raises(Unacceptable) as refused:
        catalog.load("files", [Upsert("a", Metadata(links=(Link(rel="duplicate", href="http://m/", pri=pri),)))])
    assert refused.value.rule == "RS-LN-03"
