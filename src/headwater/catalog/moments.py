"""The times that a catalog can keep: those with a zone."""

from __future__ import annotations

import datetime as dt

from headwater.catalog.interface import Unacceptable
from headwater.spec import moments


def to_microseconds(moment: dt.datetime) -> int:
    """Microseconds since 1970. Raises Unacceptable for a time without a zone."""
    try:
        return moments.to_microseconds(moment)
    except ValueError as cause:
        raise Unacceptable(str(cause)) from cause


def to_optional(moment: dt.datetime | None) -> int | None:
    """As `to_microseconds`; None stays None."""
    return None if moment is None else to_microseconds(moment)
