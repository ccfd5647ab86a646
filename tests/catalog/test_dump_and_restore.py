"""Sets that move between catalogs: the contract on SQLite, and a law over any past."""

from __future__ import annotations

import datetime as dt
import itertools
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.catalog.interface import Catalog, Event, Limits, Rendered
from headwater.catalog.sqlite.catalog import SqliteCatalog
from headwater.catalog.verify import verify
from headwater.storage.database import Durability
from tests.contract.catalog.cases import SMALL, at, opened
from tests.contract.catalog.model import EVENTS, MOMENTS, observed
from tests.contract.catalog.moving import PortableContract
from tests.support.examples import examples


class PortableSqlite:
    """Catalogs in files of one folder; NORMAL durability, because no test cuts the power."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._numbers = itertools.count()
        self._paths: dict[int, Path] = {}
        self.catalogs: list[SqliteCatalog] = []

    def fresh(self, limits: Limits | None = None) -> Catalog:
        return self._open(self.folder / f"catalog{next(self._numbers)}.db", limits)

    def again(self, catalog: Catalog, limits: Limits | None = None) -> Catalog:
        return self._open(self._paths[id(catalog)], limits or catalog.limits)

    def close(self) -> None:
        for catalog in self.catalogs:
            catalog.close()

    def _open(self, path: Path, limits: Limits | None) -> Catalog:
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
