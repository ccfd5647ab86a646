"""The deletion guard: more deletions than a share of the copy need consent (DST-B4, DST-F9).

Nothing here touches the network. `difference` and `retry_queue` fill the two tables, `paths` settles the names in them.
"""

from __future__ import annotations

GUARD_SHARE = 0.2
GUARD_COUNT = 10
"""More deletions than this, and more than the share of what is held, need consent (DST-B4, DST-F9)."""


def consent_for(doomed: int, held: int) -> str:
    """The least share, of two digits, with which the guard lets these deletions be made."""
    return f"{min(-(-doomed * 100 // max(held, 1)), 100) / 100:.2f}"


def guard(doomed: int, held: int, consent: float | None) -> bool:
    """Whether so many deletions may be made (DST-B4, DST-F9): without consent neither all nor more than a fifth.

    A fifth that is not more than ten files needs none. `consent` is the share that the user allows.
    """
    if doomed == 0:
        return True
    if consent is not None:
        return doomed <= round(consent * held, 6)  # 0.29 of 100 are 28.999999999999996
    if doomed >= held:
        return False
    return doomed <= GUARD_COUNT or doomed <= GUARD_SHARE * held
