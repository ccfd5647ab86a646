"""The times that a catalog can keep: those with a zone."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence

from headwater.catalog.interface import Unacceptable
from headwater.spec import timestamps


def to_microseconds(moment: dt.datetime) -> int:
    """Microseconds since 1970. Raises Unacceptable for a time without a zone."""
    try:
        return timestamps.to_microseconds(moment)
    except ValueError as cause:
        raise Unacceptable(str(cause)) from cause


def all_to_microseconds(all_: Sequence[dt.datetime | None]) -> list[int | None]:
    """As `to_optional` of each."""
    try:
        return [None if moment is None else timestamps.to_microseconds(moment) for moment in all_]
    except ValueError as cause:
        raise Unacceptable(str(cause)) from cause


def to_optional(moment: dt.datetime | None) -> int | None:
    """As `to_microseconds`; None stays None."""
    return None if moment is None else to_microseconds(moment)
