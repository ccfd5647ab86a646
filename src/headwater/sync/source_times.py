"""Times of a source: which `at` and which clock is believed, and each time as microseconds since 1970 (AMB-06)."""

import datetime as dt
from collections.abc import Mapping

from headwater.errors import UsageFault
from headwater.spec.times import SECOND as SECOND
from headwater.spec.times import Coarse, Leniency, format_datetime, from_optional, parse_datetime, to_microseconds
from headwater.transport.response import http_date_micros as http_date_micros

DAY = 86_400 * SECOND
FUTURE = DAY
"""A time further than this beyond the answer's own clock cannot be meant (AMB-27)."""

DATE_LAG = 10 * SECOND
"""How far a time of the source may be ahead of the answer's `Date`, which is of whole seconds, and be right."""


def micros(moment: dt.datetime | None) -> int | None:
    """The moment as microseconds since 1970; a coarse one is its period's start."""
    return None if moment is None else to_microseconds(moment)


def last_micros(moment: dt.datetime) -> int:
    """The last moment that a time may mean: a coarse one's period ends just before its `until`."""
    if isinstance(moment, Coarse):
        return to_microseconds(moment.until) - 1
    return to_microseconds(moment)


def format_micros(number: int | None) -> str | None:
    """The number as the standard writes it, or None."""
    at = from_optional(number)
    return None if at is None else format_datetime(at)


def mtime_ns(lastmod: int | None, last_modified: str | None = None) -> int | None:
    """The modification time of a file: as listed, else as sent, else none; none that a file system cannot keep."""
    at = lastmod if lastmod is not None else http_date_micros(last_modified)
    return at * 1000 if at is not None and -(1 << 31) * SECOND <= at < 8_000_000_000 * SECOND else None


def strong_last_modified(headers: Mapping[str, str]) -> str | None:
    """The `Last-Modified` of an answer, where it tells this state from a later one (DST-C1; RFC 9110, 8.8.2.2).

    It is precise to a second: what was modified in the second of the answer, or just before, may be so once more. An
    ETag beside it decides alone, and without a `Date` nothing is certain.
    """
    value = headers.get("last-modified")
    if value is None or headers.get("etag"):
        return value
    modified, answered = http_date_micros(value), http_date_micros(headers.get("date"))
    return value if modified is not None and answered is not None and answered - modified >= 2 * SECOND else None


def believed_at(at: int | None, clock: int, reached: int | None) -> int | None:
    """The latest moment of which a Resource List can be whose answer has the `Date` `clock` (AMB-27, DST-C8).

    Nothing is listed before it is. But where T, the time that changes have `reached`, is ahead of that `Date` too, all
    of the source's clock is, and what it states is right by that clock.
    """
    if at is None or at <= clock + DATE_LAG:
        return at
    if reached is not None and reached > clock + DATE_LAG:
        return min(at, reached + FUTURE)
    return clock


def source_clock(clock: int, since: int | None, from_: int | None, newest: int | None) -> int:
    """What the source's own clock said at least, when it answered with the `Date` `clock` (DST-C8).

    It had come to T and to the list's `from`; where these are days ahead, to the latest time of a change as well.
    """
    known = max(clock, since or 0, from_ or 0)
    return max(known, newest or 0) if known > clock + FUTURE else known


_ADVICE = "Give {} as 2026-11-12T10:00:00Z, with a zone, or as 2026-11-12, which is the {} of that day in UTC."


def moment_of(text: str, option: str = "--at", *, begin: bool = False) -> int:
    """The last moment that `text` means: of a day (in UTC), or of a minute, its end, or its `begin`. Raises UsageFault.

    What the source has recorded up to and including this moment counts.
    """
    advice = _ADVICE.format(option, "begin" if begin else "end")
    try:
        moment, forgiven = parse_datetime(text)
    except ValueError as cause:
        raise UsageFault(f"{option}: {cause}", advice=advice) from cause
    if Leniency.NO_ZONE in forgiven:
        raise UsageFault(f"{option}: a time without a zone: {text[:40]!r}", advice=advice)
    return to_microseconds(moment) if begin else last_micros(moment)


def check_past(text: str, now: int) -> int:
    """The same, of a moment that has passed by `now`. Raises UsageFault."""
    moment = moment_of(text)
    if moment <= now:
        return moment
    started, _ = parse_datetime(text)
    begins = micros(started) or 0
    if isinstance(started, Coarse) and begins <= now:
        what = f"--at: {text.strip()} has not ended: it means its end, {format_micros(moment)}"
        raise UsageFault(what, advice="Give a time of that day, such as 2026-11-12T10:00:00Z.")
    raise UsageFault(f"--at: {format_micros(moment)} lies in the future", advice=_ADVICE.format("--at", "end"))
