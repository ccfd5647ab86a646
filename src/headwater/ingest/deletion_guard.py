"""The deletion guard of a set: holds a mass of deletions back until somebody consents (DST-B4); notes of problems.

Notes say what somebody has to look at (`status`, /health, /metrics). A set has one as long as there is something to
tell.
"""

import datetime as dt
from collections.abc import Callable, Collection
from enum import Enum
from typing import ClassVar, Final

import msgspec

from headwater.catalog.interface import NO_UPDATE, Catalog, RowKey, StateRow, StateUpdate
from headwater.errors import Exit, StoreFault
from headwater.quantities import FLOOR, consent_for, needs_consent
from headwater.spec.times import to_microseconds
from headwater.typed_decoding import from_json, from_msgpack

HELD_BACK: Final[RowKey] = ("folder", "held back")
_UNREADABLE: Final[RowKey] = ("folder", "unreadable")
_LOST: Final[RowKey] = ("folder", "versions lost")
FEED_FAULT: Final[RowKey] = ("folder", "feed fault")
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


class FeedFault(msgspec.Struct, frozen=True, kw_only=True):
    """A set whose index or repository cannot be read, and why."""

    set: str
    fault: str


class SetProblems(msgspec.Struct, frozen=True, kw_only=True):
    """The problems of sets, in the order of their names."""

    held_back: tuple[HeldBack, ...]
    unreadable: tuple[UnreadableCount, ...]
    lost_versions: tuple[LostVersions, ...]
    feeds: tuple[FeedFault, ...]


def set_problems(catalog: Catalog, names: Collection[str] = ()) -> SetProblems:
    """The problems of the sets of these names; of all, where none is named. Raises what the catalog raises."""
    held_back, unreadable, lost = list[HeldBack](), list[UnreadableCount](), list[LostVersions]()
    feeds = list[FeedFault]()
    for name in sorted(catalog.sets_with_rows(HELD_BACK[0])):
        if names and name not in names:
            continue
        rows = catalog.rows(name, [HELD_BACK, _UNREADABLE, _LOST, FEED_FAULT])
        if (row := rows.get(HELD_BACK)) is not None:
            held_back.append(HeldBack(set=name, reason=row.value.decode("utf-8", "replace")))
        if (row := rows.get(_UNREADABLE)) is not None:
            unreadable.append(from_json(row.value, UnreadableCount))
        if (row := rows.get(_LOST)) is not None:
            lost.append(LostVersions(set=name, count=int(row.value)))
        if (row := rows.get(FEED_FAULT)) is not None:
            feeds.append(FeedFault(set=name, fault=row.value.decode("utf-8", "replace")))
    return SetProblems(
        held_back=tuple(held_back), unreadable=tuple(unreadable), lost_versions=tuple(lost), feeds=tuple(feeds)
    )


def unreadable_update(catalog: Catalog, name: str, count: int, places: Collection[str]) -> StateUpdate | None:
    """The row by which so many unreadable files are noted, with some of the places (URIs) where they are, or that there
    are none; None where it says so already."""
    noted = catalog.rows(name, [_UNREADABLE]).get(_UNREADABLE)
    if not count:
        return None if noted is None else StateUpdate(delete=[_UNREADABLE])
    told = UnreadableCount(set=name, files=count, examples=tuple(sorted(filter(None, places))[:_EXAMPLES]))
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


WINDOW: Final = dt.timedelta(hours=1)  # how long deletions count together at least, and how long consent holds at most

_COUNT: Final[RowKey] = ("deletions", "counted")
_CONSENT: Final[RowKey] = ("deletions", "allowed")


class HoldReason(Enum):
    """Why deletions are held back."""

    ROOT_MISSING = "the folder is not there, or cannot be read"
    PATTERNS_MISSING = "exclude_file cannot be read, and nothing that is new is published"
    ROOT_EMPTY = "the folder is suddenly empty: is its file system mounted?"
    ALL_GONE = "everything that was held has vanished"
    TOO_MANY = "too many files have vanished at once"
    ANNOUNCED = "too many deletions were announced"


class DeletionHold(msgspec.Struct, frozen=True):
    """Deletions that were not recorded: how many of how many, and why. Of both, so many were done `before`."""

    reason: HoldReason
    vanished: int
    held: int
    before: int = 0

    @property
    def waiting(self) -> int:
        """The deletions that wait."""
        return self.vanished - self.before

    def __str__(self) -> str:
        if self.reason is HoldReason.PATTERNS_MISSING:
            return str(self.reason.value)
        told = f"{self.reason.value}: {self.waiting:,} of {self.held - self.before:,} are gone, and stay listed"
        told += f"; {self.before:,} more were deleted within the hour" if self.before else ""
        if self.reason is HoldReason.ROOT_MISSING:  # nobody knows what is in it: consent does not help
            return told
        consent = f"--max-delete {consent_for(self.vanished, self.held)}"
        return f"{told}. To withdraw them: `headwater allow-deletions` allows that once, {consent} in every run"


class DeletionsHeld(StoreFault):
    """More deletions were announced to a set than it takes without consent."""

    code = "HW-ING-63"
    exit_status: ClassVar[Exit] = Exit.TRANSFERS_FAILED


def judge(held: int, vanished: int, found: int, share: float, floor: int = FLOOR) -> DeletionHold | None:
    """None when the deletions may be recorded.

    `held` resources are in the set, of which `vanished` are gone; `found` files are in the folder now. `share` 1 is
    consent to everything, 0 to nothing. Up to `floor` files are no mass, unless they are everything that was held.
    """
    if vanished == 0 or share >= 1:
        return None
    if found == 0:
        return DeletionHold(HoldReason.ROOT_EMPTY, vanished, held)
    if not needs_consent(vanished, held, share, floor=floor if share else 0):
        return None
    return DeletionHold(HoldReason.ALL_GONE if vanished >= held else HoldReason.TOO_MANY, vanished, held)


class _Count(msgspec.Struct, frozen=True, array_like=True):
    """Deletions recorded in the window; it ends at `ends_us`, with 0 not before a full scan has held nothing back."""

    deleted: int = 0
    ends_us: int = 0


class DeletionGuard:
    """Judges the deletions of one set together with those of the window. Methods raise what the catalog raises."""

    def __init__(self, catalog: Catalog, name: str, share: float, clock: Callable[[], dt.datetime]) -> None:
        self._catalog = catalog
        self._name = name
        self.share = share
        self._clock = clock

    def judge(self, held: int, vanished: int, found: int, *, is_whole: bool = True) -> DeletionHold | None:
        """As the function `judge`, counting what the window has. What is not `is_whole` (a look at a few paths) adds
        to what is held back already, and lets nothing of it go."""
        if vanished == 0 or self.share >= 1:
            return None
        rows = self._rows()
        if self._is_allowed(rows):
            return None
        before = self._count(rows).deleted
        if not is_whole and HELD_BACK in rows:
            return DeletionHold(HoldReason.TOO_MANY, before + vanished, before + held, before)
        floor = 0 if HELD_BACK in rows else FLOOR  # files that come where all have vanished let none of these go
        hold = judge(before + held, before + vanished, found, self.share, floor)
        return None if hold is None else msgspec.structs.replace(hold, before=before)

    def consents(self) -> bool:
        """Whether everything may be deleted: by the share of the set, or by a consent that still holds."""
        return self.share >= 1 or self._is_allowed(self._rows())

    def counted(self, deleted: int) -> StateUpdate:
        """The rows by which deletions that are being recorded are counted; those with consent are not."""
        if deleted == 0 or self.share >= 1 or self._is_allowed(rows := self._rows()):
            return NO_UPDATE
        before = self._count(rows)
        return _put(_Count(before.deleted + deleted, before.ends_us))

    def announced(self, deleted: int, held: int) -> StateUpdate:
        """The same for deletions that are announced, of which up to FLOOR may be all that is held.

        Raises DeletionsHeld; then it is noted in the catalog.
        """
        if deleted == 0 or self.share >= 1 or self._is_allowed(rows := self._rows()):
            return NO_UPDATE
        before = self._count(rows, is_announced=True)
        total, of = before.deleted + deleted, before.deleted + held
        if total > FLOOR and needs_consent(total, of, self.share):
            hold = DeletionHold(HoldReason.ANNOUNCED, total, of, before.deleted)
            row = StateRow(*HELD_BACK, str(hold).encode())
            if rows.get(HELD_BACK) != row:
                self._write(StateUpdate(put=[row]))
            raise DeletionsHeld(f"deletions are held back: {hold}", where=self._name)
        update = _put(_Count(total, before.ends_us or to_microseconds(self._clock() + WINDOW)))
        return StateUpdate(update.put, [HELD_BACK] if HELD_BACK in rows else ())

    def after_scan(self, hold: DeletionHold | None, *, is_whole: bool, deleted: int) -> StateUpdate | None:
        """The rows by which it is noted what a scan has held back, or that nothing is; None where they say so."""
        rows = self._rows()
        if hold is not None:
            row = StateRow(*HELD_BACK, str(hold).encode())
            is_noted = rows.get(HELD_BACK) == row or (HELD_BACK in rows and not is_whole)
            return None if is_noted else StateUpdate(put=[row])
        if not is_whole:
            return None
        gone = [one for one in (HELD_BACK,) if one in rows]
        if deleted and self._is_allowed(rows):  # used up
            return StateUpdate(delete=[*gone, _CONSENT, _COUNT])
        count = self._count(rows)
        if count.deleted and not count.ends_us:
            return StateUpdate(_put(_Count(count.deleted, to_microseconds(self._clock() + WINDOW))).put, gone)
        return StateUpdate(delete=gone) if gone else None

    def allow(self) -> None:
        """Consent to the deletions of an hour: of a folder to those that the next full scan records."""
        until = b"%d" % to_microseconds(self._clock() + WINDOW)
        self._write(StateUpdate(put=[StateRow(*_CONSENT, until)], delete=[HELD_BACK, _COUNT]))

    def _write(self, update: StateUpdate) -> None:
        self._catalog.record(self._name, (), self._clock(), state=update)

    def _rows(self) -> dict[RowKey, StateRow]:
        return self._catalog.rows(self._name, [HELD_BACK, _COUNT, _CONSENT])

    def _is_allowed(self, rows: dict[RowKey, StateRow]) -> bool:
        left = int(rows[_CONSENT].value) - to_microseconds(self._clock()) if _CONSENT in rows else 0
        return 0 < left <= WINDOW / dt.timedelta(microseconds=1)  # else the clock was set back: it is over as well

    def _count(self, rows: dict[RowKey, StateRow], *, is_announced: bool = False) -> _Count:
        """What counts still. What a folder holds back lasts; who announces deletions may have taken them back."""
        found = from_msgpack(rows[_COUNT].value, _Count) if _COUNT in rows else _Count()
        is_over = 0 < found.ends_us <= to_microseconds(self._clock()) and (is_announced or HELD_BACK not in rows)
        return _Count() if is_over else found


def _put(count: _Count) -> StateUpdate:
    return StateUpdate(put=[StateRow(*_COUNT, msgspec.msgpack.encode(count))])
