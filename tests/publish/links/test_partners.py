"""Links between resources that belong together by name: they come with the partner, and go with it."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import pytest

from headwater.catalog.interface import Delete, Metadata, Upsert
from headwater.publish.link_rules import DescribedRule, LinkRules, UrlRule, generic_of, partners, variants_of
from headwater.publish.publisher import PublishResult
from headwater.publish.site import SetSettings
from headwater.spec.records import Link
from tests.support.documents import read_bytes
from tests.support.failing import failing
from tests.support.published import BASE, PublishedCatalog

PAIR = DescribedRule(content="{stem}.pdf", record="meta/{stem}.xml", profile="http://purl.org/dc/terms/")
HOME = f"{BASE}/files/resources/"


def put(uri: str, type_: str | None = None) -> Upsert:
    return Upsert(uri, Metadata(length=len(uri), type=type_))


def published(tmp_path: Path, rules: LinkRules, *uris: str) -> PublishedCatalog:
    world = PublishedCatalog(tmp_path, page_entries=1, sets=(SetSettings(links=rules),))
    world.catalog.create("files")
    world.catalog.load("files", [put(uri) for uri in uris])
    world.catalog.open("files", world.now())
    world.publish()
    return world


def links(world: PublishedCatalog) -> dict[str, list[tuple[str, str]]]:
    return {
        loc.removeprefix(HOME): [(link.rel, link.href.removeprefix(HOME)) for link in entry.links]
        for url, data in world.look().documents.items()
        if "/resourcelist" in url
        for entry in read_bytes(data)[1]
        for loc in [entry.loc]
        if "/resources/" in loc
    }


def later(world: PublishedCatalog, seconds: float) -> PublishResult:
    world.clock.now += dt.timedelta(seconds=seconds)
    return world.publish()


def test_metadata_and_what_it_describes_are_linked_while_both_are_there(tmp_path: Path) -> None:
    """RS-REL-05, RS-REL-06, RS-REL-07: the page of the partner is rendered, although no event has touched it."""
    world = published(tmp_path, LinkRules(described=(PAIR,)), "a/p.pdf", "q.pdf")
    assert links(world) == {"a/p.pdf": [], "q.pdf": []}
    for _round in range(2):
        world.record(put("meta/a/p.xml"))
        world.publish(force=True)
        assert links(world) == {
            "a/p.pdf": [("describedby", "meta/a/p.xml")],
            "q.pdf": [],
            "meta/a/p.xml": [("describes", "a/p.pdf"), ("profile", "http://purl.org/dc/terms/")],
        }
        world.record(Delete("meta/a/p.xml"))
        world.publish(force=True)
        assert links(world) == {"a/p.pdf": [], "q.pdf": []}


def test_a_star_stands_for_every_file_of_a_folder(tmp_path: Path) -> None:
    """RS-REL-05, RS-REL-06: whatever its files are called, each leads to the record of its own folder, and back."""
    rule = DescribedRule(content="{stem}/*.pdf", record="{stem}/metadata.xml", profile="http://purl.org/dc/terms/")
    uris = ("1/a.pdf", "1/b%20c.pdf", "1/metadata.xml", "1/t.csv", "1/x/d.pdf", "1a.pdf", "2/metadata.xml")
    world = published(tmp_path, LinkRules(described=(rule,)), *uris)
    profile = ("profile", "http://purl.org/dc/terms/")
    assert {uri: found for uri, found in links(world).items() if found} == {
        "1/a.pdf": [("describedby", "1/metadata.xml")],
        "1/b%20c.pdf": [("describedby", "1/metadata.xml")],
        "1/metadata.xml": [("describes", "1/a.pdf"), ("describes", "1/b%20c.pdf"), profile],
    }
    world.record(put("2/z.pdf"), Delete("1/a.pdf"), put("1/x/metadata.xml"))
    world.publish(force=True)
    assert {uri: found for uri, found in links(world).items() if found} == {
        "1/b%20c.pdf": [("describedby", "1/metadata.xml")],
        "1/metadata.xml": [("describes", "1/b%20c.pdf"), profile],
        "1/x/d.pdf": [("describedby", "1/x/metadata.xml")],
        "1/x/metadata.xml": [("describes", "1/x/d.pdf"), profile],
        "2/metadata.xml": [("describes", "2/z.pdf"), profile],
        "2/z.pdf": [("describedby", "2/metadata.xml")],
    }


def test_a_record_leads_to_the_first_of_many_files_and_each_of_them_to_it(tmp_path: Path) -> None:
    rule = DescribedRule(content="{stem}/*", record="{stem}/0.xml")
    uris = [f"1/{number:03}.txt" for number in range(60)]
    world = published(tmp_path, LinkRules(described=(rule,)), "1/0.xml", *uris)
    found = links(world)
    assert all(found[uri] == [("describedby", "1/0.xml")] for uri in uris)
    assert found["1/0.xml"] == [("describes", uri) for uri in uris[:20]]


def test_pages_of_partners_wait_as_pages_do_that_an_event_has_touched(tmp_path: Path) -> None:
    world = published(tmp_path, LinkRules(described=(PAIR,)), "p.pdf")
    world.record(put("meta/p.xml"))
    waiting = world.publish()
    assert waiting.pages_stale == 2
    assert links(world) == {"p.pdf": []}
    later(world, 3_601)
    assert links(world)["p.pdf"] == [("describedby", "meta/p.xml")]
    assert later(world, 60).pages_stale == 0


def test_representations_lead_to_their_generic_uri_and_to_each_other(tmp_path: Path) -> None:
    """RS-REL-02, RS-REL-03: with what the catalog states of the other; a resource at the generic URI is what it is."""
    world = published(
        tmp_path, LinkRules(variants=("html", "pdf")), "r.html", "r.pdf", "s.html", "t.txt", "u.html", "u"
    )
    assert links(world) == {
        "r.html": [("canonical", "r"), ("alternate", "r.pdf")],
        "r.pdf": [("canonical", "r"), ("alternate", "r.html")],
        "s.html": [("canonical", "s")],
        "t.txt": [],
        "u.html": [],
        "u": [],
    }
    world.record(put("s.pdf", "application/pdf"), Delete("u"))
    world.publish(force=True)
    assert links(world)["u.html"] == [("canonical", "u")]
    entry = next(
        entry
        for data in world.look().documents.values()
        for entry in read_bytes(data)[1]
        if entry.loc == HOME + "s.html" and entry.links
    )
    assert entry.links[1] == Link(rel="alternate", href=HOME + "s.pdf", length=5, type="application/pdf")


def test_change_lists_say_what_is_there_when_they_are_written(tmp_path: Path) -> None:
    world = published(tmp_path, LinkRules(described=(PAIR,)), "p.pdf")
    world.record(put("meta/p.xml"), Delete("meta/p.xml"), put("meta/p.xml"))
    world.publish()
    _head, entries, _warnings = read_bytes(world.fetch(f"{BASE}/files/changelist.xml") or b"")
    assert [[link.rel for link in one.links] for one in entries] == [
        ["describes", "profile"],
        [],
        ["describes", "profile"],
    ]


@pytest.mark.parametrize(
    ("uri", "generic"),
    [
        ("r.html", "r"),
        ("a/r.tar.gz", "a/r"),
        ("r.gz", "r"),
        (".html", None),
        ("a/.html", None),
        ("rhtml", None),
        ("r.HTML", None),
        ("r.html/x", None),
    ],
)
def test_generic_uris(uri: str, generic: str | None) -> None:
    found = generic_of(uri, variants_of(("html", "gz", "tar.gz")))
    assert (None if found is None else found[0]) == generic


def test_partners_are_mutual_and_never_lead_out_of_the_set() -> None:
    """Whoever may have a link to a resource is found by its change."""
    variants = variants_of(("html", "pdf"))
    for uri in ("a.pdf", "meta/a.xml", "a", "a.html", "../a.pdf", "http://o.example/a.pdf", "meta/.xml"):
        for other in partners((PAIR,), variants, uri):
            assert uri in set(partners((PAIR,), variants, other))
    assert list(partners((PAIR,), variants, "http://o.example/a.pdf")) == []


def test_variants_by_media_type_mean_its_suffixes() -> None:
    found = variants_of(("text/html", "pdf"))
    assert {"html", "htm", "pdf"} <= {one.suffix for one in found}
    assert {one.type for one in found} == {"text/html", None}


BAD = {
    "one suffix": lambda: LinkRules(variants=("html",)),
    "a suffix twice": lambda: LinkRules(variants=("html", "html")),
    "a dot first": lambda: LinkRules(variants=(".html", "pdf")),
    "a path": lambda: LinkRules(variants=("a/../b", "pdf")),
    "a type without suffix": lambda: LinkRules(variants=("application/x-nobody-knows", "pdf")),
    "no stem": lambda: DescribedRule(content="a.pdf", record="{stem}.xml"),
    "two stems": lambda: DescribedRule(content="{stem}/{stem}.pdf", record="{stem}.xml"),
    "the same": lambda: DescribedRule(content="{stem}.xml", record="{stem}.xml"),
    "out of the folder": lambda: DescribedRule(content="{stem}.pdf", record="../{stem}.xml"),
    "absolute": lambda: DescribedRule(content="/{stem}.pdf", record="{stem}.xml"),
    "elsewhere": lambda: DescribedRule(content="{stem}.pdf", record="http://o.example/{stem}.xml"),
    "relative profile": lambda: DescribedRule(content="{stem}.pdf", record="{stem}.xml", profile="dc"),
    "pri twice": lambda: LinkRules(urls=(UrlRule(rel="via", href="http://a/", pri=1),) * 2),
    "mirror that is no server": lambda: UrlRule(rel="duplicate", href="mailto:{path}"),
    "script": lambda: UrlRule(rel="collection", href="javascript:alert('{path}')"),
    "too many": lambda: LinkRules(urls=(UrlRule(rel="via", href="http://a/"),) * 101),
}


@pytest.mark.parametrize("name", BAD)
def test_rules_about_partners_that_are_refused(name: str) -> None:
    with failing("HW-CFG-05"):
        BAD[name]()
