"""What the DIT-ES protocol asks of the lists that are made of a harvester's documents (DIT-20…29)."""

from __future__ import annotations

import datetime as dt
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from headwater.catalog.interface import Limits
from headwater.ingest.dit.documents import read_document
from headwater.ingest.dit.intake import take_documents
from headwater.ingest.push.feed import Feed, Outcome
from headwater.ingest.push.resource_locations import Locations
from headwater.publish.site import SetSettings, change_list_name, resource_list_name, resource_page_name
from headwater.spec.records import ChangeKind, Document, Entry
from tests.support.documents import read_bytes
from tests.support.published import BASE, PublishedCatalog, put
from tests.support.push_set import change, resource

MOST_ENTRIES, MOST_OCTETS = 50_000, 52_428_800
DAY = 86_400.0


class Harvested(PublishedCatalog):
    """Sets that have no folder: documents in, documents out (DIT-04)."""

    def __init__(self, folder: Path, *names: str, loading: bool = False, **options: Any) -> None:
        settings = tuple(SetSettings(name=name, refresh_seconds=60.0, rotation_seconds=DAY) for name in names)
        super().__init__(folder, sets=settings, **options)
        self.feeds = {
            name: Feed(self.catalog, name, Locations(self.site.resource_prefix(name)), self.now) for name in names
        }
        for feed in self.feeds.values():
            if not loading:
                feed.open()

    def post(self, *sources: object, name: str = "files") -> list[Outcome]:
        """What a harvester posts at once."""
        documents = [(line, read_document(one)) for line, one in enumerate(sources, 1)]
        return take_documents(self.feeds[name], documents)

    def create(self, *paths: str, name: str = "files") -> None:
        """Post resources with their changes."""
        self.post(*(one for path in paths for one in (resource(path, 1), change(path, "created", 1))), name=name)

    def read(self, name: str) -> tuple[Document, list[Entry]]:
        data = self.fetch(f"{BASE}/{name}")
        assert data is not None
        assert len(data) <= MOST_OCTETS
        document, entries, _ = read_bytes(data)
        assert len(entries) <= MOST_ENTRIES
        return document, list(entries)

    def close(self) -> None:
        self.catalog.close()


def test_dit_22_what_is_added_touches_the_last_page_only(tmp_path: Path) -> None:
    """DIT-22, DIT-25, DIT-A16: pages are stable; additions append, an update or a deletion renders its own page anew.

    A page's `at` is its own, the index's the earliest of them (AMB-24).
    """
    world = Harvested(tmp_path, "files")
    world.create(*(f"r{number}" for number in range(12)))
    first = world.publish(force=True)
    pages = [resource_page_name("files", number) for number in range(4)]
    before = world.files()
    world.create("more")
    world.publish(force=True)
    after = world.files()
    assert [after[page] == before[page] for page in pages[:3]] == [True] * 3
    assert pages[3] in after
    world.post(resource("r5", 9, "b"), change("r5", "updated", 9), change("r8", "deleted", 9))
    third = world.publish(force=True)
    last = world.files()
    assert [last[page] == after[page] for page in pages] == [True, False, False, True]
    _, parts = world.read(resource_list_name("files"))
    assert [one.at for one in parts][:3] == [first.at, third.at, third.at]
    assert world.read(resource_list_name("files"))[0].at == first.at
    assert world.look().state == world.truth()
    world.close()


def test_dit_26_the_change_list_has_the_events_of_its_interval(tmp_path: Path) -> None:
    """DIT-26, DIT-27 as corrected by DIT-A1 and DIT-A2: each event in one list, nothing is erased, nothing marked."""
    world = Harvested(tmp_path, "files", segment_entries=3)
    world.publish()
    for number in range(7):
        world.create(f"r{number}")
        world.publish()
    world.publish(force=True)
    _, parts = world.read(change_list_name("files"))
    lists = [world.read(part.loc.removeprefix(BASE + "/")) for part in parts]
    assert [len(entries) for _, entries in lists] == [3, 3, 1]
    for head, entries in lists:
        assert head.from_ is not None
        for entry in entries:
            assert entry.datetime is not None
            assert head.from_ < entry.datetime
            assert head.until is None or entry.datetime < head.until
    world.close()


def test_dit_a15_the_next_change_list_begins_when_the_resource_list_was_taken(tmp_path: Path) -> None:
    """DIT-28, DIT-A15: `from` is its `at`, not its `completed`; what comes while pages are written is in the list."""
    world = Harvested(tmp_path, "files")
    world.create(*(f"r{number}" for number in range(9)))
    world.publish()
    world.clock.sleep(DAY)
    until = world.publisher.rotate("files")
    assert until is not None
    world.create("meanwhile")
    world.publisher.publish("files", until)
    head, parts = world.read(resource_list_name("files"))
    assert (head.at, {part.at for part in parts}) == (until, {until})
    _, lists = world.read(change_list_name("files"))
    assert [one.from_ for one in lists][-1] == until
    _, entries = world.read(lists[-1].loc.removeprefix(BASE + "/"))
    assert [entry.loc.rpartition("/")[2] for entry in entries] == ["meanwhile"]
    assert world.look().state == world.truth()
    world.close()


def test_dit_a18_one_file_in_two_sets(tmp_path: Path) -> None:
    """DIT-21, DIT-A18: the same address belongs to both; what happens to it is told in both, each with its own log."""
    world = Harvested(tmp_path, "one", "two")
    here: dict[str, Any] = {"location": {"value": "http://files.example.org/a", "type": "url"}}
    for name in ("one", "two"):
        world.post(resource("a", 1, **here), change("a", "created", 1, **here), name=name)
        world.create("own", name=name)
    world.post(change("a", "deleted", 2, **here), name="one")
    for name in ("one", "two"):
        world.publish(name=name)
    for name, kinds in (("one", ["created", "created", "deleted"]), ("two", ["created", "created"])):
        look = world.look(name)
        assert [one.change.value for one in look.changes if one.change] == kinds
        assert look.changes[0].loc == "http://files.example.org/a"
        own = f"{world.site.resource_prefix(name)}own"
        assert set(look.state) == ({own} if name == "one" else {own, "http://files.example.org/a"})
    world.close()


@pytest.mark.parametrize("lastmod", [{}, {"lastmod": None}], ids=["stated", "none"])
def test_dit_a21_a_deletion_says_no_lastmod(tmp_path: Path, lastmod: dict[str, object]) -> None:
    """DIT-A21, in ResourceSync 1.1: only that it was deleted, and when."""
    world = Harvested(tmp_path, "files")
    world.create("a")
    world.post(change("a", "deleted", 2, **lastmod))
    world.publish()
    gone = world.look().changes[-1]
    assert (gone.change, gone.lastmod, gone.length, gone.hash, gone.type) == (
        ChangeKind.DELETED,
        None,
        None,
        None,
        None,
    )
    world.close()


def test_dit_23_lists_stay_inside_the_limits_of_sitemaps(tmp_path: Path) -> None:
    """50,000 entries: one more begins another page, another Change List (RS-LIM-01)."""
    world = Harvested(tmp_path, "files", loading=True, page_entries=MOST_ENTRIES, segment_entries=MOST_ENTRIES)
    world.catalog.create("files")
    world.catalog.load("files", [put(f"r{number:05d}", 0) for number in range(MOST_ENTRIES - 5)])
    world.post(*(resource(f"more/{number}", 1) for number in range(6)))
    world.feeds["files"].open()
    world.publish(force=True)
    assert [len(world.read(resource_page_name("files", number))[1]) for number in (0, 1)] == [MOST_ENTRIES, 1]
    world.close()


def test_dit_23_lists_stay_inside_50_mb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some fifty documents are more than one list may have (RS-LIM-02), at a tenth of the size of all."""
    assert Limits().page_octets <= MOST_OCTETS
    monkeypatch.setattr("tests.support.published.Limits", partial(Limits, page_octets=Limits().page_octets // 10))
    world = Harvested(tmp_path, "files", loading=True, page_entries=MOST_ENTRIES)
    href = "http://files.example.org/" + "x" * 780
    ln = [{"rel": "duplicate", "href": {"value": f"{href}{number}", "type": "url"}} for number in range(100)]
    for number in range(53):
        world.post(resource(f"r{number}", 1, ln=ln))
    world.feeds["files"].open()
    world.publish(force=True)
    _, parts = world.read(resource_list_name("files"))
    pages = [world.fetch(one.loc) or b"" for one in parts]
    first, second = (page.count(b"<loc>") for page in pages)
    assert first + second == 53
    assert first > 40
    assert all(0 < len(page) < MOST_OCTETS // 10 for page in pages)
    world.close()


def test_dit_a4_moments_are_ours_and_strictly_later(tmp_path: Path) -> None:
    """DIT-A4, DIT-A6: documents without any time, and many of one second, have times of their own in order."""
    world = Harvested(tmp_path, "files")
    timeless = {"lastmod": None, "datetime": None}
    for number in range(5):
        world.post(resource(f"r{number}", 1, lastmod=None), change(f"r{number}", "created", 1, **timeless))
    world.create("x", "y")
    world.publish()
    times = [one.datetime for one in world.look().changes]
    assert len(set(times)) == 7
    assert all(isinstance(one, dt.datetime) for one in times)
    world.close()
