"""The books of one set of an SQLite catalog: of one state, whoever writes meanwhile."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from headwater.catalog.books import Books, books_of_set
from headwater.catalog.contract.cases import START, opened, up
from headwater.catalog.interface import UnknownSet
from headwater.catalog.sqlite.catalog import SqliteCatalog

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
            books = books_of_set(catalog, "s", newest=10**9)
            assert books.segments[-1].last == books.state.last_seq
            assert sum(page.count for page in books.pages) == books.state.count
            assert sum(page.touched for page in books.pages) == books.state.last_seq
            seen.add(books.state.last_seq)
    finally:
        ended.set()
        writer.join()
    assert seen
    assert books_of_set(catalog, "s") == Books(catalog.state("s"), catalog.pages("s"), catalog.segments("s"))
    with pytest.raises(UnknownSet):
        books_of_set(catalog, "nowhere")
    catalog.close()
    other.close()
