"""Lenient reader: one row for each thing that is forgiven, with the rule that the warning names (tests/rules.md)."""

# ruff: noqa: E501  tables are read across

from __future__ import annotations

import datetime as dt
import gzip

import pytest

from headwater.spec.kinds import Kind
from headwater.spec.records import ChangeKind, Entry, Link
from headwater.spec.times import Coarse
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
    ("AMB-91", f'<rs:md hash="{MD5}"/><rs:md change="created" datetime="2024-01-02T03:04:05Z"/>', CHANGES, {"hash": MD5, "change": ChangeKind.CREATED, "datetime": utc(2024, 1, 2, 3, 4, 5)}),
    ("AMB-91", f'<rs:md change="deleted"/><rs:md hash="{MD5}" length="1"/>', CHANGES, {"change": ChangeKind.DELETED}),
    ("AMB-91", '<rs:md length="1"/><lastmod>2024-01-02T03:04:05Z</lastmod><rs:md length=" 1 " type="a/b"/>', LIST, {"length": 1, "type": "a/b", "lastmod": utc(2024, 1, 2, 3, 4, 5)}),
    ("AMB-91", '<rs:md/><rs:md length="1"/><rs:md path="/a"/><rs:md></rs:md>', LIST, {"length": 1, "path": "/a"}),
    ("AMB-91", '<rs:md xmlns:x="http://x/" x:own="1"/><rs:md length="1"/>', LIST, {"length": 1, "extra": (("{http://x/}own", "1"),)}),
    ("AMB-97", '<md xmlns="https://www.openarchives.org/rs/terms/" length="1"/>', LIST, {"length": 1}),
    ("AMB-97", '<q:md xmlns:q="http://www.openarchives.org/rs/terms" length="1" type="a/b"/>', LIST, {"length": 1, "type": "a/b"}),
    ("AMB-97", '<q:ln xmlns:q="HTTPS://OpenArchives.org/rs/terms/" rel="via" href="http://m/"/>', LIST, {"links": (("via", None),)}),
    ("AMB-97", '<rs:md xmlns:q="https://www.openarchives.org/rs/terms/" q:length="1"/>', LIST, {"length": 1}),
    ("AMB-97", '<lastmod xmlns="https://www.sitemaps.org/schemas/sitemap/0.9">2024-01-02T03:04:05Z</lastmod>', LIST, {"lastmod": utc(2024, 1, 2, 3, 4, 5)}),
    ("AMB-97", '<rs:md capability="resourceList"/>', LIST, {"capability": "resourcelist"}),
    ("AMB-50", '<rs:md capability="changeListIndex"/>', LIST, {"capability": "changelist"}),
    ("AMB-42", '<rs:ln rel="Up" href="http://m/"/>', LIST, {"links": (("up", None),)}),
    ("RS-DOC-12", '<rs:md rs:length="7"/>', LIST, {"length": 7}),
    ("RS-DOC-13", '<rs:md size="7"/>', LIST, {}),
    ("RS-DOC-14", "<lastmod>2024-01-02T03:04:05Z</lastmod><lastmod>x</lastmod>", LIST, {"lastmod": utc(2024, 1, 2, 3, 4, 5)}),
    ("RS-DOC-18", '<x xmlns=""><loc>http://no/</loc></x><lastmod>2024-01-02T03:04:05Z</lastmod>', LIST, {"lastmod": utc(2024, 1, 2, 3, 4, 5)}),
    ("RS-DOC-18", "<rs:other/>", LIST, {}),
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
    '<image:image xmlns:image="http://www.google.com/schemas/sitemap-image/1.1"><image:loc>http://i/</image:loc></image:image>',
    '<v:video xmlns:v="http://www.google.com/schemas/sitemap-video/1.1"><v:title>a</v:title></v:video><priority>1</priority>',
    '<n:news xmlns:n="http://www.google.com/schemas/sitemap-news/0.9"><n:publication><n:name>a</n:name></n:publication></n:news>',
    '<xhtml:link xmlns:xhtml="http://www.w3.org/1999/xhtml" rel="alternate" hreflang="de" href="http://a/de"/>' * 3,
    '<x xmlns="http://x/"><loc>http://no/</loc></x>',
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
    "inside",
    [
        pytest.param('<rs:md length="1"/><rs:md length="2"/>', id="RS-DOC-10"),
        '<rs:md change="updated"/><rs:md change="deleted"/>',
        f'<rs:md hash="{MD5}"/><rs:md hash="sha-1:{"0a" * 20}"/>',
        '<rs:md length="1"/><rs:md length="2"/><rs:md length="1"/>',
        '<rs:md datetime="2024-01-02T00:00:00Z"/><rs:ln rel="x" href="http://m/"/><rs:md datetime="2024-01-03T00:00:00Z"/>',
    ],
)
def test_amb_91_an_attribute_with_two_values_makes_an_entry_unusable(inside, quick) -> None:
    read = Read(urlset(url(inside) + url('<rs:md length="1"/>', "http://example.com/b"), CHANGES), quick=quick)
    assert [entry.loc for entry in read.entries] == ["http://example.com/b"]
    assert (read.fault, read.counts[:2]) == (None, (1, 1))
    assert read.rules == {"AMB-91"}


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
    ("AMB-97", urlset(url(""), LIST.replace("resourcelist", "resourceList")), Kind.RESOURCE_LIST),
    ("AMB-97", urlset(url(""), CHANGES.replace("changelist", " CHANGELIST ")), Kind.CHANGE_LIST),
    ("AMB-97", index("", CHANGES.replace("changelist", "ChangeList")), Kind.CHANGE_LIST_INDEX),
    ("AMB-97", urlset("", LIST.replace("resourcelist", "ResourceDump")), Kind.RESOURCE_DUMP),
    ("AMB-97", urlset("", LIST.replace("resourcelist", "ResourceDump-Manifest")), Kind.RESOURCE_DUMP_MANIFEST),
    ("AMB-97", urlset("", CHANGES.replace("changelist", "changeDump-manifest")), Kind.CHANGE_DUMP_MANIFEST),
    ("AMB-97", urlset("", UP + '<rs:md capability="capabilityList"/>'), Kind.CAPABILITY_LIST),
    ("AMB-97", urlset("", '<rs:md capability="Description"/>'), Kind.SOURCE_DESCRIPTION),
    ("AMB-97", urlset("", UP + '<rs:md capability="changelist-Archive"/>'), Kind.CHANGE_LIST_ARCHIVE),
    ("AMB-97", urlset("", CHANGES.replace("changelist", "Change-Notification")), Kind.CHANGE_NOTIFICATION),
    ("AMB-50", urlset("", '<rs:md capability="ResourceSync"/>'), Kind.SOURCE_DESCRIPTION),
    ("AMB-50", index("", CHANGES.replace("changelist", "changeListIndex")), Kind.CHANGE_LIST_INDEX),
    ("AMB-97", urlset(url("")).replace(b"http://www.site", b"https://www.site"), Kind.RESOURCE_LIST),
    ("AMB-97", urlset(url("")).replace(b"sitemap/0.9", b"sitemap/0.9/"), Kind.RESOURCE_LIST),
    ("AMB-97", urlset(url("")).replace(b"http://www.site", b"https://site"), Kind.RESOURCE_LIST),
    ("AMB-97", urlset(url("")).replace(b"http://www.open", b"https://www.open"), Kind.RESOURCE_LIST),
    ("AMB-97", urlset(url("")).replace(b"rs/terms/", b"rs/terms"), Kind.RESOURCE_LIST),
    ("AMB-97", urlset(url("")).replace(b"http://www", b"https://www"), Kind.RESOURCE_LIST),
    ("AMB-97", index("<sitemap><loc>http://e.com/</loc></sitemap>").replace(b"http://www", b"https://www"), Kind.RESOURCE_LIST_INDEX),
    ("AMB-97", urlset(url(""), "").replace(b"http://www.site", b"https://www.site"), Kind.SITEMAP),
    ("AMB-97", b"\n" + urlset(url("")), Kind.RESOURCE_LIST),
    ("AMB-97", b" \t\r\n" * 1_000 + urlset(url("")), Kind.RESOURCE_LIST),
    ("AMB-97", b"\n\xef\xbb\xbf" + urlset(url("")), Kind.RESOURCE_LIST),
    ("AMB-97", b"\xef\xbb\xbf\n" + urlset(url("")), Kind.RESOURCE_LIST),
    ("AMB-97", b"\xef\xbb\xbf\xef\xbb\xbf" + urlset(url("")), Kind.RESOURCE_LIST),
    ("AMB-97", gzip.compress(b"\n\n" + urlset(url("")), mtime=0), Kind.RESOURCE_LIST),
    ("AMB-97", ("\n" + urlset(url("")).decode()).encode("utf-16"), Kind.RESOURCE_LIST),
    ("AMB-97", ("  " + urlset(url("")).decode()).encode("utf-16-le"), Kind.RESOURCE_LIST),
    ("AMB-92", urlset(url("")) + b"<br />\n<b>Warning</b>: in /var/www/x.php on line 3<br />\n", Kind.RESOURCE_LIST),
    ("AMB-92", urlset(url("")) + b"text", Kind.RESOURCE_LIST),
    ("AMB-92", urlset(url("")) + bytes(100_000), Kind.RESOURCE_LIST),
    ("AMB-92", urlset(url("")) + b"<!-- " + b"x" * 5_000_000, Kind.RESOURCE_LIST),
    ("AMB-92", urlset(url("")) + b"<!-- not ended", Kind.RESOURCE_LIST),
    ("AMB-92", urlset(url("")) + b"<?php", Kind.RESOURCE_LIST),
    ("AMB-92", urlset(url("")) + b"\xff\xfe\xe9", Kind.RESOURCE_LIST),
    ("AMB-92", urlset(url("")) + urlset(url("")), Kind.RESOURCE_LIST),
    ("AMB-92", urlset(url("")) + b"</urlset>", Kind.RESOURCE_LIST),
    ("AMB-92", urlset(url("")) + b"<!DOCTYPE html><html>", Kind.RESOURCE_LIST),
    ("AMB-92", urlset(url("")).replace(b"UTF-8", b"Shift_JIS") + b"\x81\xff", Kind.RESOURCE_LIST),
    ("AMB-92", gzip.compress(urlset(url("")), mtime=0) + b"more", Kind.RESOURCE_LIST),
    ("AMB-92", gzip.compress(urlset(url("")), mtime=0) + b"\0\0<br />", Kind.RESOURCE_LIST),
    ("AMB-92", gzip.compress(urlset(url("")), mtime=0) + b"\x1f", Kind.RESOURCE_LIST),
    ("AMB-92", gzip.compress(urlset(url(""))[:-20], mtime=0) + gzip.compress(urlset(url(""))[-20:] + b"more", mtime=0), Kind.RESOURCE_LIST),
    ("RS-DOC-04", urlset(url(""), "<rs:md/>"), Kind.SITEMAP),
    ("RS-DOC-07", urlset("<sitemap><loc>http://example.com/s</loc></sitemap>"), Kind.RESOURCE_LIST_INDEX),
    ("AMB-93", urlset("<sitemap><loc>http://example.com/s</loc></sitemap>"), Kind.RESOURCE_LIST_INDEX),
    ("AMB-93", urlset(url("") + "<sitemap><loc>http://example.com/s</loc></sitemap>"), Kind.RESOURCE_LIST),
    ("AMB-93", index(url('<rs:md length="1"/>'), LIST), Kind.RESOURCE_LIST),
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


@pytest.mark.parametrize("pieces", [None, [100, 1, 7]], ids=["whole", "pieces"])
@pytest.mark.parametrize("quick", [True, False])
@pytest.mark.parametrize(("rule", "data", "kind"), DOCUMENTS)
def test_document_is_read_and_the_lapse_is_named(rule, data, kind, quick, pieces) -> None:
    if pieces is not None and len(data) > 1 << 20:
        pieces = [10_000]
    read = Read(data, quick=quick, pieces=pieces)
    assert read.fault is None
    assert [one.count for one in read.warnings if one.rule == rule] == [1]
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


ENCODED = [
    # what the octets are in, the declaration, the charset of the answer, other letters, other rules than AMB-08
    ("utf-8", "utf-8", None, "é", set()),
    ("utf-8-sig", "utf-8", None, "é", set()),
    ("utf-16", "utf-16", None, "é", set()),
    ("utf-16-le", "utf-16", None, "é", set()),
    ("utf-16-be", None, None, "é", set()),
    ("utf-32", "utf-32", None, "é", set()),
    ("utf-32-be", "UCS-4", None, "é", set()),
    ("iso-8859-1", "iso-8859-1", None, "é", set()),
    ("windows-1252", "windows-1252", None, "€", set()),
    ("koi8-r", "KOI8-R", None, "Ж", set()),
    ("shift_jis", "shift_jis", None, "日本", set()),
    ("cp932", "Windows-31J", None, "①", set()),
    ("shift_jis", "x-sjis", None, "表", set()),
    ("euc-jp", "euc-jp", None, "日本", set()),
    ("iso-2022-jp", "ISO-2022-JP", None, "日本", set()),
    ("gb18030", "gb18030", None, "汉", set()),
    ("gb18030", "GB18030", None, "\U00020000", set()),
    ("big5", "Big5", None, "漢", set()),
    ("euc-kr", "euc-kr", None, "한", set()),
    ("utf-8", None, None, "é", set()),
    # names that no encoding has
    ("utf-8", "utf8", None, "é", {"AMB-96"}),
    ("utf-8", "UTF8", None, "é", {"AMB-96"}),
    ("utf-8", "UTF_8", None, "é", {"AMB-96"}),
    ("utf-8", "x-utf-8", None, "é", {"AMB-96"}),
    ("utf-8", "utf8mb4", None, "é", {"AMB-96"}),
    ("utf-8", None, "UTF8", "é", {"AMB-96"}),
    # a mark, or the form of the octets, before all else
    ("utf-8-sig", "iso-8859-1", None, "é", {"AMB-96"}),
    ("utf-8-sig", "shift_jis", "euc-jp", "é", {"AMB-96"}),
    ("utf-8-sig", "klingon", None, "é", set()),
    ("utf-16", "utf-8", "iso-8859-1", "é", {"AMB-96"}),
    ("utf-8", "utf-16", None, "é", {"AMB-96"}),
    ("utf-8", "utf-8", "utf-16", "é", {"AMB-96"}),
    # the charset of the answer before the declaration
    ("shift_jis", None, "Shift_JIS", "日本", set()),
    ("euc-jp", None, '"EUC-JP"', "日本", set()),
    ("koi8-r", None, "koi8-r", "Ж", set()),
    ("windows-1252", None, "windows-1252", "€", set()),
    ("gb18030", "euc-jp", "gb18030", "汉", {"AMB-96"}),
    ("iso-8859-1", "utf-8", "ISO-8859-1", "é", {"AMB-96"}),
    ("iso-8859-1", "windows-1251", "ISO-8859-1", "é", {"AMB-96"}),
    # one that does not fit, or means nothing
    ("utf-8", "utf-8", "iso-8859-1", "é", {"AMB-96"}),
    ("iso-8859-1", "iso-8859-1", "utf-8", "é", {"AMB-96"}),
    ("utf-8", None, "us-ascii", "é", {"AMB-96"}),
    ("shift_jis", "shift_jis", "us-ascii", "日本", {"AMB-96"}),
    ("utf-8", "shift_jis", None, "ā", {"AMB-96"}),
    ("utf-8", "utf-8", "klingon", "é", {"AMB-96"}),
    ("iso-8859-1", "iso-8859-1", "binary", "é", {"AMB-96"}),
    ("utf-8", "utf-8", "rot13", "é", {"AMB-96"}),
    ("utf-8", None, "utf-7", "é", {"AMB-96"}),
]


@pytest.mark.parametrize(
    ("encoding", "declared", "charset", "extra", "rules"), ENCODED, ids=lambda one: f"RS-DOC-02 {one}"
)
def test_any_prefix_and_encoding(encoding, declared, charset, extra, rules) -> None:
    """AMB-10, AMB-96; H14: a prefix on the root element."""
    text = (
        f'<?xml version="1.0"{f" encoding={declared!r}" if declared else ""}?>'
        '<s:urlset xmlns:s="http://www.sitemaps.org/schemas/sitemap/0.9" '
        'xmlns:q="http://www.openarchives.org/rs/terms/" xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance" '
        'xsi:schemaLocation="a b"><q:ln rel="up" href="http://example.com/c"/>'
        '<q:md capability="resourcelist" at="2024-01-01T00:00:00Z"/>'
        f"<s:url><s:loc>http://example.com/r?{extra}</s:loc><q:md length='5'/></s:url></s:urlset>"
    )
    headers = {"content-type": "text/xml" + (f"; charset={charset}" if charset else "")}
    for pieces in (None, [1], [100]):
        read = Read(text.encode(encoding), pieces=pieces, headers=headers)
        assert read.fault is None, (encoding, read.fault)
        assert read.entries == [Entry(loc=f"http://example.com/r?{extra}", length=5)]
        assert read.rules == {"AMB-08", *rules}


@pytest.mark.parametrize("name", ["klingon", "rot13", "zlib", "utf-7", "idna", "unicode_escape", "cp037", "undefined"])
def test_amb_96_an_unknown_encoding_is_named(name: str) -> None:
    fault = Read(urlset(url("")).replace(b"UTF-8", name.encode())).fault
    assert fault is not None
    assert f"the encoding {name} is unknown" in fault.what


def test_amb_96_octets_that_an_encoding_does_not_have_are_a_fault_that_names_it() -> None:
    data = urlset(url("") * 100 + url("", "http://example.com/\u65e5") + "a" * 100 + "~").replace(b"UTF-8", b"euc-jp")
    octets = data.decode().encode("euc-jp").replace(b"~", b"\x8f\xff\xff")
    fault = Read(octets).fault
    assert fault is not None
    assert "read as euc_jp" in fault.what


def test_amb_98_a_fault_names_the_content_coding_of_the_answer() -> None:
    fault = Read(b"\x8b\x02\x80", headers={"content-encoding": "br"}).fault
    assert fault is not None
    assert "content coding br" in fault.what
    assert Read(urlset(url("")), headers={"content-encoding": "br"}).fault is None


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
