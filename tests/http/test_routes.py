"""Every target has one meaning, and hostile ones have none."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.http.routes import (
    LONGEST_TARGET,
    DocumentRoute,
    HealthRoute,
    HomeRoute,
    NoRoute,
    ResourceRoute,
    Route,
    route,
)
from headwater.spec.uris import quote_path

SETS = ("files", "s2")


def to(target: bytes, base: bytes = b"") -> Route:
    return route(target, base, SETS)


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        (b"/", HomeRoute()),
        (b"/health", HealthRoute()),
        (b"/.well-known/resourcesync", DocumentRoute(".well-known/resourcesync", None)),
        (b"/robots.txt", DocumentRoute("robots.txt", None)),
        (b"/files/capabilitylist.xml", DocumentRoute("files/capabilitylist.xml", "files")),
        (b"/files/resourcelist.xml", DocumentRoute("files/resourcelist.xml", "files")),
        (b"/files/resource%6cist.xml", DocumentRoute("files/resourcelist.xml", "files")),
        (b"/s2/resourcelist/00012.xml", DocumentRoute("s2/resourcelist/00012.xml", "s2")),
        (b"/files/changelist.xml", DocumentRoute("files/changelist.xml", "files")),
        (b"/files/changelist/00000.xml", DocumentRoute("files/changelist/00000.xml", "files")),
        (b"/files/changelist/open.xml", DocumentRoute("files/changelist/open.xml", "files")),
        (b"/files/resources/a", ResourceRoute("files", "a", b"a")),
        (b"/files/resources/a/b%20c", ResourceRoute("files", "a/b%20c", b"a/b c")),
        (b"/files/resources/%7Ea", ResourceRoute("files", "~a", b"~a")),
        (b"/files/resources/%c3%a9", ResourceRoute("files", "%C3%A9", b"\xc3\xa9")),
        (b"/files/resources/%FF", ResourceRoute("files", "%FF", b"\xff")),
        (b"/files/resources/100%25", ResourceRoute("files", "100%25", b"100%")),
        (b"/files/resources/a%0Ab", ResourceRoute("files", "a%0Ab", b"a\nb")),
    ],
)
def test_targets(target: bytes, expected: Route) -> None:
    assert to(target) == expected


@pytest.mark.parametrize(
    ("target", "status"),
    [
        (b"", 400),
        (b"files", 400),
        (b"*", 400),
        (b"/%zz", 400),
        (b"/files/resources/%", 400),
        (b"/" + b"a" * LONGEST_TARGET, 414),
        (b"/nothing", 404),
        (b"/files", 404),
        (b"/files/", 404),
        (b"/files/resources", 404),
        (b"/files/resources/", 404),
        (b"//files/capabilitylist.xml", 404),
        (b"/files//capabilitylist.xml", 404),
        (b"/files/capabilitylist.xml.gz", 404),
        (b"/files/resourcelist.xml/", 404),
        (b"/files/resourcelist/1.xml", 404),
        (b"/files/resourcelist/../catalog.sqlite", 404),
        (b"/files/changelist/closed.xml", 404),
        (b"/other/capabilitylist.xml", 404),
        (b"/../etc/passwd", 404),
        (b"/files/resources/..", 404),
        (b"/files/resources/../secret", 404),
        (b"/files/resources/a/../../secret", 404),
        (b"/files/resources/%2e%2e/secret", 404),
        (b"/files/resources/.%2E/secret", 404),
        (b"/files/resources/./a", 404),
        (b"/files/resources//etc/passwd", 404),
        (b"/files/resources/a//b", 404),
        (b"/files/resources/a/", 404),
        (b"/files/resources/%2fetc/passwd", 404),
        (b"/files/resources/..%2f..%2fsecret", 404),
        (b"/files/resources/a%00b", 404),
        (b"/files/resources/%2e%2e%2fsecret", 404),
    ],
)
def test_targets_that_lead_nowhere(target: bytes, status: int) -> None:
    found = to(target)
    assert isinstance(found, NoRoute), found
    assert found.status == status


def test_double_encoding_is_a_name_like_any_other() -> None:
    assert to(b"/files/resources/%252e%252e") == ResourceRoute("files", "%252e%252e", b"%2e%2e")


@pytest.mark.parametrize("prefix", [b"", b"/base/path"])
def test_base_path_may_be_there_or_taken_away_by_a_proxy(prefix: bytes) -> None:
    assert to(prefix + b"/files/capabilitylist.xml", b"/base/path") == DocumentRoute(
        "files/capabilitylist.xml", "files"
    )
    assert to(prefix + b"/", b"/base/path") == HomeRoute()
    assert to(b"/base/path", b"/base/path") == HomeRoute()
    assert isinstance(to(b"/base/pathology", b"/base/path"), NoRoute)


@given(st.binary(max_size=80))
def test_any_octets_have_an_answer_that_stays_inside(target: bytes) -> None:
    for found in (to(target), to(b"/" + target), to(b"/files/resources/" + target)):
        if isinstance(found, ResourceRoute):
            assert not found.path.startswith(b"/")
            assert b".." not in found.path.split(b"/")
            assert b"\0" not in found.path
            assert found.relative == quote_path(found.path)


@given(st.lists(st.binary(min_size=1, max_size=9), min_size=1, max_size=4))
def test_every_name_that_a_file_can_have_is_found(parts: list[bytes]) -> None:
    names = [part.replace(b"/", b"_").replace(b"\0", b"_") for part in parts]
    if any(name in (b".", b"..") for name in names):
        return
    path = b"/".join(names)
    assert to(b"/files/resources/" + quote_path(path).encode()) == ResourceRoute("files", quote_path(path), path)
