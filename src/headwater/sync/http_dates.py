"""HTTP dates as numbers: the usual form at once, the others by the standard library, which takes long to load."""

from __future__ import annotations

import datetime as dt
import re
from functools import lru_cache

from headwater.sync.moments import SECOND, micros

_IMF_DATE = re.compile(
    r"[A-Z][a-z]{2}, (\d\d) ([A-Z][a-z]{2}) (\d{4}) ([01]\d|2[0-3]):([0-5]\d):([0-5]\d) GMT\Z", re.ASCII
)
_MONTHS = {
    name: number
    for number, name in enumerate(
        ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"), start=1
    )
}
_EPOCH_DAY = dt.date(1970, 1, 1).toordinal()


@lru_cache(maxsize=1024)
def http_micros(value: str | None) -> int | None:
    """An HTTP date as a number, or None when it is absent or no date."""
    if not value:
        return None
    usual = _IMF_DATE.match(value)
    if usual is not None and (month := _MONTHS.get(usual[2])):
        try:
            days = dt.date(int(usual[3]), month, int(usual[1])).toordinal() - _EPOCH_DAY
        except ValueError:
            return None
        return (days * 86_400 + int(usual[4]) * 3_600 + int(usual[5]) * 60 + int(usual[6])) * SECOND
    from email.utils import parsedate_to_datetime  # imported here: rarely needed, slow to load

    try:
        at = parsedate_to_datetime(value)
        return micros(at) if at.tzinfo is not None else None
    except (ValueError, TypeError, OverflowError, IndexError):
        return None
