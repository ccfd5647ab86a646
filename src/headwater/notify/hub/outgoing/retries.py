"""When a failed request to a subscriber is made again. Pure."""

from __future__ import annotations

from typing import Final

from headwater.retry import Backoff

FIRST_SECONDS: Final = 0.6
LONGEST_SECONDS: Final = 1_800.0


def pause_seconds(failures: int, chance: float) -> float:
    """The pause after so many failures in a row: it doubles from 0.6 s up to half an hour, a quarter less or more.

    `chance` is from 0 to 1. The first is less than a second.
    """
    return Backoff(FIRST_SECONDS, LONGEST_SECONDS).seconds(failures, chance)


VERIFICATION_PAUSES: Final = (0.6, 3.0)
"""Before a callback that did not answer at all is asked again for its intent; then the request has failed."""
