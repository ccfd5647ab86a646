"""A round of pages, also one that is killed: every look is one list (RS-RL-08, RS-TIME-05)."""

from __future__ import annotations

import datetime as dt

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headwater.catalog.interface import Delete, Event
from headwater.publish.plan import Refresh
from headwater.publish.publication_state import decode_publication
from headwater.publish.publisher import Publisher, PublisherOptions
from headwater.publish.resource_lists import PageRound, RenderedPage, page
from headwater.publish.site import SetSettings
from headwater.publish.store_writer import PublicationJob
from tests.publish.classic_reader import ClassicReader, truth
from tests.support.published import PublishedCatalog, put
from tests.support.waiting import START

SETTINGS = SetSettings(refresh_changes=1, refresh_seconds=1.0, classic=True, sitemap=True)


class Killed(Exception):
    """The publisher ends here."""


class Ticking:
    """A clock by which everything takes some time."""

    def __init__(self) -> None:
        self.moment = START

    def __call__(self) -> dt.datetime:
        self.moment += dt.timedelta(milliseconds=1)
        return self.moment


def begun(tmp_path_factory: pytest.TempPathFactory, count: int) -> tuple[PublishedCatalog, Ticking]:
    clock = Ticking()
    world = PublishedCatalog(tmp_path_factory.mktemp("world"), sets=(SETTINGS,), clock=clock, page_entries=3)
    world.begin(count)
    world.publish()
    return world, clock


def pending(world: PublishedCatalog) -> tuple[int, ...]:
    return decode_publication(world.catalog.state("files").notes).pending


@pytest.mark.parametrize(
    ("count", "events"),
    [
        (6, (Delete("r0"), Delete("r1"), Delete("r2"), put("r0", 1))),  # of two pages one is left, and a new one comes
        (3, tuple(put(f"new{number}", 1) for number in range(6))),  # of one page, which stays as it was, three
    ],
    ids=["an index would end", "an index begins"],
)
def test_a_list_whose_form_changes_leaves_out_no_page_of_its_round(
    tmp_path_factory: pytest.TempPathFactory, count: int, events: tuple[Event, ...]
) -> None:
    """RS-TIME-05: its `at` is the round's, so that no change tells of what a page has that would come later."""
    world, clock = begun(tmp_path_factory, count)
    world.record(*events)
    clock.moment += dt.timedelta(hours=1)
    world.publish()
    assert world.look().state == world.truth()
    reader = ClassicReader(world.fetch)
    reader.look()
    assert reader.state == truth(world)


def test_changes_since_the_round_are_read_for_its_last_page_alone(
    world_of_changes: tuple[PublishedCatalog, list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    world, read = world_of_changes
    place = "headwater.publish.resource_lists.page"

    def render_late(job: PublicationJob, round_: PageRound, number: int, *, indexed: bool) -> RenderedPage:
        world.record(*(put(f"r{one}", 3) for one in range(9)))  # something of every page
        before = len(read)
        completed, blocks = page(job, round_, number, indexed=indexed)
        octets = list(blocks)
        assert (len(read) > before) == (number == round_.last)
        return completed, iter(octets)

    monkeypatch.setattr(place, render_late)
    world.publish(force=True)
    assert read
    assert world.look().state == world.truth()


@pytest.fixture
def world_of_changes(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> tuple[PublishedCatalog, list[int]]:
    world, _clock = begun(tmp_path_factory, 9)
    read: list[int] = []
    changes = world.catalog.changes

    def counted(name: str, after: int = 0, limit: int = 10_000) -> object:
        read.append(after)
        return changes(name, after, limit)

    monkeypatch.setattr(world.catalog, "changes", counted)
    world.record(put("r0", 1), put("r4", 1), put("r8", 1))
    return world, read


event = st.one_of(
    st.builds(put, st.sampled_from([f"r{number}" for number in range(14)]), st.integers(1, 9)),
    st.builds(Delete, st.sampled_from([f"r{number}" for number in range(14)])),
)
step = st.tuples(
    st.lists(event, max_size=6),
    st.sampled_from([0, 0, 3_600]),
    st.one_of(st.none(), st.none(), st.integers(0, 12)),
    st.sampled_from([Refresh.DUE, Refresh.DUE, Refresh.DUE, Refresh.CHANGES, Refresh.STALE]),
)


@given(count=st.integers(0, 12), steps=st.lists(step, max_size=14))
@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
def test_every_look_is_one_list_whatever_is_killed_between_pages(
    tmp_path_factory: pytest.TempPathFactory,
    count: int,
    steps: list[tuple[list[Event], int, int | None, Refresh]],
) -> None:
    world, clock = begun(tmp_path_factory, count)
    for events, seconds, kill_after, refresh in steps:
        if events:
            world.record(*events)
        clock.moment += dt.timedelta(seconds=seconds)
        left = kill_after

        def may_write() -> None:
            nonlocal left
            if left is not None:
                left -= 1
                if left < 0:
                    raise Killed

        publisher = Publisher(
            world.catalog, world.store, world.site, clock, options=PublisherOptions(may_write=may_write)
        )
        killed = False
        try:
            publisher.publish("files", world.catalog.mark("files", clock()), refresh)
        except Killed:
            killed = True
        look = world.look()
        if not killed:
            assert look.state == world.truth()
            reader = ClassicReader(world.fetch)
            reader.look()
            assert reader.state == truth(world)
    world.publish(force=True)
    look = world.look()
    assert look.listed == look.state == world.truth()
    assert not pending(world)
    world.catalog.close()
