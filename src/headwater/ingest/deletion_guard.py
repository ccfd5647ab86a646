"""The guard over mass deletions: holds back those that an unmounted disk would cause."""

from __future__ import annotations

from enum import Enum

import msgspec

DEFAULT_SHARE = 0.2
FLOOR = 10
"""So few files may vanish without a question, unless they are all or the folder has moved to another device."""


class HoldReason(Enum):
    """Why deletions are held back."""

    ROOT_MISSING = "the folder is not there"
    ROOT_NOT_FOLDER = "what should be the folder is something else"
    ROOT_UNREADABLE = "the folder cannot be read"
    ROOT_EMPTY = "the folder is suddenly empty: is its file system mounted?"
    ALL_GONE = "everything that was held has vanished"
    TOO_MANY = "too many files have vanished at once"


class DeletionHold(msgspec.Struct, frozen=True):
    """Deletions that were not recorded: how many of how many, and why."""

    reason: HoldReason
    vanished: int
    held: int

    def __str__(self) -> str:
        share = 100 * self.vanished / self.held if self.held else 100
        return f"{self.reason.value}: {self.vanished:,} of {self.held:,} ({share:.0f} %) would be deleted"


def judge(held: int, vanished: int, found: int, share: float, *, device_changed: bool = False) -> DeletionHold | None:
    """None when the deletions may be recorded.

    `held` resources are in the set, of which `vanished` are gone; `found` files are in the folder now. `share` 1 is
    consent to everything, 0 to nothing. Up to `FLOOR` files are no mass, unless they are everything that was held, or
    the device has changed.
    """
    if vanished == 0 or share >= 1:
        return None
    if found == 0:
        return DeletionHold(HoldReason.ROOT_EMPTY, vanished, held)
    floor = 0 if device_changed or share == 0 else FLOOR
    if vanished >= held:
        return DeletionHold(HoldReason.ALL_GONE, vanished, held)
    if vanished > max(floor, share * held):
        return DeletionHold(HoldReason.TOO_MANY, vanished, held)
    return None
