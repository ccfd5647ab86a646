"""The catalog on an OpenSearch or Elasticsearch cluster: for collections beyond one machine, for several publishers.

It reads what a batch concerns, asks `page_filling` what the batch does, and writes that down; one compare-and-set of
the set's head makes all of it so (docs/decisions/014-cluster-catalog.md).

New resources of a load go straight to their place: nobody sees them before the head counts their revisions. Whatever
replaces a document that readers see is written beside it first (the log, or the journal), committed, then applied.

What is found while the head stays at one revision, with nothing left to be put into its place, is of one state. A read
that meets a writer begins anew, and then holds the lease of the set for a moment.
"""

import datetime as dt
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TypeVar

from msgspec.structs import replace

from headwater.catalog import page_filling
from headwater.catalog.cluster import head as cluster_head
from headwater.catalog.cluster.documents import (
    JournalDocument,
    after_change,
    change_documents,
    change_operations,
    journal_documents,
    journal_operations,
    resource_operation,
)
from headwater.catalog.cluster.head import (
    SetHead,
    Tail,
    fills_of,
    log_of,
    pages_of,
    segments_of,
    stamped,
    state_of,
    valid,
    with_log,
    with_places,
    with_rows,
)
from headwater.catalog.cluster.indices import WINDOW, Indices
from headwater.catalog.cluster.schema import prepare
from headwater.catalog.cluster.writer import RoleLease, SetWriter, Writer
from headwater.catalog.interface import (
    DEFAULT_OPTIONS,
    NO_UPDATE,
    Accepted,
    Catalog,
    Change,
    ClusterOptions,
    Event,
    Limits,
    Page,
    Rendered,
    Resource,
    RowKey,
    Segment,
    SetSnapshot,
    SetState,
    StateRow,
    StateUpdate,
    Unacceptable,
    UnknownSet,
    WrongPhase,
)
from headwater.catalog.lease import Lease
from headwater.catalog.page_filling import Places, RowWrite, check_after, is_row_key, is_text, to_microseconds
from headwater.progress import Listener, silent
from headwater.spec.times import from_microseconds
from headwater.storage.cluster import Access, Cluster, ClusterDamaged

_LONGEST_NAME = 8_000  # octets of a set's name: a keyword that is sorted by may have 32,766, an address fewer
_ATTEMPTS = 2  # so often a read is tried without the lease

R = TypeVar("R")
T = TypeVar("T")


class ClusterCatalog(Catalog):
    """A catalog in the indices `PREFIX-set`, `PREFIX-resource`, `PREFIX-change` and `PREFIX-state`, created as needed.

    Use from any thread, from any number of processes and machines. Every method may raise a `ClusterFault`.
    """

    is_remote = True
    load_batch = 50_000  # each ends with requests under way that nothing follows, and two writes of the head

    def __init__(
        self,
        access: Access,
        prefix: str = "headwater",
        limits: Limits | None = None,
        *,
        options: ClusterOptions = DEFAULT_OPTIONS,
        listener: Listener = silent,
    ) -> None:
        self.limits = limits or Limits()
        self.prefix = prefix
        self._cluster = Cluster(access, patience_seconds=options.patience_seconds, listener=listener)
        try:
            prepare(self._cluster, prefix, options)
        except BaseException:
            self._cluster.close()
            raise
        self._indices = Indices(self._cluster, prefix)
        self._writer = Writer(
            self._indices, lease_seconds=options.lease_seconds, busy_seconds=options.busy_seconds, listener=listener
        )
        self._highest: dict[str, tuple[int, str]] = {}
        """The highest URI that a set can hold at a revision: what lies beyond need not be looked up."""

        self._locks: dict[str, threading.Lock] = {}
        self._locks_lock = threading.Lock()

    @property
    def cluster(self) -> Cluster:
        """The connections, for what else is kept there."""
        return self._cluster

    def create(self, name: str, *, last_seq: int = 0) -> SetState:
        if not name or not is_text(name) or len(name.encode()) > _LONGEST_NAME:
            raise Unacceptable(f"no name for a set: {name[:200]!a}")
        self._indices.make_head(stamped(SetHead(resource_set=name, last_seq=last_seq), self._writer.stamp()))
        return self.state(name)

    def load(
        self, name: str, events: Sequence[Event], *, after: SetState | None = None, state: StateUpdate = NO_UPDATE
    ) -> int:
        return self._turn(name, lambda turn: self._load(turn, events, after, state))

    def open(self, name: str, at: dt.datetime) -> SetState:
        at_us = to_microseconds(at)
        return state_of(self._edit(name, lambda head: cluster_head.opened(head, at_us)))

    def record(
        self,
        name: str,
        events: Sequence[Event],
        now: dt.datetime,
        *,
        after: SetState | None = None,
        state: StateUpdate = NO_UPDATE,
    ) -> Accepted:
        now_us = to_microseconds(now)
        return self._turn(name, lambda turn: self._record(turn, events, now_us, after, state))

    def _load(self, turn: SetWriter, events: Sequence[Event], after: SetState | None, state: StateUpdate) -> int:
        before, name = turn.head, turn.name
        check_after(state_of(before), after)
        if before.opened_us is not None:
            raise WrongPhase("the set is open: changes are recorded, not loaded", where=name)
        rows = page_filling.row_writes(state)
        places = self._places_of(turn, events)
        page_filling.load(places, events)
        outcome = places.outcome()
        moved = {uri for uri, _ in outcome.gone}
        fresh = [put for put in outcome.fresh if put.event.uri not in moved]
        first = before.rev + 1
        turn.write_ahead(
            turn.indices.resource, (resource_operation(name, put, first + n) for n, put in enumerate(fresh))
        )
        journal = journal_documents(name, outcome, first + len(fresh))
        head = replace(with_places(turn.head, places), rev=before.rev + len(fresh) + len(journal))
        head = _commit_journal(turn, head, journal, rows)
        self._grown(before, head, events)
        return head.count

    def _record(
        self, turn: SetWriter, events: Sequence[Event], now_us: int, after: SetState | None, state: StateUpdate
    ) -> Accepted:
        before = turn.head
        check_after(state_of(before), after)
        log = log_of(before, self.limits.of(turn.name))
        places = self._places_of(turn, events)
        ignored = tuple(page_filling.record(places, log, events, now_us))
        rows = page_filling.row_writes(state, log.changes)
        if not log.changes and not rows:
            turn.release()
            return Accepted(0, 0, ignored)
        changes = change_documents(turn.name, log.changes, places.outcome(), before.rev + 1)
        turn.write_ahead(turn.indices.change, change_operations(changes))
        count = len(changes)
        tail = Tail(before.rev + 1, count, log.last_seq + 1 - count, journal=False)
        snapshot = with_log(with_places(turn.head, places), log)
        head = with_rows(replace(snapshot, rev=before.rev + count, tail=tail), rows)
        if turn.commit(head):
            turn.finish(filter(None, map(after_change, changes)))
        self._grown(before, head, events)
        return Accepted(log.changes[0].seq, log.last_seq, ignored) if log.changes else Accepted(0, 0, ignored)

    def _places_of(self, turn: SetWriter, events: Sequence[Event]) -> Places:
        head, uris = turn.head, page_filling.uris_of(events)
        highest = self._highest_uri(head)
        is_beyond = highest is not None and (not uris or min(uris) > highest)
        found = [] if is_beyond else turn.indices.resources_of(head, uris)
        held = {document.uri: document.place for document in found}
        fills = fills_of(head, {place.page for place in held.values()})
        return Places(self.limits.of(turn.name), held, fills, head.next_slot)

    def _highest_uri(self, head: SetHead) -> str | None:
        rev, uri = (head.rev, "") if head.next_slot == 0 else self._highest.get(head.resource_set, (-1, ""))
        return uri if rev == head.rev else None

    def _grown(self, before: SetHead, after: SetHead, events: Sequence[Event]) -> None:
        if (highest := self._highest_uri(before)) is not None:
            self._highest[after.resource_set] = (after.rev, max((highest, *(event.uri for event in events))))

    def fence(self, name: str) -> int:
        """Shut out whoever has seen the set before and has not recorded yet: its `record` raises Moved (`after`)."""
        return self._edit(name, lambda head: replace(head, fence=head.fence + 1)).fence

    def mark(self, name: str, now: dt.datetime) -> dt.datetime:
        now_us = to_microseconds(now)
        head = self._edit(name, lambda head: cluster_head.marked(head, now_us))
        return from_microseconds(now_us if head.last_us is None else head.last_us)

    def remember(self, name: str, memos: Sequence[tuple[str, bytes]], *, newest: int | None = None) -> None:
        self._turn(name, lambda turn: _remember(turn, memos, newest))

    def rendered(self, name: str, pages: Sequence[Rendered]) -> None:
        self._edit(name, lambda head: cluster_head.rendered(head, pages))

    def close_segment(self, name: str, now: dt.datetime) -> Segment:
        now_us = to_microseconds(now)
        return segments_of(self._edit(name, lambda head: cluster_head.closed(head, now_us, self.limits.of(name))))[-2]

    def note(self, name: str, notes: bytes) -> None:
        self._edit(name, lambda head: replace(head, notes=notes))

    def drop(self, name: str) -> None:
        self._indices.remove_documents(name, self._edit(name, cluster_head.emptied).rev)
        with suppress(UnknownSet):  # the answer was lost: what is asked for then is not there any more
            self._edit(name, lambda head: replace(head, dropped=True))

    def lease(self, role: str, who: str) -> Lease:
        """The lease of `role`, not asked for yet; its holder's silence is borne for as long as a writer's."""
        return RoleLease(self._indices, role, who, self._writer.lease_seconds)

    def hurry(self) -> None:
        """Be patient no longer with nodes that do not answer: this process is to end."""
        self._cluster.hurry()

    def close(self) -> None:
        self._cluster.close()

    def _edit(self, name: str, change: Callable[[SetHead], SetHead]) -> SetHead:
        with self._lock(name):
            return SetWriter(self._writer, name).edit(change)

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
        order, begin = {"location.value": "asc"}, [after] if after else None
        found = self._read(name, lambda head: self._indices.live(head, [], order, begin, max(limit, 0)))
        return [one.resource for one in found]

    def memos(self, name: str, after: str = "", limit: int = 10_000) -> list[tuple[str, bytes]]:
        return [(one.uri, one.memo) for one in self.resources(name, after, limit)]

    def pages(self, name: str) -> list[Page]:
        return pages_of(self._head(name))

    def page(self, name: str, number: int) -> Iterator[Resource]:
        there = 0 <= number < self.state(name).page_count  # an unknown set is said now
        return self._page(name, number) if there else iter(())

    def _page(self, name: str, number: int) -> Iterator[Resource]:
        wanted = [{"term": {"page": number}}]
        found = self._read(name, lambda head: self._indices.live(head, wanted, {"slot": "asc"}))
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
        return self._alone(name, lambda head: head) if head.tail is not None and head.tail.changes else head

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
        return self._alone(name, fetch)

    def _alone(self, name: str, fetch: Callable[[SetHead], T]) -> T:
        """The same while nobody else may write, and everything is in its place."""

        def work(turn: SetWriter) -> T:
            found = fetch(turn.head)
            turn.release()
            return found

        return self._turn(name, work)


def as_snapshot(head: SetHead) -> SetSnapshot:
    """State, pages and segments of a set."""
    return SetSnapshot(state_of(head), pages_of(head), segments_of(head))


def _remember(turn: SetWriter, memos: Sequence[tuple[str, bytes]], newest: int | None) -> None:
    head, said = turn.head, dict(memos)
    found = turn.indices.resources_of(head, list(said))
    held = [document for document in found if newest is None or document.seq <= newest]
    if not held:
        turn.release()
        return
    journal = [
        JournalDocument(turn.name, rev, replace(document, rev=rev, memo=said[document.uri]))
        for rev, document in enumerate(held, head.rev + 1)
    ]
    _commit_journal(turn, replace(head, rev=head.rev + len(journal)), journal)


def _commit_journal(
    turn: SetWriter, after: SetHead, journal: list[JournalDocument], rows: tuple[RowWrite, ...] = ()
) -> SetHead:
    if journal:
        turn.write_ahead(turn.indices.change, journal_operations(journal))
        after = replace(after, tail=Tail(journal[0].rev, len(journal), 0, journal=True))
    after = with_rows(after, rows)
    if turn.commit(after if after.tail is not None else replace(after, lease=None)) and after.tail is not None:
        turn.finish(entry.redo for entry in journal)
    return after
