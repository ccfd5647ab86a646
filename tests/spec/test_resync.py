"""Against the library `resync` 2.0.1: each reads what the other writes; it differs only where its known defects are.

The numbers are those of tests/rules.md, "What published implementations get wrong".
"""

# ruff: noqa: E501  tables are read across

from __future__ import annotations

import datetime as dt
import logging
from io import BytesIO

import pytest
from resync.capability_list import CapabilityList
from resync.change_dump import ChangeDump
from resync.change_dump_manifest import ChangeDumpManifest
from resync.change_list import ChangeList
from resync.resource import Resource
from resync.resource_dump import ResourceDump
from resync.resource_dump_manifest import ResourceDumpManifest
from resync.resource_list import ResourceList
from resync.sitemap import Sitemap, SitemapParseError
from resync.source_description import SourceDescription

from headwater.spec.kinds import RULES, Kind
from headwater.spec.records import ChangeKind, Document, Entry, Link
from headwater.spec.writer import Profile, write_document
from tests.spec.test_examples import CORE
from tests.spec.test_serialisation import CASES, MD5, SHA, T1, T2, A, head
from tests.support.documents import CHANGES, EXAMPLES, Read, read_bytes, url, urlset

T0 = dt.datetime(2024, 1, 1, tzinfo=dt.UTC)

PEERS = {
    Kind.SOURCE_DESCRIPTION: SourceDescription,
    Kind.CAPABILITY_LIST: CapabilityList,
    Kind.RESOURCE_LIST: ResourceList,
    Kind.RESOURCE_DUMP: ResourceDump,
    Kind.RESOURCE_DUMP_MANIFEST: ResourceDumpManifest,
    Kind.CHANGE_LIST: ChangeList,
    Kind.CHANGE_DUMP: ChangeDump,
    Kind.CHANGE_DUMP_MANIFEST: ChangeDumpManifest,
}
"""Its classes, one for each leaf document of the core."""

KNOWN_DEFECTS = {
    "H 1": "the sign of a time zone is reversed",
    "H 4": "at, completed, from, until and encoding of entries are dropped",
    "H 8": "a manifest's path is written without its leading slash",
    "H 11": "mandatory at, from and up are left out unless the caller gives them",
    "AMB-04": "a root rs:md after the first entry is an error",
    "AMB-05": "a second root rs:md is an error",
    "AMB-33": "a length that is no number ends the reading",
    "AMB-35": "an unknown change ends the reading",
    "AMB-28": "what is no hex digest is taken for one",
    "AMB-26": "times are floats and lose their microseconds beyond a rounding",
    "sha-512": "digests other than md5, sha-1 and sha-256 are dropped",
}
"""Where the two may differ, by number; each is shown by a test here."""

DROPPED = ("at", "completed", "from_", "until", "encoding", "changefreq", "extra")


@pytest.fixture(autouse=True)
def _quiet() -> None:
    logging.getLogger("resync").setLevel(logging.CRITICAL)


def theirs(kind: Kind, data: bytes):
    container = PEERS[kind]()
    return Sitemap().parse_xml(fh=BytesIO(data), resources=container)


def moment(timestamp: float | None) -> dt.datetime | None:
    if timestamp is None:
        return None
    return dt.datetime.fromtimestamp(round(timestamp, 6), dt.UTC)


def as_entry(resource: Resource) -> Entry:
    """What that library has understood, as our record."""
    links = tuple(
        Link(
            rel=link["rel"],
            href=link["href"],
            hash=link.get("hash"),
            length=int(link["length"]) if "length" in link else None,
            modified=dt.datetime.fromisoformat(link["modified"]) if "modified" in link else None,
            path=link.get("path"),
            pri=int(link["pri"]) if "pri" in link else None,
            type=link.get("mime_type"),
        )
        for link in resource.ln or ()
    )
    return Entry(
        loc=resource.uri,
        lastmod=moment(resource.timestamp),
        capability=resource.capability,
        change=ChangeKind(resource.change) if resource.change else None,
        datetime=moment(resource.ts_datetime),
        hash=resource.hash or None,
        length=resource.length,
        path=resource.path,
        type=resource.mime_type,
        links=links,
    )


def without_the_dropped(entry: Entry) -> Entry:
    import msgspec

    plain = {name: getattr(entry, name) for name in entry.__struct_fields__ if name not in DROPPED}
    links = tuple(
        msgspec.structs.replace(link, encoding=None, profile=None, extra=(), hash=link.hash if link.digests else None)
        for link in entry.links
    )
    digests = (
        " ".join(sorted(str(one) for one in entry.digests if one.algorithm in ("md5", "sha-1", "sha-256"))) or None
    )
    return Entry(**plain | {"links": links, "hash": digests})


SHARED_CASES = [case for case in CASES if case.kind in PEERS]


@pytest.mark.parametrize("case", SHARED_CASES, ids=[case.name for case in SHARED_CASES])
def test_it_reads_what_we_write(case) -> None:
    data = b"".join(write_document(head(case.kind), [case.entry], case.profile))
    container = theirs(case.kind, data)
    (resource,) = list(container)
    assert as_entry(resource) == without_the_dropped(case.entry)  # H 4
    assert container.md["capability"] == RULES[case.kind].capability
    document = head(case.kind)
    assert container.md.get("md_at") == ("2024-01-02T03:04:05Z" if document.at else None)
    assert container.md.get("md_from") == ("2024-01-02T03:04:05Z" if document.from_ else None)
    assert [link["rel"] for link in container.ln] == [link.rel for link in document.links]


def test_it_reads_our_readers_of_both_versions() -> None:
    entries = [
        Entry(loc=A, change=ChangeKind.CREATED, datetime=T1),
        Entry(loc=A, change=ChangeKind.DELETED, datetime=T2),
    ]
    data = b"".join(write_document(head(Kind.CHANGE_LIST), entries, Profile.BOTH))
    assert [(moment(one.timestamp), one.change) for one in theirs(Kind.CHANGE_LIST, data)] == [
        (T1, "created"),
        (T2, "deleted"),
    ]


def their_documents() -> list[tuple[Kind, list[Resource]]]:
    one = {
        "uri": A,
        "lastmod": "2024-01-02T03:04:05Z",
        "length": 5,
        "mime_type": "text/html",
        "md5": "0a" * 16,
        "sha256": "1b" * 32,
    }
    change = {"change": "updated", "datetime": "2024-01-02T03:04:05Z"}
    return [
        (Kind.SOURCE_DESCRIPTION, [Resource(uri=A, capability="capabilitylist")]),
        (Kind.CAPABILITY_LIST, [Resource(uri=A, capability="resourcelist")]),
        (Kind.RESOURCE_LIST, [Resource(**one), Resource(uri=A + "?x=1&y=2", length=0)]),
        (Kind.RESOURCE_DUMP, [Resource(uri=A, mime_type="application/zip", length=9)]),
        (Kind.RESOURCE_DUMP_MANIFEST, [Resource(**one, path="/a/b")]),
        (Kind.CHANGE_LIST, [Resource(**one, **change), Resource(uri=A, change="deleted", datetime="2024-01-03T00:00:00Z")]),
        (Kind.CHANGE_DUMP, [Resource(uri=A, mime_type="application/zip", length=9)]),
        (Kind.CHANGE_DUMP_MANIFEST, [Resource(**one, **change, path="/a/b")]),
    ]  # fmt: skip


@pytest.mark.parametrize("pretty", [False, True])
@pytest.mark.parametrize(("kind", "resources"), their_documents())
def test_we_read_what_it_writes(kind, resources, pretty) -> None:
    container = PEERS[kind](resources=resources) if kind is Kind.RESOURCE_LIST else PEERS[kind]()
    for resource in () if kind is Kind.RESOURCE_LIST else resources:
        container.add(resource)
    container.pretty_xml = pretty
    rules = RULES[kind]
    if rules.at.value == "must":
        container.md_at = "2024-01-01T00:00:00Z"
    if rules.from_.value == "must":
        container.md_from = "2024-01-01T00:00:00Z"
    if rules.up.value == "must":
        container.up = "http://example.com/up"
    document, entries, warnings = read_bytes(container.as_xml().encode())
    assert warnings == ()
    assert document == Document(
        kind=kind,
        capability=rules.capability,
        at=T0 if rules.at.value == "must" else None,
        from_=T0 if rules.from_.value == "must" else None,
        links=(Link(rel="up", href="http://example.com/up"),) if rules.up.value == "must" else (),
    )
    assert sorted(entries, key=str) == sorted(map(as_entry, resources), key=str)


@pytest.mark.parametrize("number", CORE)
def test_both_read_the_examples_alike(number) -> None:
    data = (EXAMPLES / "core-1.1" / f"resourcesync_ex_{number}.xml").read_bytes()
    _, entries, _ = read_bytes(data)
    kind = CORE[number][0]
    container = Sitemap().parse_xml(fh=BytesIO(data), resources=PEERS.get(kind, ResourceList)())
    found = [as_entry(resource) for resource in getattr(container, "resources", container)]
    if number == 27:  # AMB-28
        found = [without_the_dropped(entry) for entry in found]
    expected = [without_the_dropped(entry) for entry in entries]
    if kind is Kind.RESOURCE_LIST:
        found, expected = sorted(found, key=str), sorted(expected, key=str)
    assert found == expected


# Its defects, one by one: it errs, we do not.


def test_h1_the_sign_of_a_zone() -> None:
    data = urlset(url("<lastmod>2024-01-02T03:04:05+01:00</lastmod>"))
    (resource,) = theirs(Kind.RESOURCE_LIST, data)
    assert read_bytes(data)[1][0].lastmod == dt.datetime(2024, 1, 2, 2, 4, 5, tzinfo=dt.UTC)
    assert moment(resource.timestamp) == dt.datetime(2024, 1, 2, 4, 4, 5, tzinfo=dt.UTC)  # H 1


def test_h4_times_of_components() -> None:
    data = (EXAMPLES / "core-1.1" / "resourcesync_ex_22.xml").read_bytes()
    assert all(entry.from_ for entry in read_bytes(data)[1])
    assert not any(resource.md_from for resource in theirs(Kind.CHANGE_DUMP, data))  # H 4


def test_h8_path_without_its_slash() -> None:
    manifest = ResourceDumpManifest()
    manifest.add(Resource(uri=A, path="a/b"))  # H 8: what its dumps write
    read = Read(manifest.as_xml().encode())
    assert read.entries[0].path == "a/b"
    assert "AMB-36" in read.rules


def test_h11_mandatory_things_left_out() -> None:
    for kind, rules in (
        (Kind.RESOURCE_LIST, {"RS-RL-01", "RS-RL-04"}),
        (Kind.CHANGE_LIST, {"RS-CL-01", "RS-CL-03"}),
    ):
        read = Read(PEERS[kind]().as_xml().encode())  # H 11
        assert read.fault is None
        assert read.rules == rules


@pytest.mark.parametrize(
    "data",
    [
        urlset(url('<rs:md change="created"/>') + CHANGES, ""),  # AMB-04
        urlset(url(""), CHANGES + "<rs:md/>"),  # AMB-05
        urlset(url('<rs:md length="many"/>')),  # AMB-33
        urlset(url('<rs:md change="moved"/>'), CHANGES),  # AMB-35
        urlset("<url/>" + url(""), CHANGES),  # DST-F5
    ],
)
def test_what_it_refuses_and_we_read(data) -> None:
    with pytest.raises(SitemapParseError):
        theirs(Kind.CHANGE_LIST, data)
    read = Read(data)
    assert read.fault is None
    assert len(read.entries) == 1
    assert read.warnings


def test_other_digests_are_dropped() -> None:
    text = f"{MD5} {SHA} sha-512:{'2c' * 64}"
    (resource,) = theirs(Kind.RESOURCE_LIST, urlset(url(f'<rs:md hash="{text}"/>')))
    assert resource.hash == f"{MD5} {SHA}"


def test_microseconds_are_floats() -> None:
    data = b"".join(write_document(head(Kind.RESOURCE_LIST), [Entry(loc=A, lastmod=T2)]))
    (resource,) = theirs(Kind.RESOURCE_LIST, data)
    assert isinstance(resource.timestamp, float)  # AMB-26
    assert moment(resource.timestamp) == T2


def test_every_known_defect_is_shown() -> None:
    from pathlib import Path

    text = Path(__file__).read_text()
    for number in KNOWN_DEFECTS:
        assert text.count(number) > 1, number
