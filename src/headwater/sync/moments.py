"""Times as whole microseconds since 1970 UTC, the form in which they are stored and compared."""

from __future__ import annotations

import datetime as dt

from headwater.spec.datetimes import Coarse, format_datetime

EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_DAY = 86_400_000_000
SECOND = 1_000_000


def micros(moment: dt.datetime | None) -> int | None:
    """The moment as a number; a coarse one is its period's start (AMB-06)."""
    if moment is None:
        return None
    delta = moment - EPOCH
    return delta.days * _DAY + delta.seconds * SECOND + delta.microseconds


def last_micros(moment: dt.datetime) -> int:
    """The last moment that a time may mean: a coarse one's period ends just before its `until` (AMB-06)."""
    if isinstance(moment, Coarse):
        return (micros(moment.until) or 0) - 1
    return micros(moment) or 0


def moment(number: int | None) -> dt.datetime | None:
    """The number as aware UTC."""
    return None if number is None else EPOCH + dt.timedelta(microseconds=number)


def text(number: int | None) -> str | None:
    """The number as the standard writes it, or None."""
    at = moment(number)
    return None if at is None else format_datetime(at)
