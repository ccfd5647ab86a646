"""Shares of the time: whatever the work takes, it has its share and no more."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.retry import TimeShare

shares = st.floats(min_value=0.001, max_value=0.999)
seconds = st.floats(min_value=1e-6, max_value=1e6)


@given(shares, st.lists(seconds, min_size=1))
def test_work_is_its_share_of_work_and_pauses(share: float, works: list[float]) -> None:
    whole = sum(works) + sum(map(TimeShare(share).pause_after, works))
    assert sum(works) / whole == pytest.approx(share)


@given(shares, seconds)
def test_a_pause_has_room_for_the_work_that_asks_for_it(share: float, work: float) -> None:
    cycle = TimeShare(share)
    assert cycle.work_after(cycle.pause_after(work)) == pytest.approx(work)


@pytest.mark.parametrize(("share", "work", "pause"), [(0.5, 1, 1), (0.1, 2, 18), (0.01, 0.005, 0.495), (1 / 3, 4, 8)])
def test_pauses(share: float, work: float, pause: float) -> None:
    assert TimeShare(share).pause_after(work) == pytest.approx(pause)
    assert TimeShare(share).pause_after(0) == TimeShare(share).work_after(0) == 0
