"""Hostile and broken documents: each ends in its typed fault, in bounded time and memory, in any pieces."""

# ruff: noqa: E501  tables are read across

from __future__ import annotations

import gzip
import time
import tracemalloc
import zlib
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from headwater.errors import Exit
from headwater.spec import fast_entries
from headwater.spec.reader import Reader, ReadLimits, read_document
from headwater.spec.text_values import (
    BadCompression,
    DocumentFault,
    DtdRefused,
    EmptyDocument,
    LimitExceeded,
    NotSitemap,
    NotXml,
    Truncated,
)
from tests.support.documents import LIST, NAMESPACES, Read, cut, url, urlset

SECONDS = 5.0
"""Of a processor's time, so that it is the same on a busy machine."""
OPEN = f"<urlset {NAMESPACES}>".encode()
GOOD = urlset(url("") * 3)

BOMB = (
    b'<?xml version="1.0"?><!DOCTYPE urlset [<!ENTITY a "' + b"x" * 1_000 + b'">'
    + b"".join(b'<!ENTITY %c "%s">' % (c + 1, b"&%c;" % c * 10) for c in range(ord("a"), ord("j")))
    + b"]>" + OPEN + b"<url><loc>&j;</loc></url></urlset>"
)  # fmt: skip
TINY_BOMB = b'<!DOCTYPE u [<!ENTITY a "aaaaaaaaaa">' + b"".join(
    b'<!ENTITY %c "%s">' % (c + 1, b"&%c;" % c * 4) for c in range(97, 110)
) + b"]><u>&n;</u>"  # fmt: skip


class Hostile(NamedTuple):
    name: str
    data: bytes
    fault: type[DocumentFault]
    rule: str
    words: str = ""


CASES = [
    Hostile("entity bomb", BOMB, DtdRefused, "AMB-10"),
    Hostile("entity bomb in a few hundred octets", TINY_BOMB, DtdRefused, "AMB-10"),
    Hostile("external entity", b'<!DOCTYPE u [<!ENTITY a SYSTEM "file:///etc/passwd">]><u>&a;</u>', DtdRefused, "AMB-10"),
    Hostile("external subset", b'<!DOCTYPE urlset SYSTEM "http://example.com/x.dtd">' + GOOD, DtdRefused, "AMB-10"),
    Hostile("parameter entity", b'<!DOCTYPE u [<!ENTITY % a SYSTEM "http://x/"> %a;]><u/>', DtdRefused, "AMB-10"),
    Hostile("doctype in UTF-16", '<?xml version="1.0"?><!DOCTYPE u []><u/>'.encode("utf-16"), DtdRefused, "AMB-10"),
    Hostile("a reference to an undeclared entity", OPEN + b"&bomb;</urlset>", NotXml, "AMB-10", "entity"),
    Hostile("deep nesting", OPEN + b"<a>" * 200_000, LimitExceeded, "RS-LIM-01", "deep"),
    Hostile("deep nesting in an entry", OPEN + b"<url>" * 200_000, LimitExceeded, "RS-LIM-01", "deep"),
    Hostile("a million attributes", OPEN + b"<url " + b" ".join(b'a%d=""' % n for n in range(1_000_000)) + b"/>", LimitExceeded, "AMB-10"),
    Hostile("two thousand attributes", OPEN + b"<url " + b" ".join(b'a%d=""' % n for n in range(2_000)) + b"/>", LimitExceeded, "RS-LIM-01", "attributes"),
    Hostile("an attribute without end", OPEN + b'<url a="' + b"x" * 5_000_000, LimitExceeded, "AMB-10"),
    Hostile("a long attribute", OPEN + b'<url a="' + b"x" * 500_000 + b'"/>', LimitExceeded, "RS-LIM-01"),
    Hostile("a comment without end", OPEN + b"<!--" + b">" * 5_000_000, LimitExceeded, "AMB-10"),
    Hostile("a name without end", OPEN + b"<" + b"x" * 5_000_000, LimitExceeded, "AMB-10"),
    Hostile("an instruction without end", OPEN + b"<?x " + b"x" * 5_000_000, LimitExceeded, "AMB-10"),
    Hostile("a loc without end", OPEN + b"<url><loc>http://" + b"x" * 5_000_000, LimitExceeded, "RS-LIM-01"),
    Hostile("a loc of many pieces", OPEN + b"<url><loc>" + b"x<!---->" * 500_000, LimitExceeded, "RS-LIM-01"),
    Hostile("a million links", OPEN + b'<rs:ln rel="a" href="b"/>' * 100_000, LimitExceeded, "RS-LIM-01", "links"),
    Hostile("a million links in an entry", OPEN + b"<url>" + b'<rs:ln rel="a" href="b"/>' * 100_000, LimitExceeded, "RS-LIM-01", "links"),
    Hostile("a million relations", OPEN + b'<rs:ln rel="' + b"a " * 100_000 + b'" href="b"/>', LimitExceeded, "RS-LIM-01"),
    Hostile("namespaces without end", OPEN + b"".join(b'<a xmlns:p%d="u">' % n for n in range(100_000)), LimitExceeded, "RS-LIM-01"),
    Hostile("empty", b"", EmptyDocument, "AMB-10"),
    Hostile("white space", b" \n\t\r\n", EmptyDocument, "AMB-10"),
    Hostile("a byte order mark and no more", b"\xef\xbb\xbf", EmptyDocument, "AMB-10"),
    Hostile("empty gzip", gzip.compress(b""), EmptyDocument, "AMB-10"),
    Hostile("no XML", b"Not found", NotXml, "AMB-10"),
    Hostile("JSON", b'{"error": 404}', NotXml, "AMB-10"),
    Hostile("octets", bytes(range(256)) * 10, NotXml, "AMB-10"),
    Hostile("truncated", GOOD[:-20], Truncated, "AMB-10"),
    Hostile("truncated in an entry", urlset(url("") * 500)[:-60], Truncated, "AMB-10"),
    Hostile("truncated in a tag", OPEN[:-10], Truncated, "AMB-10"),
    Hostile("truncated in a character", OPEN + b"<url><loc>\xc3", Truncated, "AMB-10"),
    Hostile("truncated in CDATA", OPEN + b"<url><loc><![CDATA[x", Truncated, "AMB-10"),
    Hostile("truncated gzip", gzip.compress(GOOD)[:-12], Truncated, "AMB-14"),
    Hostile("truncated gzip of a usual list", gzip.compress(urlset(url("") * 5_000))[:-500], Truncated, "AMB-14"),
    Hostile("gzip without its checksum", gzip.compress(GOOD)[:-8], Truncated, "AMB-14"),
    Hostile("gzip with a wrong checksum", gzip.compress(GOOD)[:-8] + b"\0" * 8, BadCompression, "AMB-14"),
    Hostile("damaged gzip", gzip.compress(GOOD)[:30] + b"\xff" * 50, BadCompression, "AMB-14"),
    Hostile("a second gzip member that is damaged", gzip.compress(GOOD) + b"\x1f\x8b\x07 no method", BadCompression, "AMB-14"),
    Hostile("three layers of gzip", gzip.compress(gzip.compress(gzip.compress(GOOD))), LimitExceeded, "AMB-14"),
    Hostile("a web page", b"<!DOCTYPE html><html><body>", NotSitemap, "RS-DOC-01", "web page"),
    Hostile("an XHTML page", b'<html xmlns="http://www.w3.org/1999/xhtml"/>', NotSitemap, "RS-DOC-01", "web page"),
    Hostile("a text Sitemap", b"http://a/\nhttp://b/\n", NotSitemap, "RS-DOC-01", "text Sitemap"),
    Hostile("a text Sitemap of one line", b"\xef\xbb\xbf\r\nHTTPS://a/", NotSitemap, "RS-DOC-01", "text Sitemap"),
    Hostile("a text Sitemap in gzip", gzip.compress(b"http://a/ \r\n" * 1_000), NotSitemap, "RS-DOC-01", "text Sitemap"),
    Hostile("a text Sitemap in UTF-16", "https://a/\n".encode("utf-16"), NotSitemap, "RS-DOC-01", "text Sitemap"),
    Hostile("a feed", b"<rss version='2.0'/>", NotSitemap, "RS-DOC-01", "rss"),
    Hostile("urlset in no namespace", b"<urlset><url><loc>http://a/</loc></url></urlset>", NotSitemap, "RS-DOC-01", "namespace"),
    Hostile("urlset in another namespace", b'<urlset xmlns="http://x/"/>', NotSitemap, "RS-DOC-01", "namespace"),
    Hostile("an undeclared prefix", OPEN + b"<r:md/></urlset>", NotXml, "AMB-10", "prefix"),
    Hostile("a doubled attribute", OPEN + b'<rs:md at="1" at="1"/></urlset>', NotXml, "AMB-10", "duplicate"),
    Hostile("a doubled attribute in a usual entry", urlset(url("") * 100 + url('<rs:md length="1" length="1"/>')), NotXml, "AMB-10", "duplicate"),
    Hostile("a stray end", OPEN + b"</url>", NotXml, "AMB-10"),
    Hostile("a stray ampersand", urlset(url("", "http://a/?b&c")), NotXml, "AMB-10"),
    Hostile("a NUL", urlset(url("", "http://a/\0")), NotXml, "AMB-10"),
    Hostile("a control character by reference", urlset(url("", "http://a/&#1;")), NotXml, "AMB-10"),
    Hostile("invalid UTF-8", OPEN + b"<url><loc>http://a/\xff</loc></url></urlset>", NotXml, "AMB-10"),
    Hostile("a surrogate in UTF-8", OPEN + b"<url><loc>http://a/\xed\xa0\x80</loc></url></urlset>", NotXml, "AMB-10"),
    Hostile("an unknown encoding", b'<?xml version="1.0" encoding="klingon"?>' + GOOD[38:], NotXml, "AMB-10", "encoding"),
    Hostile("a wrong encoding", b'<?xml version="1.0" encoding="shift_jis"?>' + OPEN + b"\x81\xff\xff\xff", NotXml, "AMB-10"),
    Hostile("half of UTF-16", "<urlset/>".encode("utf-16")[:-1], Truncated, "AMB-10"),
]  # fmt: skip


@pytest.mark.parametrize("pieces", [None, [65_536], [1_000, 7]], ids=["whole", "blocks", "crumbs"])
@pytest.mark.parametrize("quick", [True, False], ids=["quick", "plain"])
@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_hostile_documents_end_in_their_fault(case: Hostile, quick: bool, pieces: list[int] | None) -> None:
    start = time.thread_time()
    read = Read(case.data, quick=quick, pieces=pieces)
    seconds = time.thread_time() - start
    assert type(read.fault) is case.fault, read.fault
    assert read.fault.rule == case.rule
    assert case.words in read.fault.what
    assert read.fault.exit_status is Exit.SOURCE
    assert read.fault.todo
    assert seconds < SECONDS


@pytest.mark.parametrize("data", [BOMB, TINY_BOMB, OPEN + b"<a>" * 2_000, OPEN + b'<url a="' + b">" * 30_000])
def test_hostile_documents_in_single_octets(data: bytes) -> None:
    start = time.thread_time()
    assert isinstance(Read(data, pieces=[1]).fault, DocumentFault)
    assert time.thread_time() - start < SECONDS


def deflate_bomb(octets: int) -> Iterator[bytes]:
    compressor = zlib.compressobj(9, wbits=31)
    yield compressor.compress(OPEN)
    for _ in range(octets >> 20):
        yield compressor.compress(b" " * (1 << 20))
    yield compressor.flush()


def test_a_gzip_bomb_is_refused_early_and_small() -> None:
    bomb = b"".join(deflate_bomb(1 << 28))
    for data in (bomb, gzip.compress(bomb)):
        tracemalloc.start()
        start = time.thread_time()
        read = Read(data)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert isinstance(read.fault, LimitExceeded)
        assert read.fault.rule == "AMB-14"
        assert time.thread_time() - start < SECONDS
        assert peak < 16 << 20


def test_many_gzip_members_are_bounded() -> None:
    read = Read(gzip.compress(b"") * 5_000, limits=ReadLimits(gzip_members=1_000))
    assert isinstance(read.fault, LimitExceeded)


LIMITS = [
    (ReadLimits(octets=1_000), urlset(url("") * 100)),
    (ReadLimits(compressed_octets=100), gzip.compress(urlset(url("")))),
    (ReadLimits(entries=10), urlset(url("") * 11)),
    (ReadLimits(barren_octets=1_000), urlset(" " * 1_001)),
    (ReadLimits(depth=3), urlset("<a><b><c/></b></a>")),
    (ReadLimits(attributes=2), urlset('<a b="" c="" d=""/>')),
    (ReadLimits(attribute_length=20), urlset(f'<a b="{"x" * 40}"/>')),
    (ReadLimits(text_length=20), urlset(url("", "http://example.com/" + "a" * 20))),
    (ReadLimits(token_octets=1_000), urlset(f"<!--{'x' * 200_000}-->")),
    (ReadLimits(links=2), urlset(url('<rs:ln rel="a" href="http://b/"/>' * 3))),
]


ADDRESS = "http://example.com/a"
SMALL = urlset(url("", ADDRESS))
WITHIN = [
    (ReadLimits(octets=len(SMALL)), SMALL),
    (ReadLimits(compressed_octets=len(gzip.compress(SMALL))), gzip.compress(SMALL)),
    (ReadLimits(compressed_octets=1), SMALL),
    (ReadLimits(ratio=1, ratio_octets=len(SMALL)), gzip.compress(SMALL)),
    (ReadLimits(entries=10), urlset(url("") * 10)),
    (ReadLimits(depth=4), urlset(url("") + "<a><b><c/></b></a>")),
    (ReadLimits(attributes=3), urlset('<a b="" c="" d=""/>' + url(""))),
    (ReadLimits(text_length=len(ADDRESS)), SMALL),
    (ReadLimits(links=3), urlset(url('<rs:ln rel="a" href="http://b/"/>' * 3))),
    (ReadLimits(links=3), urlset(url('<rs:ln rel="a b" href="http://b/"/><rs:ln rel="c" href="http://b/"/>'))),
]


@pytest.mark.parametrize(("limits", "data"), WITHIN, ids=map(str, range(len(WITHIN))))
@pytest.mark.parametrize("pieces", [[1], None], ids=["octets", "whole"])
def test_what_is_just_within_a_bound_is_read(limits: ReadLimits, data: bytes, pieces: list[int] | None) -> None:
    read = Read(data, limits=limits, pieces=pieces)
    assert (read.fault, len(read.entries) >= 1) == (None, True)


@pytest.mark.parametrize("noise", [b" " * 65_536, b"<!--" + b"x" * 65_529 + b"-->"], ids=["spaces", "comments"])
def test_what_goes_on_without_an_entry_ends_soon(noise: bytes) -> None:
    """RS-LIM-02: a document without end does not cost the octets of the largest one that is read."""
    bound = ReadLimits().barren_octets
    half = bound // len(noise) // 2
    entry = GOOD[GOOD.index(b"<url>") : GOOD.index(b"</url>") + len(b"</url>")]
    fed: list[bytes] = []

    def forever() -> Iterator[bytes]:
        yield from (GOOD[: -len(b"</urlset>\n")], *[noise] * half, entry, *[noise] * half, entry)
        while True:
            fed.append(noise)
            yield noise

    with pytest.raises(LimitExceeded, match="without an entry"):
        list(read_document(forever()))
    assert len(fed) * len(noise) <= bound + 4 * len(noise)


@pytest.mark.parametrize("quick", [True, False])
@pytest.mark.parametrize(("limits", "data"), LIMITS)
def test_each_limit_holds(limits: ReadLimits, data: bytes, quick: bool) -> None:
    assert Read(data, quick=quick).fault is None
    assert isinstance(Read(data, limits=limits, quick=quick).fault, LimitExceeded)


@pytest.mark.parametrize("quick", [True, False])
def test_entries_before_the_limit_are_handed_out(quick: bool) -> None:
    read = Read(urlset(url("") * 11), limits=ReadLimits(entries=10), quick=quick)
    assert len(read.entries) == 10


@pytest.mark.parametrize("quick", [True, False])
@pytest.mark.parametrize("pieces", [None, [10], [5_000]])
def test_faults_name_their_line_and_keep_what_came_before(quick: bool, pieces: list[int] | None) -> None:
    data = urlset((url("") + "\n") * 1_000 + "<url>\r\n<loc>x</url>")
    read = Read(data, quick=quick, pieces=pieces)
    assert isinstance(read.fault, NotXml)
    assert read.fault.line == data[: data.index(b"x</url>")].count(b"\n") + 1
    assert read.fault.where == f"http://example.com/set/document.xml, line {read.fault.line}"
    assert len(read.entries) == 1_000


@pytest.mark.parametrize("quick", [True, False])
@pytest.mark.parametrize("pieces", [None, [5_000]])
def test_faults_in_long_lines_name_their_byte(quick: bool, pieces: list[int] | None) -> None:
    """As lists without line breaks, of which "line 1" says nothing; also where a byte order mark was left out."""
    data = b"\xef\xbb\xbf" + urlset(url("") * 1_000 + "<url><loc>x</url>")
    read = Read(data, quick=quick, pieces=pieces)
    assert read.fault is not None
    at = data.index(b"url>", data.index(b"x</url>"))
    assert read.fault.what == f"not well-formed XML: mismatched tag, at byte {at + 1:,}"


def test_a_fault_is_raised_again() -> None:
    reader = Reader()
    assert reader.feed(b"<a/>" + b" " * 300) == []
    for call in (lambda: reader.feed(b""), reader.close, reader.close):
        with pytest.raises(NotSitemap):
            call()


def test_an_unknown_place_is_called_the_document() -> None:
    assert Read(b"<a>\n&", base=None).fault.where == "document, line 1"  # type: ignore[union-attr]


GZIPPED = [
    gzip.compress(GOOD),
    gzip.compress(GOOD) + b"\0" * 100,
    gzip.compress(GOOD[:50]) + gzip.compress(b"") + gzip.compress(GOOD[50:]),
    gzip.compress(gzip.compress(GOOD)),
    gzip.compress(GOOD, 0),
]


@pytest.mark.parametrize("pieces", [None, [1], [17]])
@pytest.mark.parametrize("data", GZIPPED)
def test_gzip_is_recognised(data: bytes, pieces: list[int] | None) -> None:
    read = Read(data, pieces=pieces)  # AMB-14, RS-DOC-19
    assert read.fault is None
    assert read.entries == Read(GOOD).entries


def test_memory_is_flat_whatever_the_size() -> None:
    peaks = []
    for count in (2_000, 10_000):
        reader = Reader()
        tracemalloc.start()
        total = len(reader.feed(urlset("")[:-11]))
        for _ in range(count // 100):
            total += len(reader.feed((url("<rs:md length='1'/>") * 100).encode()))
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert total == count
    assert peaks[1] < 1.2 * peaks[0] + (1 << 16)


def test_small_pieces_cost_linear_time() -> None:
    data = urlset(url("") * 2_000)
    start = time.thread_time()
    for quick in (True, False):
        assert len(Read(data, quick=quick, pieces=[1]).entries) == 2_000
    assert time.thread_time() - start < SECONDS


def test_pieces_of_one_long_token_cost_linear_time() -> None:
    reader = Reader()
    start = time.thread_time()
    for piece in cut(OPEN + b'<url a="' + b"x" * 1_000_000, [100]):
        reader.feed(piece)
    assert time.thread_time() - start < SECONDS


def test_entries_come_as_they_are_complete(monkeypatch: pytest.MonkeyPatch) -> None:
    for quick in (True, False):
        monkeypatch.setattr(fast_entries, "IS_ON", quick)
        reader = Reader()
        reader.feed(f"<urlset {NAMESPACES}>{LIST}<!-- {'x' * 300} -->".encode())
        for _ in range(3):
            assert reader.feed(url("")[:-3].encode()) == []
            assert len(reader.feed(url("")[-3:].encode())) == 1
