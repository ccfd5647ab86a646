"""Which lists tell of a span of time (RS-ARC-19, RS-ARC-34, AMB-11)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.sync.lists.position import IndexedList, ToldPeriods, touching

Span = tuple[int, int | None]


def lists(*spans: Span) -> list[IndexedList]:
    return [IndexedList(uri=f"{from_}-{until}", from_=from_, until=until) for from_, until in spans]


@pytest.mark.parametrize(
    ("spans", "after", "last", "chosen", "hole"),
    [
        pytest.param([(0, 5), (5, 9)], 2, 9, ["0-5", "5-9"], None, id="consecutive"),
        pytest.param([(0, 5), (6, 9)], 2, 9, ["0-5", "6-9"], (4, 5), id="a hole"),
        pytest.param([(0, 5)], 2, 9, ["0-5"], (5, 8), id="nothing later"),
        pytest.param([(4, 9)], 2, 9, ["4-9"], (2, 3), id="nothing earlier"),
        pytest.param([], 2, 9, [], (2, 8), id="nothing at all"),
        pytest.param([(0, 5), (2, 8), (7, 9)], 1, 9, ["0-5", "2-8", "7-9"], None, id="overlapping"),
        pytest.param([(0, 2), (2, 9)], 2, 9, ["0-2", "2-9"], None, id="one ends just there"),
        pytest.param([(0, 9), (9, 12)], 2, 9, ["0-9", "9-12"], None, id="one begins just there"),
        pytest.param([(0, 1), (1, 9), (10, 12)], 2, 9, ["1-9"], None, id="others before and after"),
        pytest.param([(0, 5), (5, None)], 2, 9, ["0-5", "5-None"], None, id="the open one"),
    ],
)
def test_coverage(spans: list[Span], after: int, last: int, chosen: list[str], hole: tuple[int, int] | None) -> None:
    found = lists(*spans)
    assert ToldPeriods.of_lists(found).hole(after, last - 1) == hole
    seconds = [
        IndexedList(one.uri, (one.from_ or 0) * 10**6, None if one.until is None else one.until * 10**6)
        for one in found
    ]
    assert [one.uri for one in touching(seconds, after * 10**6, last * 10**6)] == chosen


SPANS = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 12)).map(lambda one: (one[0], one[0] + one[1])))


@given(SPANS, st.integers(0, 40), st.integers(0, 20))
def test_a_time_is_covered_just_when_every_moment_is_told_of(spans: list[Span], after: int, length: int) -> None:
    """RS-ARC-19: between integers nothing happens, so that a moment is told of by [from, until)."""
    told = {n for from_, until in spans for n in range(from_, until or 0)}
    last = max((until or 0 for _, until in spans), default=0)
    told |= {last} if any(until == last for _, until in spans) else set()
    hole = ToldPeriods.of_lists(lists(*spans)).hole(after - 1, after + length - 1)
    assert (hole is None) == (set(range(after, after + length)) <= told)
