"""The fast path changes nothing but the time: every document reads the same with and without it, in any pieces."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.spec.fast_entries import _merged
from headwater.spec.reader import Reader
from tests.support.documents import CHANGES, EXAMPLES, LIST, NAMESPACES, UP, Read, urlset
from tests.support.examples import examples

MD5, SHA = "md5:" + "0a" * 16, "sha-256:" + "1b" * 32
PIECES = [None, [1], [7], [64, 3], [500], [70_000]]

# Bits of markup, most of them usual, some a trap for an expression that thinks that it knows XML.
LOCS = st.sampled_from(
    [
        "<loc>http://example.com/a</loc>",
        "<loc>https://example.com/b?x=1&amp;y=2&amp;</loc>",
        "<loc>http://example.com/&#97;</loc>",
        "<loc>\n http://example.com/space </loc>",
        "<loc>relative/c</loc>",
        "<loc>http://example.com/\N{LATIN SMALL LETTER E WITH ACUTE}</loc>",
        "<loc>http://example.com/]]></loc>",
        "<loc>http://example.com/]]</loc>",
        "<loc><![CDATA[http://example.com/cdata]]></loc>",
        "<loc>http://example.com/<!-- x -->y</loc>",
        "<loc>http://example.com/&bad;</loc>",
        "<loc>http://example.com/\x01</loc>",
        "<loc>http://example.com/\x7f</loc>",
        "<loc>http://example.com/\ufffe</loc>",
        "<loc/>",
        "",
        "<loc>http://example.com/a</loc><loc>http://example.com/b</loc>",
        '<loc a="1">http://example.com/a</loc>',
        "<loc>HTTP://Example.com/</loc>",
        "<loc>http://example.com/a\tb</loc>",
        "<loc>http:///x</loc>",
        "<loc>http://?q</loc>",
    ]
)
LASTMODS = st.sampled_from(
    [
        "",
        "<lastmod>2024-01-02T03:04:05Z</lastmod>",
        "<lastmod>2024-01-02T03:04:05.678901Z</lastmod>",
        "<lastmod>2024-01-02T03:04:05.6789012Z</lastmod>",
        "<lastmod>2024-01-02T03:04:05+00:00</lastmod>",
        "<lastmod>2024-01-02T03:04:05-05:30</lastmod>",
        "<lastmod>2024-02-30T03:04:05Z</lastmod>",
        "<lastmod>2024-01-02T03:04:05+01:60</lastmod>",
        "<lastmod>2024-01-02T03:04:05+24:00</lastmod>",
        "<lastmod>0001-01-01T03:04:05+05:00</lastmod>",
        "<lastmod>2024-02-30</lastmod>",
        "<lastmod>2016-12-31T23:59:60Z</lastmod>",
        "<lastmod>0000-01-01T00:00:00Z</lastmod>",
        "<lastmod>2024-01-02</lastmod>",
        "<lastmod>yesterday</lastmod>",
        "<lastmod></lastmod>",
        "<lastmod>2024-01-02T03:04:05Z</lastmod><changefreq>daily</changefreq>",
        "<changefreq>often</changefreq>",
        "<priority>0.5</priority>",
        "<priority>&lt;</priority>",
        "<changefreq>daily</changefreq><lastmod>2024-01-02T03:04:05Z</lastmod>",
        '<x:y xmlns:x="http://example.com/x"><url/></x:y>',
        "<unknown/>",
    ]
)
ATTRIBUTES = st.sampled_from(
    [
        f'hash="{MD5}"',
        f'hash="{MD5} {SHA}"',
        f'hash="{SHA} {MD5}"',
        f'hash="{MD5} {MD5}"',
        f'hash="{MD5}  {SHA}"',
        f'hash="{MD5}\n{SHA}"',
        'hash="md5:zz"',
        'hash=""',
        'length="12"',
        'length="-1"',
        'length=" 7 "',
        'length="000000000000000001"',
        'length="99999999999999999999"',
        'type="text/html"',
        'type="text/html; charset=utf-8"',
        "type='text/html'",
        'type="html"',
        'change="created"',
        'change="deleted"',
        'change="Updated"',
        'datetime="2024-01-02T03:04:05Z"',
        'datetime="2024-01-32T03:04:05Z"',
        'datetime="2024-01-02T03:04:05+02:00"',
        'datetime="2024-01-02"',
        'path="/a/b c"',
        'path="a/b"',
        'path="/a/"',
        'path="/a&amp;b"',
        'encoding="gzip"',
        'capability="resourcelist"',
        'at="2024-01-02T03:04:05Z"',
        'modified="2024-01-02T03:04:05Z"',
        'rs:length="5"',
        'x:own="1" xmlns:x="http://example.com/x"',
        'unknown="1"',
        'type="a/b>c"',
    ]
)
PREFIXES = st.sampled_from(["rs", "rs", "rs", "rs", "r2", "nope"])


@st.composite
def md(draw: st.DrawFn) -> str:
    if draw(st.integers(0, 9)) == 0:
        return draw(st.sampled_from(["", "<rs:md></rs:md>", "<rs:md/>", "<rs:md>text</rs:md>", '<md length="1"/>']))
    separator = draw(st.sampled_from([" ", " ", " ", "\n   ", "\t", "\r\n "]))
    attributes = draw(st.lists(ATTRIBUTES, max_size=5))
    if draw(st.booleans()):  # duplicates are not well-formed: seldom, or no document would ever end well
        attributes = list({text.partition("=")[0]: text for text in attributes}.values())
    text = "".join(separator + attribute for attribute in attributes)
    return f"<{draw(PREFIXES)}:md{text}{draw(st.sampled_from(['', ' ']))}/>"


LINK_ATTRIBUTES = st.sampled_from(
    [
        'rel="duplicate"',
        'rel="Duplicate"',
        'rel="via up"',
        'rel="http://www.openarchives.org/rs/terms/patch"',
        'href="http://m.example.com/a?b=1&amp;c"',
        'href="../a"',
        'href="http:///a"',
        'href=""',
        'pri="1"',
        'pri="0"',
        'pri="999999"',
        'pri="1000000"',
        'modified="2024-01-02T03:04:05Z"',
        'modified="2024-02-30T03:04:05Z"',
        'modified="2024"',
        f'hash="{MD5}"',
        'hash="x"',
        'length="5"',
        'length="-5"',
        'type="text/html"',
        'type="html"',
        'path="/a"',
        'path="a"',
        'encoding="gzip"',
        'profile="http://example.com/p"',
        "rel='via'",
        'x:own="1" xmlns:x="http://example.com/x"',
        'unknown="1"',
    ]
)


@st.composite
def link(draw: st.DrawFn) -> str:
    attributes = draw(st.lists(LINK_ATTRIBUTES, max_size=4))
    if draw(st.integers(0, 3)):
        attributes = ['href="http://m.example.com/"', 'rel="via"', *attributes]
    if draw(st.integers(0, 9)):
        attributes = list({text.partition("=")[0]: text for text in attributes}.values())
    separator = draw(st.sampled_from([" ", " ", "\n  "]))
    return f"<{draw(PREFIXES)}:ln{''.join(separator + text for text in attributes)}{draw(st.sampled_from(['', ' ']))}/>"


LINKS = st.lists(link(), max_size=3).map("".join)


@st.composite
def entry(draw: st.DrawFn) -> str:
    gap = draw(st.sampled_from(["", "\n", "\n  ", "\r\n", "\r", " text ", "<!-- c -->", "<?p i?>"]))
    parts = [draw(LOCS), draw(LASTMODS), draw(md()), draw(LINKS)]
    if draw(st.integers(0, 5)) == 0:
        parts = draw(st.permutations(parts))
    return gap + "<url>" + gap.join(parts) + draw(st.sampled_from(["</url>", "</url>", "</url>", "</url >"])) + gap


USUAL = st.builds(
    "<url><loc>http://example.com/{}</loc><lastmod>2024-01-{:02}T00:00:00Z</lastmod>"
    '<rs:md hash="md5:{:032x} sha-256:{:064x}" length="{}" type="text/plain"/></url>\n'.format,
    st.integers(0, 10**9),
    st.integers(1, 31),
    st.integers(0, 2**128 - 1),
    st.integers(0, 2**256 - 1),
    st.integers(0, 10**15),
)

BETWEEN = st.sampled_from(
    [
        "",
        "]]",
        ">",
        "\r",
        "<!-- <url><loc>http://example.com/not</loc></url> -->",
        "<![CDATA[<url><loc>http://example.com/not</loc></url>]]>",
        "<foreign><url><loc>http://example.com/not</loc></url></foreign>",
        "<?pi <url><loc>http://example.com/not</loc></url>?>",
        '<foreign a="',
        '"/>',
        UP,
        '<rs:md capability="resourcelist" at="2024-01-01T00:00:00Z"/>',
        "<sitemap><loc>http://example.com/s</loc></sitemap>",
    ]
)
HEADS = st.sampled_from([LIST, CHANGES, "", '<rs:md capability="description"/>', '<rs:md capability="x"/>'])
ROOTS = st.sampled_from(
    [
        f"<urlset {NAMESPACES}>",
        f"<urlset {NAMESPACES}>",
        f"<urlset {NAMESPACES}>",
        f'<urlset {NAMESPACES} xmlns:r2="http://www.openarchives.org/rs/terms/">',
        f"<sitemapindex {NAMESPACES}>",
        "<urlset xmlns='http://www.sitemaps.org/schemas/sitemap/0.9'>",
        '<s:urlset xmlns:s="http://www.sitemaps.org/schemas/sitemap/0.9">',
        f'<s:urlset xmlns:s="http://www.sitemaps.org/schemas/sitemap/0.9" {NAMESPACES}>',
    ]
)
DECLARATIONS = st.sampled_from(
    [
        "",
        '<?xml version="1.0"?>',
        '<?xml version="1.0" encoding="UTF-8"?>\n',
        '<?xml version="1.0" encoding="latin-1"?>',
    ]
)


@st.composite
def documents(draw: st.DrawFn) -> bytes:
    root = draw(ROOTS)
    body = "".join(draw(st.lists(st.one_of(USUAL, USUAL, entry(), entry(), BETWEEN), max_size=12)))
    text = draw(DECLARATIONS) + root + draw(HEADS) + body
    if draw(st.integers(0, 9)):
        text += f"</{root[1:].split()[0]}>"
    return text.encode("utf-8", "surrogatepass")


def same(data: bytes, pieces: list[int] | None) -> None:
    plain = Read(data, quick=False)
    for quick, sizes in ((True, None), (True, pieces), (False, pieces)):
        other = Read(data, quick=quick, pieces=sizes)
        told = ", read as "  # said where other letters were met before the fault, which depends on the pieces
        assert str(other.fault).partition(told)[0].partition(" (http")[0] in str(plain.fault)
        assert type(other.fault) is type(plain.fault)
        assert other.entries == plain.entries
        assert other.document == plain.document
        assert other.warnings == plain.warnings
        assert (other.version, other.counts[:2]) == (plain.version, plain.counts[:2])


@settings(max_examples=examples(600), deadline=None)
@given(documents(), st.lists(st.integers(1, 400), max_size=4))
def test_the_fast_path_changes_nothing(data: bytes, pieces: list[int]) -> None:
    same(data, pieces)


@settings(max_examples=examples(150), deadline=None)
@given(st.lists(USUAL, min_size=1, max_size=30), st.data())
def test_damaged_usual_documents_read_the_same(entries: list[str], data: st.DataObject) -> None:
    octets = bytearray(urlset("".join(entries)))
    for _ in range(data.draw(st.integers(1, 3))):
        octets[data.draw(st.integers(0, len(octets) - 1))] = data.draw(st.integers(0, 255))
    same(bytes(octets), [97])


@pytest.mark.parametrize("pieces", PIECES)
@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*/*.xml")), ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_examples_read_the_same(path, pieces) -> None:
    same(path.read_bytes(), pieces)


def test_usual_documents_take_the_fast_path() -> None:
    # Each producer has its own order of attributes and its own prefix: both are learned from the first elements.
    for prefix, attributes in (
        ("rs", f'hash="{MD5} {SHA}" length="5" type="text/plain"'),
        ("rs", f'type="text/plain" length="5" hash="{MD5}"'),
        ("q", f'length="5" change="updated" hash="{SHA}" datetime="2024-01-02T03:04:05Z"'),
    ):
        body = "".join(
            f"<url>\n  <loc>http://example.com/{n}</loc>\n  <{prefix}:md {attributes} />\n</url>\n"
            for n in range(5_000)
        )
        data = urlset(body).replace(b"xmlns:rs", f"xmlns:{prefix}".encode()).replace(b"<rs:", f"<{prefix}:".encode())
        reader = Reader()
        passed = 0
        skipped = reader._tokens.skipped

        def count(text: bytes, start: int, end: int, skipped=skipped) -> None:
            nonlocal passed
            passed += end - start
            skipped(text, start, end)

        reader._tokens.skipped = count  # type: ignore[method-assign, assignment]
        assert len(reader.feed(data) + reader.close()) == 5_000
        assert passed > 0.95 * len(data), prefix


@given(st.permutations("abcdef"), st.lists(st.sampled_from("abcdefg"), max_size=7))
def test_merged_orders_keep_every_attribute(order, names) -> None:
    order, names = tuple(order), [name for name in names if name in order]
    merged = _merged(order, names)
    assert sorted(merged) == sorted(order)
    if len(set(names)) == len(names):
        assert [name for name in merged if name in names] == names
