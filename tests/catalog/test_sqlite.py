"""The contract, on SQLite."""

from __future__ import annotations

import itertools
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from headwater.catalog.interface import Catalog, Limits
from headwater.catalog.sqlite_catalog import SqliteCatalog
from headwater.storage.database import Durability
from tests.contract.catalog import CatalogContract, machine_for
from tests.support.examples import examples

pytestmark = pytest.mark.long(10)


class SqliteBackend:
    """Catalogs in files of one folder; NORMAL durability, because no test cuts the power."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._numbers = itertools.count()
        self._paths: dict[int, Path] = {}
        self._catalogs: list[SqliteCatalog] = []

    def fresh(self, limits: Limits | None = None) -> Catalog:
        return self._open(self.folder / f"catalog{next(self._numbers)}.db", limits)

    def again(self, catalog: Catalog, limits: Limits | None = None) -> Catalog:
        return self._open(self._paths[id(catalog)], limits or catalog.limits)

    def close(self) -> None:
        for catalog in self._catalogs:
            catalog.close()

    def _open(self, path: Path, limits: Limits | None) -> Catalog:
        catalog = SqliteCatalog(path, limits, durability=Durability.NORMAL)
        self._paths[id(catalog)] = path
        self._catalogs.append(catalog)
        return catalog


class TestSqlite(CatalogContract):
    @pytest.fixture
    def backend(self, tmp_path: Path):
        backend = SqliteBackend(tmp_path)
        yield backend
        backend.close()


FOLDER = tempfile.TemporaryDirectory(prefix="headwater-machine-")
NUMBERS = itertools.count()


def machine_backend() -> SqliteBackend:
    folder = Path(FOLDER.name) / str(next(NUMBERS))
    folder.mkdir()
    return SqliteBackend(folder)


TestMachine = machine_for(machine_backend).TestCase
TestMachine.settings = settings(
    max_examples=examples(60), stateful_step_count=25, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
