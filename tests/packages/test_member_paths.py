"""Names of members: which a manifest's path means, which are refused, which collide."""

import pytest

from headwater.packages.faults import BadPath, PackageLimits, PackageTooLarge
from headwater.packages.member_paths import (
    MemberNames,
    possible_names,
)
from tests.packages.bad_packages import NAMES


@pytest.mark.parametrize(
    ("path", "names"),
    [
        ("/resources/a.txt", ("resources/a.txt",)),
        ("resources/a.txt", ("resources/a.txt",)),
        ("/resources/a%20b.txt", ("resources/a%20b.txt", "resources/a b.txt")),
        ("/resources/%C3%A4", ("resources/%C3%A4", "resources/ä")),
        ("/resources/%FF", ("resources/%FF",)),
        ("/resources/%2e%2e/%2e%2e/x", ("resources/%2e%2e/%2e%2e/x",)),
        ("/resources/a%5Cb", ("resources/a%5Cb",)),
        ("/..a/b..", ("..a/b..",)),
        ("/a／b", ("a／b",)),
        ("./resources/a.txt", ("resources/a.txt",)),
    ],
)
def test_the_names_that_a_path_may_mean(path: str, names: tuple[str, ...]) -> None:
    """DST-P3, AMB-36: one leading slash less; literally first, then percent-decoded where that is safe."""
    assert possible_names(path) == names


@pytest.mark.parametrize(
    "path",
    [
        "",
        "/",
        "//a",
        "/a/",
        "/../a",
        "/a/../b",
        "C:/a",
        "/C:/a",
        "/a\\b",
        "/a\0",
        "/a//b",
        "/./a",
        "./",
        "././a",
        ".//a",
        "./../a",
        "/．．/a",
    ],
)
def test_a_path_that_is_refused(path: str) -> None:
    with pytest.raises(BadPath) as caught:
        possible_names(path)
    assert caught.value.rule == "DST-P3"


@pytest.mark.parametrize("what", NAMES)
def test_no_hostile_name_is_admitted(what: str) -> None:
    names = MemberNames()
    if what != "climbs in overlong UTF-8":  # which no name is decoded to
        with pytest.raises(BadPath):
            names.add(NAMES[what].decode("utf-8", "surrogateescape"))
    assert len(names) == 0


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("a/b", "a/b"),
        ("a/b", "A/B"),
        ("straße", "STRASSE"),
        ("\u00e9", "e\u0301"),
        ("\u00c9", "e\u0301"),
        ("a", "a/b"),
        ("a/b", "a"),
        ("a/b/c/d", "a/b"),
        ("A/b", "a"),
    ],
)
def test_names_that_collide(first: str, second: str) -> None:
    names = MemberNames()
    names.add(first)
    with pytest.raises(BadPath):
        names.add(second)


def test_names_that_do_not_collide() -> None:
    names = MemberNames()
    for name in ("a/b", "a/c", "ab", "A/d", "a.txt", "é/x", "é/y"):
        names.add(name)
    names.add_folder("a")
    names.add_folder("a")
    names.add_folder("empty")
    assert len(names) == 7
    with pytest.raises(BadPath):
        names.add_folder("a/b")
    with pytest.raises(BadPath):
        names.add("empty")


def test_what_is_remembered_is_bounded() -> None:
    names = MemberNames(PackageLimits(names_octets=600))
    names.add("0/" + "d/" * 20 + "x")
    with pytest.raises(PackageTooLarge):
        names.add("1/" + "d/" * 20 + "x")
