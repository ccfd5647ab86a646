"""Changes that payloads of notifications have told ahead of the lists (decision 054): the lists decide them once more.

A list tells no change after the position. So whatever is remembered with a later time was told by a payload. It holds
against lists that are older, and against no list that has led as far.
"""

from __future__ import annotations

from typing import Final

from headwater.storage.transaction import Transaction
from headwater.sync.state.facts import fact, keep_fact

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
