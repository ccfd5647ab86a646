"""Exponential backoff: the pause before a request between hubs, publishers and subscribers is made again. Pure."""

from __future__ import annotations

from typing import Final

_MOST_DOUBLINGS: Final = 20


def backoff_pause(failures: int, chance: float, *, first: float, longest: float) -> float:
    """The seconds after so many failures in a row (1 or more): doubled from `first` up to `longest`, and spread.

    `chance` from 0 to 1 spreads it: a quarter less to a quarter more.
    """
    return float(min(first * 2.0 ** min(failures - 1, _MOST_DOUBLINGS), longest) * (0.75 + chance / 2))
