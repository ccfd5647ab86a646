"""The rules of position as tables, and the law: however a list grows, all changes are done (DST-5.1, DST-5.2)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.sync.lists.position import (
    NEVER,
    ChangeListFingerprint,
    IndexedList,
    Position,
    Times,
    effective,
    is_gap,
    is_past,
    kept_bound,
    leaves_gap,
    position_of_list,
    touching,
)
from headwater.sync.source_times import DAY, SECOND

NOW = 1_000


def exact(*times: int | None) -> list[Times]:
    return [Times(t, t) for t in times]


SELECTIONS = [
    ("closed before T is skipped", [IndexedList("a", 0, 5), IndexedList("b", 5, None)], 7, ["b"], False),
    ("until = T is read (AMB-11)", [IndexedList("a", 0, 7), IndexedList("b", 7, None)], 7, ["a", "b"], False),
    ("unstated is always read", [IndexedList("a"), IndexedList("b", 5, 6)], 9, ["a"], False),
    ("document order, never sorted (H3)", [IndexedList("z", 0, 9), IndexedList("a", 9, None)], 1, ["z", "a"], False),
    ("the oldest begins after T", [IndexedList("a", 8, 9), IndexedList("b", 9, None)], 7, ["a", "b"], True),
    ("from = T is no gap", [IndexedList("a", 7, None)], 7, ["a"], False),
    ("a hole after T (AMB-23)", [IndexedList("a", 0, 5), IndexedList("b", 9, None)], 7, ["b"], True),
    ("a hole further on", [IndexedList("a", 0, 8), IndexedList("b", 9, None)], 7, ["a", "b"], True),
    ("everything is past", [IndexedList("a", 0, 5)], 7, [], False),
    (
        "a hole after T in an index that is not in order",
        [IndexedList("b", 9, 20), IndexedList("a", 6, 8)],
        7,
        ["b", "a"],
        True,
    ),
    ("no hole, not in order", [IndexedList("b", 8, 20), IndexedList("a", 6, 8)], 7, ["b", "a"], False),
    ("it ends before it begins, after T", [IndexedList("a", 20, 5)], 7, ["a"], True),
    ("it ends before it begins, and T lies behind", [IndexedList("a", 20, 5)], 25, ["a"], False),
    ("it begins where another ends", [IndexedList("a", 0, 8), IndexedList("b", 8, 5)], 7, ["a", "b"], False),
    ("it closes no hole before it", [IndexedList("a", 0, 8), IndexedList("b", 9, 3)], 7, ["a", "b"], True),
    ("nor one after it", [IndexedList("b", 6, 3), IndexedList("c", 9)], 7, ["b", "c"], True),
    (
        "no `from` may be any",
        [IndexedList("a", None, 8), IndexedList("b", 9)],
        7,
        ["a", "b"],
        False,
    ),
    ("nothing known: everything", [IndexedList("a", 8, 9)], None, ["a"], False),
]


@pytest.mark.parametrize(("what", "parts", "since", "uris", "gap"), SELECTIONS)
def test_select(what: str, parts: list[IndexedList], since: int | None, uris: list[str], gap: bool) -> None:
    chosen = touching(parts, -NEVER if since is None else since, NEVER)
    assert [part.uri for part in chosen] == uris, what
    assert leaves_gap(chosen, None, since) is gap, what


def test_gap() -> None:
    assert is_gap(8, 7)
    assert not is_gap(7, 7)
    assert not is_gap(None, 7)
    assert not is_gap(8, None)


EFFECTIVE = [
    ("explicit", exact(1, 2), [(1, 1, True), (2, 2, True)], []),
    (
        "unknown lies between its neighbours",
        exact(1, None, 3),
        [(1, 1, True), (1, 3, False), (3, 3, True)],
        [],
    ),
    ("unknown at the ends", exact(None, 2, None), [(0, 2, False), (2, 2, True), (2, NOW, False)], []),
    ("backwards is unknown (DST-C9)", exact(5, 2), [(5, 5, True), (5, NOW, False)], [1]),
    (
        "backwards after a coarse time that reaches back",
        [Times(5, 5), Times(1, 9), Times(3, 3)],
        [(5, 5, True), (1, 9, False), (5, NOW, False)],
        [2],
    ),
    ("far future is unknown (AMB-27)", exact(5, NOW + 2 * DAY), [(5, 5, True), (5, NOW, False)], [1]),
    ("a coarse time is an interval", [Times(5, 9)], [(5, 9, False)], []),
    ("lastmod, 1.0", [Times(None, None, 4)], [(4, 4, True)], []),
    (
        "lastmod never beside datetime (AMB-18)",
        [Times(None, None, 4), *exact(5)],
        [(0, 5, False), (5, 5, True)],
        [],
    ),
    ("no time", [Times()], [(0, NOW, False)], []),
]


@pytest.mark.parametrize(("what", "times", "intervals", "odd"), EFFECTIVE)
def test_effective(what: str, times: list[Times], intervals: list[tuple[int, int, bool]], odd: list[int]) -> None:
    found = effective(times, 0, None, NOW)
    assert [(i.low, i.high, i.exact) for i in found.intervals] == intervals, what
    assert found.odd_count == len(odd), what
    assert found.fallen == ([] if "future" in what else odd), what


@pytest.mark.parametrize(
    ("lastmods", "is_time"),
    [((1, 1), True), ((2, 1), False), ((99,), False), ((1, None), True), ((None,), False)],
)
def test_a_lastmod_in_order_and_of_the_period_is_the_time(lastmods: tuple[int | None, ...], is_time: bool) -> None:
    """AMB-21: a list of ResourceSync 1.0 has no other time of its changes."""
    found = effective([Times(None, None, one) for one in lastmods], 0, 10, NOW)
    assert found.intervals[0].exact is is_time


@pytest.mark.parametrize(
    ("times", "from_", "read_at", "expected"),
    [
        ([None], 100, 50, [(100, 100)]),  # a list that begins after its answer was sent
        ([None], None, 50, [(None, 50)]),
        ([10, None, 30], 0, 50, [(10, 10), (10, 30), (30, 30)]),
        ([None, 40, None], 5, 50, [(5, 40), (40, 40), (40, 50)]),
    ],
)
def test_what_has_no_time_lies_between_its_neighbours_and_never_backwards(
    times: list[int | None], from_: int | None, read_at: int, expected: list[tuple[int | None, int | None]]
) -> None:
    intervals = effective(exact(*times), from_, None, read_at).intervals
    assert [(one.low, one.high) for one in intervals] == expected


def test_the_last_entry_is_known_again_in_another_list() -> None:
    """DST-C10: by all that it states; in a list that was read before the digest of its front counts."""
    first = ChangeListFingerprint(Position(), "a", 1)
    for number in range(2):
        first.see("uri", "updated", number, None, None)
    before = Position(list_uri="a", list_from=1, count=2, fingerprint=first.hexdigest(), last=first.last)
    for uri, from_, times, is_known in (("b", 2, (1, 5), True), ("b", 2, (0, 5), False), ("a", 1, (0, 1), False)):
        again = ChangeListFingerprint(before, uri, from_)
        for number in times:
            again.see("uri", "updated", number, None, None)
        assert again.has_last is is_known


@pytest.mark.parametrize(
    ("uri", "from_", "is_known"), [("a", 1, True), ("b", 1, True), ("a", 2, False), ("a", None, False)]
)
def test_a_list_is_known_by_its_address_and_where_it_begins(uri: str, from_: int | None, is_known: bool) -> None:
    """Of another one the first entries are not done because so many were (DST-5.2); lists move when they close."""
    first = ChangeListFingerprint(Position(), "a", 1)
    again = ChangeListFingerprint(Position(list_uri="a", list_from=1, count=2, fingerprint="x"), uri, from_)
    assert (first.comparable, again.comparable) == (False, is_known)


@given(st.integers(0, 10 * SECOND))
def test_the_bound_of_an_unknown_time_is_the_end_of_its_second(high: int) -> None:
    """Else a change of the same second would be taken for an earlier one, and passed over."""
    kept = kept_bound(high)
    assert high <= kept < high + SECOND
    assert kept % SECOND == SECOND - 1


@pytest.mark.parametrize(
    ("moment", "since", "past"),
    [
        (SECOND, SECOND, False),
        (SECOND, SECOND + 1, False),  # a whole second may mean any moment in it (AMB-06)
        (SECOND, 2 * SECOND - 1, False),
        (SECOND, 2 * SECOND, True),
        (SECOND + 1, SECOND + 2, True),
        (SECOND + 2, SECOND + 1, False),
        (0, SECOND, True),
    ],
)
def test_what_is_past_for_certain(moment: int, since: int, past: bool) -> None:
    assert is_past(moment, since) is past


@pytest.mark.parametrize(
    ("at", "claimed", "time", "reach"),
    [(5, 9, 5, 9), (9, 9, 9, 9), (10, 9, 10, 10), (None, 9, None, None), (5, None, 5, 5), (None, None, None, None)],
)
def test_a_list_that_claims_more_than_it_can_know_is_believed_up_to_then(
    at: int | None, claimed: int | None, time: int | None, reach: int | None
) -> None:
    found = position_of_list(at, claimed)
    assert (found.time, found.done_until, found.reach) == (time, time, reach)
