"""Folds the staged changes of all lists to the last one of each resource: that is what is to be done (5.3)."""

from __future__ import annotations

from collections.abc import Sequence

from headwater.storage.database import Transaction

_AND_LATER = """
UPDATE temp.changed SET pending = 1 WHERE NOT pending AND EXISTS (
  SELECT 1 FROM temp.changed AS earlier WHERE earlier.uri = changed.uri AND earlier.pending
  AND (earlier.list, earlier.ordinal) < (changed.list, changed.ordinal)
  AND (earlier.at <= changed.at OR earlier.at IS NULL OR changed.at IS NULL))"""
"""With a change that is done again all later ones of its resource are, or it would have the last word."""

_OVERTAKEN = """
UPDATE temp.changed SET pending = 0 WHERE pending AND exact AND EXISTS (
  SELECT 1 FROM temp.changed AS earlier WHERE earlier.uri = changed.uri AND earlier.pending
  AND earlier.exact AND earlier.list < changed.list AND earlier.at > changed.at)"""
"""Of two lists that overlap the first may tell the later change: there the time decides, not the place."""

_FOLD = """
UPDATE temp.changed SET pending = 0 WHERE pending AND EXISTS (
  SELECT 1 FROM temp.changed AS later WHERE later.uri = changed.uri AND later.pending
  AND (later.list, later.ordinal) > (changed.list, changed.ordinal))"""


def fold(t: Transaction, listed: Sequence[int], count: int) -> None:
    """Leave pending only the last change of each resource.

    `listed`: the numbers of lists in the order of their index, of `count` in all. One that was polled, and so read
    before those ahead of it in the index, takes its place among them.
    """
    placed = list(dict.fromkeys(listed))
    order = [number for number in range(count) if number not in set(placed)] + placed
    if order != sorted(order):
        t.many("UPDATE temp.changed SET list = ? WHERE list = ?", ((-1 - n, old) for n, old in enumerate(order)))
        t.run("UPDATE temp.changed SET list = -1 - list")
    t.run("CREATE INDEX IF NOT EXISTS temp.changed_uri ON changed(uri, list, ordinal)")
    if t.one("SELECT 1 FROM temp.changed WHERE NOT pending LIMIT 1"):
        t.run(_AND_LATER)
    if count > 1:
        t.run(_OVERTAKEN)
    t.run(_FOLD)


def set_apart(t: Transaction) -> int:
    """Move what the scope refuses out of the pending changes; how much it is."""
    t.run("DELETE FROM temp.refused")
    t.run(
        "INSERT INTO temp.refused(uri, change, at, refused)"
        " SELECT uri, change, at, refused FROM temp.changed WHERE pending AND refused ORDER BY n"
    )
    t.run("DELETE FROM temp.changed WHERE refused")
    return int(t.value("SELECT count(*) FROM temp.refused"))
