"""URIs: resolved as RFC 3986 prints it, compared after normalisation, never raising (AMB-07, AMB-08)."""

from __future__ import annotations

import os
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.spec.uris import Origin, comparable_host, is_absolute, normalise, origin, quote_path, resolve, to_ascii

RFC3986 = "http://a/b/c/d;p?q"
RESOLVED = [  # RFC 3986, 5.4.1 and 5.4.2
    ("g:h", "g:h"), ("g", "http://a/b/c/g"), ("./g", "http://a/b/c/g"), ("g/", "http://a/b/c/g/"), ("/g", "http://a/g"),
    ("//g", "http://g"), ("?y", "http://a/b/c/d;p?y"), ("g?y", "http://a/b/c/g?y"), ("#s", "http://a/b/c/d;p?q#s"),
    ("g#s", "http://a/b/c/g#s"), ("g?y#s", "http://a/b/c/g?y#s"), (";x", "http://a/b/c/;x"), ("g;x", "http://a/b/c/g;x"),
    ("g;x?y#s", "http://a/b/c/g;x?y#s"), ("", "http://a/b/c/d;p?q"), (".", "http://a/b/c/"), ("./", "http://a/b/c/"),
    ("..", "http://a/b/"), ("../", "http://a/b/"), ("../g", "http://a/b/g"), ("../..", "http://a/"),
    ("../../", "http://a/"), ("../../g", "http://a/g"), ("../../../g", "http://a/g"), ("../../../../g", "http://a/g"),
    ("/./g", "http://a/g"), ("/../g", "http://a/g"), ("g.", "http://a/b/c/g."), (".g", "http://a/b/c/.g"),
    ("g..", "http://a/b/c/g.."), ("..g", "http://a/b/c/..g"), ("./../g", "http://a/b/g"), ("./g/.", "http://a/b/c/g/"),
    ("g/./h", "http://a/b/c/g/h"), ("g/../h", "http://a/b/c/h"), ("g;x=1/./y", "http://a/b/c/g;x=1/y"),
    ("g;x=1/../y", "http://a/b/c/y"), ("g?y/./x", "http://a/b/c/g?y/./x"), ("g#s/../x", "http://a/b/c/g#s/../x"),
    ("http:g", "http:g"),
]  # fmt: skip


@pytest.mark.parametrize(("ref", "target"), RESOLVED)
def test_references_resolve(ref, target) -> None:
    assert resolve(RFC3986, ref) == target


def test_references_resolve_at_a_bare_host() -> None:
    assert resolve("http://a", "g") == "http://a/g"
    assert resolve("http://a?x", "g") == "http://a/g"


NORMALISED = [
    ("HTTP://Example.COM", "http://example.com/"),
    ("http://example.com:80/a", "http://example.com/a"),
    ("https://example.com:443/a", "https://example.com/a"),
    ("http://example.com:443/a", "http://example.com:443/a"),
    ("http://example.com:/a", "http://example.com/a"),
    ("http://example.com/%7ea%2f%e4", "http://example.com/~a%2F%E4"),
    ("http://example.com/a/./b/../c", "http://example.com/a/c"),
    ("http://example.com/a/", "http://example.com/a/"),
    ("http://example.com/a?B=%3d&", "http://example.com/a?B=%3D&"),
    ("http://example.com/ä", "http://example.com/%C3%A4"),
    ("http://exämple.com/", "http://xn--exmple-cua.com/"),
    ("http://straße.example/", "http://xn--strae-oqa.example/"),  # IDNA 2008: not strasse.example
    ("http://STRASSE.example/", "http://strasse.example/"),
    ("http://stra%C3%9Fe.example/", "http://xn--strae-oqa.example/"),
    ("http://XN--STRAE-OQA.example:80/", "http://xn--strae-oqa.example/"),
    ("http://日本語。jp/", "http://xn--wgv71a119e.jp/"),
    ("http://ex_a%6Dple.com/", "http://ex_ample.com/"),
    ("http://a%2Fb.example/", "http://a%2Fb.example/"),
    ("http://☃.example/", "http://%E2%98%83.example/"),  # no name of the DNS
    ("http://ä..example/", "http://%C3%A4..example/"),
    ("http://example.com/a b", "http://example.com/a%20b"),
    ("http://example.com/100%", "http://example.com/100%25"),
    ("http://User@Example.com/", "http://User@example.com/"),
    ("http://[::1]:8080/", "http://[::1]:8080/"),
    ("urn:UUID:x", "urn:UUID:x"),
    ("../a", "../a"),
]


@pytest.mark.parametrize(("uri", "expected"), NORMALISED)
def test_comparison_form(uri, expected) -> None:
    assert normalise(uri) == expected


URIS = st.text() | st.from_regex(r"[A-Za-z]{1,3}:(//[^/?#]{0,9})?[/.%a-fA-F0-9]{0,20}(\?.{0,9})?(#.{0,9})?")


@given(st.text(st.characters(exclude_categories=()), max_size=40) | st.text(max_size=300))
def test_any_text_may_be_taken_for_a_host(text) -> None:
    once = comparable_host(text)
    assert once.isascii()
    assert comparable_host(once) == once


@pytest.mark.parametrize(
    "text", ["", "\ud800.example", "%", "%ff", "[::1%25eth0]", "\u0661.\u0662", "\u200d", "xn--", "ª" * 200]
)
def test_odd_hosts_are_compared_too(text) -> None:
    once = comparable_host(text)
    assert once.isascii()
    assert comparable_host(once) == once


@given(URIS)
def test_normalising_twice_changes_nothing(uri) -> None:
    once = normalise(uri)
    assert once.isascii()
    assert normalise(once) == once


@given(URIS, URIS)
def test_nothing_raises(base, ref) -> None:
    resolve(base, ref)
    origin(ref)
    is_absolute(ref)
    assert to_ascii(ref).isascii()


@pytest.mark.parametrize(
    ("uri", "expected"),
    [
        ("http://Example.com/a", Origin("http", "example.com", 80)),
        ("https://user:pw@example.com:8443/", Origin("https", "example.com", 8443)),
        ("HTTP://[::1]/", Origin("http", "[::1]", 80)),
        ("http://example.com@evil.example/", Origin("http", "evil.example", 80)),
        ("http://example.com:99999999999999/", Origin("http", "example.com", 999999)),
        ("urn:x", Origin("urn", "", None)),
        ("/a", Origin("", "", None)),
    ],
)
def test_origins(uri, expected) -> None:
    assert origin(uri) == expected


@given(st.binary(max_size=30).map(lambda name: name.replace(b"\0", b"")))
def test_paths_are_quoted_and_come_back(path) -> None:
    from urllib.parse import unquote_to_bytes

    quoted = quote_path(path)
    assert quoted.isascii()
    assert unquote_to_bytes(quoted) == path
    assert quote_path(os.fsencode(os.fsdecode(path))) == quoted


def seconds_of(text: str) -> float:
    began = time.process_time()
    normalise(text)
    resolve("http://a/" + text, text)
    origin(text)
    return time.process_time() - began


@pytest.mark.parametrize(("before", "part"), [("", "a/../"), ("", "%"), ("", ":"), ("", "//"), ("http://", "ä.")])
def test_long_texts_take_linear_time(before: str, part: str) -> None:
    """Sixteen times the text takes about sixteen times as long; 256 times where each part looks at all others."""
    small, large = (min(seconds_of(before + part * count) for _ in range(3)) for count in (2_000, 32_000))
    assert large < 80 * max(small, 1e-4)
