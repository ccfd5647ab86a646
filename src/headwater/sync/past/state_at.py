"""The state of one resource at a moment, by what lists of other moments tell of it: pure rules over values.

An answer is right or it is "not known". Evidence are snapshots (Resource Lists, each of which was true at some moment
from its `at` to its `completed`), changes, and the periods of which all changes are told. All times are those of the
source, in microseconds.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from headwater.sync.lists.archives import ToldPeriods


class ToldChange(msgspec.Struct, frozen=True, gc=False):
    """One change of the resource: some time from `low` to `high` (the same where it is known), and its row."""

    low: int
    high: int
    kind: str
    """`created`, `updated` or `deleted`."""

    row: int = 0


class Sighting(msgspec.Struct, frozen=True, gc=False):
    """What a snapshot, which was true at some moment from `at` to `through`, has of the resource: a row, or nothing."""

    at: int
    through: int
    row: int | None = None


class Listed(msgspec.Struct, frozen=True, gc=False, tag=True):
    """It was there, as the row of a snapshot says."""

    row: int
    changed_after: int | None = None
    """When it was changed next, where that is known."""


class Changed(msgspec.Struct, frozen=True, gc=False, tag=True):
    """It was there, as the row of a change says, which was the last one until then."""

    row: int
    changed_after: int | None = None


class Absent(msgspec.Struct, frozen=True, gc=False, tag=True):
    """It was not there."""


class Existed(msgspec.Struct, frozen=True, gc=False, tag=True):
    """It was there, and nothing tells in which state."""

    changed_after: int | None = None


class Unknown(msgspec.Struct, frozen=True, gc=False, tag=True):
    """Nobody can tell whether it was there."""

    changed_after: int | None = None


StateAt = Listed | Changed | Absent | Existed | Unknown


def state_at(moment: int, changes: Sequence[ToldChange], sightings: Sequence[Sighting], told: ToldPeriods) -> StateAt:
    """The state at `moment`, by the `changes` of one resource in the order in which they were, and by `sightings`.

    1. The last change until then counts, where none after it can be missing.
    2. A snapshot counts, where the resource did not change between the snapshot and the moment.
    3. Where the first change after it is told, and none before that can be missing, it says whether there was anything.
    """
    later = [change for change in changes if change.low > moment]
    earlier = [change for change in changes if change.high <= moment]
    following = later[0].low if later else None
    if len(later) + len(earlier) < len(changes):
        return Unknown(following)  # a change without a certain time, which may have been before or after
    last = earlier[-1] if earlier else None
    if last is not None and told.tells(last.high, moment):
        return Absent() if last.kind == "deleted" else Changed(last.row, following)
    for seen in sightings:
        if _still_was(moment, seen, changes, told):
            return Absent() if seen.row is None else Listed(seen.row, following)
    if later and told.tells(moment, later[0].high):
        return Absent() if later[0].kind == "created" else Existed(following)
    return Unknown(following)


def span_of(moment: int, at: int, through: int) -> tuple[int, int]:
    """The period in which nothing may have changed if a snapshot is to tell of the moment: later than, up to.

    A change at the very `at` of a snapshot may be in it or not; a snapshot of the moment itself is taken at its word.
    """
    return at - 1 if at < moment else moment, max(through, moment)


def _still_was(moment: int, seen: Sighting, changes: Sequence[ToldChange], coverage: ToldPeriods) -> bool:
    after, until = span_of(moment, seen.at, seen.through)
    if not coverage.tells(after, until):
        return False
    return not any(change.high > after and change.low <= until for change in changes)
