"""The deletion guard: how many of the resources held may be deleted at once without consent (DST-B4, DST-F9).

An unmounted disk and a list that was cut look like a mass of deletions.
"""

from __future__ import annotations

DEFAULT_SHARE = 0.2
FLOOR = 10
"""So many may be deleted without consent, unless they are all."""


def needs_consent(deleted: int, held: int, share: float = DEFAULT_SHARE, *, floor: int = FLOOR) -> bool:
    """Whether these deletions are to be held back: all of what is held, or more than `share` of it and than `floor`.

    With a `share` of 1 none are.
    """
    if deleted == 0 or share >= 1:
        return False
    return deleted >= held or deleted > max(floor, round(share * held, 6))  # 0.29 of 100 are 28.999999999999996


def consent_for(deleted: int, held: int) -> str:
    """The least share, of two digits, that lets these deletions be made whatever their number is."""
    return f"{min(-(-deleted * 100 // max(held, 1)), 100) / 100:.2f}"
