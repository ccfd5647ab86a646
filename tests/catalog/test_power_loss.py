"""The catalog and a power that fails at any moment: every batch that was acknowledged is there, none in part."""

from __future__ import annotations

import datetime as dt
import os
from pathlib import Path

import pytest

from headwater.catalog.interface import Limits
from headwater.catalog.sqlite_catalog import SCHEMA, SqliteCatalog
from headwater.catalog.verify import verify
from headwater.spec.records import ChangeKind
from headwater.storage.database import Database
from tests.catalog.recorder import START, batch, check_rows, logged, rows
from tests.support.disk import Disk, Loss

pytestmark = pytest.mark.long(10)

LOSSES = int(os.environ.get("HEADWATER_POWER_LOSSES", "150"))
"""Simulated ones; set the variable for a longer siege."""

LIMITS = Limits(page_entries=40, page_octets=100_000, segment_entries=70, segment_octets=60_000)
BATCHES = 12


class Plain:
    """A database and nothing around it."""

    def __init__(self, path: Path) -> None:
        self._database = Database(path, SCHEMA)


def record(catalog: SqliteCatalog, number: int) -> None:
    catalog.record("s", batch("w", number), START + dt.timedelta(seconds=number), state=rows("w", number))


def recorded(ground: Path, monkeypatch: pytest.MonkeyPatch) -> Disk:
    """Twelve batches, with a checkpoint and an end and a new beginning among them."""
    disk = Disk(ground)
    with disk.recording(monkeypatch):
        catalog = SqliteCatalog(ground / "catalog.db", LIMITS)
        catalog.create("s")
        catalog.open("s", START)
        for number in range(BATCHES):
            record(catalog, number)
            disk.mark(str(number))
            if number == BATCHES // 3:
                catalog._database.checkpoint()
            if number == 2 * BATCHES // 3:
                catalog.close()
                catalog = SqliteCatalog(ground / "catalog.db", LIMITS)
        catalog.close()
    return disk


def every_change(catalog: SqliteCatalog) -> list[tuple[str, ChangeKind]]:
    return [(change.uri, change.change) for change in catalog.changes("s", limit=10**9)]


def check(loss: Loss, folder: Path) -> None:
    catalog = SqliteCatalog(loss.leave(folder) / "catalog.db", LIMITS)
    catalog.create("s")
    if not catalog.state("s").opened_at:
        assert not loss.marks(), loss
        catalog.open("s", START)
    said = [one for number in range(len(loss.marks())) for one in logged("w", number)]
    found, following = every_change(catalog), len(loss.marks())
    if found == said + logged("w", following):  # committed, and nobody told
        following += 1
    else:
        assert found == said, loss
    assert verify(catalog, "s") == [], loss
    check_rows(catalog, "w", following - 1)
    assert catalog.check() == [], loss
    record(catalog, following)  # the next run goes on
    assert every_change(catalog)[len(found) :] == logged("w", following)
    catalog.close()


def test_a_power_loss_at_any_moment_costs_no_batch_that_was_acknowledged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ground = tmp_path / "disk"
    ground.mkdir()
    disk = recorded(ground, monkeypatch)
    for number, loss in enumerate(disk.losses(LOSSES, seed=11)):
        check(loss, tmp_path / str(number))


@pytest.mark.parametrize(
    "make",
    [SqliteCatalog, Plain],
    ids=["catalog", "any database"],
)
def test_a_database_is_fully_durable_unless_it_is_told_otherwise(
    tmp_path: Path, make: type[SqliteCatalog | Plain]
) -> None:
    """An answer 200 to a provider is worth what the disk is (decision 003)."""
    database = make(tmp_path / "data.db")._database
    assert database._writer.execute("PRAGMA synchronous").fetchall() == [(2,)]  # FULL
    database.close()
