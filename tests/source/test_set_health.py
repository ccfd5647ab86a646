"""How a failure becomes health: told when it is new, shown until all goes well, tried again after growing pauses."""

from __future__ import annotations

import datetime as dt
import errno
from itertools import count

import pytest

from headwater.errors import StoreFault
from headwater.progress import Notice, Progress
from headwater.source.set_health import Failures, SetHealth

NOON = dt.datetime(2026, 1, 1, 12, tzinfo=dt.UTC)


def test_pauses_double_up_to_a_minute_for_each_thing_by_itself() -> None:
    failures, fault = Failures(SetHealth(name="s"), lambda: NOON, lambda _event: None), StoreFault("the disk is full")
    assert not failures
    assert [failures.add("a", fault) for _ in range(9)] == [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0]
    assert failures.add("b", fault) == 0.5
    failures.worked("a")
    assert failures
    assert failures.add("a", fault) == 0.5


def test_a_failure_is_told_once_and_shown_until_nothing_fails() -> None:
    heard: list[Notice | Progress] = []
    health = SetHealth(name="s")
    hours = count()
    failures = Failures(health, lambda: NOON + dt.timedelta(hours=next(hours)), heard.append)

    def fails() -> None:
        raise StoreFault("the disk is full")

    assert [failures.attempt("index", fails), failures.attempt("index", fails)] == [0.5, 1.0]
    assert failures.attempt("publication", fails) == 0.5
    assert [one.message for one in heard if isinstance(one, Notice)] == [
        "the set 's' cannot be brought up to date, and is tried again: the disk is full"
    ]
    assert (health.phase, health.failures, health.error) == ("failing", 3, "the disk is full")
    assert (health.failing_since, health.error_at) == (NOON, NOON + dt.timedelta(hours=2))
    assert failures.attempt("index", lambda: None) is None
    assert health.error == "the disk is full", "the publication still fails"
    assert failures.attempt("publication", lambda: None) is None
    now = health  # narrowed by the asserts above
    assert (now.failures, now.error, now.failing_since) == (0, None, None)


@pytest.mark.parametrize(
    ("fault", "code", "text"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), "HW-STO-01", "No space left on device"),
        (OSError(errno.EACCES, "Permission denied", "/s/x"), "HW-STO-01", "Permission denied (/s/x)"),
        (OSError(errno.EINVAL, "Invalid argument"), "HW-000", "OSError: [Errno 22] Invalid argument"),
    ],
)
def test_a_disk_that_fails_while_a_dump_is_packed_is_no_bug_of_ours(fault: OSError, code: str, text: str) -> None:
    """The log and /health told them as bugs of the program, which the reference says to report."""
    heard: list[Notice | Progress] = []
    health = SetHealth(name="s")
    health.add(fault, heard.append, "it lags behind")
    assert heard == [Notice(code, f"it lags behind: {text}")]
    assert (health.error_code, health.error) == (code, text)
