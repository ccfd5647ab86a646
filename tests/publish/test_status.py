"""How sets stand: every figure, through the life of a set."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import pytest

from headwater.catalog.interface import Delete, Rendered
from headwater.catalog.sqlite_catalog import SqliteCatalog
from headwater.publish.publication_state import OpenList, PublicationState, encode_publication
from headwater.publish.status import SourceSetStatus, set_statuses
from headwater.storage.database import Durability
from tests.contract.catalog.cases import SMALL, START, at, opened, up

HOUR = dt.timedelta(hours=1)


@pytest.fixture
def catalog(tmp_path: Path):
    catalog = SqliteCatalog(tmp_path / "catalog.db", SMALL, durability=Durability.NORMAL)
    yield catalog
    catalog.close()


def stands(catalog: SqliteCatalog, now: dt.datetime = START + HOUR) -> SourceSetStatus:
    (one,) = set_statuses(catalog, now)
    return one


def test_a_set_that_is_loading_waits_for_nothing_yet(catalog: SqliteCatalog) -> None:
    catalog.create("s")
    catalog.load("s", [up(f"r{n}") for n in range(5)])
    one = stands(catalog)
    assert (one.phase, one.resources, one.last_seq, one.published) == ("loading", 5, 0, False)
    assert (one.pages, one.pages_stale, one.lag_seconds) == (2, 2, 0.0)
    assert (one.segments, one.open_segment, one.refreshed_at) == (0, None, None)


def test_a_set_that_is_open_and_not_published_waits_since_it_was_opened(catalog: SqliteCatalog) -> None:
    opened(catalog, [up("a")])
    one = stands(catalog)
    assert (one.phase, one.published, one.changes_waiting) == ("open", False, 0)
    assert (one.pages_stale, one.pages_lag_seconds, one.lag_seconds) == (1, 3600.0, 3600.0)


def test_what_waits_is_told_by_its_oldest(catalog: SqliteCatalog) -> None:
    opened(catalog, [up("a"), up("b"), up("c"), up("d"), up("e")])
    catalog.rendered("s", [Rendered(0, 4, START, START), Rendered(1, 1, START, START)])
    for minute in (1, 2, 3):
        catalog.record("s", [up("a")], START + dt.timedelta(minutes=minute))
    publication = PublicationState(
        fingerprint="x", open=OpenList(number=0, seq=1), at=at(1), refreshed_at=at(2), pending=(0,)
    )
    catalog.note("s", encode_publication(publication))
    one = stands(catalog)
    assert (one.last_seq, one.published_seq, one.changes_waiting) == (3, 1, 2)
    assert (one.changes_lag_seconds, one.pages_lag_seconds, one.lag_seconds) == (3480.0, 3540.0, 3480.0)
    assert (one.pages, one.pages_stale, one.pages_pending) == (2, 1, 1)
    assert (one.published, one.resource_list_at, one.refreshed_at) == (True, at(1), at(2))
    segment = one.open_segment
    assert segment is not None
    assert (segment.number, segment.changes, segment.from_) == (0, 3, START)
    assert one.entries_octets == sum(page.weight for page in catalog.pages("s"))
    assert segment.octets == catalog.segments("s")[-1].weight


def test_a_closed_segment_is_counted_and_the_open_one_is_told(catalog: SqliteCatalog) -> None:
    opened(catalog, [up("a")])
    catalog.record("s", [up("a"), Delete("a")], at(5))
    catalog.close_segment("s", at(9))
    one = stands(catalog)
    assert one.segments == 2
    assert one.open_segment is not None
    assert (one.open_segment.number, one.open_segment.changes, one.open_segment.octets) == (1, 0, 0)


def test_a_clock_that_is_behind_makes_no_negative_lag(catalog: SqliteCatalog) -> None:
    opened(catalog, [up("a")])
    catalog.record("s", [up("a")], START + HOUR)
    assert stands(catalog, START - HOUR).lag_seconds == 0.0


def test_sets_are_chosen_by_name(catalog: SqliteCatalog) -> None:
    for name in ("one", "two", "three"):
        catalog.create(name)
    assert [one.name for one in set_statuses(catalog, START)] == ["one", "three", "two"]
    assert [one.name for one in set_statuses(catalog, START, ["two", "nowhere"])] == ["two"]


def test_a_note_that_cannot_be_read_is_none(catalog: SqliteCatalog) -> None:
    opened(catalog, [up("a")])
    catalog.note("s", b"\xff")
    assert stands(catalog).published is False
