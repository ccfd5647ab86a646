"""The snapshot of one set of an SQLite catalog: of one state, whoever writes meanwhile."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from headwater.catalog.interface import SetSnapshot, UnknownSet
from headwater.catalog.sqlite_catalog import SqliteCatalog
from tests.contract.catalog.cases import START, opened, up

LOOKS = 200


def test_books_of_a_set_are_of_one_state(tmp_path: Path) -> None:
    catalog, other = (SqliteCatalog(tmp_path / "catalog.sqlite") for _ in range(2))
    opened(catalog)
    ended = threading.Event()

    def write() -> None:
        number = 0
        while not ended.is_set():
            other.record("s", [up(f"r{number}"), up("r0")], START)
            number += 1

    writer = threading.Thread(target=write)
    writer.start()
    seen = set()
    try:
        for _look in range(LOOKS):
            snapshot = catalog.snapshot_of("s")
            assert snapshot.segments[-1].last == snapshot.state.last_seq
            assert sum(page.count for page in snapshot.pages) == snapshot.state.count
            assert sum(page.touched for page in snapshot.pages) == snapshot.state.last_seq
            seen.add(snapshot.state.last_seq)
    finally:
        ended.set()
        writer.join()
    assert seen
    assert catalog.snapshot_of("s") == SetSnapshot(catalog.state("s"), catalog.pages("s"), catalog.segments("s"))
    with pytest.raises(UnknownSet):
        catalog.snapshot_of("nowhere")
    catalog.close()
    other.close()
