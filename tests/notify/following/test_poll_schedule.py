"""When a copy that is followed by push is polled."""

from __future__ import annotations

import pytest

from headwater.http.follow_push import PollSchedule
from headwater.sync.sets.polling import PollInterval, slow_interval


def polled(seconds: float = 60.0, longest: float | None = None, **more: bool) -> PollSchedule:
    """A schedule whose first poll ended at 100."""
    schedule = PollSchedule(interval=PollInterval(seconds, longest))
    assert schedule.due_at(is_pushed=False) == 0.0
    ended(schedule, 100.0, **more)
    return schedule


def ended(schedule: PollSchedule, now: float, *, is_busy: bool = False, has_failed: bool = False) -> None:
    schedule.history.polled(is_busy=is_busy, has_failed=has_failed)
    schedule.polled(now, chance=0.0)


@pytest.mark.parametrize(
    ("seconds", "longest", "slow"), [(1, None, 600), (60, None, 1_200), (60, 90, 90), (0.1, 0.2, 0.2)]
)
def test_push_makes_polls_seldom(seconds: float, longest: float | None, slow: float) -> None:
    assert slow_interval(PollInterval(seconds, longest)).seconds == slow
    assert polled(seconds, longest).due_at(is_pushed=True) == pytest.approx(100 + slow)


def test_without_push_it_is_polled_as_ever() -> None:
    assert polled(is_busy=True).due_at(is_pushed=False) == 160
    assert polled(60, 90).due_at(is_pushed=False) == 190  # quiet: the interval grows


def test_a_failed_poll_is_repeated_later_and_later() -> None:
    schedule = polled(has_failed=True)
    first = schedule.due_at(is_pushed=False)
    ended(schedule, first, is_busy=False, has_failed=True)
    assert schedule.due_at(is_pushed=False) - first > first - 100 >= 60


def test_polls_that_fail_are_no_quiet_ones() -> None:
    """A source that is back after an outage is polled as often as before it, not as seldom as after a quiet night."""
    schedule = polled(60, 86_400, is_busy=True)
    for number in range(1, 11):
        ended(schedule, 100.0 * number, is_busy=False, has_failed=True)
    ended(schedule, 5_000.0, is_busy=True, has_failed=False)
    assert schedule.due_at(is_pushed=False) == 5_060
    for number in range(1, 11):
        ended(schedule, 5_000.0 + 100 * number, is_busy=False, has_failed=True)
    ended(schedule, 9_000.0, is_busy=False, has_failed=False)
    assert schedule.due_at(is_pushed=False) == 9_090  # the first quiet one, not the eleventh


def test_early_polls_come_more_and_more_seldom_until_one_is_not_early() -> None:
    schedule, now, gaps = polled(), 100.0, []
    for _ in range(12):
        schedule.ask(now)
        due = schedule.due_at(is_pushed=True)
        gaps.append(due - now)
        now = due
        ended(schedule, now, is_busy=False, has_failed=False)
    assert gaps[0] == 0.0
    assert gaps == sorted(gaps)
    assert gaps[-1] == 60.0
    late = schedule.due_at(is_pushed=False)
    ended(schedule, late, is_busy=False, has_failed=False)
    schedule.ask(late)
    assert schedule.due_at(is_pushed=True) == late


def test_of_several_wishes_for_a_poll_the_first_counts() -> None:
    schedule = polled()
    schedule.ask(100.0, 5.0)
    schedule.ask(100.0, 1.0)
    schedule.ask(100.0, 9.0)
    assert schedule.due_at(is_pushed=True) == 101.0
