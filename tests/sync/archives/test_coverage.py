"""Which lists tell of a span of time (RS-ARC-19, RS-ARC-34, AMB-11)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.sync.archives.coverage import Hole, ListedDocument, covering

Span = tuple[int, int | None]


def lists(*spans: Span) -> list[ListedDocument]:
    return [ListedDocument(uri=f"{from_}-{until}", from_=from_, until=until) for from_, until in spans]


@pytest.mark.parametrize(
    ("spans", "after", "last", "chosen", "hole"),
    [
        pytest.param([(0, 5), (5, 9)], 2, 9, ["0-5", "5-9"], None, id="consecutive"),
        pytest.param([(5, 9), (0, 5)], 2, 9, ["0-5", "5-9"], None, id="in any order"),
        pytest.param([(0, 5), (6, 9)], 2, 9, ["0-5"], Hole(5, 6), id="a hole"),
        pytest.param([(0, 5)], 2, 9, ["0-5"], Hole(5, None), id="nothing later"),
        pytest.param([(4, 9)], 2, 9, [], Hole(2, 4), id="nothing earlier"),
        pytest.param([], 2, 9, [], Hole(2, None), id="nothing at all"),
        pytest.param([(0, 5), (2, 8), (3, 4), (7, 9)], 1, 9, ["0-5", "2-8", "7-9"], None, id="overlapping"),
        pytest.param([(0, 9), *((n, n + 1) for n in range(9))], 1, 9, ["0-1", "0-9"], None, id="the fewest"),
        pytest.param([(0, 2), (2, 9)], 2, 9, ["0-2", "2-9"], None, id="one ends just there"),
        pytest.param([(0, 9), (9, 12)], 2, 9, ["0-9", "9-12"], None, id="one begins just there"),
        pytest.param([(0, 5), (5, None)], 2, 9, ["0-5", "5-None"], None, id="the open one"),
        pytest.param([(3, 3), (0, 3), (3, 3), (3, 9)], 3, 8, ["0-3", "3-9"], None, id="empty spans"),
    ],
)
def test_covering(spans: list[Span], after: int, last: int, chosen: list[str], hole: Hole | None) -> None:
    found = covering(lists(*spans), after, last)
    assert [one.uri for one in found.lists] == chosen
    assert found.hole == hole


SPANS = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 12)).map(lambda one: (one[0], one[0] + one[1])))


@given(SPANS, st.integers(0, 40), st.integers(0, 20))
def test_covering_is_whole_just_when_every_moment_is_told_of(spans: list[Span], after: int, length: int) -> None:
    """RS-ARC-19: between integers nothing happens, so that a moment is told of by [from, until)."""
    last = after + length
    found = covering(lists(*spans), after, last)
    told = {n for from_, until in spans for n in range(from_, until or 0)}
    assert (found.hole is None) == (set(range(after, last)) <= told)
    chosen = {n for one in found.lists for n in range(one.from_ or 0, one.until or 0)}
    assert found.hole is not None or set(range(after, last)) <= chosen
    assert len({one.uri for one in found.lists}) == len({(one.from_, one.until) for one in found.lists})
