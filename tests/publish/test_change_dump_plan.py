"""The plan of a Change Dump: which changes are packed next, which packages stay; values in, values out."""

from __future__ import annotations

import datetime as dt

import pytest

from headwater.catalog.interface import Change, Metadata, Segment
from headwater.publish import change_dump as plan
from headwater.publish.change_dump import PackagePlan
from headwater.publish.publication_state import ChangeDumpState, ChangePackage
from headwater.publish.site import SetSettings
from headwater.spec.records import ChangeKind

SETTINGS = SetSettings(change_dump=True, change_dump_seconds=60, package_entries=10)


def at(number: float) -> dt.datetime:
    return dt.datetime(2026, 1, 1, tzinfo=dt.UTC) + dt.timedelta(seconds=number)


def segment(number: int, first: int, last: int, until: float | None = None) -> Segment:
    return Segment(
        number=number,
        first=first,
        last=last,
        from_=at(first * 10),
        until=None if until is None else at(until),
        weight=0,
    )


def package(number: int, first: int, last: int, *, until: float | None = None, final: bool = True) -> ChangePackage:
    return ChangePackage(
        segment=number,
        first=first,
        last=last,
        from_=at(first * 10),
        until=at((last + 1) * 10 if until is None else until),
        octets=1,
        hash=f"{first:064x}",
        is_final=final,
    )


def change(seq: int) -> Change:
    return Change(seq, at(seq * 10 + 1), f"r{seq}", ChangeKind.UPDATED, Metadata())


BEGUN = ChangeDumpState(first=1, from_=at(10))
CLOSED, EMPTY, OPEN = segment(0, 1, 4, 50), segment(1, 5, 4, 60), segment(2, 5, 7)


def begun(*packages: ChangePackage, packed: float | None = None) -> ChangeDumpState:
    return ChangeDumpState(first=1, from_=at(10), packages=packages, packed_at=None if packed is None else at(packed))


@pytest.mark.parametrize(
    ("state", "segments", "now", "expected"),
    [
        pytest.param(BEGUN, [segment(0, 1, 0)], 0, None, id="nothing has changed"),
        pytest.param(BEGUN, [segment(0, 1, 4)], 0, (0, 1, 4, 10, None), id="the open segment's first"),
        pytest.param(BEGUN, [CLOSED, EMPTY, OPEN], 0, (0, 1, 4, 10, 50), id="closed ones first"),
        pytest.param(begun(package(0, 1, 4)), [CLOSED, EMPTY, OPEN], 0, (2, 5, 7, 50, None), id="not an empty one"),
        pytest.param(begun(package(0, 1, 2), packed=0), [CLOSED, OPEN], 0, (0, 3, 4, 30, 50), id="the rest of one"),
        pytest.param(
            begun(package(0, 1, 4, final=False), packed=0), [segment(0, 1, 4)], 999, None, id="nothing new since"
        ),
        pytest.param(begun(package(0, 1, 3, final=False), packed=0), [segment(0, 1, 4)], 59, None, id="it is not time"),
        pytest.param(
            begun(package(0, 1, 3, final=False), packed=0), [segment(0, 1, 4)], 60, (0, 1, 4, 10, None), id="it is time"
        ),
        pytest.param(
            begun(package(0, 1, 3, final=False), packed=86_400),
            [segment(0, 1, 4)],
            60,
            (0, 1, 4, 10, None),
            id="it is time, by a clock that was set back",
        ),
        pytest.param(
            begun(package(0, 1, 3, final=False), packed=0), [segment(0, 1, 11)], 0, (0, 1, 11, 10, None), id="full"
        ),
        pytest.param(
            begun(package(0, 1, 4, final=False), packed=0),
            [CLOSED, segment(1, 5, 4)],
            0,
            (0, 1, 4, 10, 50),
            id="closed without another change",
        ),
    ],
)
def test_what_is_packed_next(
    state: ChangeDumpState, segments: list[Segment], now: float, expected: tuple[int, int, int, int, int | None] | None
) -> None:
    found = plan.next_package(state, segments, SETTINGS, at(now), at_once=False)
    if expected is None:
        assert found is None
        return
    number, first, last, from_, until = expected
    assert found == PackagePlan(
        segment=number, first=first, last=last, from_=at(from_), until=None if until is None else at(until)
    )


def test_at_once_does_not_wait_for_the_period() -> None:
    state = begun(package(0, 1, 3, final=False), packed=0)
    assert plan.next_package(state, [segment(0, 1, 4)], SETTINGS, at(1), at_once=True) is not None


@pytest.mark.parametrize(
    ("last", "until", "end", "final"),
    [(4, 50, 50, True), (3, 50, 31.000001, True), (3, None, 31.000001, True), (4, None, 41.000001, False)],
    ids=["whole", "cut", "open, cut", "open"],
)
def test_a_package_covers_its_times_half_open(last: int, until: float | None, end: float, final: bool) -> None:
    """AMB-11: the next one begins where it ends, and no other change has a time before that."""
    wanted = PackagePlan(segment=0, first=1, last=4, from_=at(10), until=None if until is None else at(until))
    made = plan.package_of(wanted, change(last))
    assert (made.first, made.last, made.from_, made.until) == (1, last, at(10), at(end))
    assert made.is_final is final


def test_what_has_left_the_change_lists_leaves_the_dump() -> None:
    state = begun(package(0, 1, 4, until=50), package(2, 5, 6), package(2, 7, 7, final=False), packed=3)
    segments = [CLOSED, EMPTY, OPEN]
    assert plan.kept(state, segments, 0) == state
    kept = plan.kept(state, segments, 1)
    assert (kept.first, kept.packages, kept.packed_at) == (5, state.packages[1:], at(3))
    assert kept.from_ == state.packages[1].from_
    assert plan.kept(kept, segments, 1) == kept
    nothing = plan.kept(begun(package(0, 1, 4, until=50)), segments, 1)
    assert nothing == ChangeDumpState(first=5, from_=EMPTY.from_)


def test_after_a_change_that_cannot_be_had_the_dump_begins_anew() -> None:
    """RS-CDM-10."""
    state = ChangeDumpState(first=4, from_=at(31.000001))
    found = plan.next_package(state, [CLOSED, OPEN], SETTINGS, at(0), at_once=False)
    assert found == PackagePlan(segment=0, first=4, last=4, from_=at(31.000001), until=at(50))
