"""Queries of resources, changes and rows of one committed state of a search cluster, while others write.

A search shows some state between that of the last refresh and now. The log says what has happened since the refresh:
those resources are taken from the log, all others have not changed. So a read needs no lock, and no refresh as long as
little has changed. What is not in the log (a load, new memos, a writer that was overtaken) makes a read begin anew.

What the head says of rows counts before what lies in their index: it may not be there yet. A read of rows begins anew
when rows were written meanwhile, which the head tells by its `state_version`.
"""

from __future__ import annotations

import datetime as dt
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TypeVar

import msgspec

from headwater.catalog.cluster.documents import RowWrite, StoredChange, StoredResource, after_change
from headwater.catalog.cluster.head import (
    SetHead,
    applied,
    only_recorded,
    pages_of,
    said,
    segments_of,
    state_of,
    valid,
    void,
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
    UnknownSet,
)
from headwater.catalog.page_filling import is_row_key
from headwater.storage.cluster import ClusterDamaged

_MOST_SINCE = 1_000
"""With more changes since the last refresh, another refresh costs less than reading them."""

_ATTEMPTS = 4
_PAUSE = 0.02

R = TypeVar("R")
T = TypeVar("T")

Documents = list[StoredResource]
Since = dict[str, StoredResource]


_CHECKPOINT = re.compile(r'"local_checkpoint":([0-9]+)')


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


class ClusterReads:
    """The reads of a cluster catalog, and the turns of its writers, for which a read may have to wait."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._indices = writer.indices
        self._refreshed: dict[str, SetHead] = {}
        self._newest: tuple[str, dict[str, int]] = ("", {})
        self._locks: dict[str, threading.Lock] = {}
        self._locks_lock = threading.Lock()

    def sets(self) -> list[SetState]:
        return [state_of(head) for head in self._indices.heads()]

    def snapshots(self, names: frozenset[str] = frozenset()) -> Iterator[SetSnapshot]:
        heads = self._indices.heads(whole=True)
        return (as_snapshot(head) for head in heads if not names or head.resource_set in names)

    def snapshot_of(self, name: str, newest: int | None = None) -> SetSnapshot:
        """One set with its pages and segments; in any committed state with change `newest`, when that is given."""
        known = self._indices.known.get(name) if newest is not None else None
        head = known.head if known is not None and known.head.last_seq >= (newest or 0) else self._head(name)
        return as_snapshot(head)

    def times(self, wanted: Mapping[str, int]) -> dict[str, dt.datetime]:
        found = {change.resource_set: change.recorded.at for change in self._indices.changes_in(wanted)}
        for name in wanted.keys() - found.keys():  # what was committed a moment ago may be in the head alone
            with suppress(UnknownSet):
                found.update((name, one.datetime) for one in said(self._head(name), wanted[name], wanted[name]))
        return found

    def newest(self) -> dict[str, int]:
        """The number of the newest change of every open set, by name. One small request when nothing has happened.

        Else only the heads that were written since are looked at: others may record in thousands of sets all the time.
        """
        (before, numbers), mark = self._newest, self._indices.checkpoints()
        is_comparable = bool(mark) and _CHECKPOINT.sub("", mark) == _CHECKPOINT.sub("", before)
        if not is_comparable or done_by_all(mark) < done_by_all(before):
            numbers = self._indices.newest()
        elif mark != before:
            numbers = numbers | self._indices.newest(done_by_all(before))
        self._newest = (mark, numbers)
        return numbers.copy()

    def state(self, name: str) -> SetState:
        return state_of(self._head(name))

    def rows(self, name: str, keys: Iterable[RowKey]) -> dict[RowKey, StateRow]:
        asked = list(dict.fromkeys(key for key in keys if is_row_key(key)))
        found, since = self._read_rows(name, lambda head: self._indices.rows_by_key(head, asked))
        rows = {(row.kind, row.key): row for row in found}
        for key in asked:
            if key in since:
                rows.pop(key, None)
                _put(rows, since[key])
        return rows

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
        if limit < 1 or not is_row_key((kind, "-")):
            self._head(name)
            return []
        found: list[StateRow] = []
        while len(found) < limit:
            size = min(limit - len(found), WINDOW // 2)
            page = self._rows_of(name, _Order(kind, until, descending=descending), after, size)
            found += page
            if len(page) < size:
                break
            after = page[-1]
        return found

    def row_counts(self, name: str) -> dict[str, int]:

        def fetch(head: SetHead) -> dict[str, int]:
            self._indices.refresh(self._indices.state)
            return self._indices.row_counts(head)

        found, since = self._read_rows(name, fetch)
        return self._held(name, fetch) if since else found

    def sets_with_rows(self, kind: str, until: int | None = None) -> dict[str, int]:
        """The sets that have rows of a kind, of a rank up to `until`, and how many, as of a second ago."""
        return self._indices.sets_with_rows(kind, until) if is_row_key((kind, "-")) else {}

    def get(self, name: str, uris: Sequence[str]) -> dict[str, Resource]:
        found, since = self._read(name, lambda _head: self._indices.resources_of(name, uris), searched=False)
        asked = set(uris)
        documents = {document.uri: document for document in found}
        documents.update((uri, document) for uri, document in since.items() if uri in asked)
        return {uri: document.resource for uri, document in documents.items() if document.live}

    def resources(self, name: str, after: str = "", limit: int = 10_000) -> list[Resource]:
        if limit < 1:
            self._head(name)
            return []
        size = limit
        while True:
            ended = False

            def fetch(head: SetHead, size: int = size) -> Documents:
                nonlocal ended
                documents = self._by_uri(head, after, size)
                ended = len(documents) < size
                return documents

            found, since = self._read(name, fetch, searched=True)
            horizon = None if ended else found[-1].uri if found else after
            kept = [document for document in found if document.uri not in since]
            come = [
                document
                for uri, document in since.items()
                if document.live and uri > after and (horizon is None or uri <= horizon)
            ]
            if come:
                kept = sorted(kept + come, key=lambda document: document.uri)
            if ended or len(kept) >= limit:
                return [document.resource for document in kept[:limit]]
            size = 2 * size + len(since)  # some of what was found is gone

    def memos(self, name: str, after: str = "", limit: int = 10_000) -> list[tuple[str, bytes]]:
        return [(one.uri, one.memo) for one in self.resources(name, after, limit)]

    def pages(self, name: str) -> list[Page]:
        return pages_of(self._head(name))

    def page(self, name: str, number: int) -> Iterator[Resource]:
        there = 0 <= number < self.state(name).page_count  # an unknown set is said now
        return self._page(name, number) if there else iter(())

    def _page(self, name: str, number: int) -> Iterator[Resource]:
        found, since = self._read(name, lambda _head: self._indices.on_page(name, number), searched=True)
        kept = [document for document in found if document.uri not in since] if since else found
        come = [document for document in since.values() if document.live and document.page == number]
        if come:
            kept = sorted(kept + come, key=lambda document: document.slot)
        yield from (document.resource for document in kept)

    def changes(self, name: str, after: int = 0, limit: int = 10_000) -> list[Change]:
        known = self._indices.known.get(name)
        if known is not None and 0 < limit <= known.head.last_seq - after:  # what is in the log stays as it is
            head = known.head
        else:
            head = self._head(name)
        first = max(after + 1, head.runs[0].first) if head.runs else head.last_seq + 1
        last = min(head.last_seq, first + limit - 1)
        found: list[Change] = []
        while first <= last:
            end = min(last, first + WINDOW - 1)
            for seq, document in enumerate(self._changes_of(head, first, end), first):
                if document is None or not valid(head, document.rev):
                    raise ClusterDamaged(f"change {seq} is missing, the set says {head.last_seq}", where=name)
                found.append(document.recorded)
            first = end + 1
        return found

    def segments(self, name: str) -> list[Segment]:
        return segments_of(self._head(name))

    def _head(self, name: str) -> SetHead:
        return self._indices.head(name).head

    def _turn(self, name: str, work: Callable[[SetWriter], R]) -> R:
        with self._lock(name):
            turn = SetWriter(self._writer, name)
            return turn.run(lambda: work(turn))

    def _lock(self, name: str) -> threading.Lock:
        """Calls of this handle on one set take turns before they compete with others' for the lease."""
        with self._locks_lock:
            return self._locks.setdefault(name, threading.Lock())

    def _changes_of(self, head: SetHead, first: int, last: int) -> list[StoredChange | None]:
        """These changes as they are now; the newest may be nowhere but in the head."""
        newest = said(head, first, last)
        return [*self._indices.changes_of(head.resource_set, first, last - len(newest)), *newest]

    def _by_uri(self, head: SetHead, after: str, size: int) -> Documents:
        """Fewer than `size` at the end only. What a dead writer has left, perhaps a whole load, takes no room."""
        found: Documents = []
        while size > len(found):
            wanted = min(WINDOW, size - len(found))
            more = self._indices.by_uri(head.resource_set, after, wanted)
            found += [document for document in more if not void(head, document.rev)]
            if len(more) < wanted:
                break
            after = more[-1].uri
        return found

    def _read(self, name: str, fetch: Callable[[SetHead], Documents], *, searched: bool) -> tuple[Documents, Since]:
        """Documents that `fetch` finds and what changes have made of others: together one committed state."""
        for attempt in range(_ATTEMPTS):
            if attempt > 1 or (attempt and searched):
                time.sleep(_PAUSE * 2**attempt)
            before = self._before(name, searched=searched, anew=attempt > 0)
            found = fetch(before)
            head = self._head(name)
            if not attempt and not searched and head.last_seq - before.last_seq > _MOST_SINCE:
                continue
            since = self._since(before, head)
            if since is not None:
                return _committed(head, found), since

        def work(turn: SetWriter) -> Documents:
            if searched:
                self._indices.refresh(self._indices.resource)
            found = _committed(turn.head, fetch(turn.head))
            turn.release()
            return found

        return self._turn(name, work), {}

    def _before(self, name: str, *, searched: bool, anew: bool) -> SetHead:
        """A state of which searches certainly see everything that was applied."""
        seen = self._indices.known.get(name)
        if seen is not None and not searched and not anew:
            return seen.head
        head = self._head(name)
        if not searched:
            return head
        known = self._refreshed.get(name)
        if known is not None and only_recorded(known, head) and head.last_seq - applied(known) <= _MOST_SINCE:
            return known
        others = self._indices.known.heads()
        self._indices.refresh(self._indices.resource)
        self._refreshed.update(others)  # one refresh is enough for whoever reads thousands of sets
        self._refreshed[name] = head
        return head

    def _since(self, before: SetHead, head: SetHead) -> Since | None:
        """What the changes after `before` have made of resources; None when not all that happened is in the log."""
        if not only_recorded(before, head):
            return None
        changes = self._changes_of(head, applied(before) + 1, head.last_seq)
        since: Since = {}
        for change in changes:
            if change is None or not valid(head, change.rev):
                return None
            document = after_change(change)
            if document is not None:
                since[document.uri] = document
        return since

    def _rows_of(self, name: str, order: _Order, after: StateRow | None, size: int) -> list[StateRow]:
        wanted = 0

        def fetch(head: SetHead) -> list[StateRow]:
            nonlocal wanted
            wanted = size + (len(head.tail.rows) if head.tail is not None else 0)
            self._indices.refresh(self._indices.state)
            return self._indices.rows_in_order(
                head, order.kind, after, order.until, min(wanted, WINDOW), descending=order.descending
            )

        found, since = self._read_rows(name, fetch)
        horizon = found[-1] if len(found) == min(wanted, WINDOW) else None
        rows = {(row.kind, row.key): row for row in found if (row.kind, row.key) not in since}
        for write in since.values():
            if write.kind == order.kind and order.is_within(write, after, horizon):
                _put(rows, write)
        return sorted(rows.values(), key=_place, reverse=order.descending)[:size]

    def _read_rows(self, name: str, fetch: Callable[[SetHead], T]) -> tuple[T, dict[RowKey, RowWrite]]:
        """What `fetch` finds of the rows that are in their places, and what a head says of others."""
        known = self._indices.known.get(name)
        before = known.head if known is not None else self._head(name)
        for attempt in range(_ATTEMPTS):
            if attempt > 1:
                time.sleep(_PAUSE * 2**attempt)
            found = fetch(before)
            head = self._head(name)
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

        found: T = self._turn(name, work)
        return found


def done_by_all(checkpoints: str) -> int:
    """The last operation up to which every copy has done all; -1 where nothing tells (`Indices.checkpoints`)."""
    return min(map(int, _CHECKPOINT.findall(checkpoints)), default=-1)


def as_snapshot(head: SetHead) -> SetSnapshot:
    """State, pages and segments of a set."""
    return SetSnapshot(state_of(head), pages_of(head), segments_of(head))


def _committed(head: SetHead, documents: Documents) -> Documents:
    return [document for document in documents if valid(head, document.rev)]


def _put(rows: dict[RowKey, StateRow], write: RowWrite) -> None:
    if write.value is not None:
        rows[write.kind, write.key] = StateRow(write.kind, write.key, write.value, write.rank)


def _place(row: StateRow | RowWrite) -> tuple[int, bytes]:
    return row.rank, row.key.encode()
