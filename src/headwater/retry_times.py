"""Retry times: exponential backoff, and the wait that a `Retry-After` field asks for. Pure, without a clock."""

from __future__ import annotations

import re
from typing import Final

LONGEST_ASKED_SECONDS: Final = 1e9
"""A longer wait that is asked for is taken for this one, about thirty years."""

LONGEST_WAIT_SECONDS: Final = 60.0
"""A longer wait that is asked for is not waited for within a run."""

_MOST_DOUBLINGS: Final = 32
_DELTA: Final = re.compile(r"\d+\Z", re.ASCII)


def backoff_seconds(failures: int, chance: float, *, first: float, longest: float) -> float:
    """The pause after so many failures in a row (1 or more): doubled from `first` up to `longest`, and spread.

    `chance` from 0 to 1 spreads it, a quarter less to a quarter more, so that many that have failed at one time do not
    come back in step.
    """
    return float(min(first * 2.0 ** min(failures - 1, _MOST_DOUBLINGS), longest) * (0.75 + chance / 2))


def retry_after_seconds(value: str | None, date: str | None, now: float) -> float | None:
    """The wait that a `Retry-After` header asks for, in seconds from now; None when there is none or it is unreadable.

    An HTTP date (RFC 9110, 10.2.3) is measured against the answer's own `date` header when it has one, because another
    machine's time is never compared with ours (DST-C8); else against `now`, seconds since the epoch.
    """
    if value is None:
        return None
    value = value.strip()
    if _DELTA.match(value):
        return min(float(value), LONGEST_ASKED_SECONDS)
    if (until := _http_date(value)) is None:
        return None
    answered_at = _http_date(date) if date else None
    return min(max(0.0, until - (now if answered_at is None else answered_at)), LONGEST_ASKED_SECONDS)


def _http_date(text: str) -> float | None:
    from email.utils import mktime_tz, parsedate_tz  # imported here: rarely needed, slow to load

    parts = parsedate_tz(text)
    if parts is None:
        return None
    try:
        return float(mktime_tz(parts))
    except (ValueError, OverflowError):
        return None
