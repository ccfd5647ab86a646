"""A site of more sets than one Source Description holds: parts, and an index that groups them (RS-SD-09, AMB-53)."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pytest

from headwater.catalog.interface import SetState
from headwater.catalog.sqlite_catalog import SqliteCatalog
from headwater.http.routes import Match, NoMatch
from headwater.progress import Notice
from headwater.publish import plan
from headwater.publish.plan import Refresh
from headwater.publish.publication_state import decode_publication, encode_publication
from headwater.publish.publisher import Publisher, PublisherOptions
from headwater.publish.site import BadSite, SetSettings, Site
from headwater.spec.kinds import Kind
from headwater.spec.records import Document, Entry
from tests.http.test_routes import table
from tests.support.documents import read_bytes
from tests.support.published import BASE, PublishedCatalog, put

NAMES = tuple(f"s{number}" for number in range(5))
WELL_KNOWN = f"{BASE}/.well-known/resourcesync"


@pytest.fixture
def world(tmp_path: Path) -> PublishedCatalog:
    world = PublishedCatalog(tmp_path, sets=tuple(SetSettings(name=name) for name in NAMES))
    world.site = msgspec.structs.replace(world.site, description_entries=2)
    world.publisher = Publisher(world.catalog, world.store, world.site, world.now)
    for name in NAMES:
        world.begin(1, name)
        world.publish(name=name)
    return world


def _read(world: PublishedCatalog, url: str) -> tuple[Document, list[Entry]]:
    document, entries, warnings = read_bytes(world.fetch(url) or b"", url)
    assert warnings == ()
    return document, list(entries)


def test_parts_and_their_index_rs_sd_09_amb_53(world: PublishedCatalog) -> None:
    index, parts = _read(world, WELL_KNOWN)
    assert index.kind is Kind.SOURCE_DESCRIPTION_INDEX
    assert len(parts) == 3
    listed = []
    for part in parts:
        document, entries = _read(world, part.loc)
        assert document.kind is Kind.SOURCE_DESCRIPTION
        link = document.link("index")
        assert link is not None
        assert link.href == WELL_KNOWN
        for entry in entries:
            up = _read(world, entry.loc)[0].link("up")
            assert up is not None
            assert up.href == part.loc, "RS-NAV-01: `up` leads to the Source Description that lists it"
            listed.append(entry.loc)
    assert listed == [f"{BASE}/{name}/capabilitylist.xml" for name in NAMES]


def test_nothing_is_written_again_by_another_process(world: PublishedCatalog) -> None:
    again = Publisher(world.catalog, world.store, world.site, world.now)
    assert again.site_documents.is_site_published()
    for name in NAMES:
        assert again.publish(name, world.catalog.mark(name, world.now())).written == ()


def test_a_lost_part_is_restored(world: PublishedCatalog) -> None:
    (world.folder / "documents/sourcedescription/00001.xml").unlink()
    for name in ("s0", "s2"):  # the next look at a set that the part names finds it
        world.record(put("a", 1), name=name)
        world.publisher.publish(name, world.catalog.mark(name, world.now()), Refresh.REPAIR)
    assert len(_read(world, f"{BASE}/sourcedescription/00001.xml")[1]) == 2


def test_fewer_sets_are_one_description_again(world: PublishedCatalog) -> None:
    world.site = msgspec.structs.replace(world.site, sets=world.site.sets[:2])
    world.publisher = Publisher(world.catalog, world.store, world.site, world.now)
    for name in NAMES[:2]:
        world.publish(name=name)
    document, entries = _read(world, WELL_KNOWN)
    assert document.kind is Kind.SOURCE_DESCRIPTION
    assert len(entries) == 2
    assert world.look("s1").state == world.truth("s1")
    parts = world.folder / "documents/sourcedescription"
    assert len([*parts.glob("*.xml")]) == 3, "AMB-63: who holds the index may still come for them"
    world.publisher.site_documents.publish_site()
    assert len([*parts.glob("*.xml")]) == 3
    past = world.now().timestamp() - plan.GRACE_SECONDS
    os.utime(world.store.root / ".well-known/resourcesync", (past, past))
    Publisher(world.catalog, world.store, world.site, world.now).site_documents.publish_site()
    assert [*parts.iterdir()] == []
    assert _read(world, WELL_KNOWN)[1] == entries


def test_parts_of_a_site_that_is_still_large_go_alone(world: PublishedCatalog) -> None:
    world.site = msgspec.structs.replace(world.site, sets=world.site.sets[:4])
    for past in (world.now().timestamp(), world.now().timestamp() - plan.GRACE_SECONDS):
        world.publisher = Publisher(world.catalog, world.store, world.site, world.now)
        world.publisher.site_documents.publish_site()
        os.utime(world.store.root / ".well-known/resourcesync", (past, past))
    Publisher(world.catalog, world.store, world.site, world.now).site_documents.publish_site()
    assert sorted(one.name for one in (world.folder / "documents/sourcedescription").glob("*.xml")) == [
        "00000.xml",
        "00001.xml",
    ]
    assert len(_read(world, WELL_KNOWN)[1]) == 2


@pytest.mark.parametrize(
    ("target", "found"),
    [(b"/sourcedescription/00001.xml", True), (b"/sourcedescription/1.xml", False), (b"/sourcedescription/", False)],
)
def test_parts_are_served(target: bytes, found: bool) -> None:
    answer = table(sets=("s0",)).find(target)
    assert isinstance(answer, Match if found else NoMatch)


def test_many_sets_are_looked_up_by_name() -> None:
    site = Site(base_url=BASE, sets=tuple(SetSettings(name=f"s{number}") for number in range(30_000)))
    assert [site.position(name) for name in ("s0", "s29999")] == [0, 29_999]
    with pytest.raises(BadSite):
        site.settings("s30000")


@pytest.mark.parametrize("noted", [{"base_url": ""}, {"base_url": "", "uris": ""}])
def test_a_set_that_an_older_version_has_published_stays_named(tmp_path: Path, noted: dict[str, str]) -> None:
    """Whatever its resource base was: that has not been noted, but where the documents are tells."""
    world = PublishedCatalog(tmp_path, sets=(SetSettings(name="a", resource_base="https://files.example/x"),))
    world.begin(1, "a")
    world.publish(name="a")
    published = decode_publication(world.catalog.state("a").notes)
    world.catalog.note("a", encode_publication(msgspec.structs.replace(published, **noted)))
    world.begin(1, "b")
    site = Site(base_url=BASE, sets=(SetSettings(name="b"),))
    world.publisher = Publisher(world.catalog, world.store, site, world.now, options=PublisherOptions(keep_others=True))
    world.publish(name="b")
    assert [one.loc for one in _read(world, WELL_KNOWN)[1]] == [f"{BASE}/{name}/capabilitylist.xml" for name in "ab"]


def test_a_set_without_documents_is_not_told_of(tmp_path: Path) -> None:
    world = PublishedCatalog(tmp_path, sets=(SetSettings(name="a"),))
    world.begin(1, "a")
    world.publish(name="a")
    for name in list(world.store.names("a/")):
        world.store.delete(name)
    world.begin(1, "b")
    site = Site(base_url="https://elsewhere.example", sets=(SetSettings(name="b"),))
    told: list[object] = []
    world.publisher = Publisher(
        world.catalog, world.store, site, world.now, told.append, options=PublisherOptions(keep_others=True)
    )
    world.publish(name="b")
    assert [one for one in told if isinstance(one, Notice)] == []


def test_a_set_that_comes_late_is_named_though_others_are_missing(tmp_path: Path) -> None:
    """AMB-63: what is published later than the first is named as well, while a set is still not there."""
    world = PublishedCatalog(tmp_path, sets=tuple(SetSettings(name=name) for name in NAMES))
    for number, name in enumerate(NAMES[:-1]):
        world.begin(1, name)
        world.publish(name=name)
        world.publisher.site_documents.name_published()
        listed = [entry.loc for entry in _read(world, WELL_KNOWN)[1]]
        assert listed == [f"{BASE}/{one}/capabilitylist.xml" for one in NAMES[: number + 1]]
        assert world.publisher.site_documents.is_published(name)
    again = Publisher(world.catalog, world.store, world.site, world.now)
    assert not again.site_documents.is_site_published()
    again.site_documents.name_published()
    assert again.site_documents.is_known_published(None)
    assert [name for name in NAMES if again.site_documents.is_published(name)] == list(NAMES[:-1])


class Counting(SqliteCatalog):
    """A catalog that counts what it is asked."""

    asked = 0

    def state(self, name: str) -> SetState:
        self.asked += 1
        return super().state(name)

    def sets(self) -> list[SetState]:
        self.asked += 1
        return super().sets()

    def note(self, name: str, notes: bytes) -> None:
        self.asked += 1
        super().note(name, notes)


def test_a_publication_costs_the_same_however_many_sets_there_are(tmp_path: Path) -> None:
    """Of 60 sets each is published, checked, and asked for: a few reads of the catalog each time, none for others."""
    names = [f"s{number}" for number in range(60)]
    world = PublishedCatalog(tmp_path, sets=tuple(SetSettings(name=name) for name in names))
    world.catalog = catalog = Counting(tmp_path / "counting.sqlite")
    world.publisher = Publisher(catalog, world.store, world.site, world.now)
    for name in names:
        world.begin(0, name)
    for force in (True, False):
        for name in reversed(names):
            before = catalog.asked
            world.publisher.publish(name, catalog.mark(name, world.now()), Refresh.REPAIR)
            if name != names[0]:  # the last one to come makes the documents of the site
                assert catalog.asked - before <= (5 if force else 1)
    assert world.publisher.site_documents.is_site_published()
