"""Decides whether packages in which resources were left out are named, wait for a scan, or are refused: by values."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto

import msgspec

from headwater.publish.publication_state import ResourceDumpState
from headwater.publish.rendering.dump_packer import Due
from headwater.publish.resource_dumps.dump_plan import PackingPlan
from headwater.publish.resource_dumps.packing import PackedPage

MASS_SECONDS = 30.0
"""Between two looks at a page of which too much cannot be had."""
MOST_TRIES = 8
"""So often, with pauses of two minutes all together, it is looked whether a change tells of what was left out …"""
FEW_TRIES = 2
"""… and so often once that was in vain for a page of the set: many files may be away, their deletions held back."""
_FIRST_PAUSE = 0.5

DuePage = Due[ResourceDumpState, PackingPlan, PackedPage | None]


class Waiting(msgspec.Struct, frozen=True, kw_only=True):
    """What the packing of a set waits for; times are those of a clock that only runs on.

    `pending` is a page that is packed and waits for the changes of what was left out, until `not_before`; `tries` are
    the looks at pages, by number. `is_in_vain`: looking was in vain for the last page. While too much cannot be had,
    nothing is packed until `held_until`. `missing` are URIs of what was left out of pages that this process has packed.
    """

    pending: DuePage | None = None
    not_before: float = 0.0
    held_until: float = 0.0
    tries: Mapping[int, int] = {}
    is_in_vain: bool = False
    missing: Mapping[int, tuple[str, ...]] = {}

    @property
    def is_held_back(self) -> bool:
        """Whether the last page that was packed lacked too much."""
        return self.held_until > 0.0


class PageOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """What packing a page came to: how many resources were left out because they are not as they were recorded, and of
    how many of these no later change tells. `is_mass`: so much cannot be had as if a disk were not mounted."""

    page: int
    unsettled: int = 0
    untold: int = 0
    is_mass: bool = False


class PackageVerdict(Enum):
    """What becomes of packages."""

    NAMED = auto()
    WAITING = auto()
    """A destination that goes on from this dump by changes would never come to know of what was left out."""
    REFUSED = auto()
    """What was named before stays."""


def judged(waiting: Waiting, outcome: PageOutcome, now: float) -> tuple[Waiting, PackageVerdict]:
    """What becomes of the packages of a page, and what the set waits for then.

    Not for ever: what is never as it was recorded cannot be fetched by its URI, either.
    """
    replace = msgspec.structs.replace
    if outcome.is_mass:
        return replace(waiting, held_until=now + MASS_SECONDS), PackageVerdict.REFUSED
    waiting = replace(waiting, held_until=0.0)
    if not outcome.unsettled:
        return waiting, PackageVerdict.NAMED
    tries = waiting.tries.get(outcome.page, 0) + 1
    waiting = replace(waiting, tries={page: count for page, count in waiting.tries.items() if page != outcome.page})
    if not outcome.untold:
        return replace(waiting, is_in_vain=False), PackageVerdict.NAMED
    if tries >= (FEW_TRIES if waiting.is_in_vain else MOST_TRIES):
        return replace(waiting, is_in_vain=True), PackageVerdict.NAMED
    not_before = now + _FIRST_PAUSE * 2.0**tries
    return replace(waiting, tries={**waiting.tries, outcome.page: tries}, not_before=not_before), PackageVerdict.WAITING
