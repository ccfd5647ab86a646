"""What `verify` finds: sets whose parts contradict each other, as a dump brings them, and no other call."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from msgspec.structs import replace

from headwater.catalog.interface import Change, Part, Resource, SetSnapshot
from headwater.catalog.sqlite.catalog import SqliteCatalog
from headwater.catalog.verify import verify
from headwater.storage.database import Durability
from tests.contract.catalog.cases import BIG, SMALL, START, TICK, at, table
from tests.contract.catalog.moving import told

Parts = list[Part]


def _change(parts: Parts, kind: type, number: int, **fields: object) -> Parts:
    """The parts with fields of the number-th part of a kind replaced."""
    index = [place for place, part in enumerate(parts) if isinstance(part, kind)][number]
    return [*parts[:index], replace(parts[index], **fields), *parts[index + 1 :]]


def _snapshot(parts: Parts, **fields: object) -> Parts:
    return _change(parts, SetSnapshot, 0, **fields)


def _state(parts: Parts, **fields: object) -> Parts:
    assert isinstance(parts[0], SetSnapshot)
    return _snapshot(parts, state=replace(parts[0].state, **fields))


def _page(parts: Parts, place: int, **fields: object) -> Parts:
    assert isinstance(parts[0], SetSnapshot)
    pages = list(parts[0].pages)
    pages[place] = replace(pages[place], **fields)
    return _snapshot(parts, pages=tuple(pages))


def _segment(parts: Parts, place: int, **fields: object) -> Parts:
    assert isinstance(parts[0], SetSnapshot)
    segments = list(parts[0].segments)
    segments[place] = replace(segments[place], **fields)
    return _snapshot(parts, segments=tuple(segments))


def _without(parts: Parts, kind: type, number: int) -> Parts:
    index = [place for place, part in enumerate(parts) if isinstance(part, kind)][number]
    return parts[:index] + parts[index + 1 :]


CONTRADICTIONS: list[tuple[str, Callable[[Parts], Sequence[Part]]]] = [
    ("more resources than the snapshot say", lambda p: _state(p, count=9)),
    ("a count below nothing", lambda p: _state(p, count=-1)),
    ("a page missing", lambda p: _snapshot(p, pages=p[0].pages[1:])),  # type: ignore[union-attr]
    ("pages that share otherwise", lambda p: _page(_page(p, 0, count=3), 1, count=1)),
    ("a page rendered more often than touched", lambda p: _page(p, 0, rendered=99)),
    ("a stale page that says not since when", lambda p: _page(p, 0, stale_at=None)),
    ("a resource missing", lambda p: _without(p, Resource, 2)),
    ("a resource on another page", lambda p: _change(p, Resource, 0, page=1)),
    ("a resource changed by a change to come", lambda p: _change(p, Resource, 0, seq=99)),
    ("a resource changed before all changes", lambda p: _change(p, Resource, 0, seq=-1)),
    ("the last change missing", lambda p: p[:-1]),
    ("a change missing", lambda p: _without(p, Change, 3)),
    ("a change as early as the one before", lambda p: _change(p, Change, 1, at=at(10))),
    ("a change before its segment", lambda p: _change(p, Change, 0, at=START)),
    ("a change after its segment", lambda p: _change(p, Change, 7, at=at(59))),
    ("a deletion that describes", lambda p: _change(p, Change, 2, metadata=BIG)),
    ("a newest time before the newest change", lambda p: _state(p, last_at=at(56))),
    ("a newest time before the opening", lambda p: _state(p, last_at=START - TICK)),
    ("no newest time", lambda p: _state(p, last_at=None)),
    ("a set that was never opened", lambda p: _state(p, opened_at=None)),
    ("no segments", lambda p: _snapshot(p, segments=())),
    ("a segment of another number", lambda p: _segment(p, 0, number=1)),
    ("a segment that begins before the opening", lambda p: _segment(p, 0, from_=START - TICK)),
    ("a segment that begins later", lambda p: _segment(p, 1, from_=at(51))),
    ("a segment that holds less", lambda p: _segment(p, 0, last=3)),
    ("a segment that ends before it begins", lambda p: _segment(_segment(p, 0, until=START), 1, from_=START)),
    ("a segment of more than fits", lambda p: _segment(p, -1, last=99_999)),
    ("a last segment that is closed", lambda p: _segment(p, -1, until=at(99))),
]


def catalog_in(folder: Path, name: str) -> SqliteCatalog:
    return SqliteCatalog(folder / name, SMALL, durability=Durability.NORMAL)


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Parts]:
    catalog = told(catalog_in(tmp_path_factory.mktemp("origin"), "origin.db"))
    yield list(catalog.dump("s"))
    catalog.close()


@table(CONTRADICTIONS)
def test_parts_that_contradict_each_other_are_told(
    tmp_path: Path, parts: Parts, case: tuple[Callable[[Parts], Parts]]
) -> None:
    catalog = catalog_in(tmp_path, "copy.db")
    catalog.restore(case[0](parts))
    assert verify(catalog, "s") != []
    catalog.close()


def test_a_set_as_it_must_be_has_none(tmp_path: Path, parts: Parts) -> None:
    catalog = catalog_in(tmp_path, "copy.db")
    catalog.restore(parts)
    assert verify(catalog, "s") == []
    catalog.close()
