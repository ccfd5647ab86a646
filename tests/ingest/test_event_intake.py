"""Events as lines of JSON: what each does, and what of hostile ones is refused without harm to the others."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.catalog.interface import Metadata
from headwater.ingest.push.events import BadEvent, read_announcement
from headwater.ingest.push.resource_locations import Locations
from headwater.spec.records import ChangeKind, Link
from tests.support.push_set import PREFIX, PushSet

SHA = "a" * 64


@pytest.fixture
def fed(tmp_path: Path) -> Iterator[PushSet]:
    made = PushSet(tmp_path)
    yield made
    made.close()


def test_a_line_says_everything_that_a_document_can(fed: PushSet) -> None:
    link = {"rel": "describedby", "href": "http://example.org/data/a.xml", "type": "text/xml", "pri": 1, "length": 4}
    line = {
        "uri": "http://other.org/a",
        "change": "created",
        "lastmod": "2026-01-01T01:00:00.5+01:00",
        "hash": "md5:" + "B" * 32,
        "sha-256": SHA,
        "length": 1 << 40,
        "type": "Text/HTML; charset=utf-8",
        "encoding": "gzip",
        "changefreq": "daily",
        "links": [link, {"rel": "http://my.org/rel", "href": "http://x.org/y"}],
        "attributes": {"{urn:own}level": "4"},
    }
    (outcome,) = fed.events(line)
    assert (outcome.status, outcome.seq) == (200, 1)
    (change,) = fed.catalog.changes("s")
    assert change.change is ChangeKind.CREATED
    stated = change.metadata
    assert stated.hash == f"md5:{'b' * 32} sha-256:{SHA}"
    assert (stated.length, stated.type, stated.encoding, stated.changefreq) == (1 << 40, "text/html", "gzip", "daily")
    assert stated.lastmod is not None
    assert stated.lastmod.isoformat() == "2026-01-01T00:00:00.500000+00:00"
    assert stated.links[0].href == PREFIX + "a.xml"
    assert stated.links[1] == Link(rel="http://my.org/rel", href="http://x.org/y")
    assert stated.extra == (("{urn:own}level", "4"),)


def test_a_relation_that_nobody_knows_is_taken_with_a_notice(fed: PushSet) -> None:
    """RS-LN-01: whoever announces is told, and nothing that was taken before is refused."""

    def link(rel: str) -> dict[str, str]:
        return {"rel": rel, "href": "http://x.org/y"}

    said = fed.events(
        {"path": "a", "links": [link("collection"), link("colection")]},
        {"path": "b", "links": [link("collection"), link("http://my.org/rel")]},
        {"path": "a", "links": [link("collection"), link("colection")]},
        {"path": "c", "links": [link("Collection")]},
    )
    told = "'colection' is no registered relation and no URI; did you mean collection?"
    assert [(one.status, one.seq, one.notice) for one in said] == [
        (200, 1, told),
        (200, 2, None),
        (200, None, told),
        (422, None, None),
    ]
    assert [link.rel for link in fed.catalog.get("s", ["a"])["a"].metadata.links] == ["collection", "colection"]


def test_what_really_happened_is_logged(fed: PushSet) -> None:
    assert [one.seq for one in fed.events({"path": "a", "change": "updated"}, {"path": "a", "change": "created"})] == [
        1,
        2,
    ]
    assert fed.log() == [("created", "a"), ("updated", "a")]


def test_an_upsert_that_is_no_news_and_a_deletion_of_nothing_are_no_events(fed: PushSet) -> None:
    said = fed.events({"path": "a", "length": 1}, {"path": "a", "length": 1}, {"path": "b", "change": "deleted"})
    assert [(one.status, one.seq) for one in said] == [(200, 1), (200, None), (200, None)]
    said = fed.events({"path": "a", "length": 1}, {"path": "a", "length": 2}, {"path": "a", "change": "deleted"})
    assert [one.seq for one in said] == [None, 2, 3]
    assert fed.log() == [("created", "a"), ("updated", "a"), ("deleted", "a")]


HOSTILE = [
    ("not JSON", b"{", 400),
    ("not an object", b"[1]", 400),
    ("half UTF-8", b'{"uri": "\xff"}', 400),
    ("deeply nested", b"[" * 100_000, 400),
    ("deeply nested in a field", b'{"links":' + b"[" * 100_000, 400),
    ("an unknown field", {"path": "a", "lenght": 1}, 400),
    ("no name", {"change": "created"}, 400),
    ("two names", {"uri": "http://a/", "path": "a"}, 400),
    ("an odd change", {"path": "a", "change": "moved"}, 400),
    ("a negative length", {"path": "a", "length": -1}, 400),
    ("a length beyond 63 bits", {"path": "a", "length": 1 << 63}, 400),
    ("a length that is none", {"path": "a", "length": "1"}, 400),
    ("a time without a zone", {"path": "a", "lastmod": "2026-01-01T00:00:00"}, 400),
    ("no time", {"path": "a", "lastmod": "yesterday"}, 400),
    ("a digest that is none", {"path": "a", "sha-256": "zz"}, 400),
    ("two digests of one algorithm", {"path": "a", "md5": "a" * 32, "hash": "md5:" + "b" * 32}, 400),
    ("no media type", {"path": "a", "type": "html"}, 422),
    ("an odd coding", {"path": "a", "encoding": "a b"}, 422),
    ("an odd frequency", {"path": "a", "changefreq": "often"}, 422),
    ("a relation that is none", {"path": "a", "links": [{"rel": "is part of", "href": "http://x/"}]}, 422),
    ("a link to nowhere", {"path": "a", "links": [{"rel": "up", "href": "x"}]}, 422),
    ("a link with a rank of none", {"path": "a", "links": [{"rel": "up", "href": "http://x/", "pri": 0}]}, 400),
    ("a thousand links", {"path": "a", "links": [{"rel": "up", "href": "http://x/"}] * 1000}, 400),
    ("a thousand attributes", {"path": "a", "attributes": {f"{{urn:x}}a{n}": "" for n in range(1000)}}, 400),
    ("an attribute of no namespace", {"path": "a", "attributes": {"level": "4"}}, 422),
    ("an attribute that is no text", {"path": "a", "attributes": {"{urn:x}a": 4}}, 400),
    ("a path that leads out", {"path": "../../etc/passwd"}, 422),
    ("a script", {"uri": "javascript:alert(1)"}, 422),
    ("a control character", {"uri": "http://a/\u0000"}, 422),
    ("a very long name", {"uri": "http://a/" + "x" * 10_000}, 422),
    ("a name that grows by encoding", {"path": "ü" * 3_000}, 422),
    ("nothing", b"null", 400),
    ("two on one line", b'{"path":"a"}{"path":"b"}', 400),
    ("a comma too much", b'{"path":"a",}', 400),
    ("not a number", b'{"path":"a","length":NaN}', 400),
    ("half a surrogate", rb'{"path":"\ud800"}', 400),
    ("a field of documents", {"path": "a", "datetime": "2026-01-01T00:00:00Z"}, 400),
    ("a list of digests", {"path": "a", "md5": ["a" * 32]}, 400),
    ("a prefix where none belongs", {"path": "a", "md5": "md5:" + "a" * 32}, 400),
    ("half a digest", {"path": "a", "hash": "md5:" + "a" * 31}, 400),
    ("a part of an octet", {"path": "a", "length": 1.5}, 400),
    ("a time that is a number", {"path": "a", "lastmod": 1_767_225_600_000}, 400),
    ("a time that is none", {"path": "a", "lastmod": ""}, 400),
    ("a change in capitals", {"path": "a", "change": "Created"}, 400),
    ("links that are one", {"path": "a", "links": {"rel": "up", "href": "http://x/"}}, 400),
    ("a link with a password", {"path": "a", "links": [{"rel": "up", "href": "http://u:p@x/"}]}, 422),
    ("a path by backslashes", {"path": "a\\..\\b"}, 422),
    ("no address", {"uri": "a/b"}, 422),
    ("an empty name", {"path": ""}, 422),
]


REASONS = [
    ({"path": "a", "tipe": "x"}, "unknown field: tipe (did you mean type?)"),
    ({"path": "a", "tags": 1}, "unknown field: tags"),
    ({"path": "a", "length": "4"}, "length: expected a whole number, or null, got text"),
    ({"path": "a", "change": "removed"}, "change: invalid enum value 'removed'"),
    ({"path": "a", "links": [{"rel": "up"}]}, "links[0]: the field href is missing"),
    (b'[{"path":"a"}]', "expected an object, got a list"),
    (b'{"path":"a"}{"path":"b"}', "JSON is malformed: trailing characters (byte 13)"),
    (b'{"path":"a"', "input data was truncated"),
    (rb'{"path":"\ud83d"}', "input data was truncated"),
    (b'{"path":"\xff"}', "'utf-8' codec can't decode"),
]


def test_what_is_wrong_with_a_line_is_said_in_plain_words() -> None:
    for told, words in REASONS:
        line = told if isinstance(told, bytes) else json.dumps(told).encode()
        with pytest.raises(BadEvent) as refused:
            read_announcement(line, Locations(PREFIX))
        assert refused.value.what.startswith(words), refused.value.what


ODD = [
    (
        "nothing stated, at length",
        {"uri": None, "lastmod": None, "md5": None, "length": None, "type": None, "links": None},
    ),
    ("a year", {"lastmod": "2026"}),
    ("a zone of the seed", {"lastmod": "2026-01-01T00:00:00+0000"}),
    ("digests in capitals", {"hash": "MD5:" + "A" * 32 + " urn:sha1:" + "B" * 40, "md5": "a" * 32}),
    ("spaces around", {"md5": " " + "a" * 32, "type": " text/plain ", "lastmod": " 2026-01-01T00:00:00Z "}),
    ("a whole address", {"links": [{"rel": "up", "href": PREFIX + "ü b"}]}),
]


@pytest.mark.parametrize("fields", [case[1] for case in ODD], ids=[case[0] for case in ODD])
def test_odd_lines_that_can_be_understood_are_taken(fed: PushSet, fields: dict[str, object]) -> None:
    assert [one.status for one in fed.events({"path": "a", **fields})] == [200]
    assert fed.log() == [("created", "a")]


def test_the_last_of_two_values_counts(fed: PushSet) -> None:
    assert fed.events(b'{"path":"a","length":1,"path":"b","length":2}')[0].status == 200
    assert [(one.uri, one.metadata.length) for one in fed.catalog.resources("s")] == [("b", 2)]


@pytest.mark.parametrize(("line", "status"), [case[1:] for case in HOSTILE], ids=[case[0] for case in HOSTILE])
def test_a_bad_line_is_refused_with_its_reason_and_blocks_no_good_one(fed: PushSet, line: object, status: int) -> None:
    said = fed.events({"path": "before"}, line, {"path": "after"})
    assert [(one.line, one.status, one.seq) for one in said] == [(1, 200, 1), (2, status, None), (3, 200, 2)]
    assert said[1].code
    assert said[1].reason
    assert fed.log() == [("created", "before"), ("created", "after")]


def test_a_first_load_logs_nothing_and_may_be_repeated(tmp_path: Path) -> None:
    fed = PushSet(tmp_path, loading=True)
    for _ in range(2):
        said = fed.events(*({"path": f"{n}", "length": n} for n in range(50)), {"path": "0", "change": "deleted"})
        assert {one.seq for one in said} == {None}
        assert {one.status for one in said} == {200}
    fed.feed.open()
    assert fed.log() == []
    assert len(fed.state()) == 49
    assert fed.events({"path": "new"})[0].seq == 1
    fed.close()


def linked(fed: PushSet, uri: str) -> set[tuple[str, str]]:
    resource = fed.catalog.get("s", [uri])[uri]
    return {(link.rel, link.href.removeprefix(PREFIX)) for link in resource.metadata.links}


def says(path: str, *others: tuple[str, str], **fields: object) -> dict[str, object]:
    return {"path": path, "links": [{"rel": rel, "href": PREFIX + other} for rel, other in others], **fields}


def test_dit_24_metadata_and_content_are_linked_both_ways(fed: PushSet) -> None:
    """Whichever comes first, in one batch or in several, and whether one side says it or both do."""
    fed.events(says("a.pdf", ("describedby", "a.xml")), says("a.xml"))
    assert linked(fed, "a.xml") == {("describes", "a.pdf")}
    assert fed.log() == [("created", "a.pdf"), ("created", "a.xml")]  # no event more than there were lines
    fed.events(says("b.pdf"))
    fed.events(says("b.xml", ("describes", "b.pdf")))
    assert linked(fed, "b.pdf") == {("describedby", "b.xml")}
    assert fed.log()[2:] == [("created", "b.pdf"), ("created", "b.xml"), ("updated", "b.pdf")]
    fed.events(says("c.pdf", ("describedby", "c.xml")))
    fed.events(says("c.xml", ("collection", "all")))
    assert linked(fed, "c.xml") == {("describes", "c.pdf"), ("collection", "all")}
    fed.events(says("d.pdf", ("describedby", "d.xml")), says("d.xml", ("describes", "d.pdf")))
    assert linked(fed, "d.xml") == {("describes", "d.pdf")}


def test_dit_24_a_link_goes_with_the_statement_that_it_follows_from(fed: PushSet) -> None:
    fed.events(says("a.pdf", ("describedby", "a.xml")), says("a.xml"))
    fed.events(says("a.xml", length=2))  # says nothing of its own, and keeps what follows
    assert linked(fed, "a.xml") == {("describes", "a.pdf")}
    fed.events(says("a.pdf"))
    assert linked(fed, "a.xml") == set()
    fed.events(says("b.pdf", ("describedby", "b.xml")), says("b.xml", ("describes", "b.pdf")))
    fed.events({"path": "b.pdf", "change": "deleted"})
    assert linked(fed, "b.xml") == {("describes", "b.pdf")}  # its own statement stays its own
    assert fed.events(says("b.xml", ("describes", "b.pdf")))[0].reason  # no news


def test_dit_24_one_that_everything_points_to_stays_within_bounds(fed: PushSet) -> None:
    fed.events(says("all.xml"), *(says(f"{n}.pdf", ("describedby", "all.xml")) for n in range(600)))
    assert len(linked(fed, "all.xml")) == 500
    assert fed.catalog.get("s", ["all.xml"])["all.xml"].metadata != Metadata()
