"""The coverage of a time by Change Lists: of which periods every change is told, and which lists can tell of one.

Pure rules over values; all times are the source's, in whole microseconds. A Change List tells of the changes from its
`from` on, up to its `until` (AMB-11): of two lists that follow each other without a hole the second begins where the
first ends, or earlier. Whether that is so only the times tell (RS-ARC-19).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeVar

import msgspec

from headwater.spec.kinds import Kind
from headwater.spec.records import Document
from headwater.sync.faults import WrongDocument
from headwater.sync.lists.position import IndexedList, is_past
from headwater.sync.source_times import last_micros, micros


class ListedDocument(IndexedList, frozen=True, kw_only=True):
    """A Resource List, Change List or dump as an archive, an index or its own head tells of it.

    A snapshot has `at`, and `completed` where that is stated; a list of changes has `from_`, and `until` unless it is
    the open one, which is never in an archive (RS-ARC-26).
    """

    at: int | None = None
    completed: int | None = None


class ToldPeriods(msgspec.Struct, frozen=True):
    """The periods of which every change is told: apart from each other, in order, both ends included."""

    periods: tuple[tuple[int, int], ...] = ()

    @classmethod
    def of(cls, lists: Iterable[tuple[int, int]]) -> ToldPeriods:
        """What Change Lists cover that begin at `from` and end at `until`.

        A change at the very `until` of a list may stand in the next one alone (AMB-11): only where there is none that
        begins later the end belongs to it.
        """
        merged: list[tuple[int, int]] = []
        for begin, end in sorted(lists):
            if merged and begin <= merged[-1][1]:
                merged[-1] = merged[-1][0], max(end, merged[-1][1])
            else:
                merged.append((begin, end))
        whole = [(begin, end - 1) for begin, end in merged[:-1]] + merged[-1:]
        return cls(tuple((begin, end) for begin, end in whole if begin <= end))

    def tells(self, after: int, until: int) -> bool:
        """Whether all changes later than `after`, up to and with `until`, are told."""
        return after >= until or any(begin <= after + 1 and until <= end for begin, end in self.periods)

    def hole(self, after: int, until: int) -> tuple[int, int] | None:
        """The first part of a period of which the changes are not told: later than one moment, up to another."""
        for begin, end in self.periods:
            if begin > after + 1:
                break
            after = max(after, end)
        if after >= until:
            return None
        later = [begin - 1 for begin, _ in self.periods if begin > after]
        return after, min([until, *later])

    @classmethod
    def of_lists(cls, lists: Iterable[IndexedList]) -> ToldPeriods:
        """What these Change Lists cover; one without `from` tells of nothing that could be relied upon."""
        return cls.of((one.from_, _NEVER if one.until is None else one.until) for one in lists if one.from_ is not None)


def shortfall(promised: IndexedList, document: Document, parts: Sequence[IndexedList]) -> WrongDocument | None:
    """What an archived list leaves out of the changes that its archive `promised` of it (RS-ARC-27); None: nothing.

    `parts`: the lists that it names, where it is an index.
    """
    own = IndexedList(promised.uri, micros(document.from_), last_micros(document.until) if document.until else None)
    if promised.until is not None and own.until is None:
        return WrongDocument("the archived list is open", where=own.uri, rule="RS-ARC-26")
    is_late = own.from_ is None or promised.from_ is None or own.from_ > promised.from_
    if is_late or (own.until is not None and promised.until is not None and own.until < promised.until):
        return WrongDocument("the archived list tells of less than its archive says", where=own.uri, rule="RS-ARC-27")
    if document.kind is not Kind.CHANGE_LIST_INDEX or promised.from_ is None or promised.until is None:
        return None
    if ToldPeriods.of_lists(parts).hole(promised.from_ - 1, promised.until - 1) is not None:
        return WrongDocument("the archived index leaves out changes", where=own.uri, rule="RS-ARC-19")
    return None


_NEVER = 1 << 62
_List = TypeVar("_List", bound=IndexedList)


def touching(lists: Sequence[_List], after: int, until: int) -> list[_List]:
    """The Change Lists whose interval can hold changes of a period, or that state none (DST-5.1, AMB-11)."""
    return [one for one in lists if _may_hold(one, after, until)]


def _may_hold(one: IndexedList, after: int, until: int) -> bool:
    if one.from_ is not None and one.from_ > until:
        return False
    return one.until is None or not is_past(one.until, after)
