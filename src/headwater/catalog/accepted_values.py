"""The texts and times that a catalog can keep, on any backend: texts with UTF-8 octets, times with a zone."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence

from headwater.catalog.faults import Unacceptable
from headwater.spec import timestamps


def is_text(text: str) -> bool:
    """Whether the text has UTF-8 octets; a lone surrogate cannot even be asked for."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


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
