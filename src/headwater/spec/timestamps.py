"""Times as whole microseconds since 1970 in UTC, the form in which they are kept and compared: exact both ways."""

from __future__ import annotations

import datetime as dt

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_MICROSECOND = dt.timedelta(microseconds=1)
SECOND = 1_000_000


def to_microseconds(moment: dt.datetime) -> int:
    """Microseconds since 1970. Raises ValueError for a time without a zone."""
    if moment.tzinfo is None:
        raise ValueError(f"a time without a zone: {moment.isoformat()}")
    return (moment - _EPOCH) // _MICROSECOND


def from_microseconds(microseconds: int) -> dt.datetime:
    """The aware UTC time that is so many microseconds after 1970. Raises OverflowError outside the years 1 to 9999."""
    return _EPOCH + dt.timedelta(0, 0, microseconds)


def from_optional(microseconds: int | None) -> dt.datetime | None:
    """As `from_microseconds`; None stays None."""
    return None if microseconds is None else from_microseconds(microseconds)
