"""What has to hold of a set: each invariant is broken by an example, and by nothing that is a set."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from headwater.catalog import invariants
from headwater.catalog.interface import Change, Metadata, Page, Resource, Segment, SetSnapshot, SetState
from headwater.catalog.invariants import (
    MOST_ENTRIES,
    Invariant,
    LogEnd,
    LoggedChange,
    OrderedRow,
    PlacedResource,
)
from headwater.catalog.state import StateRow
from headwater.spec.records import ChangeKind

NOON = dt.datetime(2026, 1, 1, 12, tzinfo=dt.UTC)


def at(minutes: int) -> dt.datetime:
    return NOON + dt.timedelta(minutes=minutes)


def page(number: int, count: int, **fields: Any) -> Page:
    said = {"weight": 1, "touched": 1, "rendered": 1, "at": None, "completed": None, "stale_at": None}
    return Page(**said | {"number": number, "count": count} | fields)


def segment(number: int, first: int, last: int, from_: int, until: int | None) -> Segment:
    end = None if until is None else at(until)
    return Segment(number=number, first=first, last=last, from_=at(from_), until=end, weight=1)


STATE = SetState(name="s", opened_at=at(0), last_seq=3, last_at=at(20), count=5, page_count=2)
PAGES = (page(0, 3), page(1, 2))
SEGMENTS = (segment(0, 1, 2, 0, 10), segment(1, 3, 3, 10, None))
SNAPSHOT = SetSnapshot(STATE, PAGES, SEGMENTS)
PLACED = PlacedResource(Resource("a", Metadata(), b"", 1, 3), PAGES[1], STATE)
LOGGED = LoggedChange(Change(3, at(12), "a", ChangeKind.DELETED, Metadata()), 3, at(11), SEGMENTS[1])
END = LogEnd(STATE, at(20))
ROWS = OrderedRow(StateRow("k", "b", b"", 1), StateRow("k", "z", b"", 0))
WHOLE: list[tuple[Sequence[Invariant[Any]], Any]] = [
    (invariants.SNAPSHOT, SNAPSHOT),
    (invariants.RESOURCE, PLACED),
    (invariants.CHANGE, LOGGED),
    (invariants.LOG_END, END),
    (invariants.ROW, ROWS),
]


def state(**fields: Any) -> SetSnapshot:
    return replace(SNAPSHOT, state=replace(STATE, **fields))


def logged(**fields: Any) -> LoggedChange:
    return replace(LOGGED, change=replace(LOGGED.change, **fields))


BROKEN: list[tuple[str, Any]] = [
    ("counts", state(state_version=-1)),
    ("times", state(last_at=None)),
    ("phase", replace(SNAPSHOT, segments=())),
    ("page numbers", replace(SNAPSHOT, pages=PAGES[::-1])),
    ("page counts", replace(SNAPSHOT, pages=(page(0, -1), page(1, 6)))),
    ("page counts", replace(state(count=MOST_ENTRIES + 3), pages=(page(0, MOST_ENTRIES + 1), PAGES[1]))),
    ("page touches", replace(SNAPSHOT, pages=(page(0, 3, rendered=2), PAGES[1]))),
    ("page staleness", replace(SNAPSHOT, pages=(page(0, 3, stale_at=at(1)), PAGES[1]))),
    ("page sum", state(count=6)),
    ("first segment", replace(SNAPSHOT, segments=(replace(SEGMENTS[0], from_=at(1)), SEGMENTS[1]))),
    ("segment order", replace(SNAPSHOT, segments=(SEGMENTS[0], replace(SEGMENTS[1], from_=at(11))))),
    ("segment order", replace(SNAPSHOT, segments=(segment(0, 1, 2, 0, 0), segment(1, 3, 3, 0, None)))),
    ("segment counts", replace(SNAPSHOT, segments=(segment(0, 1, -2, 0, 10), segment(1, -1, 3, 10, None)))),
    ("last segment", replace(SNAPSHOT, segments=(SEGMENTS[0], replace(SEGMENTS[1], until=at(30))))),
    ("resource on its page", replace(PLACED, page=PAGES[0])),
    ("resource changed", replace(PLACED, resource=replace(PLACED.resource, seq=4))),
    ("change number", replace(LOGGED, seq=2)),
    ("change time", replace(LOGGED, before=at(12))),
    ("change in segment", replace(LOGGED, before=None, segment=SEGMENTS[0])),
    ("deletion", logged(metadata=Metadata(length=1))),
    ("newest time", LogEnd(STATE, at(21))),
    ("row order", replace(ROWS, before=StateRow("k", "b", b"", 1))),
]


def broken(whole: Sequence[Invariant[Any]], value: Any) -> list[str]:
    return [one.name for one in whole if list(one.check(value))]


@pytest.mark.parametrize(("whole", "value"), WHOLE)
def test_a_set_breaks_none(whole: Sequence[Invariant[Any]], value: Any) -> None:
    assert broken(whole, value) == []


@pytest.mark.parametrize(("name", "value"), BROKEN, ids=[row[0] for row in BROKEN])
def test_an_example_breaks_it_and_no_other(name: str, value: Any) -> None:
    whole = next(whole for whole, sound in WHOLE if type(sound) is type(value))
    assert broken(whole, value) == [name]


def test_each_has_an_example() -> None:
    named = [one.name for whole, _ in WHOLE for one in whole]
    assert len(set(named)) == len(named)
    assert {name for name, _ in BROKEN} == set(named)
