"""Which past states go: the oldest first, and no more than the retention asks for."""

from __future__ import annotations

import datetime as dt

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.catalog.interface import StateRow
from headwater.versions.retention import EndedState, VersionRetention, expired

NOW = dt.datetime(1970, 1, 1, 0, 10, tzinfo=dt.UTC)
SECOND = 1_000_000
OCTETS = {"a": 1, "b": 20, "c": 300}


def states(*some: tuple[int, str]) -> list[EndedState]:
    """States that have ended at these seconds, with these digests."""
    return [EndedState(StateRow("state", str(n)), at * SECOND, one, OCTETS[one]) for n, (at, one) in enumerate(some)]


def held(present: dict[str, int], left: list[EndedState]) -> int:
    """The octets of all versions that are needed, each once."""
    return sum({**{one.digest: one.octets for one in left}, **present}.values())


@pytest.mark.parametrize(
    ("seconds", "octets", "gone"),
    [
        (None, None, []),
        (600, None, []),
        (500, None, []),  # ended a second before the line, or at it
        (499, None, [0]),
        (498, None, [0, 1]),
        (None, 321, []),
        (None, 320, [0, 1]),  # `a` is in two states, and goes with the later
        (None, 300, [0, 1, 2]),
        (None, 0, [0, 1, 2, 3]),
        (498, 320, [0, 1]),
        (498, 0, [0, 1, 2, 3]),
    ],
)
def test_which_states_go(seconds: int | None, octets: int | None, gone: list[int]) -> None:
    ended = states((100, "a"), (101, "a"), (200, "b"), (300, "c"))
    found = expired(ended[::-1], {}, VersionRetention(seconds=seconds, octets=octets), NOW)
    assert [ended.index(one) for one in found] == gone


@given(
    st.lists(st.tuples(st.integers(0, 600), st.sampled_from("abc")), max_size=8),
    st.sets(st.sampled_from("abc")),
    st.none() | st.integers(0, 700),
    st.none() | st.integers(0, 400),
)
def test_no_state_goes_that_needs_not_to(
    some: list[tuple[int, str]], stays: set[str], seconds: int | None, octets: int | None
) -> None:
    ended, present = states(*some), {one: OCTETS[one] for one in stays}
    gone = expired(ended, present, VersionRetention(seconds=seconds, octets=octets), NOW)
    in_order = sorted(ended, key=lambda one: one.ended_us)
    assert gone == in_order[: len(gone)]
    left = in_order[len(gone) :]
    line = -1 if seconds is None else (600 - seconds) * SECOND
    assert all(one.ended_us >= line for one in left)
    if octets is not None:
        assert not left or held(present, left) <= octets
    if gone and gone[-1].ended_us >= line:  # went for its octets
        assert octets is not None
        assert held(present, [gone[-1], *left]) > octets
