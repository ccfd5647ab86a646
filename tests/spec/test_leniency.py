"""Lenient reader: one row for each thing that is forgiven, with the rule that the warning names (docs/rules.md)."""

# ruff: noqa: E501  tables are read across

from __future__ import annotations

import datetime as dt

import pytest

from headwater.spec.datetimes import Coarse
from headwater.spec.kinds import Kind
from headwater.spec.records import ChangeKind, Entry, Link
from tests.support.documents import BASE, CHANGES, LIST, NAMESPACES, UP, Read, index, url, urlset

A = "http://example.com/a"
MD5 = "md5:" + "0a" * 16


def utc(
    year: int, month: int, day: int, hour: int = 0, minute: int = 0, second: int = 0, micro: int = 0
) -> dt.datetime:
    return dt.datetime(year, month, day, hour, minute, second, micro, tzinfo=dt.UTC)


ENTRIES = [
    # rule, markup inside the entry, head, what is read of it
    ("AMB-06", "<lastmod>2024-01-02T03:04:05</lastmod>", LIST, {"lastmod": utc(2024, 1, 2, 3, 4, 5)}),
    ("AMB-06", "<lastmod>2024-01-02T03:04:05+0130</lastmod>", LIST, {"lastmod": utc(2024, 1, 2, 1, 34, 5)}),
    ("AMB-06", "<lastmod>2024-01-02t03:04:05,5z</lastmod>", LIST, {"lastmod": utc(2024, 1, 2, 3, 4, 5, 500_000)}),
    ("AMB-06", "<lastmod>soon</lastmod>", LIST, {}),
    ("AMB-06", "<lastmod>2024-02-30T00:00:00Z</lastmod>", LIST, {}),
    ("AMB-07", None, LIST, {"loc": "http://example.com/set/r1"}),
    ("AMB-08", "", LIST, {"loc": "http://example.com/a b"}),
    ("AMB-09", '<rs:md type="html"/>', LIST, {"type": "html"}),
    ("AMB-12", '<rs:md capability="strange"/>', LIST, {"capability": "strange"}),
    ("AMB-28", '<rs:md hash="' + "0a" * 16 + '"/>', LIST, {"hash": "0a" * 16}),
    ("AMB-28", '<rs:md hash="md5:not-hex"/>', LIST, {"hash": "md5:not-hex"}),
    ("AMB-32", f'<rs:md hash="{MD5} md5:{"0b" * 16}"/>', LIST, {"hash": f"{MD5} md5:{'0b' * 16}"}),
    ("RS-MD-05", '<rs:md hash=" "/>', LIST, {}),
    ("AMB-33", '<rs:md length="-1"/>', LIST, {}),
    ("AMB-33", '<rs:md length="1,000"/>', LIST, {}),
    ("AMB-33", '<rs:md length="99999999999999999999"/>', LIST, {}),
    ("AMB-34", f'<rs:md change="deleted" hash="{MD5}" length="1" type="a/b"/>', CHANGES, {"change": ChangeKind.DELETED}),
    ("AMB-35", '<rs:md change="Created"/>', CHANGES, {"change": ChangeKind.CREATED}),
    ("AMB-35", '<rs:md change="moved"/>', CHANGES, {"change": ChangeKind.UPDATED}),
    ("AMB-36", '<rs:md path="a/b"/>', LIST, {"path": "a/b"}),
    ("AMB-36", '<rs:md path="/a\\b"/>', LIST, {"path": "/a\\b"}),
    ("AMB-37", '<rs:ln rel="duplicate" href="http://m/" pri="0"/>', LIST, {"links": (("duplicate", 999_999),)}),
    ("AMB-37", '<rs:ln rel="duplicate" href="http://m/" pri="x"/>', LIST, {"links": (("duplicate", 999_999),)}),
    ("AMB-38", '<rs:md modified="2024-01-02T03:04:05Z"/>', LIST, {}),
    ("AMB-40", "<changefreq>often</changefreq>", LIST, {}),
    ("AMB-42", '<rs:ln rel="via Duplicate" href="http://m/"/>', LIST, {"links": (("via", None), ("duplicate", None))}),
    ("RS-DOC-06", '<rs:ln rel="via"/>', LIST, {}),
    ("RS-DOC-06", '<rs:ln href="http://m/"/>', LIST, {}),
    ("RS-DOC-08", "<loc>http://example.com/second</loc>", LIST, {"loc": A}),
    ("RS-DOC-10", '<rs:md length="1"/><rs:md length="2"/>', LIST, {"length": 1}),
    ("RS-DOC-12", '<rs:md rs:length="7"/>', LIST, {"length": 7}),
    ("RS-DOC-13", '<rs:md size="7"/>', LIST, {}),
    ("RS-DOC-14", "<lastmod>2024-01-02T03:04:05Z</lastmod><lastmod>x</lastmod>", LIST, {"lastmod": utc(2024, 1, 2, 3, 4, 5)}),
    ("RS-DOC-18", '<x xmlns="http://x/"><loc>http://no/</loc></x><lastmod>2024-01-02T03:04:05Z</lastmod>', LIST, {"lastmod": utc(2024, 1, 2, 3, 4, 5)}),
]  # fmt: skip


@pytest.mark.parametrize("quick", [True, False])
@pytest.mark.parametrize(("rule", "inside", "head", "expected"), ENTRIES)
def test_entry_is_read_and_the_lapse_is_named(rule, inside, head, expected, quick) -> None:
    loc = {"AMB-07": "r1", "AMB-08": "http://example.com/a b"}.get(rule, A)
    read = Read(urlset(url(inside or "", loc), head), quick=quick)
    assert read.fault is None
    assert rule in read.rules
    (entry,) = read.entries
    fields = {"loc": A} | expected
    if links := fields.pop("links", ()):
        assert [(link.rel, link.pri) for link in entry.links] == list(links)
        entry = Entry(loc=entry.loc)
    assert entry == Entry(**fields)


FORGIVEN_NOTHING = [
    f'<rs:md hash="urn:sha1:{"0a" * 20} SHA256:{"1B" * 32}"/>',
    '<rs:md type="application/vnd.example_x.v1+json; charset=utf-8"/>',
    '<rs:md length=" 12 "/>',
    '<rs:md encoding="gzip, br"/>',
    '<rs:ln rel="http://www.openarchives.org/rs/terms/patch" href="http://p/" type="a/b"/>',
    '<rs:ln rel="profile" href="http://p/"/><rs:ln rel="timemap" href="http://p/"/>',
    "<priority>0.5</priority>",
    '<rs:md x:own="1" xmlns:x="http://example.com/x"/>',
    "<lastmod>2024-01</lastmod>",
    "<lastmod>2024-01-02T03:04Z</lastmod>",
    "<lastmod>\n2024-01-02T03:04:05Z\t</lastmod>",
]


@pytest.mark.parametrize("inside", FORGIVEN_NOTHING)
def test_what_is_allowed_needs_no_forgiving(inside) -> None:
    # AMB-28 (names), AMB-09 (any media type), AMB-39, AMB-41 (profile, timemap), RS-DOC-16, RS-MD-14, RS-TIME-03
    read = Read(urlset(url(inside)))
    assert (read.fault, read.warnings, len(read.entries)) == (None, (), 1)


def test_coarse_times_keep_their_period() -> None:
    read = Read(urlset(url("<lastmod>2024-02</lastmod>")))
    moment = read.entries[0].lastmod
    assert isinstance(moment, Coarse)
    assert (moment, moment.until) == (utc(2024, 2, 1), utc(2024, 3, 1))


def test_foreign_attributes_are_kept() -> None:
    inside = '<rs:md x:own="1" xmlns:x="http://example.com/x"/>'
    assert Read(urlset(url(inside))).entries[0].extra == (("{http://example.com/x}own", "1"),)


@pytest.mark.parametrize("quick", [True, False])
def test_entries_without_loc_are_skipped_and_counted(quick) -> None:
    # DST-F5, RS-DOC-08
    read = Read(urlset(url("") + "<url/><url><loc> </loc></url>" + url("", "http://example.com/b")), quick=quick)
    assert [entry.loc for entry in read.entries] == [A, "http://example.com/b"]
    assert read.counts[:2] == (2, 2)
    assert [(one.rule, one.count) for one in read.warnings] == [("DST-F5", 2)]


@pytest.mark.parametrize("quick", [True, False])
@pytest.mark.parametrize(
    ("old", "new"), [("changelistindex", "changelist"), ("changelist-notification", "change-notification")]
)
def test_amb_50_an_entry_with_an_old_name_of_a_capability_has_the_right_one(quick, old, new) -> None:
    text = urlset(url(f'<rs:md capability="{old}"/>'), UP + '<rs:md capability="capabilitylist"/>')
    read = Read(text, quick=quick)
    assert [entry.capability for entry in read.entries] == [new]
    assert ("AMB-50", 1) in [(one.rule, one.count) for one in read.warnings]


DOCUMENTS = [
    # rule, document, kind
    ("AMB-02", urlset(url(""), ""), Kind.SITEMAP),
    ("AMB-02", index("<sitemap><loc>http://example.com/s</loc></sitemap>", ""), Kind.SITEMAP_INDEX),
    ("AMB-04", urlset(url("") + LIST, ""), Kind.RESOURCE_LIST),
    ("AMB-05", urlset(url(""), LIST + '<rs:md capability="changelist" from="2024-01-01T00:00:00Z"/>'), Kind.RESOURCE_LIST),
    ("AMB-12", urlset(url(""), UP + '<rs:md capability="strange"/>'), Kind.UNKNOWN),
    ("AMB-43", urlset(url(""), UP + LIST), Kind.RESOURCE_LIST),
    ("AMB-44", index("<sitemap><loc>http://e.com/</loc></sitemap>", LIST + '<rs:ln rel="index" href="http://i/"/>'), Kind.RESOURCE_LIST_INDEX),
    ("AMB-50", urlset(url(""), '<rs:md capability="resourcesync"/>'), Kind.SOURCE_DESCRIPTION),
    ("AMB-50", index("", UP + '<rs:md capability="changelistindex" from="2024-01-01T00:00:00Z"/>'), Kind.CHANGE_LIST_INDEX),
    ("AMB-50", urlset("", '<rs:md capability="changelist-notification" from="2024-01-01T00:00:00Z" until="2024-01-02T00:00:00Z"/>'), Kind.CHANGE_NOTIFICATION),
    ("AMB-01", urlset(url(""), '<rs:md capability="description"/>'), Kind.SOURCE_DESCRIPTION),
    ("RS-DOC-04", urlset(url(""), "<rs:md/>"), Kind.SITEMAP),
    ("RS-DOC-07", urlset("<sitemap><loc>http://example.com/s</loc></sitemap>"), Kind.RESOURCE_LIST),
    ("RS-DOC-09", urlset('<url id="1"><loc>http://example.com/s</loc></url>'), Kind.RESOURCE_LIST),
    ("RS-DOC-18", urlset("<x><loc>http://no/</loc></x>" + url("")), Kind.RESOURCE_LIST),
    ("RS-RL-01", urlset(url(""), UP + '<rs:md capability="resourcelist"/>'), Kind.RESOURCE_LIST),
    ("RS-RL-04", urlset(url(""), '<rs:md capability="resourcelist" at="2024-01-01T00:00:00Z"/>'), Kind.RESOURCE_LIST),
    ("RS-CL-01", urlset(url(""), UP + '<rs:md capability="changelist"/>'), Kind.CHANGE_LIST),
    ("RS-CL-03", urlset(url(""), '<rs:md capability="changelist" from="2024-01-01T00:00:00Z"/>'), Kind.CHANGE_LIST),
    ("RS-CAP-02", urlset(url(""), '<rs:md capability="capabilitylist"/>'), Kind.CAPABILITY_LIST),
    ("RS-CN-04", urlset("", '<rs:md capability="change-notification" from="2024-01-01T00:00:00Z"/>'), Kind.CHANGE_NOTIFICATION),
    ("RS-ARC-11", urlset(url(""), '<rs:md capability="changelist-archive"/>'), Kind.CHANGE_LIST_ARCHIVE),
    ("RS-TIME-07", urlset("", UP + '<rs:md capability="resourcelist" at="2024-01-02T00:00:00Z" completed="2024-01-01T00:00:00Z"/>'), Kind.RESOURCE_LIST),
    ("RS-TIME-10", urlset("", UP + '<rs:md capability="changelist" from="2024-01-02T00:00:00Z" until="2024-01-01T00:00:00Z"/>'), Kind.CHANGE_LIST),
]  # fmt: skip


@pytest.mark.parametrize("quick", [True, False])
@pytest.mark.parametrize(("rule", "data", "kind"), DOCUMENTS)
def test_document_is_read_and_the_lapse_is_named(rule, data, kind, quick) -> None:
    read = Read(data, quick=quick)
    assert read.fault is None
    assert rule in read.rules
    assert read.document is not None
    assert read.document.kind is kind


def test_capability_lists_are_assumed_in_a_source_description() -> None:
    read = Read(urlset(url(""), '<rs:md capability="description"/>'))  # AMB-01
    assert read.entries == [Entry(loc=A, capability="capabilitylist")]


def test_zero_entries_are_accepted() -> None:
    read = Read(urlset("", CHANGES))  # AMB-03, RS-DOC-07
    assert (read.fault, read.entries, read.warnings) == (None, [], ())


@pytest.mark.parametrize(
    ("entries", "version"),
    [
        (url('<rs:md change="updated" datetime="2024-01-02T00:00:00Z"/>'), "1.1"),
        (url('<rs:md change="updated"/>'), "1.1"),
        (url('<lastmod>2024-01-02T00:00:00Z</lastmod><rs:md change="updated"/>'), None),
        ("", None),
    ],
)
@pytest.mark.parametrize("quick", [True, False])
def test_version_is_inferred(entries, version, quick) -> None:
    # RS-VER-20: any `datetime`, or a change without `lastmod`, is 1.1; else nobody can tell
    assert Read(urlset(entries, CHANGES), quick=quick).version == version


def test_undated_entries_of_other_kinds_tell_nothing() -> None:
    assert Read(urlset(url(""))).version is None


@pytest.mark.parametrize(
    ("encoding", "extra"),
    [
        ("utf-8", "é"),
        ("utf-8-sig", "é"),
        ("utf-16", "é"),
        ("iso-8859-1", "é"),
        ("windows-1252", "€"),
        ("shift_jis", "日本"),
        ("gb18030", "汉"),
        ("euc-jp", "日本"),
        ("utf-32", "é"),
    ],
    ids=lambda name: f"RS-DOC-02 {name}",
)
def test_any_prefix_and_encoding(encoding: str, extra: str) -> None:
    """AMB-10; H14: a prefix on the root element."""
    text = (
        '<?xml version="1.0" encoding="{}"?><s:urlset xmlns:s="http://www.sitemaps.org/schemas/sitemap/0.9" '
        'xmlns:q="http://www.openarchives.org/rs/terms/" xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance" '
        'xsi:schemaLocation="a b"><q:ln rel="up" href="http://example.com/c"/>'
        '<q:md capability="resourcelist" at="2024-01-01T00:00:00Z"/>'
        "<s:url><s:loc>http://example.com/r?{}</s:loc><q:md length='5'/></s:url></s:urlset>"
    )
    declared = encoding.removesuffix("-sig")
    for pieces in (None, [1], [100]):
        read = Read(text.format(declared, extra).encode(encoding), pieces=pieces)
        assert read.fault is None, (encoding, read.fault)
        assert read.entries == [Entry(loc=f"http://example.com/r?{extra}", length=5)]
        assert read.rules == {"AMB-08"}


def test_relative_links_are_resolved() -> None:
    read = Read(urlset(url('<rs:ln rel="describedby" href="../meta"/>'), LIST.replace("http://example.com", "")))
    assert read.document is not None
    assert read.document.links == (Link(rel="up", href="http://example.com/set/capabilitylist.xml"),)
    assert read.entries[0].links == (Link(rel="describedby", href="http://example.com/meta"),)
    assert "AMB-07" in read.rules


def test_relative_uris_stay_without_a_base() -> None:
    read = Read(urlset(url("", "r1")), base=None)
    assert (read.entries[0].loc, read.rules) == ("r1", {"AMB-07"})


def test_several_links_of_one_relation_are_kept() -> None:
    inside = '<rs:ln rel="duplicate" href="http://m1/" pri="2"/><rs:ln rel="duplicate" href="http://m2/" pri="1"/>'
    read = Read(urlset(url(inside)))  # H 12, RS-DOC-11
    assert [(link.href, link.pri) for link in read.entries[0].links] == [("http://m1/", 2), ("http://m2/", 1)]


def test_too_many_entries_are_read_with_a_warning() -> None:
    # RS-LIM-01: what a source publishes beyond the limit is still read
    for quick in (True, False):
        read = Read(urlset(url("") * 50_001), quick=quick)
        assert (len(read.entries), read.rules) == (50_001, {"RS-LIM-01"})


def test_order_of_elements_is_free() -> None:
    data = (
        f"<urlset {NAMESPACES}><url><rs:md length='5'/><lastmod>2024-01-02T03:04:05Z</lastmod>"
        f"<loc>{A}</loc></url>{LIST}</urlset>"
    ).encode()
    read = Read(data, base=BASE)  # AMB-04
    assert read.entries == [Entry(loc=A, lastmod=utc(2024, 1, 2, 3, 4, 5), length=5)]
    assert read.document is not None
    assert read.document.link("up") is not None
