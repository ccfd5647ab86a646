"""Contradictions: changes that the Resource List does not have, and those that payloads told ahead of the lists.

Of a change of before the list's `at` that it does not have, either that `at` is false or the list is (AMB-25). The
source is asked for such a resource, and the hash decides. A deletion among them is not done: what is held is asked for,
stays where it is served, and goes where it is gone. `temp.changed.asked` says for what: `held` for what is held,
although it is what is listed; `changed` for what a change tells that the Resource List does not have.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from typing import Final

from headwater.patches.registry import N_QUADS_DIFF
from headwater.storage.transaction import Transaction
from headwater.sync.lists.entries import BY_URI, IS_FOLLOWED
from headwater.sync.reports import SetReport
from headwater.sync.state import LISTED_COLUMNS, SetRow, fact, keep_fact
from headwater.sync.transfer.verification import digests_of
from headwater.sync.transfer.work_queue import ADD_WORK, ListedColumns, listed_columns

_LAST: Final = """
SELECT *, row_number() OVER (PARTITION BY uri ORDER BY at DESC, list DESC, ordinal DESC) = 1 AS is_latest,
  row_number() OVER (PARTITION BY uri ORDER BY list DESC, ordinal DESC) = 1 AS is_last
FROM temp.changed"""
_DONE_BEFORE: Final = (
    f"SELECT c.uri, c.n, c.is_latest, c.is_last, c.change, l.uri IS NOT NULL, c.hash, l.hash FROM ({_LAST}) AS c"  # noqa: S608
    " LEFT JOIN temp.listed l ON l.uri = c.uri WHERE (c.is_latest OR c.is_last) AND NOT c.pending"
    " AND c.exact AND c.at < ?"
    " AND ((c.change = 'deleted') = (l.uri IS NOT NULL) OR (l.uri IS NOT NULL AND c.hash IS NOT l.hash))"
    " AND NOT c.refused AND NOT coalesce(l.refused, 0)"
    " AND c.uri NOT LIKE '%.nqud' AND coalesce(c.links, '') NOT LIKE ? ORDER BY c.uri, c.is_latest"
)
_OLD_DELETIONS: Final = (
    "SELECT c.n FROM temp.changed c JOIN resources r ON r.set_id = ? AND r.uri = c.uri"  # noqa: S608
    " JOIN sets s ON s.id = r.set_id WHERE c.pending AND c.exact AND c.change = 'deleted' AND r.path IS NOT NULL"
    " AND (c.asked IS NOT NULL OR (r.changed_at IS NULL"
    " AND c.at < s.baseline_at AND s.baseline_at <= json_extract(s.position, '$.time')))"
    f" AND NOT {IS_FOLLOWED.format('c')}"
)
_ASK: Final = (
    "UPDATE temp.changed SET asked = 'held', change = 'updated', (hash, length) = (SELECT r.listed_hash,"
    " r.listed_length FROM resources r WHERE r.set_id = ? AND r.uri = changed.uri) WHERE n = ?"
)
_LAST_TOLD: Final = (
    "DELETE FROM temp.changed WHERE n NOT IN (SELECT max(n) FROM temp.changed WHERE pending OR folded GROUP BY uri)",
    "UPDATE temp.changed SET pending = 0, asked = NULL, folded = 1",
)
_ASK_UNTOLD: Final = (
    f"INSERT INTO temp.changed(list, ordinal, {LISTED_COLUMNS}, change, pending, asked, at, exact)"  # noqa: S608
    " SELECT -1, row_number() OVER (), uri, loc, lastmod, listed_length, listed_hash, type, encoding, links, extra,"
    " 'updated', 1, 'held', ?2, 0 FROM resources r WHERE set_id = ?1 AND path IS NOT NULL"
    " AND uri IN (SELECT uri FROM temp.untold) AND coalesce("
    "(SELECT c.change = 'deleted' FROM temp.changed c WHERE c.uri = r.uri), uri NOT IN (SELECT uri FROM temp.listed))"
)
_UNCONFIRMED: Final = """
SELECT 1 FROM temp.untold u LEFT JOIN failures f ON f.set_id = ? AND f.uri = u.uri
WHERE CASE (SELECT max(c.pending) FROM temp.changed c WHERE c.uri = u.uri)
  WHEN 1 THEN coalesce(f.status, 0) NOT IN (404, 410) WHEN 0 THEN 0 ELSE f.uri IS NOT NULL END LIMIT 1"""
_NOT_THERE: Final = (
    "SELECT f.uri FROM failures f JOIN temp.changed c ON c.uri = f.uri"
    " WHERE f.set_id = ?1 AND f.status IN (404, 410) AND c.pending AND c.asked = 'held'"
)
_GONE: Final = (
    "INSERT OR REPLACE INTO temp.deletions(id, at) SELECT r.id, c.at FROM temp.changed c"  # noqa: S608
    " JOIN resources r ON r.set_id = ?1 AND r.uri = c.uri WHERE c.pending AND c.asked = 'held'"
    f" AND c.uri IN ({_NOT_THERE})"
)
_LISTED_INSTEAD: Final = (
    f"SELECT {listed_columns('l')}, r.path, r.id, f.tries FROM temp.changed c JOIN temp.listed l ON l.uri = c.uri"  # noqa: S608
    " JOIN failures f ON f.set_id = ? AND f.uri = c.uri AND f.status IN (200, 203)"
    " JOIN resources r ON r.set_id = f.set_id AND r.uri = c.uri AND r.path IS NOT NULL"
    " WHERE c.pending AND c.asked = 'changed' AND l.hash IS NOT NULL"
)
_NO_FAILURE: Final = f"DELETE FROM failures WHERE set_id = ?1 AND uri IN ({_NOT_THERE})"  # noqa: S608


def contradicted(t: Transaction, since: int) -> Iterator[tuple[int, str]]:
    """The last changes before a Resource List's `at` that it does not have: their rows, and of which resources.

    `temp.listed` is that list; of datasets the order of patches decides. What it has is the last one by its time or,
    where times fall, by its place.
    """
    last: str | None = None
    for uri, n, is_latest, is_last, change, is_listed, hash_, listed in t.rows(
        _DONE_BEFORE, (since, f"%{N_QUADS_DIFF}%")
    ):
        if (change == "deleted") == bool(is_listed) or _differ(hash_, listed):
            if is_latest and (is_last or last == uri):
                yield n, uri
            last = uri


def do_contradicted(t: Transaction, since: int) -> int:
    """Have such changes done: the source is asked (DST-4.5); how many there are."""
    found = array("q", (n for n, _ in contradicted(t, since)))
    t.many("UPDATE temp.changed SET pending = 1, asked = 'changed' WHERE n = ?", ((n,) for n in found))
    return len(found)


def ask_for_old_deletions(t: Transaction, set_id: int) -> None:
    """Have the source asked for what a change says is deleted, and the Resource List after it, or beside it, has."""
    t.run(BY_URI)
    t.many(_ASK, [(set_id, n) for (n,) in t.rows(_OLD_DELETIONS, (set_id,))])


def ask_for_untold(t: Transaction, set_id: int, at: int | None) -> None:
    """Have the source asked for what is held and, by lists that were set back, is not there (DST-C10).

    `temp.listed` is the Resource List of `at`; of `temp.changed`, the changes since then, the last of each resource is
    left, and none of these is done.
    """
    for statement in (BY_URI, *_LAST_TOLD):
        t.run(statement)
    t.run(_ASK_UNTOLD, (set_id, at))


def any_unconfirmed(t: Transaction, set_id: int) -> bool:
    """Whether the source still has what it was asked for, or not what the Resource List says."""
    return t.one(_UNCONFIRMED, (set_id,)) is not None


def any_asked(t: Transaction) -> bool:
    """Whether the source is asked for something that the Resource List contradicts."""
    return t.one("SELECT 1 FROM temp.changed WHERE pending AND asked IS NOT NULL LIMIT 1") is not None


def plan_as_listed(t: Transaction, row: SetRow, counts: SetReport) -> None:
    """Plan what came otherwise than such a change says to be taken as the Resource List has it, if it is that."""
    for *listed, path, held, tries in list(t.rows(_LISTED_INSTEAD, (row.id,))):
        work = ListedColumns(*listed).planned(path, held, changed_at=None, known_at=row.baseline_at, tries=tries)
        t.run(ADD_WORK, work)
        counts.updated += 1


def delete_what_is_gone(t: Transaction, set_id: int) -> None:
    """Plan such deletions of which the source has said that the resource is gone; they are no failures."""
    t.run(_GONE, (set_id,))
    t.run(_NO_FAILURE, (set_id,))


def _differ(hash_: str | None, listed: str | None) -> bool:
    """Whether two `hash` attributes state other digests of one algorithm."""
    if hash_ == listed:
        return False
    stated = {digest.algorithm: digest.hex for digest in digests_of(listed)}
    return any(stated.get(digest.algorithm, digest.hex) != digest.hex for digest in digests_of(hash_))


# changes that payloads of notifications have told ahead of the lists (decision 054)
#
# The lists decide them once more. A list tells no change after the position, so whatever is remembered with a later
# time was told by a payload. It holds against lists that are older, and against no list that has led as far.

_NAME: Final = "pushed {}"
"""The fact that payloads were applied to a set, so that the lists look for what these have told; or that they told what
no list tells, which the Resource List has to judge."""

_AHEAD: Final = (
    "set_id = ?1 AND max(coalesce(changed_at, 0), coalesce(doomed_at, 0)) >"
    " (SELECT json_extract(position, '$.time') FROM sets WHERE id = ?1)"
)
_IS_REACHED: Final = "max(coalesce(changed_at, 0), coalesce(doomed_at, 0)) <= ?2"
_IS_NAMED: Final = "uri IN (SELECT uri FROM temp.changed WHERE pending)"
_IS_TOLD: Final = (
    "uri IN (SELECT c.uri FROM temp.changed c CROSS JOIN resources q ON q.set_id = ?1 AND q.uri = c.uri WHERE c.pending"
    " AND (NOT c.exact OR (c.at >= max(coalesce(q.changed_at, 0), coalesce(q.doomed_at, 0))) IS NOT 0))"
)
_UNTOLD: Final = f"SELECT 1 FROM resources WHERE {_AHEAD} AND {_IS_REACHED} AND NOT {_IS_NAMED} LIMIT 1"  # noqa: S608
_LET_DECIDE: Final = "UPDATE resources SET changed_at = 0, doomed_at = NULL WHERE {}"
_DELETED_BEFORE: Final = (
    "SELECT max(coalesce(r.changed_at, 0), c.at), r.id FROM temp.changed c"
    " CROSS JOIN resources r ON r.set_id = ? AND r.uri = c.uri"
    " WHERE c.pending AND c.change = 'deleted' AND c.at IS NOT NULL AND r.path IS NULL"
)
_NOT_AFTER: Final = (
    "UPDATE resources SET changed_at = min(changed_at, ?2), doomed_at = min(doomed_at, ?2)"
    " WHERE set_id = ?1 AND uri IN (SELECT uri FROM temp.changed)"
)


def note_payload(t: Transaction, set_id: int) -> None:
    """Note that payloads are applied to a set: `temp.changed` has what they tell."""
    keep_fact(t, _NAME.format(set_id), fact(t, _NAME.format(set_id)) or "ahead")


def bound_times(t: Transaction, set_id: int, now: int) -> None:
    """See that no time that payloads have told, up to `now`, is later: else no list would ever have led as far."""
    t.run(_NOT_AFTER, (set_id, now))


def let_changes_decide(t: Transaction, set_id: int, reached: int | None) -> bool:
    """Let the pending changes, of lists that have led to `reached`, decide what payloads told up to that time.

    What payloads tell of a later time stays, unless these lists tell of that time: they may be older. Returns whether
    payloads have told what lists that have led further do not; that goes on until the Resource List has judged it.
    """
    told = fact(t, _NAME.format(set_id))
    if told is None:
        return False
    if t.one(_UNTOLD, (set_id, reached)) is not None:
        told = "untold"
        keep_fact(t, _NAME.format(set_id), told)
    t.run(_LET_DECIDE.format(f"{_AHEAD} AND ({_IS_REACHED} OR {_IS_TOLD})"), (set_id, reached))
    t.many("UPDATE resources SET changed_at = ? WHERE id = ?", t.fetch(_DELETED_BEFORE, (set_id,)))
    return told == "untold"


def let_list_decide(t: Transaction, set_id: int) -> None:
    """Let a Resource List that is about to be applied, and the changes after it, decide all that payloads have told."""
    if fact(t, _NAME.format(set_id)) is not None:
        t.run(_LET_DECIDE.format(_AHEAD), (set_id,))


def forget_pushed(t: Transaction, set_id: int) -> None:
    """A Resource List has judged what payloads have told."""
    t.run("DELETE FROM facts WHERE name = ?", (_NAME.format(set_id),))
