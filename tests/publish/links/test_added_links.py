"""Links that a set's rules add to its entries: where they stand, what room they take, what other rules bring."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from headwater.catalog.interface import Change, Delete, Limits, Metadata, Resource, Upsert
from headwater.catalog.page_filling import weight
from headwater.catalog.sqlite_catalog import SqliteCatalog
from headwater.publish import added_links, document_content
from headwater.publish.added_links import AddedLinks, EntryPlace
from headwater.publish.link_rules import LinkRules, UrlRule
from headwater.publish.publisher import Publisher
from headwater.publish.site import SetSettings, Site
from headwater.spec.kinds import DOCUMENT_OCTETS
from headwater.spec.records import ChangeKind, Entry, Link
from tests.support.documents import read_bytes
from tests.support.failing import failing
from tests.support.published import BASE, PublishedCatalog, put
from tests.support.waiting import START

MIRROR = UrlRule(rel="duplicate", href="https://mirror.example/{path}", pri=1)
RULES = LinkRules(urls=(MIRROR, UrlRule(rel="collection", href="https://example.org/all", match=("r0", "r1"))))


def linked(rules: LinkRules) -> tuple[SetSettings, ...]:
    return (SetSettings(links=rules),)


def entries(world: PublishedCatalog, name: str) -> list[Entry]:
    return list(read_bytes(world.fetch(f"{BASE}/files/{name}.xml") or b"")[1])


def rels(world: PublishedCatalog, name: str) -> list[list[str]]:
    return [[link.rel for link in one.links] for one in entries(world, name)]


def test_links_stand_in_lists_of_resources_and_changes_and_never_with_a_deletion(tmp_path: Path) -> None:
    """RS-REL-01, RS-REL-11; the open list grows by octets that it has already, and keeps their links."""
    world = PublishedCatalog(tmp_path, sets=linked(RULES))
    world.begin(3)
    world.record(put("r1", 1), Delete("r2"))
    world.publish()
    world.record(put("r0", 1))
    world.publish(force=True)
    assert rels(world, "resourcelist") == [["duplicate", "collection"]] * 2
    assert rels(world, "changelist") == [["duplicate", "collection"], [], ["duplicate", "collection"]]
    assert entries(world, "resourcelist")[0].links[0] == Link(rel="duplicate", href="https://mirror.example/r0", pri=1)


def test_links_of_the_record_come_first_and_none_comes_twice(tmp_path: Path) -> None:
    own = (Link(rel="via", href="http://o.example/"), Link(rel="duplicate", href="https://mirror.example/r0", pri=7))
    world = PublishedCatalog(tmp_path, sets=linked(LinkRules(urls=(MIRROR,))))
    world.catalog.create("files")
    world.catalog.load("files", [Upsert("r0", Metadata(links=own))])
    world.catalog.open("files", world.now())
    world.publish()
    assert entries(world, "resourcelist")[0].links == own


def test_other_rules_render_pages_and_the_open_list_anew_and_no_closed_one(tmp_path: Path) -> None:
    """RS-TIME-09: what is closed says for good what it said; the history goes on, so that nobody begins anew."""
    world = PublishedCatalog(tmp_path, segment_entries=2)
    world.begin(2)
    world.record(put("r0", 1), put("r1", 1), put("r0", 2))
    before = world.publish(force=True)
    for rules in (RULES, LinkRules(), RULES):
        site = Site(base_url=BASE, sets=linked(rules))
        world.publisher = Publisher(world.catalog, world.store, site, world.now)
        done = world.publish()
        assert (done.history, done.history_first) == (before.history, before.history_first)
        assert rels(world, "changelist/00000") == [[], []]
        wanted = ["duplicate", "collection"] if rules.urls else []
        assert rels(world, "resourcelist") == [wanted, wanted]
        assert rels(world, "changelist/00001") == rels(world, "changelist/open") == [wanted]
        assert world.publish().written == ()


@pytest.mark.parametrize("path", ["a", "a/b&c.d", "x/" * 800 + "y"])
@pytest.mark.parametrize("most", [0, 300])
def test_a_document_that_is_filled_under_the_rules_has_room_for_all_that_is_added(
    tmp_path: Path, path: str, most: int
) -> None:
    """RS-LIM-02, for entries as small and as large as they come: every link is there, and no document is too large."""
    rules = LinkRules(
        urls=(
            UrlRule(rel="via", href=f"https://m.example/{{path}}?a={'a' * most}&b={{name}}", pri=999_999),
            UrlRule(rel="collection", href=f"https://example.org/{'b' * 2 * most}", type="text/html"),
        )
    )
    site = Site(base_url=BASE, sets=linked(rules))
    added = AddedLinks(site, site.settings("files"), SqliteCatalog(tmp_path / "catalog.sqlite"))
    row = Resource(path, Metadata(), b"", 0, 0)
    count = min(50_000, rules.document_octets // weight(path, row.metadata))
    (found,) = added.to([row], EntryPlace.RESOURCE_LIST, count * weight(path, row.metadata))
    assert len(found.metadata.links) == 2
    assert count * weight(path, found.metadata) < DOCUMENT_OCTETS


def test_what_was_filled_before_gets_as_many_links_as_there_is_room_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """RS-LIM-01: no page and no list becomes too large, whatever it held when the rules came."""
    world = PublishedCatalog(tmp_path, page_entries=1_000, segment_entries=1_000, sets=linked(RULES))
    world.begin(50)
    (page,) = world.catalog.pages("files")
    most = int(page.weight * 1.2)
    monkeypatch.setattr(added_links, "ROOM", most)
    world.publish()
    assert rels(world, "resourcelist") == [["duplicate"]] * 50
    for number in range(50):
        world.record(put(f"r{number}", 1))
        world.publish()
    assert {tuple(one) for one in rels(world, "changelist")} <= {("duplicate", "collection"), ("duplicate",)}
    assert len(world.fetch(f"{BASE}/files/changelist.xml") or b"") <= most


def test_limits_of_a_set_hold_for_it_alone(tmp_path: Path) -> None:
    octets = weight("r0", Metadata())
    catalog = SqliteCatalog(tmp_path / "catalog.sqlite", Limits(octets_of_sets={"small": (2 * octets, 2 * octets)}))
    for name in ("small", "files"):
        catalog.create(name)
        catalog.load(name, [Upsert(f"r{number}", Metadata()) for number in range(5)])
        catalog.open(name, START)
        catalog.record(name, [Upsert(f"r{number}", Metadata()) for number in range(4)], START)
    assert [page.count for page in catalog.pages("small")] == [2, 2, 1]
    assert len(catalog.segments("small")) == 2
    assert [page.count for page in catalog.pages("files")] == [5]


def test_rows_of_a_set_without_rules_are_the_same_objects(tmp_path: Path) -> None:
    site = Site(base_url=BASE)
    added = AddedLinks(site, site.settings("files"), SqliteCatalog(tmp_path / "catalog.sqlite"))
    row = Resource("a", Metadata(), b"", 0, 0)
    assert next(added.to([row], EntryPlace.RESOURCE_LIST)) is row


def test_changes_in_a_manifest_have_the_links_too(tmp_path: Path) -> None:
    """RS-CDM-08: in a manifest as in the lists; a deletion has none."""
    site = Site(base_url=BASE, sets=linked(RULES))
    added = AddedLinks(site, site.settings("files"), SqliteCatalog(tmp_path / "catalog.sqlite"))
    rows = [
        Change(1, START, "r0", ChangeKind.CREATED, Metadata()),
        Change(2, START, "r0", ChangeKind.DELETED, Metadata()),
    ]
    found = document_content.change_entries(added.to(rows, EntryPlace.CHANGE_DUMP_MANIFEST), f"{BASE}/", site.profile)
    assert [len(one.links) for one in found] == [2, 0]


BAD_RULES: dict[str, dict[str, object]] = {
    "relative": {"href": "/mirror/{path}"},
    "no host": {"href": "https:///{path}"},
    "host of the resource": {"href": "{uri}"},
    "unknown placeholder": {"href": "https://m.example/{id}"},
    "open brace": {"href": "https://m.example/{path"},
    "blank": {"href": "https://m.example/a b/{path}"},
    "line end": {"href": "https://m.example/\n{path}"},
    "NUL": {"href": "https://m.example/\0"},
    "too long": {"href": "https://m.example/" + "a" * 3_000},
    "pri 0": {"pri": 0},
    "pri -1": {"pri": -1},
    "pri 1000000": {"pri": 1_000_000},
    "relation in capitals": {"rel": "Duplicate"},
    "two relations": {"rel": "via duplicate"},
    "no relation": {"rel": ""},
    "relation of documents": {"rel": "up"},
    "no media type": {"type": "html"},
    "no pattern": {"match": ("a//b",)},
}


@pytest.mark.parametrize("name", BAD_RULES)
def test_rules_that_are_refused(name: str) -> None:
    """RS-LN-01, RS-LN-03: such a link would make the whole document invalid."""
    with failing("HW-CFG-05") as raised:
        msgspec.structs.replace(MIRROR, **BAD_RULES[name])
    assert raised.value.code == "HW-CFG-05"
