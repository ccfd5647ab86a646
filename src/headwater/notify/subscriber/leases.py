"""When subscriptions are renewed, and requests to hubs repeated. Pure."""

from __future__ import annotations

from typing import Final

from headwater.retry import Backoff

WANTED_SECONDS: Final = 86_400
"""The lease that is asked for: within what hubs should grant (RS-NT-11), and short enough to notice a dead hub by."""

LONGEST_SECONDS: Final = 2_678_400
"""A longer lease that a hub claims to grant is taken for this one (RS-NT-11)."""

ASSUMED_SECONDS: Final = 300
"""What a lease is taken for that a hub does not state as a positive number."""

_FIRST_VERIFICATION: Final = 5.0
_LONGEST_VERIFICATION: Final = 600.0

DENIED_SECONDS: Final = 86_400.0
"""How long a denial holds, before the hub is asked once more (WS-S-13)."""

_FIRST_PAUSE: Final = 0.6
_LONGEST_PAUSE: Final = 600.0
_LEAST_RENEWAL: Final = 1.0
_MOST_DIGITS: Final = 12


def granted_seconds(text: str | None) -> int:
    """The lease that `hub.lease_seconds` of a verification grants, in seconds from 1 to the longest (RS-NT-13)."""
    text = (text or "").strip()
    if not (text.isascii() and text.isdigit() and text.strip("0")):
        return ASSUMED_SECONDS
    digits = text.lstrip("0")
    return LONGEST_SECONDS if len(digits) > _MOST_DIGITS else min(int(digits), LONGEST_SECONDS)


def renewal_seconds(lease: float, chance: float) -> float:
    """After how many seconds of a lease it is renewed: at 50 to 80 % of it, by `chance` in 0 to 1 (WS-S-08)."""
    return max(_LEAST_RENEWAL, lease * (0.5 + 0.3 * chance))


def verification_seconds(failures: int, chance: float) -> float:
    """How long a hub may take to verify what it has accepted, before it is asked again: longer each time."""
    return Backoff(_FIRST_VERIFICATION, _LONGEST_VERIFICATION).seconds(failures + 1, chance)


def pause_seconds(failures: int, chance: float) -> float:
    """The pause before a request is made again that has failed so many times in a row."""
    return Backoff(_FIRST_PAUSE, _LONGEST_PAUSE).seconds(failures, chance)
