"""What payloads have changed and no list has told of yet: what was remembered of these resources before (decision 054).

Among payloads the later change holds, and it holds against lists that are older. Lists that have led further are not
bound by it: before what they say is done, what was remembered comes back, so that no time and no hash that a hub has
told stands against them.
"""

from __future__ import annotations

from typing import Final

from headwater.storage.sqlite.transaction import Transaction

_KEEP: Final = (
    "INSERT INTO pushed(set_id, uri, at, was_known, changed_at, doomed_at)"
    " SELECT ?1, c.uri, min(max(c.at), ?2), max(r.id IS NOT NULL), max(r.changed_at), max(r.doomed_at)"
    " FROM temp.changed c LEFT JOIN resources r ON r.set_id = ?1 AND r.uri = c.uri WHERE c.pending GROUP BY c.uri"
    " ON CONFLICT DO UPDATE SET at = max(coalesce(at, excluded.at), coalesce(excluded.at, at))"
)
_ANY: Final = "SELECT 1 FROM pushed WHERE set_id = ? LIMIT 1"
_IS_NAMED: Final = "p.uri IN (SELECT uri FROM temp.changed WHERE pending)"
_IS_TOLD: Final = (
    "p.uri IN (SELECT c.uri FROM temp.changed c CROSS JOIN pushed q ON q.set_id = ?1 AND q.uri = c.uri"
    " WHERE c.pending AND (NOT c.exact OR (c.at >= q.at) IS NOT 0))"
)
_IS_UNTOLD: Final = f"SELECT 1 FROM pushed p WHERE p.set_id = ?1 AND p.at <= ?2 AND NOT {_IS_NAMED} LIMIT 1"  # noqa: S608
_HELD_BEFORE: Final = (
    "SELECT iif(p.was_known, p.changed_at, 0), p.doomed_at, r.id FROM pushed p"
    " CROSS JOIN resources r ON r.set_id = p.set_id AND r.uri = p.uri WHERE p.set_id = ?1"
)
"""What was not known before a payload named it is held since before all lists: one that does not have it removes it."""

_JUDGED_BEFORE: Final = f"{_HELD_BEFORE} AND (p.at <= ?2 OR {_IS_TOLD})"
_BRING_BACK: Final = "UPDATE resources SET changed_at = ?, doomed_at = ? WHERE id = ?"
_FORGET_JUDGED: Final = f"DELETE FROM pushed AS p WHERE p.set_id = ?1 AND ({_IS_TOLD} OR (p.at <= ?2 AND {_IS_NAMED}))"  # noqa: S608
_DELETED_BEFORE: Final = (
    "SELECT max(coalesce(r.changed_at, 0), c.at), r.id FROM temp.changed c"
    " CROSS JOIN resources r ON r.set_id = ? AND r.uri = c.uri"
    " WHERE c.pending AND c.change = 'deleted' AND c.at IS NOT NULL AND r.path IS NULL"
)


def keep_before_payload(t: Transaction, set_id: int, now: int) -> None:
    """Note what is remembered of the resources of pending changes, which a payload has told by `now`."""
    t.run(_KEEP, (set_id, now))


def let_changes_decide(t: Transaction, set_id: int, reached: int | None) -> bool:
    """Bring back what was remembered before payloads; the pending changes, of lists that have led to `reached`, decide.

    What payloads tell of a later time stays, unless these lists tell of that time: they may be older. Returns whether
    payloads have told what lists that have led further do not; that goes on until the Resource List has judged it.
    """
    if t.one(_ANY, (set_id,)) is None:
        return False
    t.many(_BRING_BACK, t.fetch(_JUDGED_BEFORE, (set_id, reached)))
    is_untold = t.one(_IS_UNTOLD, (set_id, reached)) is not None
    t.run(_FORGET_JUDGED, (set_id, reached))
    t.many("UPDATE resources SET changed_at = ? WHERE id = ?", t.fetch(_DELETED_BEFORE, (set_id,)))
    return is_untold


def let_list_decide(t: Transaction, set_id: int) -> None:
    """Bring back what was remembered before payloads: a Resource List is about to be applied, and changes after it."""
    t.many(_BRING_BACK, t.fetch(_HELD_BEFORE, (set_id,)))


def forget_pushed(t: Transaction, set_id: int) -> None:
    """A Resource List has judged what payloads have told."""
    t.run("DELETE FROM pushed WHERE set_id = ?", (set_id,))
