"""What somebody has to look at in a set: notes in the catalog that `status`, /health and /metrics tell of.

A set has such a row only as long as there is something to tell.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

import msgspec

from headwater.catalog.interface import Catalog
from headwater.catalog.state import RowKey, StateRow, StateUpdate
from headwater.typed_decoding import from_json

HELD_BACK: Final[RowKey] = ("folder", "held back")
_UNREADABLE: Final[RowKey] = ("folder", "unreadable")
_LOST: Final[RowKey] = ("folder", "versions lost")
_EXAMPLES: Final = 10


class HeldBack(msgspec.Struct, frozen=True, kw_only=True):
    """A set whose deletions were held back when they were looked at last, and why."""

    set: str
    reason: str


class UnreadableCount(msgspec.Struct, frozen=True, kw_only=True):
    """A set with so many files that could not be read, and some of the files or folders that could not, as URIs."""

    set: str
    files: int
    examples: tuple[str, ...]


class LostVersions(msgspec.Struct, frozen=True, kw_only=True):
    """A set of which so many versions could not be kept since the last one that could."""

    set: str
    count: int


class SetProblems(msgspec.Struct, frozen=True, kw_only=True):
    """The problems of sets, in the order of their names."""

    held_back: tuple[HeldBack, ...]
    unreadable: tuple[UnreadableCount, ...]
    lost_versions: tuple[LostVersions, ...]


def set_problems(catalog: Catalog, names: Collection[str] = ()) -> SetProblems:
    """The problems of the sets of these names; of all, where none is named. Raises what the catalog raises."""
    held_back, unreadable, lost = list[HeldBack](), list[UnreadableCount](), list[LostVersions]()
    for name in sorted(catalog.sets_with_rows(HELD_BACK[0])):
        if names and name not in names:
            continue
        rows = catalog.rows(name, [HELD_BACK, _UNREADABLE, _LOST])
        if (row := rows.get(HELD_BACK)) is not None:
            held_back.append(HeldBack(set=name, reason=row.value.decode("utf-8", "replace")))
        if (row := rows.get(_UNREADABLE)) is not None:
            unreadable.append(from_json(row.value, UnreadableCount))
        if (row := rows.get(_LOST)) is not None:
            lost.append(LostVersions(set=name, count=int(row.value)))
    return SetProblems(held_back=tuple(held_back), unreadable=tuple(unreadable), lost_versions=tuple(lost))


def unreadable_update(catalog: Catalog, name: str, count: int, places: Collection[str]) -> StateUpdate | None:
    """The row by which so many unreadable files are noted, with some of the places (URIs) where they are, or that there
    are none; None where it says so already."""
    noted = catalog.rows(name, [_UNREADABLE]).get(_UNREADABLE)
    if not count:
        return None if noted is None else StateUpdate(delete=[_UNREADABLE])
    told = UnreadableCount(set=name, files=count, examples=tuple(sorted(places)[:_EXAMPLES]))
    row = StateRow(*_UNREADABLE, msgspec.json.encode(told))
    return None if noted == row else StateUpdate(put=[row])


def versions_update(catalog: Catalog, name: str, lost: int) -> StateUpdate | None:
    """The row by which a look that recorded changes, and could not keep so many versions, is noted; None where none has
    been lost."""
    noted = catalog.rows(name, [_LOST]).get(_LOST)
    if not lost:
        return None if noted is None else StateUpdate(delete=[_LOST])
    before = 0 if noted is None else int(noted.value)
    return StateUpdate(put=[StateRow(*_LOST, b"%d" % (before + lost))])
