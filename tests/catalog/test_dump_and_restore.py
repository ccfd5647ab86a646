"""Sets that move between catalogs: the contract on SQLite, the dump by ordinary reads, and a law over any past."""

from __future__ import annotations

import datetime as dt
import itertools
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.catalog.dump import parts as dumping
from headwater.catalog.faults import SetMoved, UnknownSet
from headwater.catalog.interface import Event, Limits, Portable, Rendered
from headwater.catalog.sqlite.catalog import SqliteCatalog
from headwater.catalog.verify import verify
from headwater.storage.database import Durability
from tests.contract.catalog.cases import SMALL, at, opened, up
from tests.contract.catalog.model import EVENTS, MOMENTS, observed
from tests.contract.catalog.moving import STORIES, PortableContract, told
from tests.support.examples import examples


class PortableSqlite:
    """Catalogs in files of one folder; NORMAL durability, because no test cuts the power."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._numbers = itertools.count()
        self._paths: dict[int, Path] = {}
        self.catalogs: list[SqliteCatalog] = []

    def fresh(self, limits: Limits | None = None) -> Portable:
        return self._open(self.folder / f"catalog{next(self._numbers)}.db", limits)

    def again(self, catalog: Portable, limits: Limits | None = None) -> Portable:
        return self._open(self._paths[id(catalog)], limits or catalog.limits)

    def close(self) -> None:
        for catalog in self.catalogs:
            catalog.close()

    def _open(self, path: Path, limits: Limits | None) -> Portable:
        catalog = SqliteCatalog(path, limits, durability=Durability.NORMAL)
        self._paths[id(catalog)] = path
        self.catalogs.append(catalog)
        return catalog


@pytest.fixture
def backend(tmp_path: Path):
    backend = PortableSqlite(tmp_path)
    yield backend
    backend.close()


class TestSqlite(PortableContract):
    """The contract as it is."""


@pytest.mark.parametrize("story", [case[1] for case in STORIES], ids=[case[0] for case in STORIES])
def test_by_ordinary_reads_a_dump_is_the_same(backend: PortableSqlite, story) -> None:
    catalog = story(backend.fresh(SMALL))
    assert list(dumping.read_parts(catalog, "s")) == list(catalog.dump("s"))


@pytest.mark.parametrize("taken", range(1, 18))
def test_by_ordinary_reads_a_set_that_moves_is_said(backend: PortableSqlite, taken: int) -> None:
    catalog = told(backend.fresh(SMALL))
    reading = dumping.read_parts(catalog, "s")
    list(itertools.islice(reading, taken))
    catalog.record("s", [up("r1")], at(100))
    with pytest.raises(SetMoved):
        list(reading)


def test_by_ordinary_reads_an_unknown_set_is_said_at_once(backend: PortableSqlite) -> None:
    with pytest.raises(UnknownSet):
        dumping.read_parts(backend.fresh(), "nowhere")


@settings(max_examples=examples(40), deadline=None)
@given(EVENTS, st.lists(st.tuples(EVENTS, MOMENTS, st.booleans(), st.booleans()), max_size=4), EVENTS)
def test_whatever_was_done_to_a_set_it_moves(
    loaded: list[Event], past: list[tuple[list[Event], dt.datetime, bool, bool]], following: list[Event]
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        backend = PortableSqlite(Path(folder))
        origin, copy = backend.fresh(SMALL), backend.fresh(SMALL)
        opened(origin, loaded)
        for events, now, closes, renders in past:
            origin.record("s", events, now)
            if closes:
                origin.close_segment("s", now)
            if renders:
                pages = origin.pages("s")
                origin.rendered("s", [Rendered(page.number, page.touched, now, now) for page in pages[::2]])
        copy.restore(origin.dump("s"))
        assert observed(copy, "s") == observed(origin, "s")
        for catalog in (origin, copy):
            catalog.record("s", following, at(40))
        assert observed(copy, "s") == observed(origin, "s")
        assert verify(copy, "s") == []
        backend.close()
