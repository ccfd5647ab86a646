"""What a resource was at a moment, by whatever is told of it: right, or not known (DST-5.1, AMB-11, RS-ARC-34)."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.errors import UsageFault
from headwater.sync.lists.position import ToldPeriods
from headwater.sync.past.evidence import (
    ABSENT,
    CHANGED,
    EXISTED,
    LISTED,
    UNKNOWN,
    Sighting,
    StateAt,
    ToldChange,
    state_at,
)
from headwater.sync.source_times import check_past, format_micros, moment_of

ALL = ToldPeriods(((0, 100),))
NONE = ToldPeriods()


def was(at: int, kind: str, row: int = 0, high: int | None = None) -> ToldChange:
    return ToldChange(at, at if high is None else high, kind, row)


CASES: list[tuple[str, list[ToldChange], list[Sighting], ToldPeriods, StateAt]] = [
    ("the last change until then", [was(10, "created", 1), was(20, "updated", 2)], [], ALL, StateAt(CHANGED, 2)),
    ("a change at that very moment counts", [was(50, "updated", 3)], [], ALL, StateAt(CHANGED, 3)),
    ("a change just after does not", [was(51, "created")], [], ALL, StateAt(ABSENT)),
    ("deleted before", [was(10, "created"), was(20, "deleted")], [], ALL, StateAt(ABSENT)),
    ("listed before, and not changed since", [], [Sighting(30, 30, 7)], ALL, StateAt(LISTED, 7)),
    ("not listed before, and not created since", [], [Sighting(30, 30)], ALL, StateAt(ABSENT)),
    ("listed before, deleted since", [was(40, "deleted")], [Sighting(30, 30, 7)], ALL, StateAt(ABSENT)),
    ("listed while it was changed", [was(55, "updated")], [Sighting(45, 60, 7)], ALL, StateAt(EXISTED, None, 55)),
    ("listed after, and not changed since", [], [Sighting(80, 80, 7)], ToldPeriods(((50, 80),)), StateAt(LISTED, 7)),
    ("listed after, and a hole between", [], [Sighting(80, 80, 7)], ToldPeriods(((60, 80),)), StateAt(UNKNOWN)),
    (
        "first seen to be created",
        [was(60, "created")],
        [Sighting(80, 80, 7)],
        ToldPeriods(((50, 80),)),
        StateAt(ABSENT),
    ),
    (
        "first seen to be updated",
        [was(60, "updated")],
        [Sighting(80, 80, 7)],
        ToldPeriods(((50, 80),)),
        StateAt(EXISTED, None, 60),
    ),
    (
        "first seen to be deleted",
        [was(60, "deleted")],
        [Sighting(80, 80)],
        ToldPeriods(((50, 80),)),
        StateAt(EXISTED, None, 60),
    ),
    ("the changes before the hole", [was(20, "updated", 2)], [], ToldPeriods(((0, 30), (40, 100))), StateAt(UNKNOWN)),
    ("the changes after the hole", [was(45, "updated", 2)], [], ToldPeriods(((0, 30), (40, 100))), StateAt(CHANGED, 2)),
    ("a change of an unknown time before", [was(10, "updated", 4, 49)], [], ALL, StateAt(CHANGED, 4)),
    ("a change that may be before or after", [was(40, "updated", 4, 60)], [Sighting(30, 30, 7)], ALL, StateAt(UNKNOWN)),
    ("a change at the very `at` of the list", [was(30, "updated", 4)], [Sighting(30, 30, 7)], ALL, StateAt(CHANGED, 4)),
    ("listed just before the changes are told", [], [Sighting(30, 30, 7)], ToldPeriods(((31, 100),)), StateAt(UNKNOWN)),
    (
        "listed as the changes begin to be told",
        [],
        [Sighting(30, 30, 7)],
        ToldPeriods(((30, 100),)),
        StateAt(LISTED, 7),
    ),
    ("nothing is told", [], [], NONE, StateAt(UNKNOWN)),
    ("a list of that very moment", [], [Sighting(50, 50, 7)], NONE, StateAt(LISTED, 7)),
    ("changed next", [was(10, "created", 1), was(60, "updated", 2)], [], ALL, StateAt(CHANGED, 1, 60)),
]


@pytest.mark.parametrize(
    ("changes", "sightings", "coverage", "expected"), [case[1:] for case in CASES], ids=[case[0] for case in CASES]
)
def test_the_state_at_a_moment(
    changes: list[ToldChange], sightings: list[Sighting], coverage: ToldPeriods, expected: StateAt
) -> None:
    assert state_at(50, changes, sightings, coverage) == expected


@pytest.mark.parametrize(
    ("lists", "periods"),
    [
        ([], ()),
        ([(0, 10), (10, 20)], ((0, 20),)),
        ([(10, 20), (0, 15)], ((0, 20),)),
        ([(0, 10), (11, 20)], ((0, 9), (11, 20))),  # a change at 10 may stand in a list that begins there (AMB-11)
        ([(5, 5), (7, 9)], ((7, 9),)),
    ],
)
def test_which_changes_are_all_told(lists: list[tuple[int, int]], periods: tuple[tuple[int, int], ...]) -> None:
    assert ToldPeriods.of(lists).periods == periods


def test_the_first_hole_of_a_period() -> None:
    coverage = ToldPeriods(((10, 20), (30, 40)))
    assert coverage.hole(9, 40) == (20, 29)
    assert coverage.hole(0, 15) == (0, 9)
    assert coverage.hole(30, 50) == (40, 50)
    assert coverage.hole(12, 18) is None


# the law: whatever part of the evidence is left, what is said is so

Event = tuple[int, str]


@st.composite
def histories(draw: st.DrawFn) -> list[Event]:
    """A resource's life: times that may be equal, each change possible after the one before."""
    times = sorted(draw(st.lists(st.integers(0, 24), max_size=8)))
    events: list[Event] = []
    there = draw(st.booleans())
    for time in times:
        kind = draw(st.sampled_from(["updated", "deleted"])) if there else "created"
        there = kind != "deleted"
        events.append((time, kind))
    return events


def truth(events: list[Event], moment: float) -> int | None:
    """Which state it has: the number of its last change, -1 before any, None when it is not there."""
    state = -1 if not events or events[0][1] != "created" else None
    for number, (time, kind) in enumerate(events):
        if time <= moment:
            state = None if kind == "deleted" else number
    return state


@settings(deadline=None, max_examples=400)
@given(data=st.data(), events=histories(), moment=st.integers(0, 25))
def test_the_answer_is_right_or_not_known(data: st.DataObject, events: list[Event], moment: int) -> None:
    lists = data.draw(st.lists(st.tuples(st.integers(0, 25), st.integers(0, 25)).map(sorted).map(tuple), max_size=4))
    ends = max((end for _, end in lists), default=0)
    told = [
        was(time, kind, number)
        for number, (time, kind) in enumerate(events)
        if any(begin <= time < end for begin, end in lists) or (time == ends and any(e == ends for _, e in lists))
    ]
    sightings = []
    for at, more in data.draw(st.lists(st.tuples(st.integers(0, 25), st.integers(0, 5)), max_size=3)):
        seen = truth(events, data.draw(st.integers(2 * at - (at != moment), 2 * (at + more))) / 2)
        sightings.append(Sighting(at, at + more, seen))
    # a list is true at a moment within its times, and may lack a change at its very `at`; a list of the moment itself
    # is taken at its word
    state, right = (
        state_at(moment, told, sightings, ToldPeriods.of((begin, end) for begin, end in lists)),
        truth(events, moment),
    )
    if state.kind == ABSENT:
        assert right is None
    elif state.kind == EXISTED:
        assert right is not None
    elif state.kind != UNKNOWN:
        assert state.row == right


def test_a_day_means_its_end_and_a_time_has_a_zone() -> None:
    assert format_micros(moment_of("2026-11-12")) == "2026-11-12T23:59:59.999999Z"
    assert format_micros(moment_of("2026-11")) == "2026-11-30T23:59:59.999999Z"
    assert format_micros(moment_of("2026-11-12T10:00:00+01:00")) == "2026-11-12T09:00:00Z"
    assert format_micros(moment_of("2026-11-12T10:00Z")) == "2026-11-12T10:00:59.999999Z"
    assert format_micros(moment_of("2026-11-12T10:00:00.123456Z")) == "2026-11-12T10:00:00.123456Z"
    now = moment_of("2026-11-12T12:00:00Z")
    assert check_past("2026-11-12T12:00:00Z", now) == now
    for text, said in (
        ("2026-11-12T10:00:00", "without a zone"),
        ("yesterday", "not a W3C Datetime"),
        ("2026-11-12", "has not ended"),
        ("2026-11-13", "in the future"),
        ("2026-11-12T12:00:01Z", "in the future"),
    ):
        with pytest.raises(UsageFault, match=said):
            check_past(text, now)
