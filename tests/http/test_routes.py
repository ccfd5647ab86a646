"""Every target has one meaning, and hostile ones have none."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.http.responses import Response
from headwater.http.routes import LONGEST_TARGET, HttpRequest, Match, NoMatch, Route, RouteTable
from headwater.spec.uris import quote_path

SETS = ("files", "s2")
DOCUMENTS = (
    "/.well-known/resourcesync",
    "/sourcedescription/{number}.xml",
    "/robots.txt",
    "/{set}/capabilitylist.xml",
    "/{set}/resourcelist.xml",
    "/{set}/resourcelist/{number}.xml",
    "/{set}/changelist.xml",
    "/{set}/changelist/{number}.xml",
    "/{set}/changelist/open.xml",
)


async def nothing(_request: HttpRequest) -> Response:
    return Response(204, b"")


def row(name: str, pattern: str, method: str = "GET") -> Route:
    return Route(name=name, pattern=pattern, method=method, handler=nothing)


def table(base: bytes = b"", sets: tuple[str, ...] = SETS) -> RouteTable:
    rows = [row("document", pattern) for pattern in DOCUMENTS]
    rows += [row("resource", "/{set}/resources/{path}"), row("home", "/"), row("health", "/health")]
    rows += [row("changes", "/{name}/changes", "POST"), row("documents", "/ingest/dit", "POST")]
    return RouteTable(rows, base, sets)


def to(target: bytes, base: bytes = b"") -> tuple[object, ...] | NoMatch:
    """What GET comes to: the row, the name, the set, and of a resource the path."""
    found = table(base).find(target)
    if isinstance(found, NoMatch):
        return found
    route = found.route("GET")
    return (route.name if route else None, found.name, found.set_name, *([found.path] if found.path else []))


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        (b"/", ("home", "", None)),
        (b"/health", ("health", "health", None)),
        (b"/.well-known/resourcesync", ("document", ".well-known/resourcesync", None)),
        (b"/robots.txt", ("document", "robots.txt", None)),
        (b"/files/capabilitylist.xml", ("document", "files/capabilitylist.xml", "files")),
        (b"/files/resourcelist.xml", ("document", "files/resourcelist.xml", "files")),
        (b"/files/resource%6cist.xml", ("document", "files/resourcelist.xml", "files")),
        (b"/s2/resourcelist/00012.xml", ("document", "s2/resourcelist/00012.xml", "s2")),
        (b"/files/changelist.xml", ("document", "files/changelist.xml", "files")),
        (b"/files/changelist/00000.xml", ("document", "files/changelist/00000.xml", "files")),
        (b"/files/changelist/open.xml", ("document", "files/changelist/open.xml", "files")),
        (b"/files/resources/a", ("resource", "a", "files", b"a")),
        (b"/files/resources/a/b%20c", ("resource", "a/b%20c", "files", b"a/b c")),
        (b"/files/resources/%7Ea", ("resource", "~a", "files", b"~a")),
        (b"/files/resources/%c3%a9", ("resource", "%C3%A9", "files", b"\xc3\xa9")),
        (b"/files/resources/%FF", ("resource", "%FF", "files", b"\xff")),
        (b"/files/resources/100%25", ("resource", "100%25", "files", b"100%")),
        (b"/files/resources/a%0Ab", ("resource", "a%0Ab", "files", b"a\nb")),
    ],
)
def test_targets(target: bytes, expected: tuple[object, ...]) -> None:
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
        (b"/files%2fchanges", 404),
        (b"/files%2Fresourcelist.xml", 404),
        (b"/files/changelist%2fopen.xml", 404),
        (b"/ingest%2fdit", 404),
        (b"/.well-known%2fresourcesync", 404),
    ],
)
def test_targets_that_lead_nowhere(target: bytes, status: int) -> None:
    found = to(target)
    assert isinstance(found, NoMatch), found
    assert found.status == status


def test_which_methods_a_target_knows_follows_from_the_rows() -> None:
    routes = table()
    for target, allowed in (
        (b"/files/resourcelist.xml", ("GET", "HEAD")),
        (b"/files/changes", ("POST",)),
        (b"/none/changes", ("POST",)),
        (b"/ingest/dit", ("POST",)),
    ):
        found = routes.find(target)
        assert isinstance(found, Match)
        assert found.allowed == allowed
        assert all(found.route(method) for method in allowed)
        assert found.route("PUT") is None


def test_a_later_row_takes_the_place_of_an_earlier_one() -> None:
    found = RouteTable([row("one", "/health"), row("two", "/health"), row("three", "/health", "POST")], b"", ()).find(
        b"/health"
    )
    assert isinstance(found, Match)
    assert [route.name for route in found.methods.values()] == ["two", "three"]


def test_double_encoding_is_a_name_like_any_other() -> None:
    assert to(b"/files/resources/%252e%252e") == ("resource", "%252e%252e", "files", b"%2e%2e")


@pytest.mark.parametrize("prefix", [b"", b"/base/path"])
def test_base_path_may_be_there_or_taken_away_by_a_proxy(prefix: bytes) -> None:
    assert to(prefix + b"/files/capabilitylist.xml", b"/base/path") == ("document", "files/capabilitylist.xml", "files")
    assert to(prefix + b"/", b"/base/path") == ("home", "", None)
    assert to(b"/base/path", b"/base/path") == ("home", "", None)
    assert isinstance(to(b"/base/pathology", b"/base/path"), NoMatch)


@given(st.binary(max_size=80))
def test_any_octets_have_an_answer_that_stays_inside(target: bytes) -> None:
    routes = table()
    for found in map(routes.find, (target, b"/" + target, b"/files/resources/" + target)):
        if isinstance(found, Match) and found.methods["GET" if "GET" in found.methods else "POST"].name == "resource":
            assert not found.path.startswith(b"/")
            assert b".." not in found.path.split(b"/")
            assert b"\0" not in found.path
            assert found.name == quote_path(found.path)


@given(st.lists(st.binary(min_size=1, max_size=9), min_size=1, max_size=4))
def test_every_name_that_a_file_can_have_is_found(parts: list[bytes]) -> None:
    names = [part.replace(b"/", b"_").replace(b"\0", b"_") for part in parts]
    if any(name in (b".", b"..") for name in names):
        return
    path = b"/".join(names)
    assert to(b"/files/resources/" + quote_path(path).encode()) == ("resource", quote_path(path), "files", path)
