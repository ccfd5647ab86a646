"""Which lists tell of a span of time, and which snapshot comes before a moment (RS-ARC-19, RS-ARC-34, AMB-11)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.sync.archives.coverage import Hole, ListedDocument, covering, past_state

Span = tuple[int, int | None]


def lists(*spans: Span) -> list[ListedDocument]:
    return [ListedDocument(uri=f"{from_}-{until}", from_=from_, until=until) for from_, until in spans]


def snapshots(*times: tuple[int, int | None]) -> list[ListedDocument]:
    return [ListedDocument(uri=f"at {at}", at=at, completed=completed) for at, completed in times]


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


@pytest.mark.parametrize(
    ("moment", "snapshot", "chosen", "hole"),
    [
        pytest.param(3, None, [], None, id="before all"),
        pytest.param(12, "at 10", ["10-20"], None, id="the newest before"),
        pytest.param(10, "at 10", ["10-20"], None, id="just then"),
        pytest.param(25, "at 10", ["10-20", "20-30"], None, id="the newer one was not complete"),
        pytest.param(31, "at 24", ["20-30", "30-40"], None, id="the newer one"),
        pytest.param(50, "at 45", [], Hole(45, 60), id="after a hole, which is told"),
        pytest.param(65, "at 45", [], Hole(45, 60), id="beyond a hole"),
        pytest.param(85, "at 70", ["60-None"], None, id="in the open list"),
    ],
)
def test_past_state(moment: int, snapshot: str | None, chosen: list[str], hole: Hole | None) -> None:
    known = snapshots((10, None), (24, 26), (45, 46), (70, 70), (5, 5))
    found = past_state(known, lists((10, 20), (20, 30), (30, 40), (60, None)), moment)
    assert (None if found.snapshot is None else found.snapshot.uri) == snapshot
    assert [one.uri for one in found.coverage.lists] == chosen
    assert found.coverage.hole == hole


def test_an_older_snapshot_with_all_changes_comes_before_a_newer_one_without() -> None:
    found = past_state(snapshots((1, 1), (6, 6)), lists((0, 5), (4, 6), (7, 9)), 8)
    assert found.snapshot is not None
    assert found.snapshot.uri == "at 6"
    assert found.coverage.hole == Hole(6, 7)
    found = past_state(snapshots((1, 1), (6, 6)), lists((0, 5), (4, 10), (9, 10)), 9)
    assert found.snapshot is not None
    assert found.snapshot.uri == "at 6"
    found = past_state(snapshots((1, 1), (6, 8)), lists((0, 7)), 6, exact=False)
    assert found.snapshot is not None
    assert found.snapshot.uri == "at 6"
