"""The wire: one table of what records look like in a document, used three ways: written, read, round the whole way."""

# ruff: noqa: E501  tables are read across

from __future__ import annotations

import datetime as dt
from typing import NamedTuple
from xml.etree.ElementTree import fromstring

import msgspec
import pytest

from headwater.spec.kinds import PATCH, RULES, Kind, Need, Root
from headwater.spec.records import ChangeKind, Document, Entry, Link
from headwater.spec.writer import DocumentWriter, Profile, write_document
from tests.support.documents import read_bytes

A = "http://example.com/a"
MD5, SHA = "md5:" + "0a" * 16, "sha-256:" + "1b" * 32
T1 = dt.datetime(2024, 1, 2, 3, 4, 5, tzinfo=dt.UTC)
T2 = dt.datetime(2024, 1, 2, 3, 4, 5, 678_901, tzinfo=dt.UTC)
UP = Link(rel="up", href="http://example.com/up")


class Case(NamedTuple):
    name: str
    kind: Kind
    entry: Entry
    markup: str
    profile: Profile = Profile.V11


CASES = [
    Case("a resource by its URI alone (RS-DOC-08)", Kind.RESOURCE_LIST, Entry(loc=A), f"<url><loc>{A}</loc></url>"),
    Case(
        "a resource with everything (RS-RL-07, RS-DOC-14, RS-DOC-15, RS-MD-05, RS-MD-09)",
        Kind.RESOURCE_LIST,
        Entry(loc=A, lastmod=T1, changefreq="daily", hash=f"{MD5} {SHA}", length=5, type="text/html", encoding="gzip"),
        f"<url><loc>{A}</loc><lastmod>2024-01-02T03:04:05Z</lastmod><changefreq>daily</changefreq>"
        f'<rs:md encoding="gzip" hash="{MD5} {SHA}" length="5" type="text/html"/></url>',
    ),
    Case(
        "an empty resource", Kind.RESOURCE_LIST, Entry(loc=A, length=0), f'<url><loc>{A}</loc><rs:md length="0"/></url>'
    ),
    Case(
        "an ampersand in a URI (RS-DOC-19)",
        Kind.RESOURCE_LIST,
        Entry(loc=A + "?x=1&y=<>".replace("<>", "%3C%3E")),
        f"<url><loc>{A}?x=1&amp;y=%3C%3E</loc></url>",
    ),
    Case(
        "hash list keeps its order (RS-MD-05)",
        Kind.RESOURCE_LIST,
        Entry(loc=A, hash=f"{SHA} {MD5}"),
        f'<url><loc>{A}</loc><rs:md hash="{SHA} {MD5}"/></url>',
    ),
    Case(
        "an algorithm that we do not know is kept (AMB-28)",
        Kind.RESOURCE_LIST,
        Entry(loc=A, hash="sha3-256:00ff"),
        f'<url><loc>{A}</loc><rs:md hash="sha3-256:00ff"/></url>',
    ),
    Case(
        "mirrors and their rank (RS-DOC-06, RS-LN-01, RS-LN-03, RS-REL-01)",
        Kind.RESOURCE_LIST,
        Entry(
            loc=A,
            links=(
                Link(rel="duplicate", href="http://m1.example.com/", pri=1, modified=T1),
                Link(rel="duplicate", href="ftp://m2.example.com/a?b&c", pri=999_999),
            ),
        ),
        f'<url><loc>{A}</loc><rs:ln rel="duplicate" href="http://m1.example.com/" modified="2024-01-02T03:04:05Z" '
        'pri="1"/><rs:ln rel="duplicate" href="ftp://m2.example.com/a?b&amp;c" pri="999999"/></url>',
    ),
    Case(
        "a link with all attributes (RS-LN-02, RS-LN-04)",
        Kind.RESOURCE_LIST,
        Entry(
            loc=A,
            links=(
                Link(
                    rel="alternate", href=A, encoding="br", hash=MD5, length=7, type="a/b", profile="http://p.example/"
                ),
            ),
        ),
        f'<url><loc>{A}</loc><rs:ln rel="alternate" href="{A}" encoding="br" hash="{MD5}" length="7" '
        'profile="http://p.example/" type="a/b"/></url>',
    ),
    Case(
        "an attribute of a community (RS-DOC-13)",
        Kind.RESOURCE_LIST,
        Entry(loc=A, extra=(("{http://example.com/x}own", 'a"<&\n'), ("{http://example.com/x}other", "b"))),
        f'<url><loc>{A}</loc><rs:md xmlns:x1="http://example.com/x" x1:own="a&quot;&lt;&amp;&#10;" x1:other="b"/></url>',
    ),
    Case(
        "a deleted resource has no length (RS-MD-02, AMB-34)",
        Kind.CHANGE_LIST,
        Entry(loc=A, change=ChangeKind.DELETED, datetime=T2),
        f'<url><loc>{A}</loc><rs:md change="deleted" datetime="2024-01-02T03:04:05.678901Z"/></url>',
    ),
    Case(
        "a change for readers of both versions (RS-VER-01, RS-VER-02, AMB-19)",
        Kind.CHANGE_LIST,
        Entry(loc=A, lastmod=T2, change=ChangeKind.CREATED, datetime=T2),
        f"<url><loc>{A}</loc><lastmod>2024-01-02T03:04:05.678901Z</lastmod>"
        '<rs:md change="created" datetime="2024-01-02T03:04:05.678901Z"/></url>',
        Profile.BOTH,
    ),
    Case(
        "a modification time outside the interval is right in 1.1 (RS-TIME-12)",
        Kind.CHANGE_LIST,
        Entry(loc=A, lastmod=dt.datetime(1999, 1, 1, tzinfo=dt.UTC), change=ChangeKind.UPDATED, datetime=T1),
        f"<url><loc>{A}</loc><lastmod>1999-01-01T00:00:00Z</lastmod>"
        '<rs:md change="updated" datetime="2024-01-02T03:04:05Z"/></url>',
    ),
    Case(
        "a patch (RS-REL-04)",
        Kind.CHANGE_LIST,
        Entry(
            loc=A,
            change=ChangeKind.UPDATED,
            datetime=T1,
            links=(Link(rel=PATCH, href=A, type="application/json-patch+json"),),
        ),
        f'<url><loc>{A}</loc><rs:md change="updated" datetime="2024-01-02T03:04:05Z"/>'
        f'<rs:ln rel="{PATCH}" href="{A}" type="application/json-patch+json"/></url>',
    ),
    Case(
        "a bitstream of a dump (RS-RDM-04, RS-RDM-05, RS-MD-10)",
        Kind.RESOURCE_DUMP_MANIFEST,
        Entry(loc=A, path="/dir/ä b", type="text/plain"),
        f'<url><loc>{A}</loc><rs:md path="/dir/ä b" type="text/plain"/></url>',
    ),
    Case(
        "a deletion in a dump of changes has no path (RS-CDM-05, RS-CDM-06)",
        Kind.CHANGE_DUMP_MANIFEST,
        Entry(loc=A, change=ChangeKind.DELETED, datetime=T1),
        f'<url><loc>{A}</loc><rs:md change="deleted" datetime="2024-01-02T03:04:05Z"/></url>',
    ),
    Case(
        "a patch inside a package (RS-CDM-11)",
        Kind.CHANGE_DUMP_MANIFEST,
        Entry(
            loc=A,
            change=ChangeKind.UPDATED,
            datetime=T1,
            path="/a",
            links=(Link(rel=PATCH, href=A, type="a/b", path="/p"),),
        ),
        f'<url><loc>{A}</loc><rs:md change="updated" datetime="2024-01-02T03:04:05Z" path="/a"/>'
        f'<rs:ln rel="{PATCH}" href="{A}" path="/p" type="a/b"/></url>',
    ),
    Case(
        "a capability (RS-CAP-04, RS-CAP-06, RS-MD-01)",
        Kind.CAPABILITY_LIST,
        Entry(loc=A, capability="resourcelist"),
        f'<url><loc>{A}</loc><rs:md capability="resourcelist"/></url>',
    ),
    Case(
        "a channel and its hub (RS-CH-05)",
        Kind.CAPABILITY_LIST,
        Entry(loc=A, capability="change-notification", links=(Link(rel="hub", href="http://hub.example.org/"),)),
        f'<url><loc>{A}</loc><rs:md capability="change-notification"/><rs:ln rel="hub" href="http://hub.example.org/"/></url>',
    ),
    Case(
        "an archive's capability (RS-ARC-02, RS-ARC-30)",
        Kind.CAPABILITY_LIST,
        Entry(loc=A, capability="changelist-archive"),
        f'<url><loc>{A}</loc><rs:md capability="changelist-archive"/></url>',
    ),
    Case(
        "a set of resources (RS-SD-05, RS-SD-06, RS-SD-07)",
        Kind.SOURCE_DESCRIPTION,
        Entry(loc=A, capability="capabilitylist", links=(Link(rel="describedby", href="http://example.com/about"),)),
        f'<url><loc>{A}</loc><rs:md capability="capabilitylist"/>'
        '<rs:ln rel="describedby" href="http://example.com/about"/></url>',
    ),
    Case(
        "a component of a Resource List Index (RS-RLI-04)",
        Kind.RESOURCE_LIST_INDEX,
        Entry(loc=A, at=T1, completed=T2),
        f'<sitemap><loc>{A}</loc><rs:md at="2024-01-02T03:04:05Z" completed="2024-01-02T03:04:05.678901Z"/></sitemap>',
    ),
    Case(
        "a closed Change List in its index (RS-CLI-03, RS-CLI-04)",
        Kind.CHANGE_LIST_INDEX,
        Entry(loc=A, from_=T1, until=T2),
        f'<sitemap><loc>{A}</loc><rs:md from="2024-01-02T03:04:05Z" until="2024-01-02T03:04:05.678901Z"/></sitemap>',
    ),
    Case(
        "a package (RS-RD-04, RS-RD-06, RS-RD-07, RS-REL-13)",
        Kind.RESOURCE_DUMP,
        Entry(
            loc=A,
            at=T1,
            length=9,
            type="application/zip",
            links=(Link(rel="contents", href="http://example.com/m.xml", type="application/xml"),),
        ),
        f'<url><loc>{A}</loc><rs:md at="2024-01-02T03:04:05Z" length="9" type="application/zip"/>'
        '<rs:ln rel="contents" href="http://example.com/m.xml" type="application/xml"/></url>',
    ),
    Case(
        "a package of changes (RS-CD-04, RS-CD-05, RS-CD-06)",
        Kind.CHANGE_DUMP,
        Entry(loc=A, from_=T1, until=T2, length=9, type="application/zip"),
        f'<url><loc>{A}</loc><rs:md from="2024-01-02T03:04:05Z" until="2024-01-02T03:04:05.678901Z" length="9" '
        'type="application/zip"/></url>',
    ),
    Case(
        "an archived Change List (RS-ARC-13, RS-ARC-16)",
        Kind.CHANGE_LIST_ARCHIVE,
        Entry(loc=A, from_=T1, until=T2),
        f'<url><loc>{A}</loc><rs:md from="2024-01-02T03:04:05Z" until="2024-01-02T03:04:05.678901Z"/></url>',
    ),
    Case(
        "an archived Resource List (RS-ARC-15)",
        Kind.RESOURCE_LIST_ARCHIVE,
        Entry(loc=A, at=T1),
        f'<url><loc>{A}</loc><rs:md at="2024-01-02T03:04:05Z"/></url>',
    ),
    Case(
        "a change that is pushed (RS-CN-10, RS-CN-12)",
        Kind.CHANGE_NOTIFICATION,
        Entry(loc=A, change=ChangeKind.CREATED, datetime=T1, length=3),
        f'<url><loc>{A}</loc><rs:md change="created" datetime="2024-01-02T03:04:05Z" length="3"/></url>',
    ),
    Case(
        "a document that changed (RS-FN-05, RS-FN-06, RS-FN-08, RS-FN-10)",
        Kind.FRAMEWORK_NOTIFICATION,
        Entry(
            loc=A,
            capability="resourcelist",
            change=ChangeKind.UPDATED,
            datetime=T1,
            links=(Link(rel="index", href="http://example.com/i"),),
        ),
        f'<url><loc>{A}</loc><rs:md capability="resourcelist" change="updated" datetime="2024-01-02T03:04:05Z"/>'
        '<rs:ln rel="index" href="http://example.com/i"/></url>',
    ),
]


def head(kind: Kind) -> Document:
    """A head that a document of this kind may have, with everything that it must have."""
    rules = RULES[kind]
    return Document(
        kind=kind,
        capability=rules.capability,
        at=T1 if rules.at is not Need.NEVER else None,
        from_=T1 if rules.from_ is not Need.NEVER else None,
        until=T2 if rules.until is Need.MUST else None,
        links=(UP,) if rules.up is not Need.NEVER else (),
    )


CASES_BY_NAME = pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])


def document_of(case: Case) -> bytes:
    return b"".join(write_document(head(case.kind), [case.entry], case.profile))


def forgiven(case: Case) -> set[str]:
    """What the reader says of the case: only a digest that it cannot verify is worth a word."""
    return {"AMB-28"} if "AMB-28" in case.name else set()


@CASES_BY_NAME
def test_written(case: Case) -> None:
    writer = DocumentWriter(head(case.kind), case.profile)
    writer.head()
    assert writer.entries([case.entry]).decode() == case.markup + "\n"


@CASES_BY_NAME
@pytest.mark.parametrize("quick", [True, False])
def test_read(case: Case, quick: bool) -> None:
    from tests.support.documents import Read

    data = document_of(case)
    read = Read(data, quick=quick)
    assert (read.fault, read.rules) == (None, forgiven(case))
    assert read.entries == [case.entry]


@CASES_BY_NAME
def test_round_trip(case: Case) -> None:
    data = document_of(case)
    document, entries, warnings = read_bytes(data)
    assert (document, {one.rule for one in warnings}) == (head(case.kind), forgiven(case))
    assert b"".join(write_document(document, entries, case.profile)) == data


WRITABLE = [kind for kind in Kind if RULES[kind].source not in ("AMB-02", "AMB-12")]


SITEMAP = "http://www.sitemaps.org/schemas/sitemap/0.9"
TERMS = "http://www.openarchives.org/rs/terms/"
HEADS = [
    ("RS-SD-03", Kind.SOURCE_DESCRIPTION, "urlset", "description", ""),
    ("RS-SD-09", Kind.SOURCE_DESCRIPTION_INDEX, "sitemapindex", "description", ""),
    ("RS-CAP-01 RS-CAP-02", Kind.CAPABILITY_LIST, "urlset", "capabilitylist", "up"),
    ("RS-CAP-09", Kind.CAPABILITY_LIST_INDEX, "sitemapindex", "capabilitylist", "up"),
    ("RS-RL-01 RS-RL-04", Kind.RESOURCE_LIST, "urlset", "resourcelist", "at up"),
    ("RS-RLI-01 RS-RLI-02", Kind.RESOURCE_LIST_INDEX, "sitemapindex", "resourcelist", "at up"),
    ("RS-RD-01 RS-RD-02", Kind.RESOURCE_DUMP, "urlset", "resourcedump", "at up"),
    ("RS-RDI-01", Kind.RESOURCE_DUMP_INDEX, "sitemapindex", "resourcedump", "at up"),
    ("RS-RDM-02 RS-RDM-03", Kind.RESOURCE_DUMP_MANIFEST, "urlset", "resourcedump-manifest", "at up"),
    ("RS-CL-01 RS-CL-03", Kind.CHANGE_LIST, "urlset", "changelist", "from up"),
    ("RS-CLI-01", Kind.CHANGE_LIST_INDEX, "sitemapindex", "changelist", "from up"),
    ("RS-CD-01", Kind.CHANGE_DUMP, "urlset", "changedump", "from up"),
    ("RS-CDI-01", Kind.CHANGE_DUMP_INDEX, "sitemapindex", "changedump", "from up"),
    ("RS-CDM-02", Kind.CHANGE_DUMP_MANIFEST, "urlset", "changedump-manifest", "from up"),
    ("RS-ARC-10 RS-ARC-11", Kind.RESOURCE_LIST_ARCHIVE, "urlset", "resourcelist-archive", "up"),
    ("RS-ARC-21 RS-ARC-22", Kind.RESOURCE_LIST_ARCHIVE_INDEX, "sitemapindex", "resourcelist-archive", "up"),
    ("RS-ARC-10 RS-ARC-11", Kind.RESOURCE_DUMP_ARCHIVE, "urlset", "resourcedump-archive", "up"),
    ("RS-ARC-21 RS-ARC-22", Kind.RESOURCE_DUMP_ARCHIVE_INDEX, "sitemapindex", "resourcedump-archive", "up"),
    ("RS-ARC-10 RS-ARC-11", Kind.CHANGE_LIST_ARCHIVE, "urlset", "changelist-archive", "up"),
    ("RS-ARC-21 RS-ARC-22", Kind.CHANGE_LIST_ARCHIVE_INDEX, "sitemapindex", "changelist-archive", "up"),
    ("RS-ARC-10 RS-ARC-11", Kind.CHANGE_DUMP_ARCHIVE, "urlset", "changedump-archive", "up"),
    ("RS-ARC-21 RS-ARC-22", Kind.CHANGE_DUMP_ARCHIVE_INDEX, "sitemapindex", "changedump-archive", "up"),
    ("RS-CN-02 RS-CN-03 RS-CN-04", Kind.CHANGE_NOTIFICATION, "urlset", "change-notification", "from until"),
    ("RS-FN-02", Kind.FRAMEWORK_NOTIFICATION, "urlset", "framework-notification", ""),
]
"""What the standard says of the head of each kind: rules, root, capability (RS-DOC-04), and what it must state."""


@pytest.mark.parametrize(
    ("kind", "root", "capability", "stated"),
    [pytest.param(kind, *said, id=f"RS-DOC-03 RS-DOC-04 {rules} {kind.value}") for rules, kind, *said in HEADS],
)
def test_heads_of_every_kind(kind: Kind, root: str, capability: str, stated: str) -> None:
    """RS-DOC-01, -03, -04, -17: told by the text that the standard wants, and not by the table that the writer reads."""
    data = b"".join(write_document(head(kind), []))
    assert data.startswith(f'<?xml version="1.0" encoding="UTF-8"?>\n<{root} xmlns="{SITEMAP}"'.encode())
    found = fromstring(data)
    assert found.tag == f"{{{SITEMAP}}}{root}"
    (described,) = found.findall(f"{{{TERMS}}}md")
    links = [one.get("rel") for one in found.findall(f"{{{TERMS}}}ln")]
    assert described.get("capability") == capability
    for word in stated.split():
        assert word in links if word == "up" else described.get(word), word
    document, entries, warnings = read_bytes(data)
    assert (document, entries, warnings) == (head(kind), [], ())


NEVER_IN_AN_INDEX = ("resourcedump-manifest", "changedump-manifest", "change-notification", "framework-notification")


@pytest.mark.parametrize("capability", sorted({row[3] for row in HEADS}), ids=lambda name: f"RS-DOC-17 {name}")
def test_an_index_and_its_parts_share_their_capability(capability: str) -> None:
    """Only the root tells them apart."""
    roots = [row[2] for row in HEADS if row[3] == capability]
    assert roots == (["urlset"] if capability in NEVER_IN_AN_INDEX else ["urlset", "sitemapindex"])


def test_every_kind_has_its_head_told() -> None:
    assert [row[1] for row in HEADS] == WRITABLE


RELATIONS = {
    "RS-REL-01": Link(rel="duplicate", href=A, pri=1, modified=T1),
    "RS-REL-02": Link(rel="alternate", href=A, type="text/html"),
    "RS-REL-03": Link(rel="canonical", href=A),
    "RS-REL-04": Link(rel=PATCH, href=A, type="application/json-patch+json", hash=MD5, length=3),
    "RS-REL-05": Link(rel="describedby", href=A, type="application/xml"),
    "RS-REL-06": Link(rel="describes", href=A),
    "RS-REL-07": Link(rel="profile", href="http://purl.org/dc/terms/"),
    "RS-REL-08": Link(rel="memento", href=A, modified=T1, hash=MD5, length=3, type="text/html"),
    "RS-REL-09": Link(rel="timegate", href=A),
    "RS-REL-10": Link(rel="timemap", href=A, type="application/link-format"),
    "RS-REL-11": Link(rel="collection", href=A),
    "RS-REL-12": Link(rel="via", href=A, modified=T1, hash=MD5, length=3, type="text/html"),
    "RS-REL-13": Link(rel="contents", href=A, type="application/xml"),
    "RS-REL-14": Link(rel="http://example.com/own-relation", href="urn:uuid:00000000-0000-0000-0000-000000000000"),
}


@pytest.mark.parametrize("rule", RELATIONS)
def test_links_of_every_relation_come_back(rule: str) -> None:
    # Each needs `href` and `rel` (RS-DOC-06); all stand in entries of changes
    entry = Entry(loc=A, change=ChangeKind.UPDATED, datetime=T1, links=(RELATIONS[rule],))
    document, entries, warnings = read_bytes(b"".join(write_document(head(Kind.CHANGE_LIST), [entry])))
    assert (document, entries, warnings) == (head(Kind.CHANGE_LIST), [entry], ())


def test_every_kind_is_written_somewhere() -> None:
    roots = {RULES[kind].root for kind in WRITABLE}
    assert roots == set(Root)
    assert len(WRITABLE) == 24


def test_profile_both_repeats_the_time_of_the_change() -> None:
    entry = Entry(loc=A, lastmod=T1, change=ChangeKind.UPDATED, datetime=T2)
    data = b"".join(write_document(head(Kind.CHANGE_LIST), [entry], Profile.BOTH))
    (read,) = read_bytes(data)[1]
    assert read.lastmod == read.datetime == T2  # AMB-19


@pytest.mark.parametrize("stated", [{"hash": MD5}, {"length": 1}, {"type": "a/b"}, {"encoding": "gzip"}], ids=list)
def test_deletions_are_written_bare(stated: dict[str, str]) -> None:
    """AMB-34: whatever a deletion says of a representation, it has none."""
    bare = Entry(loc=A, change=ChangeKind.DELETED, datetime=T1)
    data = b"".join(write_document(head(Kind.CHANGE_LIST), [msgspec.structs.replace(bare, **stated)]))
    assert data == b"".join(write_document(head(Kind.CHANGE_LIST), [bare]))
    assert read_bytes(data)[1] == [bare]


def test_media_types_are_written_without_parameters() -> None:
    data = b"".join(write_document(head(Kind.RESOURCE_LIST), [Entry(loc=A, type="Text/HTML; charset=UTF-8")]))
    assert read_bytes(data)[1][0].type == "text/html"  # AMB-09


def test_iris_are_written_as_uris() -> None:
    loc = 'http://example.com/ä b?q="x"|y'
    data = b"".join(write_document(head(Kind.RESOURCE_LIST), [Entry(loc=loc)]))
    assert read_bytes(data)[1][0].loc == "http://example.com/%C3%A4%20b?q=%22x%22%7Cy"  # AMB-08


def test_long_uris_are_written_and_counted() -> None:
    writer = DocumentWriter(head(Kind.RESOURCE_LIST))
    writer.entries([Entry(loc="http://example.com/" + "a" * 3_000), Entry(loc=A)])  # RS-DOC-19 is a FACT
    assert writer.long_uri_count == 1


def test_zones_become_utc() -> None:
    zone = dt.timezone(dt.timedelta(hours=2))
    entries = [Entry(loc=A, lastmod=moment) for moment in (T1, T2.astimezone(zone), T1.astimezone(zone))]
    data = b"".join(write_document(head(Kind.RESOURCE_LIST), entries))
    assert [entry.lastmod for entry in read_bytes(data)[1]] == [T1, T2, T1]  # RS-TIME-02
    assert b"+02" not in data
