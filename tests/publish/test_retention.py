"""Rotation and retention: a new Resource List now and then, and closed Change Lists that leave the index in time."""

from __future__ import annotations

import datetime as dt
import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.catalog.interface import Delete, Page, Segment
from headwater.progress import Notice
from headwater.publish import plan
from headwater.publish.plan import Refresh
from headwater.publish.publication_state import OpenList, PublicationState, ResourceDumpState
from headwater.publish.site import (
    SetSettings,
    change_list_name,
    change_segment_name,
    resource_page_name,
)
from headwater.storage.object_store import CannotWrite
from tests.support.documents import read_bytes
from tests.support.examples import examples
from tests.support.published import BASE, PublishedCatalog, put
from tests.support.waiting import START

HOUR = 3_600.0
DAY = 24 * HOUR


def _world(folder: Path, *, rotation: float | None = None, retention: float | None = None) -> PublishedCatalog:
    return PublishedCatalog(
        folder,
        sets=(
            SetSettings(
                refresh_seconds=60.0, renew_seconds=2 * HOUR, rotation_seconds=rotation, retention_seconds=retention
            ),
        ),
    )


def _named(world: PublishedCatalog) -> list[str]:
    data = world.fetch(f"{BASE}/{change_list_name('files')}")
    assert data is not None
    return [entry.loc.removeprefix(BASE + "/") for entry in read_bytes(data)[1]]


def _is_there(world: PublishedCatalog, number: int) -> bool:
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
    assert len(_named(world)) == 3
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
    assert world.publisher.publish("files", world.now(), Refresh.REPAIR).written == ()


def test_a_full_disk_does_not_keep_what_is_to_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else no publication would ever come to its end, and nothing be removed."""
    world = _world(tmp_path, retention=DAY)
    world.clock.sleep((dt.datetime.now(dt.UTC) - START).total_seconds() + DAY)  # after the files' own times
    world.begin(3)
    world.publish()
    world.record(*(put(f"n{number}", number) for number in range(12)))
    world.publish()
    world.clock.sleep(DAY + HOUR)
    world.publish(force=True)
    world.publish()
    assert _named(world) == [change_segment_name("files", 2)]
    world.clock.sleep(plan.GRACE_SECONDS - 60)
    world.record(put("new", 1))

    def full(*_arguments: object, **_options: object) -> None:
        raise CannotWrite("No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(type(world.store), "put", full)
        with pytest.raises(CannotWrite):
            world.publish()
        assert [_is_there(world, number) for number in range(3)] == [True, True, True], "not before its time"
        world.clock.sleep(61)
        now = world.now().timestamp()
        os.utime(tmp_path / "documents" / change_segment_name("files", 1), (now, now))
        with pytest.raises(CannotWrite):
            world.publish()
        assert [_is_there(world, number) for number in range(3)] == [False, True, True], "the second was written again"
        assert _named(world) == [change_segment_name("files", 2)]
    world.publish()
    assert world.look().state == world.truth()
    assert [_is_there(world, number) for number in range(3)] == [False, False, True]


def _with_a_page_that_is_to_go(folder: Path) -> tuple[PublishedCatalog, str]:
    world = PublishedCatalog(folder)
    world.begin(9)
    world.publish()
    world.record(Delete("r8"))
    world.publish(force=True)
    world.clock.sleep(plan.GRACE_SECONDS + 1)
    name = resource_page_name("files", 2)
    assert world.store.stat(name) is not None
    return world, name


def test_a_page_that_is_listed_again_stays_though_the_process_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """AMB-63: the index names it, and it is not yet noted that it does."""
    world, name = _with_a_page_that_is_to_go(tmp_path)
    world.record(*(put(f"new{number}", 1) for number in range(3)))

    def killed(*_arguments: object) -> None:
        raise InterruptedError

    with monkeypatch.context() as patched:
        patched.setattr(world.catalog, "rendered", killed)
        with pytest.raises(InterruptedError):
            world.publish(force=True)
    assert f"{BASE}/{name}" in world.look().documents
    world.publisher = type(world.publisher)(world.catalog, world.store, world.site, world.now)
    world.publisher.publish("files", world.now(), Refresh.CHANGES)
    assert f"{BASE}/{name}" in world.look().documents
    world.publish(force=True)
    assert world.look().state == world.truth()


def test_a_document_that_cannot_be_removed_stops_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world, name = _with_a_page_that_is_to_go(tmp_path)
    told: list[object] = []
    world.publisher = type(world.publisher)(world.catalog, world.store, world.site, world.now, told.append)

    def refused(name: str) -> None:
        raise CannotWrite("Operation not permitted", where=name)

    with monkeypatch.context() as patched:
        patched.setattr(world.store, "delete", refused)
        for number in range(3):
            world.record(put("r1", number + 1))
            assert world.publish().removed == ()
            assert world.look().state == world.truth()
    assert [one.where for one in told if isinstance(one, Notice)] == [name], "it is tried again after a grace"
    world.clock.sleep(plan.GRACE_SECONDS + 1)
    assert world.publish().removed == (name,)


def test_what_went_does_not_come_back_with_a_longer_retention(tmp_path: Path) -> None:
    world = _world(tmp_path, retention=DAY)
    world.begin(1)
    world.publish()
    world.record(*(put(f"n{number}", number) for number in range(12)))
    world.publish()
    world.clock.sleep(2 * DAY)
    world.publish(force=True)
    world.publish()
    world.clock.sleep(DAY)
    world.publish()
    longer = PublishedCatalog.__new__(PublishedCatalog)
    longer.__dict__.update(world.__dict__)
    longer.site = type(world.site)(base_url=BASE, sets=(SetSettings(retention_seconds=900 * DAY),))
    longer.publisher = type(world.publisher)(world.catalog, world.store, longer.site, world.now)
    longer.publish(force=True)
    assert _named(longer) == [change_segment_name("files", 2)]
    assert longer.look().state == longer.truth()


def test_changes_that_the_resource_list_does_not_show_are_kept_however_old(tmp_path: Path) -> None:
    world = PublishedCatalog(
        tmp_path, sets=(SetSettings(refresh_seconds=99 * DAY, renew_seconds=99 * DAY, retention_seconds=1),)
    )
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


def test_periods_begin_when_a_clock_that_was_set_back_has_caught_up(tmp_path: Path) -> None:
    """What is stated never goes back."""
    world = PublishedCatalog(tmp_path, segment_entries=1_000, sets=(SetSettings(rotation_seconds=DAY),))
    world.begin(3)
    world.publish()
    world.clock.sleep(2 * DAY)
    world.record(put("a", 1))
    world.publish()
    assert world.publisher.rotate("files") is not None
    turns = []
    for hour in range(100):
        world.clock.set(hour * (HOUR + 1))
        world.record(put(f"n{hour}", 1))
        if (turned := world.publisher.rotate("files")) is not None:
            turns.append(hour)
        world.publisher.publish("files", turned or world.catalog.mark("files", world.now()), Refresh.DUE)
    assert turns == [72, 96]
    assert world.look().state == world.truth()
    starts = [one.from_ for one in world.catalog.segments("files")]
    assert starts == sorted(starts)


def test_closed_lists_leave_the_index_when_a_clock_that_was_set_back_has_caught_up(tmp_path: Path) -> None:
    world = _world(tmp_path, retention=DAY)
    world.clock.sleep(90 * DAY)
    world.begin(3)
    world.publish()
    world.record(*(put(f"n{number}", number) for number in range(12)))
    world.publish(force=True)
    world.publish()
    named = []
    for hour in range(54):
        world.clock.set(89 * DAY + hour * (HOUR + 1))
        world.publish()
        named.append(len(_named(world)))
    assert (named[:48], named[-3:]) == ([3] * 48, [1] * 3)
    assert [_is_there(world, number) for number in range(3)] == [False, False, True]


moments = st.integers(0, 50).map(lambda hours: START + dt.timedelta(hours=hours))


@settings(max_examples=examples(200), deadline=None)
@given(
    ends=st.lists(moments, max_size=6, unique=True).map(sorted),
    shown=st.lists(moments, min_size=1, max_size=3),
    before=st.integers(0, 6),
    now=moments,
    kept=st.floats(1, 40 * HOUR),
)
def test_law_of_retention(
    ends: list[dt.datetime], shown: list[dt.datetime], before: int, now: dt.datetime, kept: float
) -> None:
    """AMB-88: closed lists leave after their time, and when every page shows what they say; nothing comes back."""
    starts = [START - dt.timedelta(hours=1), *ends]
    segments = [
        Segment(number=n, first=n + 1, last=n + 1, from_=one, until=ends[n] if n < len(ends) else None, weight=1)
        for n, one in enumerate(starts)
    ]
    pages = [
        Page(number=n, count=1, weight=1, touched=1, rendered=1, at=at, completed=at, stale_at=None)
        for n, at in enumerate(shown)
    ]
    publication = PublicationState(
        fingerprint="x", listed=tuple(range(len(shown))), open=OpenList(first=min(before, len(ends)))
    )
    rules = SetSettings(retention_seconds=kept)
    first = plan.first_retained(segments, pages, publication, rules, now)
    for one in segments[publication.open.first :]:
        is_over = one.until is not None and one.until <= min(*shown, now - dt.timedelta(seconds=kept))
        assert (one.number < first) == is_over
    assert publication.open.first <= first <= segments[-1].number


def test_what_a_first_resource_dump_does_not_show_yet_is_kept() -> None:
    segments = [
        Segment(number=0, first=1, last=1, from_=START - dt.timedelta(hours=1), until=START, weight=1),
        Segment(number=1, first=2, last=2, from_=START, until=None, weight=1),
    ]
    pages = [Page(number=0, count=1, weight=1, touched=1, rendered=1, at=START, completed=START, stale_at=None)]
    rules = SetSettings(retention_seconds=DAY)
    for at, first in ((START - dt.timedelta(seconds=1), 0), (START, 1)):
        publication = PublicationState(fingerprint="x", listed=(0,), resource_dump=ResourceDumpState(shape="", at=at))
        assert plan.first_retained(segments, pages, publication, rules, START + dt.timedelta(days=1)) == first
