"""The coverage of a time by lists: which Change Lists tell of it without a hole.

Pure rules over values; all times are the source's, in whole microseconds. A Change List tells of the changes from its
`from` on, up to its `until` (AMB-11): of two lists that follow each other without a hole the second begins where the
first ends, or earlier. Whether that is so only the times tell (RS-ARC-19).
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from headwater.sync.lists.position import IndexedList


class ListedDocument(IndexedList, frozen=True, kw_only=True):
    """A Resource List, Change List or dump as an archive, an index or its own head tells of it.

    A snapshot has `at`, and `completed` where that is stated; a list of changes has `from_`, and `until` unless it is
    the open one, which is never in an archive (RS-ARC-26).
    """

    at: int | None = None
    completed: int | None = None


class Hole(msgspec.Struct, frozen=True):
    """Changes after `after` and before `before` are in no list; `before` None: none later is known."""

    after: int
    before: int | None


class ListCoverage(msgspec.Struct, frozen=True):
    """The Change Lists that tell of a span of time, oldest first, and where they leave it out first."""

    lists: tuple[ListedDocument, ...] = ()
    hole: Hole | None = None


def covering(lists: Sequence[ListedDocument], after: int, last: int) -> ListCoverage:
    """The fewest lists that tell of all changes later than `after`, up to those at `last` (RS-ARC-34).

    Lists may overlap and come in any order; those without `from` tell of nothing that could be relied upon. Lists that
    end just at `after`, or begin just at `last`, are among them: a change may have that very time (AMB-11).
    """
    known = sorted((one for one in lists if one.from_ is not None), key=_by_times)
    chosen = [one for one in known if one.until == after and one.from_ != after]
    reach, place = after, 0
    while reach <= last:
        best: ListedDocument | None = None
        while place < len(known) and (known[place].from_ or 0) <= reach:
            one = known[place]
            place += 1
            if _end(one) > reach and (best is None or _end(one) > _end(best)):
                best = one
        if best is None:
            break
        chosen.append(best)
        if best.until is None:
            return ListCoverage(tuple(chosen))
        reach = best.until
    if reach >= last:
        return ListCoverage(tuple(chosen))
    return ListCoverage(tuple(chosen), Hole(reach, known[place].from_ if place < len(known) else None))


_NEVER = 1 << 63


def _by_times(one: ListedDocument) -> tuple[int, int]:
    return one.from_ or 0, _end(one)


def _end(one: ListedDocument) -> int:
    return _NEVER if one.until is None else one.until
