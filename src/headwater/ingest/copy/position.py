"""The position in a copy's journal: a row of the set, written with the changes that it stands for (decision 022)."""

from __future__ import annotations

from collections.abc import Collection, Iterator

import msgspec

from headwater.catalog.interface import Catalog
from headwater.catalog.state import RowKey, StateRow
from headwater.copies.copy_state import (
    CopiedSet,
    CopyStateReader,
    JournalEnd,
    count_noted_after,
    journal_end,
    path_noted,
)
from headwater.errors import HeadwaterError
from headwater.typed_decoding import from_msgpack

KIND = "copy"
KEY: RowKey = (KIND, "position")


class CopyPosition(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How far a set has been read: entry `seq`, of `path`, of the journal of this id, for the copy's set `set_id`.

    `is_partial`: what is not held has not been looked for yet, so a comparison has to follow. `origin` is the
    Capability List of the set at its source, `place` the copy's folder, for who wants to know.
    """

    journal: str
    set_id: int
    folder: str
    origin: str
    place: str = ""
    seq: int
    path: bytes | None = None
    is_partial: bool = False

    def row(self) -> StateRow:
        """The row that keeps it."""
        return StateRow(*KEY, msgspec.msgpack.encode(self))


def read_position(value: bytes) -> CopyPosition:
    """A position as it is kept."""
    return from_msgpack(value, CopyPosition)


def position_at(end: JournalEnd, copied: CopiedSet, place: str = "") -> CopyPosition:
    """The position of who has looked at everything that this state of the copy holds of a set."""
    return CopyPosition(
        journal=end.id,
        set_id=copied.id,
        folder=copied.folder,
        origin=copied.identity,
        place=place,
        seq=end.last,
        path=end.path,
    )


def leads_to(position: CopyPosition, end: JournalEnd, copied: CopiedSet | None, noted: bytes | None) -> bool:
    """Whether the journal leads from a position to what a copy now holds; else all of it is compared.

    `noted` is the path of the position's entry, if it is kept. A set that the copy has forgotten (`copied` None) is
    followed by the journal to its end.
    """
    if copied is not None:
        if (copied.id, copied.folder) != (position.set_id, position.folder):
            return False
        if position.is_partial and copied.is_whole:
            return False
    return leads_on(position, end, noted)


def leads_on(position: CopyPosition, end: JournalEnd, noted: bytes | None) -> bool:
    """Whether the journal has all that came after a position: it is that of the same state, and no entry is missing.

    A state that was brought back from a copy has the same id and another entry in the position's place, or none yet.
    """
    if position.journal != end.id or position.seq > end.last:
        return False
    if position.seq == 0:
        return end.first <= 1
    return position.seq >= end.first and noted == position.path


class CopyLag(msgspec.Struct, frozen=True, kw_only=True):
    """A set that publishes the copy in the folder `copy`, of the set whose Capability List at its source is `origin`.

    `waiting`: changes of the copy that are not recorded yet; None where that cannot be told from here, as `fault` says,
    or where all is to be compared.
    """

    set: str
    copy: str
    origin: str
    waiting: int | None
    fault: str | None = None


def copy_lags(catalog: Catalog, names: Collection[str] = ()) -> Iterator[CopyLag]:
    """The sets of a catalog that publish copies, by name; all, where none is named."""
    for name in sorted(catalog.sets_with_rows(KIND)):
        row = catalog.rows(name, [KEY]).get(KEY)
        if row is None or (names and name not in names):
            continue
        position = read_position(row.value)
        lag = CopyLag(set=name, copy=position.place, origin=position.origin, waiting=None)
        try:
            state = CopyStateReader(position.place)
        except HeadwaterError as fault:
            yield msgspec.structs.replace(lag, fault=fault.what)
            continue
        try:
            with state.read() as t:
                if leads_on(position, journal_end(t), path_noted(t, position.seq)):
                    lag = msgspec.structs.replace(lag, waiting=count_noted_after(t, position.set_id, position.seq))
        except HeadwaterError as fault:
            lag = msgspec.structs.replace(lag, fault=fault.what)
        finally:
            state.close()
        yield lag
