"""Changes of a dataset that lists tell out of order: done by their times, and what else may be the last of them.

A list whose times go backwards contradicts itself (RS-CL-05, DST-C9), and patches lead from state to state in one
order alone. So the changes are ordered by time; the hashes of the states prove it. Where what is fetched is not the
last state so, it may be the last one by place, or what is held already: either is asked for once, by its hash. What is
neither is left to the Resource List.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from operator import attrgetter
from typing import Final, NamedTuple

from headwater.patches.registry import N_QUADS_DIFF
from headwater.storage.database import Transaction
from headwater.sync.lists.position import kept_bound
from headwater.sync.state.schema import LISTED_COLUMNS
from headwater.sync.transfer.work_queue import ADD_WORK, ListedColumns, PlanCounts, listed_columns

_LIKE: Final = f"%{N_QUADS_DIFF}%"
_CHANGES: Final = (
    "SELECT c.n, c.uri, c.list, c.ordinal, c.stated, c.at, c.exact, c.hash FROM temp.changed c"
    " WHERE c.uri IN (SELECT uri FROM temp.changed WHERE pending AND links LIKE ?)"
    " AND (c.list, c.ordinal) >= (SELECT f.list, f.ordinal FROM temp.changed f WHERE f.uri = c.uri AND f.pending"
    " ORDER BY f.list, f.ordinal LIMIT 1) ORDER BY c.uri, c.list, c.ordinal"
)
_HELD: Final = (
    "SELECT changed_at, listed_hash FROM resources WHERE set_id = ? AND uri = ? AND path IS NOT NULL"
    " AND NOT newer AND listed_hash IS NOT NULL AND changed_at > ?"
)
_BY_PLACE: Final = (
    f"INSERT INTO temp.second_choices({LISTED_COLUMNS}, at)"  # noqa: S608  our own names
    f" SELECT {LISTED_COLUMNS}, ? FROM temp.changed WHERE n = ? AND change != 'deleted' AND hash IS NOT NULL"
)
_AS_HELD: Final = (
    f"INSERT INTO temp.second_choices({LISTED_COLUMNS}, at)"  # noqa: S608
    " SELECT uri, loc, lastmod, listed_length, listed_hash, type, encoding, links, extra, ? FROM resources"
    " WHERE set_id = ? AND uri = ?"
)
_FAILED: Final = (
    f"SELECT {listed_columns('s')}, r.path, r.id, s.at, f.tries FROM temp.second_choices s"  # noqa: S608
    " JOIN failures f ON f.set_id = ? AND f.uri = s.uri AND f.status IN (200, 203)"
    " JOIN resources r ON r.set_id = f.set_id AND r.uri = s.uri AND r.path IS NOT NULL"
)


class _Change(NamedTuple):
    """A staged change of a dataset that is to be done, or comes after one that is."""

    n: int
    uri: str
    list: int
    ordinal: int
    stated: int | None
    at: int | None
    exact: int
    hash: str | None


def order_by_time(t: Transaction, set_id: int) -> list[str]:
    """Order the staged changes of datasets by their times, where lists tell them otherwise; of which resources it did.

    What else may be the last state is in `temp.second_choices`.
    """
    t.run("CREATE INDEX IF NOT EXISTS temp.changed_uri ON changed(uri, list, ordinal)")
    t.run("DELETE FROM temp.second_choices")
    found = [_Change(*row) for row in t.rows(_CHANGES, (_LIKE,))]
    disordered = []
    for uri, changes in groupby(found, attrgetter("uri")):
        placed = list(changes)
        if all(one.exact for one in placed) or any(one.stated is None for one in placed):
            continue
        disordered.append(uri)
        by_time = sorted(placed, key=lambda one: (one.stated or 0, one.list, one.ordinal))
        _place(t, placed, by_time)
        last = by_time[-1]
        held = t.one(_HELD, (set_id, uri, last.stated))
        if last.hash != placed[-1].hash:
            t.run(_BY_PLACE, (last.stated, placed[-1].n))
        elif held is not None and held[1] != last.hash:
            t.run(_AS_HELD, (held[0], set_id, uri))
    return disordered


def _place(t: Transaction, placed: Sequence[_Change], by_time: Sequence[_Change]) -> None:
    """Give the changes the places that they have by time, and bounds in the source's time to those out of order."""
    t.many(
        "UPDATE temp.changed SET list = ?, ordinal = ?, latest = iif(exact, latest, ?) WHERE n = ?",
        [
            (place.list, place.ordinal, kept_bound(one.at if one.at is not None else one.stated), one.n)
            for place, one in zip(placed, by_time, strict=True)
        ],
    )


class SecondChoice:
    """What is asked for where the last change by time was not what came."""

    def is_due(self, t: Transaction, set_id: int) -> bool:
        """Whether there is something to ask for."""
        return t.one(f"{_FAILED} LIMIT 1", (set_id,)) is not None

    def plan_again(self, t: Transaction, set_id: int, counts: PlanCounts) -> None:
        """Plan it."""
        for *listed, path, held, at, tries in list(t.rows(_FAILED, (set_id,))):
            counts.updated += 1
            t.run(ADD_WORK, ListedColumns(*listed).planned(path, held, changed_at=at, known_at=at, tries=tries))
        t.run("DELETE FROM temp.second_choices")
