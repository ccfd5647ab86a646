"""The rule of the deletion guard, which source and destination share (DST-B4, DST-F9)."""

from __future__ import annotations

import pytest

from headwater.quantities import DEFAULT_SHARE, FLOOR, consent_for, needs_consent


@pytest.mark.parametrize(
    ("deleted", "held", "share", "floor", "held_back"),
    [
        (0, 0, DEFAULT_SHARE, FLOOR, False),
        (1, 1, DEFAULT_SHARE, FLOOR, True),
        (3, 3, DEFAULT_SHARE, FLOOR, True),
        (10, 11, DEFAULT_SHARE, FLOOR, False),
        (11, 54, DEFAULT_SHARE, FLOOR, True),
        (11, 55, DEFAULT_SHARE, FLOOR, False),
        (6, 30, DEFAULT_SHARE, FLOOR, False),
        (12, 60, DEFAULT_SHARE, FLOOR, False),
        (13, 60, DEFAULT_SHARE, FLOOR, True),
        (10, 100, 0.0001, FLOOR, False),
        (55, 55, 1.0, 0, False),
        (55, 55, 0.99, 0, True),
        (1, 100, 0.0, 0, True),
        (15, 30, 0.5, 0, False),
        (16, 30, 0.5, 0, True),
        (29, 100, 0.29, 0, False),
        (30, 100, 0.29, 0, True),
        (1, 3, 0.33, 0, True),
        (1, 3, 0.34, 0, False),
    ],
)
def test_which_deletions_need_consent(deleted: int, held: int, share: float, floor: int, held_back: bool) -> None:
    assert needs_consent(deleted, held, share, floor=floor) is held_back


def test_the_share_that_is_named_is_consent_enough() -> None:
    """A third is not 0.33, and 0.29 of 100 are less than 29 in binary."""
    for held in range(1, 160):
        for deleted in range(1, held + 1):
            assert not needs_consent(deleted, held, int(consent_for(deleted, held)[:-1]) / 100, floor=0), (
                deleted,
                held,
            )
