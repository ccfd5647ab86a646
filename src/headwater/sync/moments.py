"""The source's times as numbers, where there may be none and where one may mean a whole period (AMB-06)."""

from __future__ import annotations

import datetime as dt

from headwater.spec.datetimes import Coarse, format_datetime
from headwater.spec.moments import SECOND as SECOND
from headwater.spec.moments import from_optional, to_microseconds


def micros(moment: dt.datetime | None) -> int | None:
    """The moment as microseconds since 1970; a coarse one is its period's start."""
    return None if moment is None else to_microseconds(moment)


def last_micros(moment: dt.datetime) -> int:
    """The last moment that a time may mean: a coarse one's period ends just before its `until`."""
    if isinstance(moment, Coarse):
        return to_microseconds(moment.until) - 1
    return to_microseconds(moment)


def text(number: int | None) -> str | None:
    """The number as the standard writes it, or None."""
    at = from_optional(number)
    return None if at is None else format_datetime(at)
