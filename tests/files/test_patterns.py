"""Include and exclude patterns, as the manual states them."""

import time
from contextlib import suppress
from fnmatch import fnmatchcase

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.errors import Exit
from headwater.files.patterns import BadPattern, Selection
from headwater.sync.options import Choice
from headwater.sync.options import SyncOptions as SyncOptions
from headwater.typed_decoding import from_json

MATCHES = [
    ("*.pdf", "a.pdf", True),
    ("*.pdf", "deep/er/a.pdf", True),
    ("*.pdf", "a.pdf/inside.txt", True),
    ("*.pdf", "a.PDF", False),
    ("*.pdf", "a.pdfx", False),
    ("*", "any/thing", True),
    ("a?c", "abc", True),
    ("a?c", "a/c", False),
    ("[ab]x", "bx", True),
    ("[!ab]x", "bx", False),
    ("[!ab]x", "cx", True),
    ("[!b]x", "/x", False),
    ("[a-c]x", "bx", True),
    ("[]]x", "]x", True),
    ("[a-]x", "-x", True),
    ("[--0]x", ".x", True),
    ("a[--0]x", "a/x", False),
    ("[&&~~||]x", "~x", True),
    ("[\\\\^]x", "\\x", True),
    ("[x", "[x", True),
    ("drafts/", "drafts/one.txt", True),
    ("drafts/", "deep/drafts/one.txt", True),
    ("drafts/", "drafts", False),
    ("drafts", "drafts/one.txt", True),
    ("/drafts", "drafts/one.txt", True),
    ("/drafts", "deep/drafts/one.txt", False),
    ("a/b", "a/b", True),
    ("a/b", "a/b/c", True),
    ("a/b", "x/a/b", False),
    ("a/*.txt", "a/b.txt", True),
    ("a/*.txt", "a/b/c.txt", False),
    ("a/**/c.txt", "a/c.txt", True),
    ("a/**/c.txt", "a/b/b/c.txt", True),
    ("a/**/c.txt", "ab/c.txt", False),
    ("**/c.txt", "c.txt", True),
    ("**/c.txt", "a/b/c.txt", True),
    ("a/**", "a/b/c", True),
    ("a/**", "a", False),
    ("**", "anything", True),
    ("**/**", "anything", True),
    ("a/**/**", "a/b", True),
    ("a/**/**", "a", False),
    ("a/**/b/**/c/", "a/x/b/b/x/c/d", True),
    ("a/**/b/**/c/", "a/x/b/b/x/c", False),
    (".*", ".hidden", True),
    ("a.b", "axb", False),
    ("new\nline", "new\nline", True),
    ("*", "new\nline", True),
    ("ü*", "ü1", True),
]


@pytest.mark.parametrize(("pattern", "path", "expected"), MATCHES)
def test_what_a_pattern_matches(pattern: str, path: str, expected: bool) -> None:
    assert Selection(include=[pattern]).takes(path.encode()) is expected
    # An exclude pattern is asked for the folders above first, as a walk does.
    parts = path.encode().split(b"/")
    excluding = Selection(exclude=[pattern])
    entered = all(excluding.enters(b"/".join(parts[:depth])) for depth in range(1, len(parts)))
    assert (not (entered and excluding.takes(path.encode()))) is expected


@pytest.mark.parametrize(("pattern", "path", "expected"), MATCHES)
def test_a_destination_means_the_same_by_them(pattern: str, path: str, expected: bool) -> None:
    uri = f"http://h.example/set/resources/{path}"
    assert Choice((pattern,)).takes(uri, path.encode()) is expected
    assert Choice((), (pattern,)).takes(uri, path.encode()) is not expected


@pytest.mark.parametrize(
    ("pattern", "uri", "expected"),
    [
        ("http://h/**", "http://h/a/b", True),
        ("http://h/", "http://h/a/b", True),
        ("http://h", "http://h/a/b", True),
        ("http://h/*", "http://h/a/b", True),
        ("http://h/*.xml", "http://h/a/b.xml", False),
        ("http://h/**/*.xml", "http://h/a/b.xml?c", False),
        ("http*://h/**/*.xml", "https://h/a/b.xml", True),
        ("*://h/**", "ftp://h/a", True),
        ("*://*.h/**", "http://x.h/a", True),
        ("*://*.h/**", "http://evil/x.h/a", False),
        ("http://h/a%20b", "http://h/a%20b", True),
    ],
)
def test_patterns_of_addresses(pattern: str, uri: str, expected: bool) -> None:
    assert Selection(include=[pattern], of_addresses=True).takes(b"path", uri) is expected
    assert Selection(exclude=[pattern], of_addresses=True).takes(b"path", uri) is not expected
    with pytest.raises(BadPattern, match="no address"):
        Selection(include=[pattern])


def test_a_copy_made_when_patterns_meant_something_else_is_compared_anew() -> None:
    before, now = '[["a/*.xml"],[],[],false]', SyncOptions(include=("a/*.xml",)).choice
    assert from_json(before, Choice) == Choice(("a/*.xml",))
    assert now.signature != before
    assert from_json(now.signature, Choice) == now
    assert SyncOptions().choice.signature == "[[],[],[],false]"


def test_exclude_wins() -> None:
    selection = Selection(include=["*.xml"], exclude=["drafts/"])
    assert selection.takes(b"a.xml")
    assert not selection.takes(b"a.txt")
    assert selection.enters(b"published")
    assert not selection.enters(b"drafts")


def test_names_that_are_no_text_can_be_matched() -> None:
    assert Selection(include=["*.bin"]).takes(b"\xff\xfe.bin")
    assert not Selection(exclude=["*"]).takes(b"\xff")


@pytest.mark.parametrize(
    "pattern",
    ["", "/", "a//b", "../a", "a/./b", "a\0b", "[z-a]", "://h/x", "http:///x", "a/b://c"],
)
def test_patterns_that_cannot_be_are_refused(pattern: str) -> None:
    with pytest.raises(BadPattern) as fault:
        SyncOptions(exclude=(pattern,))
    with pytest.raises(BadPattern):
        Selection(include=[pattern])
    assert fault.value.exit_status is Exit.USAGE


@pytest.mark.parametrize(
    ("pattern", "path"),
    [("*:Zone.Identifier", "a/report.pdf:Zone.Identifier"), ("http:*", "http:notes"), ("file:/x", "file:/x")],
)
def test_a_colon_in_a_name_is_a_character_at_a_source_and_no_address_at_a_destination(pattern: str, path: str) -> None:
    assert Selection(include=[pattern]).takes(path.encode())
    assert not Selection(exclude=[pattern]).takes(path.encode())
    with pytest.raises(BadPattern, match="a pattern of addresses has `://`"):
        SyncOptions(exclude=(pattern,))
    as_character = pattern.replace(":", "[:]")
    assert Choice((as_character,)).takes(f"http://h.example/{path}", path.encode())


@given(st.text(alphabet="ab/*?[]!-.\\^&|~", min_size=1, max_size=12), st.text(alphabet="ab/.", max_size=12))
def test_no_pattern_is_a_surprise(pattern: str, path: str) -> None:
    with suppress(BadPattern):
        Selection(include=[pattern]).takes(path.encode())


@given(st.text("ab*?", min_size=1, max_size=8), st.text("ab", max_size=10))
def test_several_stars_match_what_the_shell_matches(pattern: str, name: str) -> None:
    if pattern != "**":
        assert Selection([pattern]).takes(name.encode()) is fnmatchcase(name, pattern) or not name


@pytest.mark.parametrize("pattern", ["*-*-*-*-*-*.pdf", "*" * 60 + "x", "[a-]*[-]*?*-*-*-*x"])
def test_no_name_makes_a_pattern_take_long(pattern: str) -> None:
    began = time.process_time()
    for name in (b"-" * 250, b"a/" * 100 + b"-" * 250):
        assert not Selection([pattern]).takes(name)
    assert time.process_time() - began < 2


def _leads(pattern: list[str], path: list[str]) -> bool:
    """Whether a pattern matches a whole path, name by name, tried in every way."""
    if not pattern:
        return not path
    if pattern[0] == "**":
        return _leads(pattern[1:], path) or (bool(path) and _leads(pattern, path[1:]))
    return bool(path) and fnmatchcase(path[0], pattern[0]) and _leads(pattern[1:], path[1:])


@given(
    st.lists(st.sampled_from(["a", "b", "*", "**", "**", "a*", "*b", "*a*b"]), min_size=2, max_size=6),
    st.lists(st.text("ab", min_size=1, max_size=3), min_size=1, max_size=7),
)
def test_several_double_stars_match_whatever_folders_are_between(pattern: list[str], path: list[str]) -> None:
    above = [path[:depth] for depth in range(1, len(path) + 1)]
    if pattern[-1] == "**":  # what is below, not the folder itself
        expected = any(_leads([*pattern, "*"], one) for one in above)
    else:
        expected = any(_leads(pattern, one) for one in above)
    assert Selection(["/".join(pattern)]).takes("/".join(path).encode()) is expected


@pytest.mark.parametrize("pattern", ["**/a/**/a/**/a/**/a/**/b", "**/*a/**/a*/**/*a*/**/b/", "a/**/a/**/a/**/b/**"])
def test_no_depth_makes_a_pattern_take_long(pattern: str) -> None:
    began = time.process_time()
    for name in (b"a/" * 400 + b"c", b"a" * 200 + b"/a" * 300):
        assert not Selection([pattern]).takes(name)
        assert not Selection([pattern], of_addresses=True).takes(name, f"http://h/{name.decode()}")
    assert time.process_time() - began < 2
