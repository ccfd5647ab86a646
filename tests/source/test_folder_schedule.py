"""What a set has to do next, as a table over values and the time."""

from __future__ import annotations

import math
from typing import Any

import pytest

from headwater.source.published_folder import SCANS, UNWATCHED_SECONDS, PublishedFolder
from headwater.source.set_health import SetHealth
from headwater.source.worker import AT_ONCE, HELD_SECONDS, HINTED_LOOKS, TICK_SECONDS, Schedule, SetWork

NOW = 1_000.0
QUIET: dict[str, Any] = {"is_begun": True, "look_at": NOW + 300, "publish_at": NOW + 30}

CASES: dict[str, tuple[dict[str, Any], SetWork, float]] = {
    "before all the beginning": ({"look_at": 0.0}, SetWork.BEGIN, 0.0),
    "which waits for the watch": ({"retry_at": NOW + 5}, SetWork.BEGIN, NOW + 5),
    "nothing but the regular publication": (QUIET, SetWork.PUBLISH, NOW + 30),
    "a full scan before all": (
        QUIET | {"look_at": NOW, "publish_at": NOW - 9, "hints": {b"a"}},
        SetWork.LOOK,
        NOW,
    ),
    "the regular publication however many hints there are": (
        QUIET | {"publish_at": NOW - TICK_SECONDS - 1, "hints": {b"a"}},
        SetWork.PUBLISH,
        NOW - 1,
    ),
    "hints before the regular publication that is only a little late": (
        QUIET | {"publish_at": NOW - 1, "hints": {b"a"}},
        SetWork.HINTS,
        AT_ONCE,
    ),
    "hints at once": (QUIET | {"hints": {b"a"}}, SetWork.HINTS, AT_ONCE),
    "hints before what is left of a round of pages": (
        QUIET | {"hints": {b"a"}, "publish_at": NOW},
        SetWork.HINTS,
        AT_ONCE,
    ),
    "which goes on when nothing else is due": (QUIET | {"publish_at": NOW}, SetWork.PUBLISH, NOW),
    "a path at its time": (QUIET | {"later": [(NOW + 2, b"a"), (NOW + 1, b"b")]}, SetWork.HINTS, NOW + 1),
    "no scan while one is under way": (QUIET | {"look_at": math.inf, "hints": {b"a"}}, SetWork.HINTS, AT_ONCE),
    "everything again after a failure, when its pause is over": (
        QUIET | {"look_at": 0.0, "hints": {b"a"}, "retry_at": NOW + 7},
        SetWork.LOOK,
        NOW + 7,
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_what_is_next(case: str) -> None:
    given, work, at = CASES[case]
    assert Schedule(**given).next_work(NOW) == (work, at)


def test_hints_are_taken_once_and_those_of_later_at_their_time() -> None:
    schedule = Schedule(hints={b"a"}, later=[(NOW + 1, b"b"), (NOW + 2, b"c")])
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
    folder = PublishedFolder.__new__(PublishedFolder)
    folder._rescan_seconds = 300.0
    health = SetHealth(name="files", watching=watched, held_back="the folder is away" if held_back else None)
    assert folder.pause_after(took, health) == pause


def test_hints_bring_a_full_scan_forward_and_never_put_it_off() -> None:
    schedule = Schedule(look_at=NOW + 300, look_ended_at=NOW, look_seconds=6.0)
    schedule.look_for_hints()
    assert schedule.look_at == pytest.approx(NOW + HINTED_LOOKS.pause_after(6.0)) == NOW + 12
    schedule.look_by(NOW + 1)
    schedule.look_for_hints()
    assert schedule.look_at == NOW + 1


def test_a_folder_that_nothing_happens_in_is_published_regularly() -> None:
    assert Schedule(is_begun=True, look_at=math.inf, publish_at=TICK_SECONDS).next_work(0.0)[1] == TICK_SECONDS
