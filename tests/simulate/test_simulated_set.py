"""One set fed: the same catalog comes about however often the work is broken off, and nobody else's is touched."""

from __future__ import annotations

import datetime as dt
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.catalog.content import NoContent, recorded_blocks
from headwater.catalog.interface import Delete, Metadata, Upsert
from headwater.catalog.sqlite_catalog import SqliteCatalog
from headwater.errors import Interrupted
from headwater.simulate.resources import ChangeSettings, Filler, SourceSettings, read_mix
from headwater.simulate.simulation import OtherSimulation, SimulatedClock, SimulatedSet, Simulation, share
from headwater.spec.records import ChangeKind
from headwater.storage.database import Durability

START = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
WORLD = SourceSettings(resources=40, sets=("files",), seed=3, sizes=(0, 900))
MIX = read_mix("created=3,updated=4,deleted=3")


@pytest.fixture
def catalog(tmp_path: Path) -> SqliteCatalog:
    return opened(tmp_path)


def opened(folder: Path) -> SqliteCatalog:
    return SqliteCatalog(folder / "catalog.sqlite", durability=Durability.NORMAL)


def feeding(catalog: SqliteCatalog, world: SourceSettings = WORLD) -> SimulatedSet:
    feed = SimulatedSet(catalog, world, "files", Filler(world.seed, world.hashes))
    feed.prepare(START, lambda _count: None)
    return feed


def told(catalog: SqliteCatalog) -> tuple[list[object], list[object]]:
    """The log and the resources, but for the times of the log, which depend on when the work was done."""
    log: list[object] = [(one.seq, one.uri, one.change, one.metadata) for one in catalog.changes("files")]
    return log, [(one.uri, one.metadata, one.memo, one.seq) for one in catalog.resources("files")]


@settings(max_examples=20, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 40), st.booleans()), max_size=8))
def test_portions_and_pauses_leave_no_trace(portions: list[tuple[int, bool]]) -> None:
    total = sum(count for count, _ in portions)
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as other:
        whole, parts = opened(Path(one)), opened(Path(other))
        feeding(whole).step(total, MIX, START)
        feed = feeding(parts)
        for count, anew in portions:
            feed = feeding(parts) if anew else feed
            assert feed.step(count, MIX, START) == count
        assert told(parts) == told(whole)
        assert parts.state("files").last_seq == total
        whole.close()
        parts.close()


def test_every_listed_resource_is_the_one_that_would_be_made(catalog: SqliteCatalog) -> None:
    feed = feeding(catalog)
    feed.step(500, MIX, START)
    simulation = Simulation(catalog, WORLD, ChangeSettings())
    for held in catalog.resources("files"):
        assert simulation.find("files", held.uri) == held
        found = simulation.open("files", held)
        assert not isinstance(found, NoContent)
        assert sum(map(len, recorded_blocks(found, held.metadata))) == found.octets == held.metadata.length


def test_a_load_that_was_broken_off_goes_on(catalog: SqliteCatalog, tmp_path: Path) -> None:
    batch = catalog.load_batch
    world = SourceSettings(resources=2 * batch + 5, sets=("files",), sizes=(0, 0))
    feed = SimulatedSet(catalog, world, "files", Filler(0, world.hashes))
    seen: list[int] = []

    with pytest.raises(Interrupted):
        feed.prepare(START, seen.append, lambda: bool(seen))
    assert catalog.state("files").count == batch
    assert catalog.state("files").opened_at is None
    feed.prepare(START, seen.append)
    assert seen == [batch, 2 * batch, 2 * batch + 5]
    assert catalog.state("files").count == world.resources
    assert catalog.state("files").opened_at == START


OTHERS = {
    "another seed": {"seed": 4},
    "other sizes": {"sizes": (5, 900)},
    "other digests": {"hashes": ("sha-256",)},
    "other suffixes": {"suffixes": ("html",)},
    "fewer resources": {"resources": 30},
    "more resources": {"resources": 50},
}


@pytest.mark.parametrize("other", OTHERS.values(), ids=OTHERS.keys())
def test_other_settings_are_refused(catalog: SqliteCatalog, other: dict[str, object]) -> None:
    feeding(catalog).step(5, read_mix("updated=1"), START)
    before = told(catalog)
    world = SourceSettings(**({name: getattr(WORLD, name) for name in WORLD.__struct_fields__} | other))
    with pytest.raises(OtherSimulation):
        feeding(catalog, world)
    assert told(catalog) == before


FOREIGN: dict[str, Callable[[SqliteCatalog], object]] = {
    "a file of somebody": lambda one: one.record("files", [Upsert("a.pdf", Metadata())], START),
    "a deletion": lambda one: one.record("files", [Delete(one.resources("files")[0].uri)], START),
    "an update": lambda one: one.record(
        "files", [Upsert(one.resources("files")[0].uri, Metadata(length=1), change=ChangeKind.UPDATED)], START
    ),
}


@pytest.mark.parametrize("foreign", FOREIGN.values(), ids=FOREIGN.keys())
def test_somebody_else_at_work_is_noticed(catalog: SqliteCatalog, foreign: Callable[[SqliteCatalog], object]) -> None:
    feed = feeding(catalog)
    foreign(catalog)
    with pytest.raises(OtherSimulation, match="somebody else"):
        feed.step(5, MIX, START)


def test_a_set_of_another_making_is_left_alone(catalog: SqliteCatalog) -> None:
    catalog.create("files")
    catalog.load("files", [Upsert("a/b.pdf", Metadata(length=5))])
    with pytest.raises(OtherSimulation, match=r"a/b\.pdf"):
        feeding(catalog)
    assert [one.uri for one in catalog.resources("files")] == ["a/b.pdf"]


def test_what_cannot_go_on_ends(catalog: SqliteCatalog) -> None:
    feed = feeding(catalog)
    assert feed.step(100, read_mix("deleted=1"), START) == 40
    assert catalog.state("files").count == 0
    assert feed.step(100, read_mix("updated=1"), START) == 0
    assert feed.step(3, read_mix("created=1,deleted=9"), START) == 3


# -- the simulation of several sets by the clock


class Hand:
    """A clock that is moved by hand."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_time_runs_as_fast_as_told() -> None:
    hand = Hand()
    clock = SimulatedClock(START, 3_600.0, hand)
    assert clock() == START
    hand.now += 2
    assert clock() == START + dt.timedelta(hours=2)
    assert clock.wait_for(4 * 3_600) == 2.0
    assert clock.wait_for(0) == 0.0
    clock.move_to(0)
    assert clock() == START + dt.timedelta(hours=2)


def test_time_that_is_moved_on_does_not_run() -> None:
    hand = Hand()
    clock = SimulatedClock(START, None, hand)
    hand.now += 50
    assert clock() == START
    clock.move_to(5)
    assert clock() == START + dt.timedelta(seconds=5)
    assert clock.wait_for(10**9) == 0.0


@pytest.mark.parametrize("warp", [None, 1e9])
def test_time_stands_still_before_no_document_could_say_it(warp: float | None) -> None:
    hand = Hand()
    clock = SimulatedClock(START, warp, hand)
    hand.now += 1e6
    clock.move_to(1e15)
    assert clock() == dt.datetime(9000, 1, 1, tzinfo=dt.UTC)


@given(st.integers(0, 10_000), st.integers(1, 50))
def test_sets_take_turns_and_lose_nothing(total: int, sets: int) -> None:
    shares = [share(total, place, sets) for place in range(sets)]
    assert sum(shares) == total
    assert max(shares) - min(shares) <= 1
    assert all(
        later >= before for before, later in zip(shares, (share(total + 1, p, sets) for p in range(sets)), strict=True)
    )


def test_the_rate_holds_whatever_takes_long(catalog: SqliteCatalog) -> None:
    world = SourceSettings(resources=30, sets=("a", "b", "c"))
    simulation = Simulation(catalog, world, ChangeSettings(rate=10, warp=60.0, changes=2_000))
    simulation.prepare()
    hand = Hand()
    simulation.clock = SimulatedClock(START, 60.0, hand)
    simulation.begin()
    assert simulation.advance() == []
    hand.now += 0.0055
    assert simulation.advance() == ["a", "b", "c"]
    assert simulation.done == 3
    hand.now += 1  # a minute of the simulation
    simulation.advance()
    assert simulation.done == 603
    hand.now += 100
    simulation.advance()
    assert simulation.done == 2_000
    assert simulation.is_over
    assert {catalog.state(name).last_seq for name in world.sets} == {666, 667}


def test_as_fast_as_it_goes_keeps_the_time_of_the_rate(catalog: SqliteCatalog) -> None:
    course = ChangeSettings(rate=0.5, warp=None, changes=2_500, start=START)
    simulation = Simulation(catalog, WORLD, course)
    simulation.prepare()
    while not simulation.is_over:
        simulation.advance()
    assert simulation.done == 2_500
    assert simulation.clock() == START + dt.timedelta(seconds=5_000)
    assert catalog.state("files").last_at < START + dt.timedelta(seconds=5_001)  # type: ignore[operator]
    again = Simulation(catalog, WORLD, course)
    again.prepare()
    assert again.clock() >= START + dt.timedelta(seconds=5_000)
    assert again.done == 0


def test_nothing_happens_without_a_rate(catalog: SqliteCatalog) -> None:
    simulation = Simulation(catalog, WORLD, ChangeSettings(rate=0))
    simulation.prepare()
    assert simulation.is_over


def test_a_simulation_takes_up_what_is_there_after_a_failure(catalog: SqliteCatalog, tmp_path: Path) -> None:
    simulation = Simulation(catalog, WORLD, ChangeSettings(warp=None, changes=50))
    simulation.prepare()
    real = catalog.record
    catalog.record = lambda *_arguments: (_ for _ in ()).throw(OSError("full"))  # type: ignore[method-assign]
    with pytest.raises(OSError, match="full"):
        simulation.advance()
    catalog.record = real  # type: ignore[method-assign]
    simulation.resume()
    simulation.advance()
    assert simulation.done == 50
    interrupted = told(catalog)
    (tmp_path / "whole").mkdir()
    whole = opened(tmp_path / "whole")
    feeding(whole).step(50, ChangeSettings().mix, START)
    assert [row[:3] for row in interrupted[0]] == [row[:3] for row in told(whole)[0]]  # type: ignore[index]
