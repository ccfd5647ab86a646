"""When something is done again: pauses after failures, waits that a server asks for, shares of the time; no clock."""

import datetime as dt
import re
from functools import lru_cache
from typing import Final

import msgspec

LONGEST_ASKED_SECONDS: Final = 1e9
"""A longer wait that is asked for is taken for this one, about thirty years."""

LONGEST_WAIT_SECONDS: Final = 60.0
"""A longer wait that is asked for is not waited for within a run."""

_MOST_DOUBLINGS: Final = 32
_DELTA: Final = re.compile(r"\d+\Z", re.ASCII)


class Backoff(msgspec.Struct, frozen=True):
    """Pauses after failures in a row: `first` seconds, then each twice as long as the last, up to `longest`."""

    first: float
    longest: float

    def seconds(self, failures: int, chance: float = 0.5) -> float:
        """The pause after so many failures (1 or more).

        `chance` from 0 to 1 spreads it, a quarter less to a quarter more, so that many that have failed at one time do
        not come back in step.
        """
        return min(self.first * 2.0 ** min(failures - 1, _MOST_DOUBLINGS), self.longest) * (0.75 + chance / 2)


class TimeShare(msgspec.Struct, frozen=True):
    """Work that comes again and again and is at most this share of the time (more than 0, less than 1)."""

    of_time: float

    def pause_after(self, worked_seconds: float) -> float:
        """How many seconds to pause at least after so much work."""
        return worked_seconds * (1.0 / self.of_time - 1.0)

    def work_after(self, paused_seconds: float) -> float:
        """How many seconds of work a pause has room for: the inverse of `pause_after`."""
        return paused_seconds / (1.0 / self.of_time - 1.0)


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
    if (until := http_second(value)) is None:
        return None
    answered_at = http_second(date)
    return min(max(0.0, until - (now if answered_at is None else answered_at)), LONGEST_ASKED_SECONDS)


_LONGEST_DATE: Final = 64
_has_early_year = re.compile(r"(?<!\S)00\d\d(?!\S)", re.ASCII).search
"""Finds a year before 100, which some servers send for want of a time; by the rules of mail it would be of our days."""
_LEAP_SECOND: Final = re.compile(r"(:\d\d):60\b", re.ASCII)


@lru_cache(maxsize=256)
def http_second(text: str | None) -> int | None:
    """Seconds since 1970 of an HTTP date in any of its forms; None when there is none, or it is before the year 100."""
    if not text or len(text) > _LONGEST_DATE or _has_early_year(text):
        return None
    from email.utils import parsedate_to_datetime  # imported here: slow to load, and not every run needs it

    try:
        at = parsedate_to_datetime(_LEAP_SECOND.sub(r"\1:59", text))
        return int((at if at.tzinfo is not None else at.replace(tzinfo=dt.UTC)).timestamp())
    except (ValueError, TypeError, OverflowError, IndexError):
        return None
