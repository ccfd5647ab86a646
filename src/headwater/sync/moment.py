"""The moment of `--at`: a W3C Datetime as a user writes it, to the last microsecond that it means."""

from __future__ import annotations

from headwater.errors import UsageFault
from headwater.spec.times import Coarse, Leniency, parse_datetime
from headwater.sync.source_times import format_micros, last_micros, micros

_ADVICE = "Give --at as 2026-11-12T10:00:00Z, with a zone, or as 2026-11-12, which is the end of that day in UTC."


def moment_of(text: str) -> int:
    """The last moment that `text` means: of a day (in UTC), or of a minute, its end. Raises UsageFault.

    What the source has recorded up to and including this moment counts.
    """
    try:
        moment, forgiven = parse_datetime(text)
    except ValueError as cause:
        raise UsageFault(f"--at: {cause}", advice=_ADVICE) from cause
    if Leniency.NO_ZONE in forgiven:
        raise UsageFault(f"--at: a time without a zone: {text[:40]!r}", advice=_ADVICE)
    return last_micros(moment)


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
    raise UsageFault(f"--at: {format_micros(moment)} lies in the future", advice=_ADVICE)
