"""Where announced resources are (DIT-07, DIT-A9, DIT-A10), with locations that want to lead elsewhere."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.ingest.push.resource_locations import BadLocation, Location, Locations

PREFIX = "http://example.org/data/"
HERE = Locations(PREFIX, "/srv/data")

RESOLVED = [
    ("a relative path", "rel_path", "a/b.txt", "a/b.txt"),
    ("its leading slash is dropped", "rel_path", "/a/b.txt", "a/b.txt"),
    ("all of them", "rel_path", "//a/b.txt", "a/b.txt"),
    ("a backslash is a character", "rel_path", "a\\b", "a%5Cb"),
    ("what looks encoded is not", "rel_path", "%2e%2e/b", "%252e%252e/b"),
    ("segments are percent-encoded as UTF-8", "rel_path", "ü b/100%.txt", "%C3%BC%20b/100%25.txt"),
    ("a dot segment means nothing", "rel_path", "./a/./b", "a/b"),
    ("a colon makes no scheme", "rel_path", "http://x", PREFIX + "http%3A//x"),
    ("an absolute path below the root", "abs_path", "/srv/data/a/b.txt", "a/b.txt"),
    ("one with doubled slashes", "abs_path", "//srv/data//a", "a"),
    ("an address below the prefix", "url", PREFIX + "a/b.txt", "a/b.txt"),
    ("an address elsewhere", "url", "https://other.org/a?x=1", "https://other.org/a?x=1"),
    ("what may not stand in a URI is encoded", "url", "http://other.org/ü", "http://other.org/%C3%BC"),
    ("an odd spelling stays what it is", "url", PREFIX + "%61", PREFIX + "%61"),
    ("an at sign elsewhere", "url", "http://other.org/@a?b@c#d@e", "http://other.org/@a?b@c#d@e"),
    ("a query is no path", "url", PREFIX + "a?b", PREFIX + "a?b"),
    ("the prefix itself", "url", PREFIX, PREFIX),
]

REFUSED = [
    ("up", "rel_path", "../a"),
    ("up in the middle", "rel_path", "a/../../b"),
    ("up that stays inside", "rel_path", "a/../b"),
    ("up by a backslash", "rel_path", "a/..\\b"),
    ("up by backslashes from the root", "abs_path", "/srv/data/a\\..\\..\\b"),
    ("up from the root", "abs_path", "/srv/data/../secret"),
    ("another folder", "abs_path", "/etc/passwd"),
    ("a folder that begins alike", "abs_path", "/srv/database/a"),
    ("the root itself", "abs_path", "/srv/data"),
    ("no absolute path", "abs_path", "srv/data/a"),
    ("nothing", "rel_path", "/"),
    ("empty", "url", ""),
    ("a user and a password", "url", "https://user:secret@example.org/a"),
    ("a user in an odd spelling", "url", "ftp://user@example.org"),
    ("a relative address", "url", "a/b"),
    ("no host", "url", "http:///a"),
    ("not a hierarchical address", "url", "mailto:a@b"),
    ("a line end", "url", "http://a/b\nhttp://c/"),
    ("a NUL", "rel_path", "a\0b"),
    ("half a character", "rel_path", "a\ud800"),
    ("half a character in an address", "url", "http://a/\ud800"),
    ("another type", "ftp", "a"),
    ("a file of this machine", "url", "file:///srv/data/a"),
    ("a scheme that no destination fetches", "url", "ftp://example.org/a"),
    ("a port that there is not", "url", "http://example.org:99999/a"),
    ("port 0", "url", "http://example.org:0/a"),
    ("a port that is no number", "url", "http://example.org:8a/a"),
    ("a blank in the host", "url", "http://example org/a"),
    ("a bracket that is not closed", "url", "http://[::1/a"),
    ("what is in brackets and no IPv6 address", "url", "http://[example.org]/a"),
    ("a scheme of one's own", "url", "s3://bucket/a"),
    ("too long", "url", "http://a/" + "x" * 20_000),
    ("the name for states, as a path", "rel_path", "d/.headwater"),
    ("the name for states, below the root", "abs_path", "/srv/data/.headwater/state.sqlite"),
    ("the name for states, as an address", "url", PREFIX + ".headwater"),
]


@pytest.mark.parametrize(("kind", "value", "uri"), [case[1:] for case in RESOLVED], ids=[case[0] for case in RESOLVED])
def test_dit_a10_a_location_becomes_one_uri(kind: str, value: str, uri: str) -> None:
    assert HERE.resolve(Location(value, kind)) == uri


@pytest.mark.parametrize(("kind", "value"), [case[1:] for case in REFUSED], ids=[case[0] for case in REFUSED])
def test_dit_a10_a_location_that_leads_nowhere_is_refused(kind: str, value: str) -> None:
    with pytest.raises(BadLocation):
        HERE.resolve(Location(value, kind))


@pytest.mark.parametrize("scheme", ["HTTP", "https", " http"])
def test_dst_s12_an_address_is_of_the_web_however_it_is_written(scheme: str) -> None:
    assert HERE.url(f"{scheme}://other.org/a").endswith("//other.org/a")


def test_rs_rel_01_a_link_may_lead_to_what_is_fetched_otherwise() -> None:
    assert HERE.resolve(Location("ftp://example.org/a"), is_link=True) == "ftp://example.org/a"
    assert HERE.link(PREFIX + "a") == "a"
    with pytest.raises(BadLocation, match="a file of one machine"):
        HERE.link(" FILE:///etc/passwd")


def test_an_absolute_path_needs_a_root() -> None:
    with pytest.raises(BadLocation, match="resource_root"):
        Locations(PREFIX).absolute_path("/srv/data/a")


@pytest.mark.parametrize("prefix", ["http://example.org/data", "http://example.org/data/", "http://example.org/data//"])
def test_dit_a10_the_prefix_gets_exactly_one_slash(prefix: str) -> None:
    assert Locations(prefix).absolute("a") == "http://example.org/data/a"


@given(st.text(min_size=1, max_size=40), st.sampled_from(["url", "abs_path", "rel_path"]))
def test_every_location_is_refused_or_has_one_name_below_the_prefix(text: str, kind: str) -> None:
    given_text = "/srv/data/" + text if kind == "abs_path" else PREFIX + text if kind == "url" else text
    try:
        uri = HERE.resolve(Location(given_text, kind))
    except BadLocation:
        return
    address = HERE.absolute(uri)
    assert address.startswith(PREFIX)
    assert address.isascii()
    assert "/../" not in address + "/" or kind == "url"
    assert HERE.url(address) == uri


@pytest.mark.parametrize(
    "prefix", ["data/", "http://h/?path=", "http://h/#", "http://user:secret@h/", "//h/", "http://"]
)
def test_a_prefix_is_an_address_that_paths_can_follow(prefix: str) -> None:
    with pytest.raises(BadLocation):
        Locations(prefix)
