"""What one set holds, counted: files, failures, deletions that are held back, files that are newer than listed."""

from __future__ import annotations

from headwater.storage.sqlite.transaction import Transaction

_HELD = (
    "SELECT (SELECT count(*) FROM resources WHERE set_id = ?1)"
    " - (SELECT count(*) FROM resources WHERE set_id = ?1 AND path IS NULL)"
)
"""By two indexes, neither of which needs a look at each row of the table."""


def held_count(t: Transaction, set_id: int) -> int:
    """How many files are held."""
    return int(t.value(_HELD, (set_id,)))


def failure_count(t: Transaction, set_id: int) -> int:
    """How many transfers failed and are to be tried again."""
    return int(t.value("SELECT count(*) FROM failures WHERE set_id = ?", (set_id,)))


def held_back_count(t: Transaction, set_id: int) -> int:
    """How many files stay although the source no longer lists them (DST-B4)."""
    query = "SELECT count(*) FROM resources WHERE set_id = ? AND doomed_at IS NOT NULL AND path IS NOT NULL"
    return int(t.value(query, (set_id,)))


def unconfirmed_count(t: Transaction, set_id: int) -> int:
    """How many files are newer than any list tells."""
    return int(t.value("SELECT count(*) FROM resources WHERE set_id = ? AND newer AND path IS NOT NULL", (set_id,)))
