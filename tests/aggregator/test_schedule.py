"""When sources run and which of them have a place: tables of decisions."""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Iterator

import pytest

from headwater.aggregator.configuration import FollowedSource
from headwater.aggregator.schedule import RunPlace, check_cron, give_way, next_run, starts
from headwater.aggregator.store import SourceState
from headwater.errors import UsageFault
from headwater.sync.sets.polling import PollingHints
from headwater.time_windows import open_seconds, opens_at, windows_of

NOW = dt.datetime(2026, 12, 1, 12, 0, tzinfo=dt.UTC)
HOUR = 3_600.0


@pytest.fixture(autouse=True)
def _in_utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def source(**more: object) -> FollowedSource:
    return FollowedSource(name="a", url="http://a.example.org", **more)  # type: ignore[arg-type]


def hints(retry_after: float | None = None, max_age: float | None = None) -> PollingHints:
    found = PollingHints()
    found.retry_after_seconds, found.max_age_seconds = retry_after, max_age
    return found


@pytest.mark.parametrize(
    ("followed", "more", "seconds"),
    [
        (source(), {}, HOUR),
        (source(), {"chance": 1.0}, 1.1 * HOUR),
        (source(jitter=0.5), {"chance": 0.5}, 1.25 * HOUR),
        (source(every=60.0), {"hints": hints(retry_after=600)}, 600),
        (source(every=60.0), {"hints": hints(retry_after=10**9)}, 86_400),
        (source(every=60.0), {"hints": hints(max_age=300)}, 300),
        (source(), {"hints": hints(max_age=300)}, HOUR),
        (source(), {"failures": 1}, 1.5 * HOUR),
        (source(), {"failures": 2}, 2.25 * HOUR),
        (source(), {"failures": 1_000}, 24 * HOUR),
        (source(every=172_800.0), {"failures": 5}, 48 * HOUR),
        (source(), {"failures": 9, "is_dead": True}, 24 * HOUR),
        (source(every=172_800.0), {"is_dead": True}, 48 * HOUR),
        (source(cron="30 13 * * *"), {}, 1.5 * HOUR),
        (source(cron="0 * * * *"), {}, HOUR),
        (source(cron="0 * * * *"), {"failures": 2}, 3 * HOUR),
        (source(cron="0 * * * *"), {"hints": hints(retry_after=3 * HOUR)}, 3 * HOUR),
        (source(cron="0 * * * *"), {"is_dead": True}, 24 * HOUR),
        (source(), {"windows": [windows_of("22:00-06:00")]}, 10 * HOUR),
        (source(), {"windows": [windows_of("12:30-13:30")]}, HOUR),
        (source(), {"windows": [windows_of("22:00-06:00"), windows_of("05:00-07:00")]}, 17 * HOUR),
    ],
)
def test_the_next_run(followed: FollowedSource, more: dict[str, object], seconds: float) -> None:
    due = next_run(followed, NOW, **more)  # type: ignore[arg-type]
    assert (due - NOW).total_seconds() == pytest.approx(seconds)


def test_summer_time_begins_and_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    nightly = source(cron="30 2 * * *", jitter=0.0)
    before = dt.datetime(2026, 10, 24, 12, 0, tzinfo=dt.UTC)
    first = next_run(nightly, before)
    assert first == dt.datetime(2026, 10, 25, 0, 30, tzinfo=dt.UTC)
    assert next_run(nightly, first) == dt.datetime(2026, 10, 26, 1, 30, tzinfo=dt.UTC)
    spring = dt.datetime(2026, 3, 28, 12, 0, tzinfo=dt.UTC)
    assert dt.timedelta(hours=12) < next_run(nightly, spring) - spring < dt.timedelta(hours=14)


@pytest.mark.parametrize(
    ("text", "at", "seconds"),
    [
        ("22:00-06:00", "23:00", 7 * HOUR),
        ("22:00-06:00", "05:59", 60),
        ("22:00-06:00", "06:00", 0),
        ("08:00-10:00, 12:00-13:00", "12:30", 1_800),
        ("08:00-10:00, 12:00-13:00", "11:00", 0),
    ],
)
def test_for_how_long_a_window_is_open(text: str, at: str, seconds: float) -> None:
    moment = dt.datetime.fromisoformat(f"2026-12-01T{at}:00+00:00")
    assert open_seconds(moment, windows_of(text)) == seconds
    opened = opens_at(moment, [windows_of(text)])
    assert (opened == moment) is (seconds > 0)
    assert open_seconds(opened, windows_of(text)) > 0


def test_windows_that_never_meet_are_no_endless_search() -> None:
    assert opens_at(NOW, [windows_of("08:00-09:00"), windows_of("10:00-11:00")]) > NOW


@pytest.mark.parametrize("text", ["", "22-06", "24:00-06:00", "08:00-08:00", "08:00-09:00;"])
def test_what_is_no_window(text: str) -> None:
    with pytest.raises(UsageFault):
        windows_of(text)


@pytest.mark.parametrize("text", ["", "* * *", "61 * * * *", "0 0 31 2 *"])
def test_what_is_no_cron_line(text: str) -> None:
    with pytest.raises(UsageFault):
        check_cron(text)


def state(name: str, minutes_due: float | None = 1, last: float | None = 0.3, *, wanted: bool = False) -> SourceState:
    due = None if minutes_due is None else NOW - dt.timedelta(minutes=minutes_due)
    return SourceState(name=name, url=name, next_at=due, last_seconds=last, is_wanted_now=wanted)


def place(name: str, began: float = 0.0, turn: float = 10.0, *, long: bool = False, stopping: bool = False) -> RunPlace:
    return RunPlace(name=name, number=1, began=began, turn=turn, is_long=long, is_stopping=stopping)


@pytest.mark.parametrize(
    ("due", "places", "begun", "waiting"),
    [
        ([state("a", 1), state("b", 3), state("c", 2)], [], "bc", 0),
        ([state("a", 9), state("b", 1, wanted=True)], [place("x")], "b", 0),
        ([state("a"), state("long", 5, 60)], [place("x"), place("y")], ["long"], 0),
        ([state("a"), state("new", None, None)], [place("x", long=True), place("y", long=True)], "a", 1),
        ([state("l", 3, 60), state("m", 2, 60), state("n", 1, 60)], [], "lm", 1),
    ],
)
def test_which_sources_begin(due: list[SourceState], places: list[RunPlace], begun: list[str], waiting: int) -> None:
    found, left = starts(due, places, 2)
    assert [one.name for one in found] == list(begun)
    assert left == waiting


@pytest.mark.parametrize(
    ("places", "waiting", "now", "leaving"),
    [
        ([place("a"), place("b", long=True)], 0, 4, ""),
        ([place("a"), place("b", long=True), place("c", long=True)], 0, 6, ""),  # over, and nobody's turn has ended
        ([place("a", 5), place("b", long=True), place("c", turn=8, long=True)], 0, 11, "c"),
        ([place("b", long=True), place("c", turn=8, long=True)], 0, 100, ""),  # nobody waits
        ([place("b", long=True), place("c", turn=8, long=True)], 1, 100, "c"),
        ([place("b", long=True), place("c", turn=8, long=True)], 9, 100, "cb"),
        ([place("b", long=True), place("c", turn=8, long=True, stopping=True)], 1, 100, ""),
    ],
)
def test_which_runs_give_way(places: list[RunPlace], waiting: int, now: float, leaving: str) -> None:
    assert "".join(one.name for one in give_way(places, waiting, 2, now)) == leaving


def test_a_quick_run_that_takes_long_is_a_long_one() -> None:
    one = place("a")
    give_way([one], 0, 1, 4.9)
    assert not one.is_long
    give_way([one], 0, 1, 5.1)
    assert one.is_long
