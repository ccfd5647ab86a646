"""The choice of resources by the records that describe them: a rule over values, and the rows that it asks (DST-S5)."""

from __future__ import annotations

from collections.abc import Callable

from headwater.storage.sqlite.transaction import Transaction
from headwater.sync.filters import Choice

_IS_DESCRIBED = "SELECT 1 FROM descriptions WHERE set_id = ? AND content = ? LIMIT 1"
_CONTENTS = """
SELECT d.content, r.path FROM descriptions d
JOIN listing l ON l.set_id = d.set_id AND l.uri = d.content AND NOT l.refused
LEFT JOIN resources r ON r.set_id = d.set_id AND r.uri = d.content
WHERE d.set_id = ? AND d.record = ?"""
"""What a record describes, as far as it is listed itself: a link to something else chooses nothing."""

_RELEASED = "SELECT 1 FROM released WHERE set_id = ? AND uri = ?"


def is_chosen(
    choice: Choice, *, own: bool, is_described: Callable[[], bool], describes_chosen: Callable[[], bool]
) -> bool:
    """Whether a resource is copied.

    `own`: the patterns let it in; `is_described`: some record describes it; `describes_chosen`: it is a record of a
    resource that is chosen for itself. A record of a record is not chosen by this, so that circles choose nothing.
    """
    if own and (not choice.only_described or is_described()):
        return True
    return (own or choice.with_metadata) and describes_chosen()


class DescribedChoice:
    """Asks, within one transaction, what is remembered of the set's links."""

    def __init__(self, t: Transaction, set_id: int, choice: Choice, own: Callable[[str, bytes | None], bool]) -> None:
        """`own`: whether the patterns let a resource in; its path is None where it has none yet."""
        self._t = t
        self._set = set_id
        self._choice = choice
        self._own = own

    def takes(self, uri: str, path: bytes) -> bool:
        """Whether the resource is copied."""
        if self._choice.skips(uri):
            return False
        return is_chosen(
            self._choice,
            own=self._own(uri, path),
            is_described=lambda: self._t.one(_IS_DESCRIBED, (self._set, uri)) is not None,
            describes_chosen=lambda: self._describes_chosen(uri),
        )

    def _describes_chosen(self, uri: str) -> bool:
        return any(self._own(content, path) for content, path in self._t.rows(_CONTENTS, (self._set, uri)))

    def was_taken(self, uri: str) -> bool:
        """Whether this choice has brought what is held, though it does not take it any more."""
        return self._t.one(_RELEASED, (self._set, uri)) is not None
