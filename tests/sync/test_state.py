"""What a destination remembers, as earlier versions have written it down."""

import json
from pathlib import Path

import msgspec
import pytest

from headwater.copy_state import SCHEMA
from headwater.spec.records import Entry, Link
from headwater.spec.times import parse_datetime
from headwater.storage.database import Database, Schema
from headwater.sync.lists import entries
from headwater.sync.lists.entries import kept_links, links_of
from headwater.sync.options import SyncOptions
from headwater.sync.state import CHANGE_LIST, RESOURCE_LIST, Offer, sets

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


GAP = "INSERT INTO facts(name, value) VALUES ('gap of set 2', '7')"
SETS = (
    "INSERT INTO sets(id, name, folder, identity, offer, baseline_at, hole_until, position)"
    " VALUES (?1, ?1, ?1, ?1, ?2, 5, ?3, '{\"time\": 9}')"
)


def test_an_offer_of_two_lists_and_others_is_a_mapping_and_a_gap_is_where_the_copy_is(tmp_path: Path) -> None:
    """Written before an offer was a mapping by capability, and by versions that passed over gaps."""
    kept = Offer(identity="4", name="4", documents={CHANGE_LIST: "c", "changedump": "d"}, hubs={CHANGE_LIST: ("h",)})
    offers = [BEFORE, BEFORE, {"identity": "3", "name": "3"}, msgspec.to_builtins(kept)]
    before = Schema(SCHEMA.application_id, SCHEMA.migrations[:-3])
    with Database(tmp_path / "state.sqlite", before) as database, database.write() as t:
        t.many(SETS, [(n, json.dumps(one), 12 if n in (2, 3) else None) for n, one in enumerate(offers, 1)])
        t.run(GAP)
    with Database(tmp_path / "state.sqlite", SCHEMA) as database, database.read() as t:
        found = sets(t)
    documents = {RESOURCE_LIST: "http://a.example/resourcelist.xml", "resourcedump": "http://a.example/dump.xml"}
    assert [one.offer.documents for one in found] == [documents, documents, {}, kept.documents]
    assert found[3].offer == kept
    assert [one.position and one.position.time for one in found] == [9, 7, 5, 9]


def test_a_document_of_an_offer_is_replaced_or_taken_out() -> None:
    offer = Offer(identity="i", name="n", documents={RESOURCE_LIST: "r", "resourcedump": "d"})
    assert offer.with_document(RESOURCE_LIST, "s").documents == {RESOURCE_LIST: "s", "resourcedump": "d"}
    assert offer.with_document(RESOURCE_LIST, None).documents == {"resourcedump": "d"}
    assert offer.with_document(CHANGE_LIST, "c").changes_document == "c"


def test_a_choice_by_alternates_reads_its_list_anew(tmp_path: Path) -> None:
    """Written when alternates were remembered, and not what is listed: the choice is the same, and seems new."""
    choices = [
        SyncOptions(**one).choice.signature for one in ({}, {"prefer_types": ("text/html",)}, {"only_described": True})
    ]
    before = Schema(SCHEMA.application_id, SCHEMA.migrations[:-1])
    with Database(tmp_path / "state.sqlite", before) as database, database.write() as t:
        insert = "INSERT INTO sets(name, folder, identity, offer, scope) VALUES (?1, ?1, ?1, '{}', ?2)"
        t.many(insert, enumerate(choices))
    with Database(tmp_path / "state.sqlite", SCHEMA) as database, database.read() as t:
        found = [text for (text,) in t.rows("SELECT scope FROM sets ORDER BY id")]
    assert [one == now for one, now in zip(choices, found, strict=True)] == [True, False, True]
    assert [json.loads(one) for one in choices] == [json.loads(one) for one in found]


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
