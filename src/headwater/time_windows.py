"""Windows of the day in which something may run, such as 22:00-06:00, in the local time of the machine."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterable
from typing import Final

from headwater.errors import UsageFault

_MINUTES_A_DAY: Final = 1_440
_WINDOW: Final = re.compile(r"([01]\d|2[0-3]):([0-5]\d)-([01]\d|2[0-3]):([0-5]\d)")
_MOST_STEPS: Final = 60

Windows = tuple[tuple[int, int], ...]
"""Beginnings and ends in minutes of the day; an end before its beginning is one of the next day."""


def windows_of(text: str | None) -> Windows:
    """The windows of a text such as 22:00-06:00, or of several with commas. Raises UsageFault."""
    found = []
    for part in () if text is None else text.split(","):
        match = _WINDOW.fullmatch(part.strip())
        if match is None or match.group(1, 2) == match.group(3, 4):
            raise UsageFault(f"window: {text!r:.60} is no window, such as 22:00-06:00")
        hour, minute, end_hour, end_minute = map(int, match.groups())
        found.append((hour * 60 + minute, end_hour * 60 + end_minute))
    return tuple(found)


def open_seconds(moment: dt.datetime, windows: Windows) -> float:
    """For how many seconds a window is still open at this moment; 0: none is."""
    if not windows:
        return float("inf")
    local = moment.astimezone()
    minute = local.hour * 60 + local.minute + (local.second + local.microsecond / 1e6) / 60
    left = ((end - minute) % _MINUTES_A_DAY for begin, end in windows if _is_within(minute, begin, end))
    return max(left, default=0.0) * 60


def _is_within(minute: float, begin: int, end: int) -> bool:
    return begin <= minute < end if begin < end else minute >= begin or minute < end


def opens_at(moment: dt.datetime, all_windows: Iterable[Windows]) -> dt.datetime:
    """The first moment from this one on at which each of these has an open window."""
    several = [one for one in all_windows if one]
    for _ in range(_MOST_STEPS):
        closed = next((one for one in several if not open_seconds(moment, one)), None)
        if closed is None:
            break
        local = moment.astimezone()
        minute = local.hour * 60 + local.minute
        wait = min((begin - minute) % _MINUTES_A_DAY or _MINUTES_A_DAY for begin, _ in closed)
        wall = local.replace(tzinfo=None, second=0, microsecond=0) + dt.timedelta(minutes=wait)
        moment = wall.astimezone(dt.UTC)  # of a naive time: that of the machine, summer time and all
    return moment
