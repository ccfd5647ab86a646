"""What is decided of a copy, as tables: which links are passed on, which hash is stated, where the journal leads."""

from __future__ import annotations

import datetime as dt

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.copy_state import CopiedFile, CopiedSet, JournalEnd
from headwater.errors import StoreFault
from headwater.ingest.copy_intake import (
    NOT_OURS,
    CopyPosition,
    chosen,
    leads_home,
    leads_to,
    metadata_of,
    passed_on,
    position_at,
    relative_path,
    relative_uri,
    verified_hash,
)
from headwater.spec.kinds import PATCH
from headwater.spec.records import Link

OWN = "http://mirror.example/files/resources/a"
ADDED = Link(rel="via", href="http://origin.example/a", length=3)


def link(rel: str, href: str = "http://origin.example/x") -> Link:
    return Link(rel=rel, href=href)


LINKS = [
    ("none: a via is added (DST-S9)", (), (ADDED,)),
    ("a via is kept, no hop is added (RS-REL-12)", (link("via"),), (link("via"),)),
    ("a mirror is one of ours as well", (link("duplicate"),), (link("duplicate"), ADDED)),
    ("but we are no mirror of ourselves", (link("duplicate", OWN),), (ADDED,)),
    (
        "what describes it, and any other",
        (link("describedby"), link("author")),
        (link("describedby"), link("author"), ADDED),
    ),
    ("the risky ones (RS-REL-20)", (link("canonical"), link("Collection")), (ADDED,)),
    ("versions of the origin's URI", (link("memento"), link("timegate"), link("timemap")), (ADDED,)),
    ("patches of the origin's history", (link(PATCH),), (ADDED,)),
    ("no URI", (link("author", "nowhere"), link("via", "")), (ADDED,)),
]


@pytest.mark.parametrize(("given_links", "expected"), [row[1:] for row in LINKS], ids=[row[0] for row in LINKS])
def test_inherited_links_are_passed_on_where_they_are_right(
    given_links: tuple[Link, ...], expected: tuple[Link, ...]
) -> None:
    assert passed_on(given_links, ADDED, OWN) == expected


def test_every_relation_that_is_dropped_says_why() -> None:
    assert not {"via", "duplicate", "describedby", "describes", "alternate", "profile"} & NOT_OURS


@pytest.mark.parametrize(
    ("href", "is_home"),
    [
        ("http://mirror.example/files/resources/a", True),
        ("HTTP://MIRROR.example:80/files/resources/a", True),
        ("http://mirror.example", True),
        ("http://mirror.example.evil/a", False),
        ("http://origin.example/mirror.example/", False),
        ("urn:isbn:1", False),
        ("http://[broken/", False),
        ("http://h:port/", False),
    ],
)
def test_a_circle_is_known_by_via(href: str, is_home: bool) -> None:
    assert leads_home([link("author", OWN), link("via", href)], "http://mirror.example/") == is_home


@pytest.mark.parametrize(
    ("listed", "digest", "stated"),
    [
        ("md5:" + "a" * 32 + " sha-256:" + "b" * 64, "sha-256:" + "b" * 64, "md5:" + "a" * 32 + " sha-256:" + "b" * 64),
        (None, "sha-256:" + "b" * 64, "sha-256:" + "b" * 64),
        ("crc:1", "sha-256:" + "b" * 64, "sha-256:" + "b" * 64),
        ("sha-256:" + "c" * 64, "sha-256:" + "b" * 64, "sha-256:" + "b" * 64),
        ("sha-256:" + "c" * 64, None, None),
    ],
)
def test_only_a_hash_that_was_verified_is_stated(listed: str | None, digest: str | None, stated: str | None) -> None:
    assert verified_hash(listed, digest) == stated


@given(st.binary(max_size=40), st.sampled_from(["", "set"]))
def test_no_path_leads_out(path: bytes, folder: str) -> None:
    below = relative_path(path, folder)
    if below is not None:
        assert not {b"", b".", b"..", b".headwater"} & set(below.split(b"/"))
        assert path.endswith(below)
        assert relative_uri(below) is not None


@given(st.text(max_size=60), st.integers(min_value=-(1 << 62), max_value=1 << 62), st.text(max_size=20))
def test_whatever_was_stated_is_read(links: str, lastmod: int, type_: str) -> None:
    file = CopiedFile("http://h.example/", b"a", 1, 1, None, None, None, lastmod, None, type_, None, links, links, 0)
    stated = metadata_of(file, OWN)
    assert stated.links
    assert stated.lastmod is None or stated.lastmod.tzinfo is dt.UTC


SET = CopiedSet(1, "set", "", "http://origin.example/capabilitylist.xml", 1)
END = JournalEnd("one", 50, 11, b"p")
HERE = position_at(END, SET)
OLDER, EMPTY = msgspec.structs.replace(END, last=40), JournalEnd("one", 0, 1)
START = msgspec.structs.replace(HERE, seq=0, path=None)
EARLIER = msgspec.structs.replace(HERE, seq=20, path=b"q")
PARTIAL = msgspec.structs.replace(HERE, is_partial=True)

STEPS = [
    ("at the end", HERE, END, SET, b"p", True),
    ("behind", EARLIER, END, SET, b"q", True),
    ("another state", HERE, msgspec.structs.replace(END, id="two"), SET, b"p", False),
    (
        "the state was brought back, and is older",
        HERE,
        msgspec.structs.replace(END, last=40),
        SET,
        None,
        False,
    ),
    ("the same, and went on", EARLIER, END, SET, b"other", False),
    ("the journal has dropped entries", msgspec.structs.replace(HERE, seq=9), END, SET, None, False),
    ("another number", HERE, END, SET._replace(id=2), b"p", False),
    ("deletions wait, and the baseline has ended", PARTIAL, END, SET, b"p", False),
    ("deletions wait", PARTIAL, END, SET._replace(is_whole=0), b"p", True),
    ("forgotten by the copy", HERE, END, None, b"p", True),
    (
        "an empty journal",
        msgspec.structs.replace(HERE, seq=0, path=None),
        JournalEnd("one", 0, 1),
        SET,
        None,
        True,
    ),
]


Found = tuple[str, CopyPosition, JournalEnd, CopiedSet | None, bytes | None, bool]


@pytest.mark.parametrize("found", STEPS, ids=[row[0] for row in STEPS])
def test_what_leads_from_a_position_to_what_is_held(found: Found) -> None:
    _name, position, end, copied, noted, is_followed = found
    assert leads_to(position, end, copied, noted) is is_followed


def test_which_set_of_a_copy_is_meant() -> None:
    other = SET._replace(id=2, name="other", identity="http://origin.example/other.xml")
    assert chosen([SET], None, "files", None) is SET
    assert chosen([SET, other], "other", "files", None) is other
    assert chosen([SET, other], None, "set", None) is SET
    assert chosen([other], "set", "files", None) is None
    assert chosen([other._replace(identity=SET.identity)], "set", "files", HERE) is not None  # renamed at its source
    assert chosen([], None, "files", None) is None
    with pytest.raises(StoreFault, match="HW-CPY-03"):
        chosen([SET, other], None, "files", None)
