"""What a set with a folder has to do next, as a table over values and the time."""

from __future__ import annotations

import math
from typing import Any

import pytest

from headwater.source.folder_schedule import (
    AT_ONCE,
    HELD_SECONDS,
    HINTED_SCANS,
    SCANS,
    TICK_SECONDS,
    UNWATCHED_SECONDS,
    FolderSchedule,
    FolderWork,
)

NOW = 1_000.0
QUIET: dict[str, Any] = {"is_begun": True, "scan_at": NOW + 300, "publish_at": NOW + 30}

CASES: dict[str, tuple[dict[str, Any], FolderWork, float]] = {
    "before all the beginning": ({"scan_at": 0.0}, FolderWork.BEGIN, 0.0),
    "which waits for the watch": ({"retry_at": NOW + 5}, FolderWork.BEGIN, NOW + 5),
    "nothing but the regular publication": (QUIET, FolderWork.PUBLISH, NOW + 30),
    "a full scan before all": (
        QUIET | {"scan_at": NOW, "publish_at": NOW - 9, "hints": {b"a"}},
        FolderWork.SCAN,
        NOW,
    ),
    "the regular publication however many hints there are": (
        QUIET | {"publish_at": NOW - 1, "hints": {b"a"}},
        FolderWork.PUBLISH,
        NOW - 1,
    ),
    "hints at once": (QUIET | {"hints": {b"a"}}, FolderWork.HINTS, AT_ONCE),
    "hints before what is left of a round of pages": (
        QUIET | {"hints": {b"a"}, "has_pages_left": True},
        FolderWork.HINTS,
        AT_ONCE,
    ),
    "which goes on when nothing else is due": (QUIET | {"has_pages_left": True}, FolderWork.PUBLISH, AT_ONCE),
    "large files, in the middle of which hints are looked at": (
        QUIET | {"large": {b"a"}, "hints": {b"b"}},
        FolderWork.LARGE,
        AT_ONCE,
    ),
    "a path at its time": (QUIET | {"later": [(NOW + 2, b"a"), (NOW + 1, b"b")]}, FolderWork.HINTS, NOW + 1),
    "no scan while one is under way": (QUIET | {"scan_at": math.inf, "hints": {b"a"}}, FolderWork.HINTS, AT_ONCE),
    "everything again after a failure, when its pause is over": (
        QUIET | {"scan_at": 0.0, "hints": {b"a"}, "retry_at": NOW + 7},
        FolderWork.SCAN,
        NOW + 7,
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_what_is_next(case: str) -> None:
    given, work, at = CASES[case]
    assert FolderSchedule(**given).next_work(NOW) == (work, at)


def test_hints_are_taken_once_and_those_of_later_at_their_time() -> None:
    schedule = FolderSchedule(hints={b"a"}, later=[(NOW + 1, b"b"), (NOW + 2, b"c")])
    assert [schedule.take_hints(NOW + seconds) for seconds in (0, 1, 1, 3)] == [{b"a"}, {b"b"}, set(), {b"c"}]


@pytest.mark.parametrize(
    ("took", "watched", "held_back", "pause"),
    [
        (0.1, True, False, 300.0),
        (0.1, False, False, UNWATCHED_SECONDS),
        (0.1, True, True, HELD_SECONDS),
        (0.1, False, True, UNWATCHED_SECONDS),
        (60.0, True, False, SCANS.pause_after(60.0)),
        (60.0, False, True, SCANS.pause_after(60.0)),
    ],
)
def test_full_scans_are_regular_and_keep_to_their_share(
    took: float, watched: bool, held_back: bool, pause: float
) -> None:
    schedule = FolderSchedule(scan_ended_at=NOW, scan_seconds=took)
    assert schedule.regular_scan_at(300.0, watched=watched, held_back=held_back) == NOW + pause


def test_hints_bring_a_full_scan_forward_and_never_put_it_off() -> None:
    schedule = FolderSchedule(scan_at=NOW + 300, scan_ended_at=NOW, scan_seconds=6.0)
    schedule.scan_for_hints()
    assert schedule.scan_at == pytest.approx(NOW + HINTED_SCANS.pause_after(6.0)) == NOW + 12
    schedule.scan_by(NOW + 1)
    schedule.scan_for_hints()
    assert schedule.scan_at == NOW + 1


def test_a_folder_that_nothing_happens_in_is_published_regularly() -> None:
    assert FolderSchedule(is_begun=True, scan_at=math.inf, publish_at=TICK_SECONDS).next_work(0.0)[1] == TICK_SECONDS
