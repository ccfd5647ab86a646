"""The rules of position as tables, and the law: however a list grows, all changes are done (DST-5.1, DST-5.2)."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.sync.lists.position import (
    ChangeListFingerprint,
    IndexedList,
    Interval,
    Position,
    Style,
    Times,
    advance,
    closedness,
    effective,
    is_bound,
    is_gap,
    is_past,
    kept_bound,
    mark_of,
    not_back,
    position_of_list,
    select,
    told_until,
    unprocessed,
)
from headwater.sync.source_times import DAY, SECOND
from tests.support.examples import examples

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
    chosen, is_torn = select(parts, None, since)
    assert [part.uri for part in chosen] == uris, what
    assert is_torn is gap, what


def test_gap() -> None:
    assert is_gap(8, 7)
    assert not is_gap(7, 7)
    assert not is_gap(None, 7)
    assert not is_gap(8, None)


EFFECTIVE = [
    ("explicit", exact(1, 2), Style.DATETIME, [(1, 1, True), (2, 2, True)], []),
    (
        "unknown lies between its neighbours",
        exact(1, None, 3),
        Style.DATETIME,
        [(1, 1, True), (1, 3, False), (3, 3, True)],
        [],
    ),
    ("unknown at the ends", exact(None, 2, None), Style.DATETIME, [(0, 2, False), (2, 2, True), (2, NOW, False)], []),
    ("backwards is unknown (DST-C9)", exact(5, 2), Style.DATETIME, [(5, 5, True), (5, NOW, False)], [1]),
    (
        "backwards after a coarse time that reaches back",
        [Times(5, 5), Times(1, 9), Times(3, 3)],
        Style.DATETIME,
        [(5, 5, True), (1, 9, False), (5, NOW, False)],
        [2],
    ),
    ("far future is unknown (AMB-27)", exact(5, NOW + 2 * DAY), Style.DATETIME, [(5, 5, True), (5, NOW, False)], [1]),
    ("a coarse time is an interval", [Times(5, 9)], Style.DATETIME, [(5, 9, False)], []),
    ("lastmod, 1.0", [Times(None, None, 4)], Style.LASTMOD, [(4, 4, True)], []),
    (
        "lastmod never beside datetime (AMB-18)",
        [Times(None, None, 4), *exact(5)],
        Style.DATETIME,
        [(0, 5, False), (5, 5, True)],
        [],
    ),
    ("no style", [Times(None, None, 4)], Style.NONE, [(0, NOW, False)], []),
]


@pytest.mark.parametrize(("what", "times", "style", "intervals", "odd"), EFFECTIVE)
def test_effective(
    what: str, times: list[Times], style: Style, intervals: list[tuple[int, int, bool]], odd: list[int]
) -> None:
    found = effective(times, style, 0, None, NOW)
    assert [(i.low, i.high, i.exact) for i in found.intervals] == intervals, what
    assert found.odd == odd, what
    assert found.fallen == ([] if "future" in what else odd), what


STYLES = [
    ([Times(1, 1, 1)], Style.DATETIME),
    ([Times(None, None, 1), Times(None, None, 1)], Style.LASTMOD),
    ([Times(None, None, 2), Times(None, None, 1)], Style.NONE),
    ([Times(None, None, 99)], Style.NONE),
    ([Times(None, None, 1), Times(None, None, None)], Style.LASTMOD),
    ([Times(None, None, 1), Times(3, 3, None)], Style.DATETIME),
    ([Times()], Style.NONE),
]


@pytest.mark.parametrize(("times", "style"), STYLES)
def test_style(times: list[Times], style: Style) -> None:
    assert Style.of(times, 0, 10) is style


UNPROCESSED = [
    ("earlier is done", [Interval(4, 4, True)], None, []),
    ("later is not", [Interval(6, 6, True)], None, [0]),
    ("at T is done again", [Interval(5, 5, True)] * 2, None, [0, 1]),
    ("unknown that may be later", [Interval(1, 5, False)], None, [0]),
    ("unknown that cannot be", [Interval(1, 4, False)], None, []),
    ("known, and nothing of it is done", [Interval(1, 1, True)], 0, [0]),
    ("known front is done whatever its time", [Interval(9, 9, True), Interval(1, 1, True)], 1, [1]),
]


@pytest.mark.parametrize(("what", "intervals", "done", "left"), UNPROCESSED)
def test_unprocessed(what: str, intervals: list[Interval], done: int | None, left: list[int]) -> None:
    assert unprocessed(intervals, Position(time=5), done) == left, what


def test_t_never_goes_back() -> None:
    """DST-F12; the marks are those of T, and only of T."""
    position = Position(time=5, at_time={"a": 1})
    assert advance(position, [Interval(3, 3, True)], ["b"]) == (5, {"a": 1})
    assert advance(position, [Interval(5, 5, True)], ["b"]) == (5, {"a": 1, "b": 1})
    assert advance(position, [Interval(5, 5, True)], ["a"]) == (5, {"a": 1})
    assert advance(position, [Interval(7, 7, True), Interval(7, 7, True)], ["b", "b"]) == (7, {"b": 1})
    assert advance(position, [Interval(6, 9, False)], ["b"]) == (6, {})


CLOSES = [
    ((0, None), False, False, False),
    ((0, 6), False, True, False),
    ((0, NOW + DAY), False, False, True),
    ((7, 6), False, False, True),
    ((0, 4), True, False, True),
]


@pytest.mark.parametrize(("values", "has_later", "is_closed", "is_odd"), CLOSES)
def test_closedness(values: tuple[int, int | None], has_later: bool, is_closed: bool, is_odd: bool) -> None:
    """DST-C7."""
    found, remark = closedness(*values, NOW, has_later=has_later)
    assert found is is_closed
    assert (remark is not None) is is_odd


class Log:
    """A list that grows, read as the destination reads it. There are two resources."""

    def __init__(self, times: list[int | None]) -> None:
        self.times = times
        self.names = [str(n % 2) for n in range(len(times))]
        self.position = Position(time=0)
        self.done: list[int] = []

    def poll(self, count: int, *, known: bool) -> None:
        seen = [Times(t, t) for t in self.times[:count]]
        marks = [mark_of(name, "updated") for name in self.names[:count]]
        uri, from_ = ("list", 0) if known else (f"list{count}", None)
        fingerprint = ChangeListFingerprint(self.position, uri, from_)
        for number in range(count):
            fingerprint.see(self.names[number], "updated", self.times[number], None, None)
        intervals = effective(seen, Style.DATETIME, 0, None, 10_000).intervals
        self.done += unprocessed(intervals, self.position, fingerprint.done)
        time, at_time = advance(self.position, intervals, marks)
        self.position = Position(
            time=time,
            at_time=at_time,
            list_uri=uri,
            list_from=from_,
            count=count,
            fingerprint=fingerprint.hexdigest(),
            open=True,
        )


@settings(max_examples=examples(300))
@given(
    st.lists(st.one_of(st.none(), st.integers(1, 30)), max_size=25),
    st.lists(st.integers(0, 25), max_size=6),
)
def test_a_known_list_is_done_once(times: list[int | None], stops: list[int]) -> None:
    """Every entry exactly once, whatever times it has or lacks, in whatever steps the list grows."""
    log = Log(times)
    for stop in sorted(min(stop, len(times)) for stop in stops):
        log.poll(stop, known=True)
    log.poll(len(times), known=True)
    assert log.done == list(range(len(times)))


@settings(max_examples=examples(300))
@given(st.lists(st.one_of(st.none(), st.integers(1, 30)), max_size=25), st.lists(st.integers(0, 25), max_size=6))
def test_a_list_that_moves_loses_nothing(times: list[int | None], stops: list[int]) -> None:
    """Under ever new addresses only the times count: nothing is lost, though it may be done again, harmlessly."""
    known = [t for t in times if t is not None]
    ordered = iter(sorted(known))
    log = Log([None if t is None else next(ordered) for t in times])
    for stop in sorted(min(stop, len(times)) for stop in stops):
        log.poll(stop, known=False)
    log.poll(len(times), known=False)
    assert set(log.done) == set(range(len(times)))


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
    intervals = effective(exact(*times), Style.DATETIME, from_, None, read_at).intervals
    assert [(one.low, one.high) for one in intervals] == expected


@pytest.mark.parametrize(
    ("told", "newest", "time", "expected"),
    [(None, 5, 9, 5), (7, 5, 9, 7), (None, 9, 9, None), (9, 5, 9, None), (None, None, 9, None), (None, 5, None, None)],
)
def test_told_is_before_t_or_says_nothing(
    told: int | None, newest: int | None, time: int | None, expected: int | None
) -> None:
    """Else entries that are done are taken for new, or new ones for done (DST-4.5)."""
    assert told_until(Position(), Position(told=told, list_uri="a"), newest, time) == expected


@pytest.mark.parametrize(
    ("uri", "from_", "is_known"), [("a", 1, True), ("b", 1, True), ("a", 2, False), ("a", None, False)]
)
def test_a_list_is_known_by_its_address_and_where_it_begins(uri: str, from_: int | None, is_known: bool) -> None:
    """Of another one the first entries are not done because so many were (DST-5.2); lists move when they close."""
    first = ChangeListFingerprint(Position(), "a", 1)
    again = ChangeListFingerprint(Position(list_uri="a", list_from=1, count=2, fingerprint="x"), uri, from_)
    assert (first.comparable, again.comparable) == (False, is_known)


@pytest.mark.parametrize(
    ("list_time", "before", "after"),
    [
        (50, None, Position(time=50)),
        (50, Position(), Position(time=50)),
        (50, Position(time=40, told=30), Position(time=50)),
        (50, Position(time=50, told=30), Position(time=50, told=30)),
        (50, Position(time=60, told=55), Position(time=60, told=55)),
        (None, Position(time=60, told=55), Position(time=60, told=55)),
        (50, Position(time=60, list_uri="a", count=2), Position(time=60, list_uri="a", count=2)),
    ],
)
def test_a_baseline_never_takes_t_back_dst_f12(list_time: int | None, before: Position | None, after: Position) -> None:
    """And what was read of Change Lists is remembered."""
    assert not_back(Position(time=list_time), before) == after


@given(st.integers(0, 10 * SECOND))
def test_the_bound_of_an_unknown_time_is_the_end_of_its_second(high: int) -> None:
    """Else a change of the same second would be taken for an earlier one, and passed over."""
    kept = kept_bound(high)
    assert high <= kept < high + SECOND
    assert is_bound(kept)


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
    ("at", "claimed", "told"),
    [(5, 9, 5), (9, 9, None), (10, 9, None), (None, 9, None), (5, None, None), (None, None, None)],
)
def test_a_list_that_claims_more_than_it_can_know_is_believed_up_to_then(
    at: int | None, claimed: int | None, told: int | None
) -> None:
    assert position_of_list(at, claimed) == Position(time=claimed, told=told)
