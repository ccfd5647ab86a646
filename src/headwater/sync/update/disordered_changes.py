"""Changes that lists tell out of order: those of a dataset are done by time, and what else may be the last of them.

A list whose times go backwards contradicts itself (RS-CL-05, DST-C9): the last change of a resource by place is not
the last one by time. Of an ordinary resource the last one by place is done first, of a dataset the last one by time,
since patches lead from state to state in one order alone; the hashes prove it. Where what is fetched is not that
state, it may be the other one, or what is held already: it is asked for once, by its hash. What is neither is left to
the Resource List.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from operator import attrgetter, itemgetter
from typing import Final, NamedTuple

from headwater.patches.registry import N_QUADS_DIFF
from headwater.storage.sqlite.transaction import Transaction
from headwater.sync.lists.position import kept_bound
from headwater.sync.state.schema import LISTED_COLUMNS
from headwater.sync.transfer.verification import digests_of
from headwater.sync.transfer.work_queue import ADD_WORK, ListedColumns, PlanCounts, listed_columns

_LIKE: Final = f"%{N_QUADS_DIFF}%"
_CHANGES: Final = (
    "SELECT c.n, c.uri, c.list, c.ordinal, c.stated, c.at, c.exact, c.hash, c.change, c.links FROM temp.changed c"
    " WHERE c.uri IN (SELECT uri FROM temp.changed WHERE pending AND (links LIKE ? OR NOT exact))"
    " AND (c.list, c.ordinal) >= (SELECT f.list, f.ordinal FROM temp.changed f WHERE f.uri = c.uri AND f.pending"
    " ORDER BY f.list, f.ordinal LIMIT 1) ORDER BY c.uri, c.list, c.ordinal"
)
_SAID_AT: Final = (
    "coalesce(r.changed_at, iif(s.baseline_at <= json_extract(s.position, '$.time'), s.baseline_at, NULL))"
)
"""Of which moment the newest is that was told of a resource; a Resource List of the future tells of none (AMB-27)."""

_LATER: Final = f"{_SAID_AT} > ?"
_HELD: Final = (
    f"SELECT {_SAID_AT}, r.listed_hash FROM resources r JOIN sets s ON s.id = r.set_id"  # noqa: S608
    f" WHERE r.set_id = ? AND r.uri = ? AND r.path IS NOT NULL AND NOT r.newer AND {_LATER}"
)
_IS_GONE: Final = (
    "SELECT 1 FROM sets s LEFT JOIN resources r ON r.set_id = s.id AND r.uri = ?"  # noqa: S608
    f" WHERE s.id = ? AND r.path IS NULL AND {_LATER}"
)
_BY_PLACE: Final = (
    f"INSERT INTO temp.second_choices({LISTED_COLUMNS}, at)"  # noqa: S608  our own names
    f" SELECT {LISTED_COLUMNS}, ? FROM temp.changed WHERE n = ? AND change != 'deleted' AND hash IS NOT NULL"
)
_ABSENT: Final = "INSERT INTO temp.second_choices(uri, at, is_absent) VALUES (?, ?, 1)"
_AS_HELD: Final = (
    f"INSERT INTO temp.second_choices({LISTED_COLUMNS}, at)"  # noqa: S608
    " SELECT uri, loc, lastmod, listed_length, listed_hash, type, encoding, links, extra, ? FROM resources"
    " WHERE set_id = ? AND uri = ?"
)
_FAILED: Final = (
    f"SELECT {listed_columns('s')}, r.path, r.id, s.at, f.tries FROM temp.second_choices s"  # noqa: S608
    " JOIN failures f ON f.set_id = ? AND f.uri = s.uri AND f.status IN (200, 203)"
    " LEFT JOIN resources r ON r.set_id = f.set_id AND r.uri = s.uri AND r.path IS NOT NULL WHERE NOT s.is_absent"
)
_NOT_THERE: Final = (
    "SELECT s.uri, r.id, s.at FROM temp.second_choices s"
    " JOIN failures f ON f.set_id = ? AND f.uri = s.uri AND f.status IN (404, 410)"
    " LEFT JOIN resources r ON r.set_id = f.set_id AND r.uri = s.uri AND r.path IS NOT NULL WHERE s.is_absent"
)


class _Change(NamedTuple):
    """A staged change of such a resource that is to be done, or comes after one that is."""

    n: int
    uri: str
    list: int
    ordinal: int
    stated: int | None
    at: int | None
    exact: int
    hash: str | None
    change: str
    links: str | None

    @property
    def has_patch(self) -> bool:
        """Whether it is one of a dataset."""
        return self.links is not None and _LIKE.strip("%") in self.links

    @property
    def is_deletion(self) -> bool:
        """Whether there is nothing to fetch."""
        return self.change == "deleted"


_NOT_THE_LAST: Final = (
    "EXISTS (SELECT 1 FROM temp.changed l WHERE l.uri = c.uri AND (l.list, l.ordinal) > (+c.list, +c.ordinal))"
)
"""Of `+c.ordinal` an index finds the row next to it; of `c.ordinal` it reads all rows of the list."""

_OLD_DELETIONS: Final = (
    "SELECT c.n, c.uri, c.at FROM temp.changed c JOIN resources r ON r.set_id = ? AND r.uri = c.uri"  # noqa: S608
    " JOIN sets s ON s.id = r.set_id WHERE c.pending AND c.exact AND c.change = 'deleted' AND r.path IS NOT NULL"
    f" AND r.changed_at IS NULL AND {_SAID_AT} > c.at AND NOT {_NOT_THE_LAST}"
)
_ASK: Final = (
    "UPDATE temp.changed SET change = 'updated', (hash, length) = (SELECT r.listed_hash, r.listed_length"
    " FROM resources r WHERE r.set_id = ? AND r.uri = changed.uri) WHERE n = ?"
)
"""In place of a deletion: what is held is asked for, and may not be there (`is_absent`)."""


def doubt_old_deletions(t: Transaction, set_id: int) -> None:
    """Have the source asked for what a change says is deleted, and the Resource List after it that it is there."""
    for n, uri, at in t.fetch(_OLD_DELETIONS, (set_id,)):
        t.run(_ASK, (set_id, n))
        t.run(_ABSENT, (uri, at))


_INDEX: Final = "CREATE INDEX IF NOT EXISTS temp.changed_uri ON changed(uri, list, ordinal)"
_DONE_BEFORE: Final = (
    "SELECT c.uri, c.n, c.change, l.uri IS NOT NULL, c.hash, l.hash FROM temp.changed c"  # noqa: S608
    " LEFT JOIN temp.listed l ON l.uri = c.uri WHERE NOT c.pending AND c.exact AND c.at < ?"
    " AND ((c.change = 'deleted') = (l.uri IS NOT NULL) OR (l.uri IS NOT NULL AND c.hash IS NOT l.hash))"
    " AND NOT c.refused AND NOT coalesce(l.refused, 0)"
    f" AND c.uri NOT LIKE '%.nqud' AND coalesce(c.links, '') NOT LIKE ? AND NOT {_NOT_THE_LAST}"
)
_TOLD: Final = (
    "SELECT c.uri, c.stated, c.change = 'deleted', iif(c.change = 'deleted', NULL, c.hash), l.uri IS NOT NULL, l.hash"
    " FROM temp.changed c"
    " LEFT JOIN temp.listed l ON l.uri = c.uri WHERE (c.pending OR c.folded) AND NOT c.refused AND c.uri IN"
    " (SELECT uri FROM temp.changed WHERE NOT exact AND stated IS NOT NULL AND coalesce(links, '') NOT LIKE ?)"
    " AND c.uri NOT LIKE '%.nqud' ORDER BY c.uri, c.list, c.ordinal"
)


class _ToldState(NamedTuple):
    """What a change that is to be done tells of its resource, and what the Resource List has."""

    uri: str
    stated: int | None
    is_gone: int
    hash: str | None
    is_listed: int
    listed: str | None

    def is_as(self, other: _ToldState) -> bool:
        """Whether both tell the same state for certain."""
        return self.is_gone == other.is_gone and (bool(self.is_gone) or self.hash == other.hash is not None)


def doubtful(t: Transaction, since: int) -> Iterator[str]:
    """Resources whose last change by place states another state than the last one by time, or than `temp.listed`.

    What is told before `since` is older than that list. Nobody can tell which of the two holds (DST-C9).
    """
    t.run(_INDEX)
    for uri, rows in groupby(t.rows(_TOLD, (_LIKE,)), itemgetter(0)):
        changes = [_ToldState(*row) for row in rows]
        last, latest = changes[-1], max(changes, key=lambda one: one.stated or 0)
        if (latest.stated or 0) < since:
            if last.is_gone == last.is_listed or (last.is_listed and last.hash != last.listed):
                yield uri
        elif last.stated != latest.stated and not last.is_as(latest):
            yield uri


_DO_AGAIN: Final = "UPDATE temp.changed SET pending = 1, exact = 0, latest = ? WHERE n = ?"


def contradicted(t: Transaction, since: int) -> Iterator[tuple[int, str]]:
    """The last changes before a Resource List's `at` that it does not have: their rows, and of which resources.

    Its `at` is false then, or the list is. `temp.listed` is that list; of datasets the order of patches decides.
    """
    t.run(_INDEX)
    for uri, n, change, is_listed, hash_, listed in t.rows(_DONE_BEFORE, (since, _LIKE)):
        if (change == "deleted") == bool(is_listed) or _differ(hash_, listed):
            yield n, uri


def do_contradicted(t: Transaction, since: int) -> int:
    """Have such changes done as those that are told out of order: the source is asked (DST-4.5); how many there are."""
    found = array("q", (n for n, _ in contradicted(t, since)))
    t.many(_DO_AGAIN, ((kept_bound(since), n) for n in found))
    return len(found)


def _differ(hash_: str | None, listed: str | None) -> bool:
    """Whether two `hash` attributes state other digests of one algorithm."""
    if hash_ == listed:
        return False
    stated = {digest.algorithm: digest.hex for digest in digests_of(listed)}
    return any(stated.get(digest.algorithm, digest.hex) != digest.hex for digest in digests_of(hash_))


_MAY_BE: Final = (
    "SELECT 1 FROM temp.changed WHERE pending AND (links LIKE ? OR NOT exact AND stated IS NOT NULL) LIMIT 1"
)


def any_disordered(t: Transaction) -> bool:
    """Whether there may be pending changes that are told out of order."""
    return t.one(_MAY_BE, (_LIKE,)) is not None


def order_by_time(t: Transaction, set_id: int) -> list[str]:
    """Order the staged changes of datasets by their times, where lists tell them otherwise.

    What else may be the last state of a resource is in `temp.second_choices`. Returned is of which resources the last
    change by time is not the last one by place, and of which datasets the order is another.
    """
    t.run(_INDEX)
    t.run("DELETE FROM temp.second_choices")
    found = [_Change(*row) for row in t.rows(_CHANGES, (_LIKE,))]
    disordered = []
    for uri, changes in groupby(found, attrgetter("uri")):
        placed = list(changes)
        if all(one.exact for one in placed) or any(one.stated is None for one in placed):
            continue
        by_time = sorted(placed, key=lambda one: (one.stated or 0, one.list, one.ordinal))
        if any(one.has_patch for one in placed) or _is_held_but_older(t, set_id, placed[-1], by_time[-1]):
            disordered.append(uri)
            _place(t, placed, by_time)
            _choose_second(t, set_id, by_time[-1], placed[-1])
        else:
            if by_time[-1] is not placed[-1]:
                disordered.append(uri)
            _choose_second(t, set_id, placed[-1], by_time[-1])
    return disordered


_IS_HELD: Final = (
    "SELECT 1 FROM resources WHERE set_id = ? AND uri = ? AND path IS NOT NULL AND NOT newer AND listed_hash = ?"
)


def _is_held_but_older(t: Transaction, set_id: int, last: _Change, other: _Change) -> bool:
    """Whether nobody would ask for what comes last: it is held, while `other` is later by its time."""
    differs = last.hash is not None and other.hash not in (None, last.hash) and not other.is_deletion
    return differs and not last.is_deletion and t.one(_IS_HELD, (set_id, last.uri, last.hash)) is not None


def _choose_second(t: Transaction, set_id: int, last: _Change, other: _Change) -> None:
    """Say what is asked for where `last` is not what comes: `other`, or what was told with a later time (DST-C9)."""
    held = t.one(_HELD, (set_id, last.uri, last.stated))
    if other.is_deletion and not last.is_deletion:
        t.run(_ABSENT, (last.uri, other.stated))
    elif other.hash != last.hash:
        t.run(_BY_PLACE, (max(last.stated or 0, other.stated or 0), other.n))
    elif held is None:
        if t.one(_IS_GONE, (last.uri, set_id, last.stated)) is not None:
            t.run(_ABSENT, (last.uri, last.stated))
    elif last.is_deletion:
        t.run(_ASK, (set_id, last.n))  # one too many is a loss (AMB-35)
        t.run(_ABSENT, (last.uri, last.stated))
    elif held[1] not in (None, last.hash):
        t.run(_AS_HELD, (held[0], set_id, last.uri))


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
    """What is asked for where the change that was done first was not what came."""

    def __init__(self, set_id: int) -> None:
        self._set_id = set_id

    def is_due(self, t: Transaction) -> bool:
        """Whether there is something to ask for, or a deletion to be done."""
        return any(t.one(f"{query} LIMIT 1", (self._set_id,)) is not None for query in (_FAILED, _NOT_THERE))

    def plan_again(self, t: Transaction, counts: PlanCounts, path_of: Callable[[str], bytes]) -> None:
        """Plan it."""
        for *listed, path, held, at, tries in list(t.rows(_FAILED, (self._set_id,))):
            columns = ListedColumns(*listed)
            counts.created += held is None
            counts.updated += held is not None
            fetch = columns.planned(
                path_of(columns.uri) if path is None else path, held, changed_at=at, known_at=at, tries=tries
            )
            t.run(ADD_WORK, fetch)
        for uri, held, at in list(t.rows(_NOT_THERE, (self._set_id,))):
            if held is not None:
                t.run("INSERT OR REPLACE INTO temp.deletions(id, at) VALUES (?, ?)", (held, at))
            t.run("DELETE FROM failures WHERE set_id = ? AND uri = ?", (self._set_id, uri))
        t.run("DELETE FROM temp.second_choices")
