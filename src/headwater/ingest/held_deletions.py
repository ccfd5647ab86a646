"""What a look at a folder has left as it is published: deletions that are held back, and why; unreadable files."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from enum import Enum
from typing import TYPE_CHECKING, Final

import msgspec

from headwater.catalog.interface import Catalog
from headwater.catalog.state import RowKey, StateRow, StateUpdate
from headwater.deletion_guard import FLOOR, consent_for, needs_consent
from headwater.typed_decoding import from_json

if TYPE_CHECKING:
    from headwater.ingest.folder.comparison import UnreadableFiles

_ROW: Final[RowKey] = ("folder", "held back")
_UNREADABLE: Final[RowKey] = ("folder", "unreadable")
_EXAMPLES: Final = 10


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
        consent = consent_for(self.vanished, self.held) if self.reason is HoldReason.TOO_MANY else "1"
        told = f"{self.reason.value}: {self.vanished:,} of {self.held:,} would be deleted"
        return f"{told}; --max-delete {consent} allows that"


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
    if not needs_consent(vanished, held, share, floor=0 if device_changed or share == 0 else FLOOR):
        return None
    return DeletionHold(HoldReason.ALL_GONE if vanished >= held else HoldReason.TOO_MANY, vanished, held)


class HeldBack(msgspec.Struct, frozen=True, kw_only=True):
    """A set whose deletions are held back, and why."""

    set: str
    reason: str


def hold_update(catalog: Catalog, name: str, hold: DeletionHold | None) -> StateUpdate | None:
    """The rows by which it is noted that deletions are held back, or that none are; None where they say so already."""
    noted = catalog.rows(name, [_ROW]).get(_ROW)
    if hold is None:
        return None if noted is None else StateUpdate(delete=[_ROW])
    row = StateRow(*_ROW, str(hold).encode())
    return None if noted == row else StateUpdate(put=[row])


def held_back(catalog: Catalog, names: Collection[str] = ()) -> Iterator[HeldBack]:
    """The sets whose deletions were held back when their folders were last looked at; of all, where none is named."""
    for name, row in _noted(catalog, _ROW, names):
        yield HeldBack(set=name, reason=row.value.decode("utf-8", "replace"))


class Unreadable(msgspec.Struct, frozen=True, kw_only=True):
    """A set with so many files that could not be read, and some of the files or folders that could not, as URIs."""

    set: str
    files: int
    examples: tuple[str, ...]


def unreadable_update(catalog: Catalog, name: str, found: UnreadableFiles) -> StateUpdate | None:
    """The row by which unreadable files are noted, or that there are none; None where it says so already."""
    noted = catalog.rows(name, [_UNREADABLE]).get(_UNREADABLE)
    if not found.count:
        return None if noted is None else StateUpdate(delete=[_UNREADABLE])
    told = Unreadable(set=name, files=found.count, examples=tuple(sorted(found.places)[:_EXAMPLES]))
    row = StateRow(*_UNREADABLE, msgspec.json.encode(told))
    return None if noted == row else StateUpdate(put=[row])


def unreadable(catalog: Catalog, names: Collection[str] = ()) -> Iterator[Unreadable]:
    """The sets with files that could not be read at the last look at their folders; of all, where none is named."""
    for _name, row in _noted(catalog, _UNREADABLE, names):
        yield from_json(row.value, Unreadable)


def _noted(catalog: Catalog, key: RowKey, names: Collection[str]) -> Iterator[tuple[str, StateRow]]:
    for name in sorted(catalog.sets_with_rows(key[0])):
        row = catalog.rows(name, [key]).get(key) if not names or name in names else None
        if row is not None:
            yield name, row
