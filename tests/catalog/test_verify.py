"""What `verify` finds: sets whose parts contradict each other, as a hand in the file may leave them, and no call."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from unittest import mock

import pytest

from headwater.catalog.interface import SetState
from headwater.catalog.sqlite_catalog import SqliteCatalog
from headwater.catalog.verify import verify
from headwater.storage.database import Durability
from tests.contract.catalog.cases import SMALL, START
from tests.contract.catalog.moving import told
from tests.support.program import run_here

FIRST, LAST = "number = 0", "until_us IS NULL"
OF_SEQ = "WHERE id & 255 ="

CONTRADICTIONS = {
    "more resources than the snapshot say": 'UPDATE "set" SET count = 9',
    "a count below nothing": 'UPDATE "set" SET count = -1',
    "a page missing": f"DELETE FROM page WHERE {FIRST}",
    "pages that share otherwise": "UPDATE page SET count = count + CASE number WHEN 0 THEN 1 WHEN 1 THEN -1 ELSE 0 END",
    "a page rendered more often than touched": f"UPDATE page SET rendered = 99 WHERE {FIRST}",
    "a stale page that says not since when": f"UPDATE page SET stale_us = NULL WHERE {FIRST}",
    "a resource missing": "DELETE FROM resource WHERE uri = 'r1'",
    "a resource on another page": "UPDATE resource SET page = 1 WHERE uri = 'r1'",
    "a resource changed by a change to come": "UPDATE resource SET seq = 99 WHERE uri = 'r1'",
    "a resource changed before all changes": "UPDATE resource SET seq = -1 WHERE uri = 'r1'",
    "the last change missing": "DELETE FROM change WHERE id = (SELECT max(id) FROM change)",
    "a change missing": f"DELETE FROM change {OF_SEQ} 4",
    "a change as early as the one before": f"UPDATE change SET at_us = at_us - 1 {OF_SEQ} 2",
    "a change before its segment": f'UPDATE change SET at_us = (SELECT opened_us FROM "set") {OF_SEQ} 1',
    "a change after its segment": f"UPDATE change SET at_us = at_us + 1000 {OF_SEQ} 8",
    "a deletion that describes": f"UPDATE change SET type = 'a/b' {OF_SEQ} 3",
    "a newest time before the newest change": 'UPDATE "set" SET last_us = last_us - 1',
    "a newest time before the opening": 'UPDATE "set" SET last_us = opened_us - 1',
    "no newest time": 'UPDATE "set" SET last_us = NULL',
    "a set that was never opened": 'UPDATE "set" SET opened_us = NULL',
    "no segments": "DELETE FROM segment",
    "a segment of another number": f"UPDATE segment SET number = -1 WHERE {FIRST}",
    "a segment that begins before the opening": f"UPDATE segment SET from_us = from_us - 1 WHERE {FIRST}",
    "a segment that begins later": "UPDATE segment SET from_us = from_us + 1 WHERE number = 1",
    "a segment that holds less": f"UPDATE segment SET last = 3 WHERE {FIRST}",
    "a segment that ends before it begins": f"UPDATE segment SET until_us = from_us - 1 WHERE {FIRST}",
    "a segment of more than fits": f"UPDATE segment SET last = 99999 WHERE {LAST}",
    "a last segment that is closed": f"UPDATE segment SET until_us = from_us + 99 WHERE {LAST}",
}


def catalog_in(file: Path) -> SqliteCatalog:
    return SqliteCatalog(file, SMALL, durability=Durability.NORMAL)


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("origin") / "sound.db"
    told(catalog_in(file)).close()
    return file


@pytest.mark.parametrize("sql", CONTRADICTIONS.values(), ids=CONTRADICTIONS)
def test_parts_that_contradict_each_other_are_told(tmp_path: Path, sound: Path, sql: str) -> None:
    file = tmp_path / "copy.db"
    shutil.copy(sound, file)
    with closing(sqlite3.connect(file)) as wrong, wrong:
        assert wrong.execute(sql).rowcount > 0
    catalog = catalog_in(file)
    assert verify(catalog, "s") != []
    catalog.close()


def test_a_set_as_it_must_be_has_none(sound: Path) -> None:
    catalog = catalog_in(sound)
    assert verify(catalog, "s") == []
    catalog.close()


def test_no_set_of_many_is_compared_with_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with closing(SqliteCatalog(tmp_path / "catalog.sqlite")) as catalog:
        for number in range(30):
            catalog.create(f"s{number:02d}")
            catalog.open(f"s{number:02d}", START)
    compared = mock.Mock(side_effect=AssertionError("compared"))
    monkeypatch.setattr(SetState, "__eq__", compared)
    assert run_here("catalog", "verify", tmp_path / "catalog.sqlite").returncode == 0
