"""How far a shard was read: every operation once, whenever it becomes visible (late and same-second documents)."""

from __future__ import annotations

import random

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from headwater.ingest.dit.index import (
    OVERLAP_SECONDS,
    WINDOW,
    ShardPosition,
    read_position,
)


@given(st.integers(1, 80), st.integers(0, 2**32), st.floats(0.1, 0.9))
def test_every_operation_is_taken_once_however_late_it_becomes_visible(count: int, seed: int, share: float) -> None:
    chance = random.Random(seed)
    hidden, visible = set(range(count)), set[int]()
    taken: list[int] = []
    position = ShardPosition()
    second = 0
    while hidden or any(position.is_new(number) for number in visible):
        second += 1
        for number in sorted(hidden):
            if chance.random() < share or second > OVERLAP_SECONDS - 3:
                hidden.remove(number)
                visible.add(number)
            elif chance.random() < 0.5:
                break
        found = sorted(number for number in visible if position.is_new(number))[: chance.randrange(1, 9)]
        position.take(found, second)
        taken += found
        position = read_position(msgspec.json.encode(position))  # as after a restart
        position.take([], second - 1)
    assert sorted(taken) == list(range(count))


def test_what_never_becomes_visible_is_forgotten() -> None:
    position = ShardPosition()
    position.take([5], 100)
    assert set(position.gaps) == {0, 1, 2, 3, 4}
    position.take([], 100 + OVERLAP_SECONDS - 1)
    assert position.is_new(3)
    position.take([], 100 + OVERLAP_SECONDS)
    assert position.gaps == {}
    assert not position.is_new(3)


def test_a_position_stays_small() -> None:
    position = ShardPosition()
    position.take([1_000_000_000], 1)
    assert WINDOW - 1 <= len(position.gaps) <= WINDOW
    position.take([2_000_000_000], 1)
    assert WINDOW - 1 <= len(position.gaps) <= WINDOW
    assert position.next == 2_000_000_001


def test_a_page_of_numbers_far_apart_costs_no_more_than_one_window() -> None:
    position = ShardPosition()
    position.take(range(0, 100 * WINDOW, 1_000), 1)
    assert len(position.gaps) < WINDOW
    assert all(position.is_new(position.next - back) for back in range(2, 1_000))
