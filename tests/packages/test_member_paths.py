"""Names of members: which a manifest's path means, which are refused, which collide."""

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.packages.faults import BadPath, PackageTooLarge
from headwater.packages.limits import PackageLimits
from headwater.packages.member_paths import (
    MOST_SEGMENTS,
    MemberNames,
    has_leading_slash,
    member_name,
    member_names,
    possible_names,
)
from tests.packages.bad_packages import NAMES
from tests.support.examples import examples


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
    assert member_name(path) == names[0]
    assert has_leading_slash(path) is path.startswith("/")


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
        member_name(path)
    assert caught.value.rule == "DST-P3"


@pytest.mark.parametrize("what", NAMES)
def test_no_hostile_name_is_admitted(what: str) -> None:
    names = MemberNames()
    assert not names.admits(NAMES[what].decode("utf-8", "surrogateescape")) or what == "climbs in overlong UTF-8"
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
    assert not names.admits(second)
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


@pytest.mark.parametrize(
    ("before", "together"),
    [
        ([], ["a/b", "a/c", "a/d/e", "top"]),
        (["a/b"], ["a/c", "a/d"]),
        (["a/b"], ["a/c", "A/B"]),
        ([], ["a/b", "a/c", "A/b"]),
        ([], ["a", "a/b"]),
        ([], ["a/b", "a"]),
        ([], ["a/b/c", "A/b"]),
        (["a"], ["b", "a/b"]),
        (["a"], ["b", "a/b/c/d"]),
        (["a/b/c"], ["d", "a/B"]),
        ([], ["d/" * 100 + "x"]),
    ],
)
def test_many_names_at_once_are_as_one_after_another(before: Sequence[str], together: Sequence[str]) -> None:
    """DST-P3."""
    one, other = MemberNames(), MemberNames()
    for name in before:
        one.add(name)
        other.add(name)
    try:
        for name in together:
            one.add(name)
    except BadPath:
        assert not other.add_all(together)
        assert len(other) == len(before)
    else:
        assert other.add_all(together)
        assert vars(other).items() >= {k: v for k, v in vars(one).items() if k != "_limits"}.items()


@pytest.mark.parametrize("limits", [PackageLimits(names_octets=7), PackageLimits(members=2)])
def test_many_names_at_once_are_bounded(limits: PackageLimits) -> None:
    names = MemberNames(limits)
    assert names.add_all(["a/b", "a/c"])
    assert not names.add_all(["d"])
    assert len(names) == 2


_PATHS = st.sampled_from(
    [
        "/a",
        "/a/b.txt",
        "a",
        "/.a",
        "/a/../b",
        "/a/",
        "//a",
        "/",
        "",
        "/a\n/b",
        "/a\n",
        "\n",
        "/é",
        "/a b",
        "/a\\b",
        "/C:/a",
    ]
) | st.integers(1, MOST_SEGMENTS + 2).map(lambda count: "/a" * count)


@given(st.lists(_PATHS, max_size=4))
@settings(max_examples=examples(200))
def test_names_together_are_those_of_each(paths: list[str]) -> None:
    """DST-P3: whatever paths look like; all or none."""
    try:
        expected = list(map(member_name, paths))
    except BadPath:
        with pytest.raises(BadPath):
            member_names(paths)
        return
    assert member_names(paths) == expected
