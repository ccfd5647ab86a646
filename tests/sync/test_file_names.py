"""The rule of names: injective, contained, readable backwards; whatever octets a served folder holds come back."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.errors import UsageFault
from headwater.spec.uris import normalise, quote_path
from headwater.sync.copy.file_names import (
    ESCAPE_FOLDER,
    base_folder,
    escaped_path,
    natural_path,
    resources_folder,
)
from tests.support.examples import examples
from tests.support.names_of_files import path_of, uri_of

BASE = "http://h.example/set/resources/"

NATURAL = [
    ("a.txt", b"a.txt"),
    ("a/b/c", b"a/b/c"),
    ("with%20space", b"with space"),
    ("100%25", b"100%"),
    ("%2541", b"%41"),
    ("new%0Aline", b"new\nline"),
    ("%FF%FE", b"\xff\xfe"),
    ("%C3%BC", "ü".encode()),
    ("a%3Fb%23c", b"a?b#c"),
    ("back%5Cslash", b"back\\slash"),
    ("...", b"..."),
    (".hidden", b".hidden"),
    ("x" * 255, b"x" * 255),
    ("%25uri", b"%uri"),
    ("%25uri/plain", b"%uri/plain"),
    ("%25uri/http%253A%252F%252Fx", b"%uri%/http%3A%2F%2Fx"),
    ("CON", b"CON"),
]


@pytest.mark.parametrize(("rest", "path"), NATURAL)
def test_natural_names(rest: str, path: bytes) -> None:
    assert path_of(normalise(BASE + rest), BASE) == path


ESCAPED = [
    BASE,
    BASE + "a/",
    BASE + "a//b",
    BASE + "a%2Fb",
    BASE + "%00",
    BASE + "a?x=1",
    BASE + "a#f",
    BASE + "x" * 256,
    BASE + "d/" * 2000 + "x",
    BASE + ".headwater/state.sqlite",
    "http://other.example/",
    "https://h.example/a?b",
]


@pytest.mark.parametrize("uri", ESCAPED)
def test_escaped_names_hold_the_whole_uri(uri: str) -> None:
    path = path_of(uri, BASE)
    assert path.startswith(ESCAPE_FOLDER + b"/http")
    assert uri_of(path, BASE) == uri


def test_other_hosts_have_a_folder() -> None:
    assert path_of("http://other.example/a/b", BASE) == b"other.example/a/b"
    assert path_of("http://other.example:8080/a", BASE) == b"other.example_8080/a"
    assert path_of("http://h.example/elsewhere", BASE) == b"h.example/elsewhere"


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=60)
uris = st.builds(
    lambda scheme, host, rest: normalise(f"{scheme}://{host}/{rest}"),
    st.sampled_from(["http", "https"]),
    st.sampled_from(["h.example", "h.example:81", "other.example", "[::1]"]),
    st.one_of(
        texts,
        st.lists(
            st.sampled_from(
                ["set", "resources", "a", "b", "..", ".", "", "%2e", "%2E%2e", "%2f", "%25uri", "~", "%7E"]
            ),
            max_size=9,
        ).map("/".join),
    ),
)


@settings(max_examples=examples(400))
@given(uris)
def test_contained(uri: str) -> None:
    """No name leaves the folder, none is empty, none is too long for a file system, none is ours."""
    path = path_of(uri, BASE)
    parts = path.split(b"/")
    assert all(part not in (b"", b".", b"..") and len(part) <= 255 and b"\0" not in part for part in parts)
    assert parts[0] != b".headwater"


@settings(max_examples=examples(400))
@given(uris, uris)
def test_escaped_names_are_injective_and_apart(one: str, other: str) -> None:
    """Two URIs never share an escaped name, none is the folder of another, and no natural name is an escaped one."""
    first, second = escaped_path(one), escaped_path(other)
    if one != other:
        assert first != second
        assert not second.startswith(first + b"/")
    assert natural_path(other, BASE) != first
    assert uri_of(first, BASE) == one


@settings(max_examples=examples(300))
@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=900))
def test_escaped_names_of_anything_read_back(tail: str) -> None:
    uri = f"http://{tail}"
    path = escaped_path(uri)
    assert uri_of(path, BASE) == uri
    assert all(0 < len(part) <= 255 for part in path.split(b"/"))


names = st.binary(min_size=1, max_size=40).filter(lambda b: b"/" not in b and b"\0" not in b and b not in (b".", b".."))


@settings(max_examples=examples(300))
@given(st.lists(names, min_size=1, max_size=5).map(b"/".join))
def test_a_served_folder_comes_back(path: bytes) -> None:
    """The names that `headwater serve` makes are undone exactly."""
    if path.startswith((b".headwater", b"%uri/http")):
        return
    assert path_of(normalise(BASE + quote_path(path)), BASE) == path


def test_resources_folder() -> None:
    assert resources_folder("http://h/s/capabilitylist.xml") == "http://h/s/resources/"


@pytest.mark.parametrize(
    ("given", "base"),
    [
        ("http://h.example", "http://h.example/"),
        ("HTTPS://H.example:443/a/../b", "https://h.example/b/"),
        ("http://h.example/a/", "http://h.example/a/"),
        *(
            (text, None)
            for text in ("nonsense", "", "/a/b", "ftp://h.example/", "http:", "http:///a", "http://h/?q", "http://h/#f")
        ),
    ],
)
def test_a_base_that_a_caller_names(given: str, base: str | None) -> None:
    """In the form of AMB-08, and never anything below which no resource could lie."""
    if base is None:
        with pytest.raises(UsageFault, match="absolute http or https"):
            base_folder(given)
    else:
        assert base_folder(given) == base
