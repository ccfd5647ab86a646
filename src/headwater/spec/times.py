"""Times: W3C Datetime, all six forms, to aware UTC and back (RS-TIME-01…03, AMB-06, AMB-26), and whole microseconds."""

import datetime as dt
import re
from enum import Enum

UTC = dt.UTC
_END = dt.datetime.max.replace(tzinfo=UTC)


class Leniency(Enum):
    """The deviations of a time from W3C Datetime that are accepted (AMB-06)."""

    NO_ZONE = "a time without a zone was taken as UTC"
    ODD_ZONE = "a zone offset without a colon"
    LOWER_CASE = "lower-case t or z"
    COMMA = "a comma before the fraction"
    SPACE = "a space instead of T"


class Coarse(dt.datetime):
    """A time that was written coarser than a second: it equals its period's start, and `until` is the period's end."""

    until: dt.datetime


_FORM = re.compile(
    r"(?P<year>\d{4})(?:-(?P<month>\d\d)(?:-(?P<day>\d\d)"
    r"(?:(?P<t>[Tt ])(?P<hour>\d\d):(?P<minute>\d\d)(?::(?P<second>\d\d)(?P<fraction>[.,]\d+)?)?"
    r"(?P<zone>[Zz]|[+-]\d\d:?\d\d)?)?)?)?\Z",
    re.ASCII,
)


def parse_datetime(text: str) -> tuple[dt.datetime, tuple[Leniency, ...]]:
    """Read one W3C Datetime and say what had to be forgiven.

    Digits finer than a microsecond are dropped. Raises ValueError when the text is no form of it, or no real time.
    """
    match = _FORM.match(text.strip())
    if match is None:
        raise ValueError(f"not a W3C Datetime: {text[:40]!r}")
    year, month, day = int(match["year"]), int(match["month"] or 1), int(match["day"] or 1)
    if match["t"] is None:
        start = dt.datetime(year, month, day, tzinfo=UTC)
        return _coarse(
            start, _period_end(start, has_month=match["month"] is not None, has_day=match["day"] is not None)
        ), ()
    return _timed(match, year, month, day)


def _timed(match: re.Match[str], year: int, month: int, day: int) -> tuple[dt.datetime, tuple[Leniency, ...]]:
    forgiven = []
    if match["t"] == " ":
        forgiven.append(Leniency.SPACE)
    zone = match["zone"]
    if match["t"] == "t" or zone == "z":
        forgiven.append(Leniency.LOWER_CASE)
    if zone is None:
        forgiven.append(Leniency.NO_ZONE)
    elif len(zone) == 5:
        forgiven.append(Leniency.ODD_ZONE)
    fraction = match["fraction"] or ""
    if fraction.startswith(","):
        forgiven.append(Leniency.COMMA)
    micro = int(fraction[1:7].ljust(6, "0")) if fraction else 0
    second = int(match["second"] or 0)
    leap = second == 60  # a leap second is a real time that datetime cannot hold: take the second after
    local = dt.datetime(year, month, day, int(match["hour"]), int(match["minute"]), 59 if leap else second, micro)
    try:
        moment = (local + dt.timedelta(seconds=1 if leap else 0) - _offset(zone)).replace(tzinfo=UTC)
    except OverflowError as cause:
        raise ValueError("a time outside the years 1 to 9999") from cause
    if match["second"] is None:
        is_last = moment > _END - dt.timedelta(minutes=1)
        return _coarse(moment, _END if is_last else moment + dt.timedelta(minutes=1)), tuple(forgiven)
    return moment, tuple(forgiven)


def _offset(zone: str | None) -> dt.timedelta:
    if zone is None or zone in "Zz":
        return dt.timedelta()
    hours, minutes = int(zone[1:3]), int(zone[-2:])
    if hours > 23 or minutes > 59:
        raise ValueError(f"not a zone offset: {zone!r}")
    offset = dt.timedelta(hours=hours, minutes=minutes)
    return -offset if zone[0] == "-" else offset


def _period_end(start: dt.datetime, *, has_month: bool, has_day: bool) -> dt.datetime:
    try:
        if has_day:
            return start + dt.timedelta(days=1)
        if has_month:
            return start.replace(year=start.year + start.month // 12, month=start.month % 12 + 1)
        return start.replace(year=start.year + 1)
    except (ValueError, OverflowError):
        return _END


def _coarse(start: dt.datetime, until: dt.datetime) -> Coarse:
    moment = Coarse(
        start.year, start.month, start.day, start.hour, start.minute, start.second, start.microsecond, tzinfo=UTC
    )
    moment.until = until
    return moment


def format_datetime(moment: dt.datetime) -> str:
    """Write complete UTC with `Z`, to the second or, when there is a fraction, to the microsecond (RS-TIME-02)."""
    if moment.tzinfo is None:
        raise ValueError("a time without a zone cannot be written")
    text = moment.astimezone(UTC).replace(tzinfo=None)
    return text.isoformat(timespec="microseconds" if text.microsecond else "seconds") + "Z"


EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
MICROSECOND = dt.timedelta(microseconds=1)
SECOND = 1_000_000


def to_microseconds(moment: dt.datetime) -> int:
    """Microseconds since 1970. Raises ValueError for a time without a zone."""
    try:
        return (moment - EPOCH) // MICROSECOND
    except TypeError as cause:
        raise ValueError(f"a time without a zone: {moment.isoformat()}") from cause


def from_microseconds(microseconds: int) -> dt.datetime:
    """The aware UTC time that is so many microseconds after 1970. Raises OverflowError outside the years 1 to 9999."""
    return EPOCH + dt.timedelta(0, 0, microseconds)


def from_optional(microseconds: int | None) -> dt.datetime | None:
    """As `from_microseconds`; None stays None."""
    return None if microseconds is None else from_microseconds(microseconds)
