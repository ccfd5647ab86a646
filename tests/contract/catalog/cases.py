"""The tables of the contract suite: what is recorded, refused, kept, and asked of sets that are not there."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from headwater.catalog.interface import Catalog, Delete, Event, Limits, Metadata, Rendered, Upsert
from headwater.catalog.verify import verify
from headwater.spec.kinds import RS
from headwater.spec.records import ChangeKind, Link

START = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
TICK = dt.timedelta(microseconds=1)
SMALL = Limits(page_entries=4, page_octets=6_000, segment_entries=5, segment_octets=7_000)

C, U, D = ChangeKind.CREATED, ChangeKind.UPDATED, ChangeKind.DELETED
BARE = Metadata()
BIG = Metadata(type="t/" + "t" * 3_600)
HEAVY = Metadata(type="t/" + "t" * 1_200)
OFFSET = dt.timezone(dt.timedelta(hours=-7))


def up(uri: str, metadata: Metadata = BARE, change: ChangeKind | None = None) -> Upsert:
    """An upsert without a memo."""
    return Upsert(uri, metadata, b"", change)


def opened(catalog: Catalog, loaded: Sequence[Event] = (), name: str = "s") -> Catalog:
    """The catalog, with an open set that was loaded so."""
    catalog.create(name)
    catalog.load(name, loaded)
    catalog.open(name, START)
    return catalog


def at(microseconds: int) -> dt.datetime:
    """So many microseconds after the set was opened."""
    return START + microseconds * TICK


RECORDED: list[tuple[str, list[Event], list[Event], list[tuple[str, ChangeKind]], list[str]]] = [
    ("a new resource is created", [], [up("a")], [("a", C)], []),
    ("a known one is updated", [up("a")], [up("a")], [("a", U)], []),
    ("one that is given again as it was is an event like any other", [up("a", BIG)], [up("a", BIG)], [("a", U)], []),
    ("a known one is deleted", [up("a")], [Delete("a")], [("a", D)], []),
    ("the deletion of nothing is no event (DST-5.3)", [], [Delete("a")], [], ["a"]),
    ("one deletion is enough", [up("a")], [Delete("a"), Delete("a")], [("a", D)], ["a"]),
    ("what the caller says stands: created though known", [up("a")], [up("a", change=C)], [("a", C)], []),
    ("what the caller says stands: updated though unknown", [], [up("a", change=U)], [("a", U)], []),
    (
        "every event is a change",
        [],
        [up("a"), up("a"), Delete("a"), up("a")],
        [("a", C), ("a", U), ("a", D), ("a", C)],
        [],
    ),
    ("AMB-81: re-creation is created", [up("a")], [Delete("a"), up("a")], [("a", D), ("a", C)], []),
    ("born and gone", [], [up("a"), Delete("a")], [("a", C), ("a", D)], []),
    ("the order is kept", [up("b")], [up("c"), Delete("b"), up("a")], [("c", C), ("b", D), ("a", C)], []),
    ("nothing", [up("a")], [], [], []),
]

HREF = "http://example.org/x"


def linked(**attributes: Any) -> Upsert:
    """An upsert with one link, `up` to HREF unless said otherwise."""
    return up("a", Metadata(links=(Link(**{"rel": "up", "href": HREF, **attributes}),)))


REFUSED: list[tuple[str, Event]] = [
    ("an empty URI", up("")),
    ("a NUL in the URI", up("a\0b")),
    ("a line feed in the URI", up("a\nb")),
    ("a lone surrogate in the URI", up("a\udcffb")),
    ("a URI that nobody takes", up("a" * 8_000)),
    ("a URI that nobody takes once it is encoded", up("é" * 2_000)),
    ("a time without a zone", up("a", Metadata(lastmod=dt.datetime(2026, 1, 1)))),
    ("a negative length (AMB-33)", up("a", Metadata(length=-1))),
    ("a length beyond 63 bits", up("a", Metadata(length=1 << 63))),
    ("a type that is no media type", up("a", Metadata(type="text"))),
    ("a type that XML cannot hold", up("a", Metadata(type="text/\x01"))),
    ("a hash without algorithm (AMB-28)", up("a", Metadata(hash="0" * 32))),
    ("a hash that XML cannot hold", up("a", Metadata(hash="\ufffe"))),
    ("an encoding of two codings (AMB-39)", up("a", Metadata(encoding="gzip, br"))),
    ("an unknown changefreq (AMB-40)", up("a", Metadata(changefreq="often"))),
    ("an attribute of no namespace (RS-DOC-13)", up("a", Metadata(extra=(("y", "1"),)))),
    ("an attribute of the standard's namespace", up("a", Metadata(extra=((f"{{{RS}}}hash", "1"),)))),
    ("an attribute twice", up("a", Metadata(extra=(("{urn:x}y", "1"), ("{urn:x}y", "2"))))),
    ("an attribute that XML cannot hold", up("a", Metadata(extra=(("{urn:x}y", "\0"),)))),
    ("an upsert that says deleted", up("a", change=D)),
    ("a link to nowhere", linked(href="relative")),
    ("a link that XML cannot hold", linked(href=HREF + "\0")),
    ("a link without a relation", linked(rel="")),
    ("a link of negative length", linked(length=-1)),
    ("a link of endless length", linked(length=1 << 63)),
    ("a link with a path, which is for manifests", linked(path="/x")),
    ("a link of no rank (AMB-37)", linked(pri=0)),
    ("a link with a time without a zone", linked(modified=dt.datetime(2026, 1, 1))),
    ("an entry larger than a page", up("a", Metadata(type="t/" + "t" * 6_000))),
    ("links larger than a page", up("a", Metadata(links=tuple(Link(rel="up", href=HREF) for _ in range(99))))),
]

METADATA: list[tuple[str, Metadata]] = [
    ("nothing", BARE),
    ("the usual", Metadata(lastmod=at(1), hash="md5:" + "0" * 32 + " sha-256:" + "f" * 64, length=0, type="text/html")),
    ("all", Metadata(lastmod=at(0), hash="md5:" + "0" * 32, length=1, type="a/b", encoding="gzip", changefreq="daily")),
    (
        "AMB-33: 63 bits of length; RS-DOC-13: attributes of others",
        Metadata(length=(1 << 63) - 1, extra=(("{urn:x}y", "\u00e4\n"), ("{urn:a}y", ""))),
    ),
    ("before 1970", Metadata(lastmod=dt.datetime(1, 1, 1, tzinfo=dt.UTC))),
    ("the last moment", Metadata(lastmod=dt.datetime.max.replace(tzinfo=dt.UTC))),
    ("another zone", Metadata(lastmod=dt.datetime(2026, 1, 1, 12, tzinfo=OFFSET))),
    ("text is kept as it is", Metadata(hash="crc32:0", type='Text/HTML; charset="ü"', encoding="GZIP")),
    (
        "links in their order",
        Metadata(
            links=(
                Link(rel="describedby", href=HREF + "?a=1&b=<2>", modified=at(3), type="a/b", length=3),
                Link(rel="duplicate", href=HREF, pri=1, hash="md5:" + "0" * 32, encoding="br", profile=HREF),
                Link(rel="duplicate", href=HREF, pri=2, extra=(("{urn:x}y", "ä"),)),
            )
        ),
    ),
]

UNKNOWN: list[tuple[str, Callable[[Catalog], object]]] = [
    ("state", lambda c: c.state("nowhere")),
    ("load", lambda c: c.load("nowhere", [up("a")])),
    ("open", lambda c: c.open("nowhere", START)),
    ("record", lambda c: c.record("nowhere", [up("a")], START)),
    ("record nothing", lambda c: c.record("nowhere", [], START)),
    ("mark", lambda c: c.mark("nowhere", START)),
    ("remember", lambda c: c.remember("nowhere", [("a", b"")])),
    ("get", lambda c: c.get("nowhere", ["a"])),
    ("resources", lambda c: c.resources("nowhere")),
    ("memos", lambda c: c.memos("nowhere")),
    ("memos of nothing", lambda c: c.memos("nowhere", "", 0)),
    ("pages", lambda c: c.pages("nowhere")),
    ("page", lambda c: list(c.page("nowhere", 0))),
    ("rendered", lambda c: c.rendered("nowhere", [])),
    ("changes", lambda c: c.changes("nowhere")),
    ("segments", lambda c: c.segments("nowhere")),
    ("close_segment", lambda c: c.close_segment("nowhere", START)),
    ("note", lambda c: c.note("nowhere", b"")),
    ("rows", lambda c: c.rows("nowhere", [("k", "a")])),
    ("rows of a kind", lambda c: c.rows_of("nowhere", "k")),
    ("counts of rows", lambda c: c.row_counts("nowhere")),
    ("a lone surrogate", lambda c: c.state("\udcff")),
    ("verify", lambda c: verify(c, "nowhere")),
]

NAIVE: list[tuple[str, Callable[[Catalog, dt.datetime], object]]] = [
    ("open", lambda c, t: c.open("s", t)),
    ("record", lambda c, t: c.record("s", [up("a")], t)),
    ("a change", lambda c, t: c.record("s", [up("b"), Upsert("a", BARE, at=t)], START)),
    ("a deletion", lambda c, t: c.record("s", [up("b"), Delete("a", t)], START)),
    ("mark", lambda c, t: c.mark("s", t)),
    ("close_segment", lambda c, t: c.close_segment("s", t)),
    ("rendered at", lambda c, t: c.rendered("s", [Rendered(0, 1, t, START)])),
    ("rendered completed", lambda c, t: c.rendered("s", [Rendered(0, 1, START, t)])),
]


def table(rows: Sequence[tuple[object, ...]]) -> pytest.MarkDecorator:
    """Parametrise a test method by the columns after the first, which is the case's name."""
    return pytest.mark.parametrize("case", [row[1:] for row in rows], ids=[str(row[0]) for row in rows])
