"""What a destination remembers, as earlier versions have written it down."""

from pathlib import Path

import msgspec
import pytest

from headwater.copy_state import SCHEMA
from headwater.spec.records import Entry, Link
from headwater.spec.times import parse_datetime
from headwater.storage.database import Database, Schema
from headwater.sync.lists import entries
from headwater.sync.lists.entries import kept_links, links_of
from headwater.sync.state import CHANGE_LIST, RESOURCE_LIST, Offer, decode_offer

BEFORE = {
    "identity": "http://a.example/capabilitylist.xml",
    "name": "set",
    "capability_list": "http://a.example/capabilitylist.xml",
    "description": None,
    "resource_list": "http://a.example/resourcelist.xml",
    "change_list": None,
    "is_sitemap": False,
    "others": [["resourcedump", "http://a.example/dump.xml"]],
}


def test_an_offer_of_two_lists_and_others_is_read_as_a_mapping() -> None:
    """Written before an offer was a mapping by capability."""
    offer = decode_offer(msgspec.json.encode(BEFORE).decode())
    assert offer.resource_list == "http://a.example/resourcelist.xml"
    assert offer.change_list is None
    assert offer.documents == {
        RESOURCE_LIST: "http://a.example/resourcelist.xml",
        "resourcedump": "http://a.example/dump.xml",
    }


@pytest.mark.parametrize("documents", [{}, {RESOURCE_LIST: "r"}, {CHANGE_LIST: "c", "changedump": "d"}])
def test_an_offer_is_read_as_it_was_written(documents: dict[str, str]) -> None:
    offer = Offer(identity="i", name="n", documents=documents)
    assert decode_offer(msgspec.json.encode(offer).decode()) == offer


def test_a_document_of_an_offer_is_replaced_or_taken_out() -> None:
    offer = Offer(identity="i", name="n", documents={RESOURCE_LIST: "r", "resourcedump": "d"})
    assert offer.with_document(RESOURCE_LIST, "s").documents == {RESOURCE_LIST: "s", "resourcedump": "d"}
    assert offer.with_document(RESOURCE_LIST, None).documents == {"resourcedump": "d"}
    assert offer.with_document(CHANGE_LIST, "c").change_list == "c"


def test_mirrors_of_a_failure_are_links_by_now(tmp_path: Path) -> None:
    """A state of before: a list of URIs in a column of their own."""
    before = Schema(SCHEMA.application_id, SCHEMA.migrations[:6])
    with Database(tmp_path / "state.sqlite", before) as database, database.write() as t:
        insert = (
            "INSERT INTO failures(set_id, uri, loc, reason, tries, first_at, last_at, next_at, mirrors)"
            " VALUES (1, ?, ?, '', 1, 0, 0, 0, ?)"
        )
        t.run(insert, ("a", "a", '["http://b.example/1","http://c.example/\u00e4"]'))
        t.run(insert, ("none", "none", None))
    with Database(tmp_path / "state.sqlite", SCHEMA) as database, database.read() as t:
        links: dict[str, str | None] = dict(t.rows("SELECT uri, links FROM failures"))
    assert links_of(links["a"], "duplicate") == [
        Link(rel="duplicate", href="http://b.example/1"),
        Link(rel="duplicate", href="http://c.example/\u00e4"),
    ]
    assert links["none"] is None


# the links that are kept with what is listed


def link(number: int, pri: int | None = None, *, rel: str = "duplicate", scheme: str = "http") -> Link:
    return Link(rel=rel, href=f"{scheme}://m.example/{number}", pri=pri, hash="md5:00", length=number)


def test_links_are_kept_whole_and_in_their_order() -> None:
    """By `pri`, those without one last, and of http alone; then all by which nothing is fetched, as they came."""
    coarse = Link(rel="duplicate", href="https://m.example/4", pri=3, modified=parse_datetime("2026-01")[0])
    given = (link(1), link(2, 7), link(3, 2, rel="describedby"), coarse, link(5, 1, scheme="ftp"), link(6, 1))
    kept = kept_links(Entry(loc="http://h.example/", links=given))
    whole = msgspec.structs.replace(coarse, modified=parse_datetime("2026-01-01T00:00:00Z")[0])
    assert links_of(kept, "duplicate") == [link(6, 1), whole, link(2, 7), link(1)]
    assert links_of(kept, "describedby") == [link(3, 2, rel="describedby")]


def test_of_links_without_end_some_are_kept() -> None:
    """No entry fills the state: fifty links of other relations, and fewer when they are long (DST-S9)."""
    given = tuple(link(number, rel=f"rel{number}") for number in range(80))
    assert len(msgspec.json.decode(kept_links(Entry(loc="http://h.example/", links=given)) or "")) == 50
    long = tuple(Link(rel="via", href="http://h.example/" + "x" * 3_000) for _ in range(50))
    assert 0 < len(kept_links(Entry(loc="http://h.example/", links=long)) or "") <= 1 << 16


def test_so_many_links_of_a_relation_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each relation has a bound of its own, and a new one is a line in the table."""
    monkeypatch.setattr(entries, "KEPT_RELATIONS", {"duplicate": 2, "patch": 1})
    given = (*(link(number, number + 1) for number in range(5)), link(8, rel="patch"), link(9, rel="patch"))
    kept = kept_links(Entry(loc="http://h.example/", links=given))
    assert [found.length for found in links_of(kept, "duplicate")] == [0, 1]
    assert links_of(kept, "patch") == [link(8, rel="patch")]
