"""Queries of resources, changes and rows of one committed state of a search cluster, while others write.

What is found while the head stays at one revision, with nothing left to be put into its place, is of one state. A read
that meets a writer begins anew, and then holds the lease of the set for a moment.
"""

from __future__ import annotations

import datetime as dt
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

from headwater.catalog.cluster.head import (
    SetHead,
    pages_of,
    segments_of,
    state_of,
    valid,
)
from headwater.catalog.cluster.indices import WINDOW
from headwater.catalog.cluster.writer import SetWriter, Writer
from headwater.catalog.interface import (
    Change,
    Page,
    Resource,
    RowKey,
    Segment,
    SetSnapshot,
    SetState,
    StateRow,
)
from headwater.catalog.page_filling import is_row_key
from headwater.storage.cluster import ClusterDamaged

_ATTEMPTS = 2
"""So often a read is tried without the lease."""

R = TypeVar("R")
T = TypeVar("T")


class ClusterReads:
    """The reads of a cluster catalog, and the turns of its writers, for which a read may have to wait."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._indices = writer.indices
        self._locks: dict[str, threading.Lock] = {}
        self._locks_lock = threading.Lock()

    def sets(self) -> list[SetState]:
        return [state_of(head) for head in self._indices.heads()]

    def snapshots(self, names: frozenset[str] = frozenset()) -> Iterator[SetSnapshot]:
        heads = self._indices.heads(whole=True)
        return (as_snapshot(head) for head in heads if not names or head.resource_set in names)

    def snapshot_of(self, name: str) -> SetSnapshot:
        return as_snapshot(self._head(name))

    def times(self, wanted: Mapping[str, int]) -> dict[str, dt.datetime]:
        return {change.resource_set: change.recorded.at for change in self._indices.changes_in(wanted)}

    def newest(self) -> dict[str, int]:
        return self._indices.newest()

    def state(self, name: str) -> SetState:
        return state_of(self._head(name))

    def rows(self, name: str, keys: Iterable[RowKey]) -> dict[RowKey, StateRow]:
        asked = list(dict.fromkeys(key for key in keys if is_row_key(key)))
        found = self._read(name, lambda head: self._indices.rows_by_key(head, asked))
        return {(row.kind, row.key): row for row in found}

    def rows_of(
        self,
        name: str,
        kind: str,
        *,
        after: StateRow | None = None,
        until: int | None = None,
        limit: int = 10_000,
        descending: bool = False,
    ) -> list[StateRow]:
        most = max(limit, 0) if is_row_key((kind, "-")) else 0
        return self._read(
            name, lambda head: self._indices.rows_in_order(head, kind, after, until, most, descending=descending)
        )

    def row_counts(self, name: str) -> dict[str, int]:
        return self._read(name, self._indices.row_counts)

    def sets_with_rows(self, kind: str, until: int | None = None) -> dict[str, int]:
        """The sets that have rows of a kind, of a rank up to `until`, and how many, as of a second ago."""
        return self._indices.sets_with_rows(kind, until) if is_row_key((kind, "-")) else {}

    def get(self, name: str, uris: Sequence[str]) -> dict[str, Resource]:
        found = self._read(name, lambda head: self._indices.resources_of(head, uris))
        return {one.uri: one.resource for one in found}

    def resources(self, name: str, after: str = "", limit: int = 10_000) -> list[Resource]:
        found = self._read(name, lambda head: self._indices.by_uri(head, after, max(limit, 0)))
        return [one.resource for one in found]

    def memos(self, name: str, after: str = "", limit: int = 10_000) -> list[tuple[str, bytes]]:
        return [(one.uri, one.memo) for one in self.resources(name, after, limit)]

    def pages(self, name: str) -> list[Page]:
        return pages_of(self._head(name))

    def page(self, name: str, number: int) -> Iterator[Resource]:
        there = 0 <= number < self.state(name).page_count  # an unknown set is said now
        return self._page(name, number) if there else iter(())

    def _page(self, name: str, number: int) -> Iterator[Resource]:
        found = self._read(name, lambda head: self._indices.on_page(head, number))
        yield from (document.resource for document in found)

    def changes(self, name: str, after: int = 0, limit: int = 10_000) -> list[Change]:
        head = self._head(name)
        first = max(after + 1, head.runs[0].first) if head.runs else head.last_seq + 1
        last = min(head.last_seq, first + limit - 1)
        found: list[Change] = []
        while first <= last:
            end = min(last, first + WINDOW - 1)
            for seq, document in enumerate(self._indices.changes_of(name, first, end), first):
                if document is None or not valid(head, document.rev):
                    raise ClusterDamaged(f"change {seq} is missing, the set says {head.last_seq}", where=name)
                found.append(document.recorded)
            first = end + 1
        return found

    def segments(self, name: str) -> list[Segment]:
        return segments_of(self._head(name))

    def _head(self, name: str) -> SetHead:
        """The head as it is now; what an older version has left in it alone is put into its place first."""
        head = self._indices.head(name).source
        return self._turn(name, _released) if head.tail is not None and head.tail.changes else head

    def _turn(self, name: str, work: Callable[[SetWriter], R]) -> R:
        with self._lock(name):
            turn = SetWriter(self._writer, name)
            return turn.run(lambda: work(turn))

    def _lock(self, name: str) -> threading.Lock:
        """Calls of this handle on one set take turns before they compete with others' for the lease."""
        with self._locks_lock:
            return self._locks.setdefault(name, threading.Lock())

    def _read(self, name: str, fetch: Callable[[SetHead], T]) -> T:
        """What `fetch` finds in one committed state, which has this head."""
        head = self._head(name)
        for _attempt in range(_ATTEMPTS):
            before, found = head, fetch(head) if head.tail is None else None
            head = self._head(name)
            if found is not None and head.rev == before.rev:
                return found

        def work(turn: SetWriter) -> T:
            found = fetch(turn.head)
            turn.release()
            return found

        return self._turn(name, work)


def as_snapshot(head: SetHead) -> SetSnapshot:
    """State, pages and segments of a set."""
    return SetSnapshot(state_of(head), pages_of(head), segments_of(head))


def _released(turn: SetWriter) -> SetHead:
    turn.release()
    return turn.head
