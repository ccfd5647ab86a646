"""Discovery: headers, pages and robots.txt from friendly and from hostile servers (RS-DISC-02…08, RS-EXT-02)."""

# ruff: noqa: E501  tables are read across

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.spec.discovery import HeaderLink, crawl_delay, html_links, parse_link_header, robots_sitemaps

BASE = "http://example.com/dir/page"


HEADERS = [
    ('<c.xml>; rel="resourcesync"', [(("resourcesync",), "http://example.com/dir/c.xml", ())]),
    ("</c.xml>;rel=resourcesync", [(("resourcesync",), "http://example.com/c.xml", ())]),
    ("<http://a/>; rel=ResourceSync", [(("resourcesync",), "http://a/", ())]),
    ('<http://a/>; rel="up RESOURCESYNC"', [(("up", "resourcesync"), "http://a/", ())]),
    ('<http://a/?x=1,2>; rel=a, <http://b/>; rel="b"', [(("a",), "http://a/?x=1,2", ()), (("b",), "http://b/", ())]),
    ('<http://a/>; title="x, \\"y\\"; z"; rel=a', [(("a",), "http://a/", (("title", 'x, "y"; z'),))]),
    ("<http://a/>; rel=first; rel=second", [(("first",), "http://a/", ())]),
    ('<http://a/>; rel=a; anchor="http://other/"', []),
    ('<http://a/>; rel=a; anchor="#part"', []),
    ('<http://a/>; rel=a; anchor="page"', [(("a",), "http://a/", (("anchor", "page"),))]),
    ("<http://a/>; type=x", []),
    ("<http://a/>", []),
    ("<>; rel=self", [(("self",), BASE, ())]),
    (",, <http://a/> ; rel = a ;; crossorigin ,", [(("a",), "http://a/", (("crossorigin", ""),))]),
    ("http://a/; rel=a", []),
    ("<http://a/; rel=a", []),
    ("", []),
    ('<a>; rel="x', []),
]


@pytest.mark.parametrize(("value", "links"), HEADERS)
def test_link_headers(value, links) -> None:
    # RS-DISC-03, RS-DISC-08; RS-EXT-02: the first rel counts, another anchor is not about this resource
    assert parse_link_header(value, BASE) == [HeaderLink(*link) for link in links]


def test_resourcesync_by_token_and_by_uri() -> None:
    uri = "http://www.openarchives.org/rs/terms/resourcesync"
    for text in ("resourcesync", "RESOURCESYNC", uri):  # AMB-51
        (link,) = parse_link_header(f'<c>; rel="{text}"', BASE)
        assert link.is_resourcesync
    assert not parse_link_header("<c>; rel=up", BASE)[0].is_resourcesync


PAGES = [
    (b"<html><head><link rel=resourcesync href=c.xml></head></html>", ["http://example.com/dir/c.xml"]),
    (b'<HTML><HEAD><LINK REL="ResourceSync" HREF="/c.xml" type="application/xml"/>', ["http://example.com/c.xml"]),
    (
        b'<head><base href="/b/"><base href="/no/"><link rel="a resourcesync" href="c"></head>',
        ["http://example.com/b/c"],
    ),
    (b"<title><link rel=resourcesync href=no></title><link rel=resourcesync href=yes>", ["http://example.com/dir/yes"]),
    (b"<script>'<link rel=resourcesync href=no>'</script>", []),
    (b"<!-- <link rel=resourcesync href=no> -->", []),
    (b"<head></head><body><link rel=resourcesync href=no></body>", []),
    (b"<link rel=resourcesync>", []),
    (b"<link href=x>", []),
    ("<link rel=resourcesync href=ä>".encode("utf-16"), ["http://example.com/dir/ä"]),
    (b"", []),
    (b"\xff\xfe", []),
    (b"\0\xff<<<", []),
]


@pytest.mark.parametrize(("page", "targets"), PAGES)
def test_html_links(page, targets) -> None:
    links = html_links(page, BASE)  # RS-DISC-02
    assert [link.href for link in links if link.is_resourcesync] == targets


ROBOTS = [
    (b"Sitemap: http://example.com/r.xml", ["http://example.com/r.xml"]),
    (b"User-agent: *\r\nDisallow: /\r\nsitemap:/r.xml # c\r\n", ["http://example.com/r.xml"]),
    (b"\xef\xbb\xbfSITEMAP : http://a/\rSitemap: http://b/\nSitemap: http://a/\n", ["http://a/", "http://b/"]),
    (b"# Sitemap: http://a/\nNoSitemap: http://b/\nSitemap:\n", []),
    (b"\xff\xfe\0\xff", []),
]


@pytest.mark.parametrize(("robots", "targets"), ROBOTS)
def test_robots(robots, targets) -> None:
    assert robots_sitemaps(robots, BASE) == targets  # RS-DISC-05, RS-DISC-07


@given(st.text(), st.binary())
def test_whatever_is_sent_gives_whole_addresses_or_none(text, octets) -> None:
    for found in (parse_link_header(text, BASE), html_links(octets, BASE)):
        assert all(":" in one.href for one in found)
    assert all(":" in one for one in robots_sitemaps(octets, BASE))


@given(st.text('<>;,="\\ relahnco:/\t', max_size=60))
def test_near_headers_do_not_raise(text) -> None:
    for link in parse_link_header(text, BASE):
        assert link.rel


HOSTILE_HEADERS = ["<" * 500_000, "<a>;" * 200_000, "<a>" + ";" * 500_000, '<a>;x="' + "\\" * 500_000, "," * 500_000,
    "<a>;x=" + " " * 500_000, "<a>;rel=b," * 100_000, "<a>" + " " * 500_000, '<a>;rel="' + "a " * 200_000 + '"']  # fmt: skip
HOSTILE_PAGES = [b"<div>" * 300_000, b"<link rel=x href=y>" * 100_000, b"<!--" * 300_000, b"<noscript>" * 100_000,
    b"<head>" * 200_000, b"<template>" * 100_000, b"<script>" * 200_000, b'<link rel="' + b"a " * 500_000 + b'" href=x>']  # fmt: skip


def test_hostile_texts_take_linear_time() -> None:
    start = time.thread_time()
    for header in HOSTILE_HEADERS:
        assert len(parse_link_header(header, BASE)) <= 1_000
    for page in HOSTILE_PAGES:
        assert len(html_links(page, BASE)) <= 1_000
    for robots in (b"sitemap:" + b" " * 2_000_000, b"sitemap:x\n" * 200_000, b" " * 2_000_000):
        assert len(robots_sitemaps(robots, BASE)) <= 1_000
    assert time.thread_time() - start < 10


@pytest.mark.parametrize(
    ("robots", "seconds"),
    [
        (b"", None),
        (b"User-agent: *\nCrawl-delay: 10", 10.0),
        (b"\xef\xbb\xbfuser-agent:*\r\nDisallow: /x\r\ncrawl-delay : 0.5 # half\r\n", 0.5),
        (b"User-agent: other\nCrawl-delay: 10", None),
        (b"User-agent: other\nUser-agent: *\nCrawl-delay: 10", 10.0),
        (b"User-agent: other\nSitemap: /s.xml\n\nUser-agent: *\nCrawl-delay: 10", 10.0),
        (b"User-agent: *\nCrawl-delay: 10\nUser-agent: Headwater\nCrawl-delay: 2", 2.0),
        (b"User-agent: *\nCrawl-delay: 10\nUser-agent: headwater\nDisallow:", None),
        (b"User-agent: *\nCrawl-delay: soon", None),
        (b"User-agent: *\nCrawl-delay: -1", None),
        (b"User-agent: *\nCrawl-delay: " + b"9" * 400, None),
        (b"Crawl-delay: 10", None),
    ],
)
def test_the_pause_that_a_robots_txt_asks_for(robots: bytes, seconds: float | None) -> None:
    """AMB-61, RFC 9309: the group of our name counts before that of all."""
    assert crawl_delay(robots) == seconds


@given(st.binary(max_size=200))
def test_no_robots_txt_raises(octets: bytes) -> None:
    delay = crawl_delay(octets)
    assert delay is None or delay >= 0
