"""Rotation and retention: a new Resource List now and then, and closed Change Lists that leave the index in time."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.catalog.interface import Page, Segment
from headwater.publish import plan
from headwater.publish.note import Note, OpenList
from headwater.publish.site import SetSettings, change_list_name, change_segment_name
from headwater.spec.reader import read_bytes
from tests.publish.world import BASE, START, World, put

HOUR = 3_600.0
DAY = 24 * HOUR


def _world(folder: Path, *, rotation: float | None = None, retention: float | None = None) -> World:
    return World(
        folder,
        sets=(
            SetSettings(
                refresh_seconds=60.0, renew_seconds=2 * HOUR, rotation_seconds=rotation, retention_seconds=retention
            ),
        ),
    )


def _named(world: World) -> list[str]:
    data = world.fetch(f"{BASE}/{change_list_name('files')}")
    assert data is not None
    return [entry.loc.removeprefix(BASE + "/") for entry in read_bytes(data)[1]]


def _is_there(world: World, number: int) -> bool:
    return world.fetch(f"{BASE}/{change_segment_name('files', number)}") is not None


def test_closed_lists_leave_the_index_after_their_time_and_the_store_after_a_grace(tmp_path: Path) -> None:
    world = _world(tmp_path, retention=DAY)
    world.begin(3)
    world.publish()
    world.record(*(put(f"n{number}", number) for number in range(12)))
    world.publish()
    assert len(_named(world)) == 3
    world.clock.sleep(DAY + HOUR)
    world.publish(force=True)  # pages first: what is listed must not be older than the oldest change that is kept
    world.publish()
    assert _named(world) == [change_segment_name("files", 2)]
    assert _is_there(world, 0), "AMB-63: who holds the older index may still come for it"
    index = read_bytes(world.files()[change_list_name("files")][2])[0]
    assert index.from_ == world.catalog.segments("files")[2].from_, "a destination that comes later sees the gap"
    assert world.look().state == world.truth()
    world.clock.sleep(plan.GRACE_SECONDS + 1)
    world.publish()
    assert [_is_there(world, number) for number in range(3)] == [False, False, True]
    assert len(world.catalog.changes("files")) == 12, "the catalog erases nothing"
    assert world.publisher.publish("files", world.now(), check=True).written == ()


def test_what_went_does_not_come_back_with_a_longer_retention(tmp_path: Path) -> None:
    world = _world(tmp_path, retention=DAY)
    world.begin(1)
    world.publish()
    world.record(*(put(f"n{number}", number) for number in range(12)))
    world.publish()
    world.clock.sleep(2 * DAY)
    world.publish(force=True)
    world.publish()
    longer = World.__new__(World)
    longer.__dict__.update(world.__dict__)
    longer.site = type(world.site)(base_url=BASE, sets=(SetSettings(retention_seconds=900 * DAY),))
    longer.publisher = type(world.publisher)(world.catalog, world.store, longer.site, world.now)
    longer.publish(force=True)
    assert _named(longer) == [change_segment_name("files", 2)]
    assert longer.look().state == longer.truth()


def test_changes_that_the_resource_list_does_not_show_are_kept_however_old(tmp_path: Path) -> None:
    world = World(tmp_path, sets=(SetSettings(refresh_seconds=99 * DAY, renew_seconds=99 * DAY, retention_seconds=1),))
    world.begin(3)
    world.publish()
    world.record(*(put(f"r{number % 3}", number) for number in range(12)))
    world.publish()
    world.clock.sleep(9 * DAY)
    world.publish()
    assert len(_named(world)) == 3
    assert world.look().state == world.truth()


@pytest.mark.parametrize("count", [1, 9])
def test_rotation_closes_the_list_at_the_new_resource_lists_time(tmp_path: Path, count: int) -> None:
    """DIT-28 as corrected by DIT-A1: `until` of the closed list is `at` of the new Resource List; nothing is erased."""
    world = _world(tmp_path, rotation=DAY)
    world.begin(count)
    world.publish()
    world.record(put("a", 1))
    world.publish()
    assert world.publisher.rotate("files") is None, "not due yet"
    world.clock.sleep(DAY)
    until = world.publisher.rotate("files")
    assert until is not None
    assert world.publisher.rotate("files") is None, "a list without changes is not closed again"
    world.record(put("b", 2))  # after the line: in the new list, and no part of the promise of `at`
    world.publisher.publish("files", until)
    look = world.look()
    assert look.at == until == world.catalog.segments("files")[0].until
    assert [entry.loc.rpartition("/")[2] for entry in look.changes] == ["a", "b"]
    assert look.state == world.truth()
    assert all(page.at == until for page in world.catalog.pages("files"))


def test_a_rotation_survives_a_crash_right_after_the_list_was_closed(tmp_path: Path) -> None:
    world = _world(tmp_path, rotation=DAY)
    world.begin(9)
    world.publish()
    world.record(put("a", 1))
    world.clock.sleep(DAY)
    until = world.publisher.rotate("files")
    assert until is not None
    world.publish()  # another process, which knows nothing of the rotation
    assert world.look().at >= until
    assert world.look().state == world.truth()


moments = st.integers(0, 50).map(lambda hours: START + dt.timedelta(hours=hours))


@settings(max_examples=200, deadline=None)
@given(
    ends=st.lists(moments, max_size=6, unique=True).map(sorted),
    at=st.lists(moments, max_size=4),
    now=moments,
    kept=st.floats(1, 40 * HOUR),
    noted=st.integers(0, 3),
)
def test_law_of_retention(
    ends: list[dt.datetime], at: list[dt.datetime], now: dt.datetime, kept: float, noted: int
) -> None:
    """The first one that stays never goes back, and all that is newer than a page's `at` or than the time stays."""
    starts = [START - dt.timedelta(hours=1), *ends]
    segments = [
        Segment(number=n, first=n + 1, last=n + 1, from_=one, until=ends[n] if n < len(ends) else None, weight=1)
        for n, one in enumerate(starts)
    ]
    pages = [
        Page(number=n, count=1, weight=1, touched=1, rendered=1, at=one, completed=one, stale_at=None)
        for n, one in enumerate(at)
    ]
    note = Note(fingerprint="x", listed=tuple(range(len(at))), open=OpenList(first=min(noted, len(ends))))
    rules = SetSettings(retention_seconds=kept)
    first = plan.first_retained(segments, pages, note, rules, now)
    assert note.open.first <= first <= segments[-1].number
    for one in segments[note.open.first : first]:
        assert one.until is not None
        assert one.until <= now - dt.timedelta(seconds=kept)
        assert all(one.until <= moment for moment in at)
    if first > note.open.first:
        assert plan.may_retire(segments, note, rules, now)
