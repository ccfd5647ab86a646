"""What was read ahead saves questions and is never older than what is published."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from headwater.catalog.interface import Metadata, Resource, Upsert
from headwater.catalog.sqlite.catalog import SqliteCatalog
from headwater.simulate.settings import ChangeMix, ChangeSettings, Sizes, SourceSettings
from headwater.simulate.simulation import AHEAD, Simulation, WriteThroughCache

START = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
SIZE = 1_000
WORLD = SourceSettings(resources=SIZE, sets=("files",), sizes=Sizes(5, 5), suffixes=("pdf", "a", "zz9"))


class Counting(SqliteCatalog):
    """A catalog that counts the questions."""

    asked = 0

    def get(self, name: str, uris: Sequence[str]) -> dict[str, Resource]:
        self.asked += 1
        return super().get(name, uris)

    def resources(self, name: str, after: str = "", limit: int = 10_000) -> list[Resource]:
        self.asked += 1
        return super().resources(name, after, limit)


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[Counting]:
    catalog = Counting(tmp_path / "catalog.sqlite")
    yield catalog
    catalog.close()


def simulated(catalog: Counting, mix: ChangeMix | None = None) -> Simulation:
    course = ChangeSettings(warp=None, rate=1e6, mix=mix or ChangeMix(updated=8, deleted=1, created=1))
    simulation = Simulation(catalog, WORLD, course)
    simulation.prepare()
    catalog.asked = 0
    return simulation


def test_a_row_of_questions_is_few_for_the_catalog(catalog: Counting) -> None:
    simulation = simulated(catalog)
    uris = [row.uri for row in catalog.resources("files")]
    catalog.asked = 0
    for uri in uris:
        found = simulation.find("files", uri)
        assert found is not None
    assert catalog.asked <= SIZE // AHEAD + 3


def test_questions_here_and_there_read_nothing_ahead(catalog: Counting) -> None:
    lookup = WriteThroughCache(catalog)
    simulated(catalog)
    rows = catalog.resources("files")
    catalog.asked = 0
    for place in (0, 700, 300, 990, 500):
        assert lookup.find("files", rows[place].uri, place) == rows[place]
    assert catalog.asked == 5
    assert len(lookup._known) == 5


def test_what_is_answered_is_what_was_recorded_last(catalog: Counting) -> None:
    simulation = simulated(catalog)
    resources = [row.uri for row in catalog.resources("files")]
    for _ in range(3):
        for uri in resources:
            simulation.find("files", uri)
        simulation.advance()
        held = {row.uri: row for row in catalog.resources("files")}
        for uri in resources:
            found = simulation.find("files", uri)
            assert (found and found.metadata) == (held[uri].metadata if uri in held else None)


def test_what_was_read_while_something_changed_is_not_kept(catalog: Counting) -> None:
    simulated(catalog)
    lookup = WriteThroughCache(catalog)
    rows = catalog.resources("files", limit=3)
    lookup.find("files", rows[0].uri, 0)

    newer = Upsert(rows[1].uri, Metadata(length=99), b"9")

    class Slow(Counting):
        def resources(self, name: str, after: str = "", limit: int = 10_000) -> list[Resource]:
            old = super().resources(name, after, limit)
            lookup.learn("files", [newer])  # as if it had been recorded after the reading
            return old

    catalog.__class__ = Slow
    assert lookup.find("files", rows[1].uri, 1) == rows[1]
    catalog.__class__ = Counting
    assert lookup.find("files", rows[1].uri, 1) == newer


def test_what_has_just_changed_need_not_be_asked_for(catalog: Counting) -> None:
    simulation = simulated(catalog)
    simulation.advance()
    recent = {change.uri for change in catalog.changes("files")[-500:]}
    catalog.asked = 0
    for uri in recent:
        simulation.find("files", uri)
    assert catalog.asked == 0


def test_after_a_failure_everything_is_asked_for_again(catalog: Counting) -> None:
    simulation = simulated(catalog)
    simulation.advance()
    uri = catalog.changes("files")[-1].uri
    simulation.resume()
    catalog.asked = 0
    simulation.find("files", uri)
    assert catalog.asked == 1


@pytest.mark.parametrize("number", [5, 6, 999, 1_000])
def test_what_is_not_there_is_not_found(catalog: Counting, number: int) -> None:
    simulation = simulated(catalog, ChangeMix(deleted=1))
    simulation.advance()
    assert catalog.state("files").count == 0
    path = simulation._feeds["files"].resources.path(number)
    assert simulation.find("files", path) is None
    assert simulation.find("files", path) is None
    assert simulation.find("files", "000/000/000000005.html") is None
