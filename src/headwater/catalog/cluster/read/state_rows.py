"""Reads of the rows of sets on a search cluster: each of one committed state, while others write.

What the head says of rows counts before what lies in their index: it may not be there yet. A read begins anew when rows
were written meanwhile, which the head tells by its `state_version`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import msgspec

from headwater.catalog.batch_planning import is_row_key
from headwater.catalog.cluster.head import SetHead
from headwater.catalog.cluster.indices import WINDOW, Indices
from headwater.catalog.cluster.rows import RowWrite
from headwater.catalog.cluster.write.set_writer import SetWriter
from headwater.catalog.state import RowKey, StateRow

_ATTEMPTS = 4
_PAUSE = 0.02

T = TypeVar("T")
Alone = Callable[[str, Callable[[SetWriter], Any]], Any]


class _Order(msgspec.Struct, frozen=True):
    """In which order rows of a kind are read, and up to which rank."""

    kind: str
    until: int | None
    descending: bool

    def is_within(self, row: RowWrite, after: StateRow | None, last: StateRow | None) -> bool:
        """Whether a row lies behind `after`, not behind `last`, and within the bound."""
        if self.until is not None and (row.rank < self.until if self.descending else row.rank > self.until):
            return False
        place = _place(row)
        if self.descending:
            return (after is None or place < _place(after)) and (last is None or place >= _place(last))
        return (after is None or place > _place(after)) and (last is None or place <= _place(last))


class RowReads:
    """Reads of one handle; `alone` does something while holding the lease of a set. Use from any thread."""

    def __init__(self, indices: Indices, alone: Alone) -> None:
        self._indices = indices
        self._alone = alone

    def by_key(self, name: str, keys: Iterable[RowKey]) -> dict[RowKey, StateRow]:
        """Those of the rows that are there."""
        asked = list(dict.fromkeys(key for key in keys if is_row_key(key)))
        found, since = self._read(name, lambda head: self._indices.rows_by_key(head, asked))
        rows = {(row.kind, row.key): row for row in found}
        for key in asked:
            if key in since:
                rows.pop(key, None)
                _put(rows, since[key])
        return rows

    def of_kind(
        self, name: str, kind: str, after: StateRow | None, until: int | None, limit: int, *, descending: bool = False
    ) -> list[StateRow]:
        """Up to `limit` rows of a kind by rank and key, or in the opposite order."""
        if limit < 1 or not is_row_key((kind, "-")):
            self._indices.head(name)
            return []
        found: list[StateRow] = []
        while len(found) < limit:
            size = min(limit - len(found), WINDOW // 2)
            page = self._page(name, _Order(kind, until, descending=descending), after, size)
            found += page
            if len(page) < size:
                break
            after = page[-1]
        return found

    def _page(self, name: str, order: _Order, after: StateRow | None, size: int) -> list[StateRow]:
        wanted = 0

        def fetch(head: SetHead) -> list[StateRow]:
            nonlocal wanted
            wanted = size + (len(head.tail.rows) if head.tail is not None else 0)
            self._indices.refresh(self._indices.state)
            return self._indices.rows_in_order(
                head, order.kind, after, order.until, min(wanted, WINDOW), descending=order.descending
            )

        found, since = self._read(name, fetch)
        horizon = found[-1] if len(found) == min(wanted, WINDOW) else None
        rows = {(row.kind, row.key): row for row in found if (row.kind, row.key) not in since}
        for write in since.values():
            if write.kind == order.kind and order.is_within(write, after, horizon):
                _put(rows, write)
        return sorted(rows.values(), key=_place, reverse=order.descending)[:size]

    def counts(self, name: str) -> dict[str, int]:
        """How many rows the set has of each kind."""

        def fetch(head: SetHead) -> dict[str, int]:
            self._indices.refresh(self._indices.state)
            return self._indices.row_counts(head)

        found, since = self._read(name, fetch)
        return self._held(name, fetch) if since else found

    def _read(self, name: str, fetch: Callable[[SetHead], T]) -> tuple[T, dict[RowKey, RowWrite]]:
        """What `fetch` finds of the rows that are in their places, and what a head says of others."""
        known = self._indices.known.get(name)
        before = known.head if known is not None else self._indices.head(name)[0]
        for attempt in range(_ATTEMPTS):
            if attempt > 1:
                time.sleep(_PAUSE * 2**attempt)
            found = fetch(before)
            head, _ = self._indices.head(name)
            if head.state_version == before.state_version and head.dead == before.dead:
                writes = before.tail.rows if before.tail is not None else ()
                return found, {(write.kind, write.key): write for write in writes}
            before = head
        return self._held(name, fetch), {}

    def _held(self, name: str, fetch: Callable[[SetHead], T]) -> T:
        """What is found while nobody writes to the set, and nothing is left to be put into its place."""

        def work(turn: SetWriter) -> T:
            found = fetch(turn.head)
            turn.release()
            return found

        found: T = self._alone(name, work)
        return found


def _put(rows: dict[RowKey, StateRow], write: RowWrite) -> None:
    if write.value is not None:
        rows[write.kind, write.key] = StateRow(write.kind, write.key, write.value, write.rank)


def _place(row: StateRow | RowWrite) -> tuple[int, bytes]:
    return row.rank, row.key.encode()
