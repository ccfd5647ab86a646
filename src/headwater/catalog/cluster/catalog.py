"""The catalog on an OpenSearch or Elasticsearch cluster: for collections beyond one machine, for several publishers.

It reads what a batch concerns, asks `batch_planning` what the batch does, and writes that down; one compare-and-set of
the set's head makes all of it so (docs/decisions/014-cluster-catalog.md).
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Sequence
from typing import TypeVar

import msgspec
from msgspec.structs import replace

from headwater.catalog import batch_planning
from headwater.catalog.batch_planning import is_text, to_microseconds
from headwater.catalog.cluster import batch as cluster_batch
from headwater.catalog.cluster import head as cluster_head
from headwater.catalog.cluster.batch import Batch, Extents
from headwater.catalog.cluster.documents import writes_in_order
from headwater.catalog.cluster.head import SetHead, segment_of, stamped, state_of
from headwater.catalog.cluster.indices import Indices
from headwater.catalog.cluster.reads import ClusterReads
from headwater.catalog.cluster.role_lease import RoleLease
from headwater.catalog.cluster.schema import Layout, prepare
from headwater.catalog.cluster.writer import SetWriter, Writer
from headwater.catalog.faults import Unacceptable
from headwater.catalog.interface import (
    Accepted,
    Event,
    Limits,
    Rendered,
    Segment,
    SetState,
)
from headwater.catalog.lease import Lease
from headwater.catalog.state import NO_UPDATE, StateUpdate
from headwater.progress import Listener, silent
from headwater.spec.times import from_microseconds
from headwater.storage.cluster import Access, Cluster

_LONGEST_NAME = 8_000
"""Octets of a set's name: a keyword that is sorted by may have 32,766, an address fewer."""

R = TypeVar("R")


class WaitTimes(msgspec.Struct, frozen=True, kw_only=True):
    """How long is waited for others.

    `lease_seconds`: how long others bear a holder's silence. `busy_seconds`: how long a call waits for another writer,
    then raises StoreFault. `patience_seconds`: how long what passes (a node that goes, a full queue) is tried again.
    """

    lease_seconds: float = 30.0
    busy_seconds: float = 120.0
    patience_seconds: float = 60.0


DEFAULT_WAIT_TIMES = WaitTimes()


class ClusterCatalog(ClusterReads):
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
        layout: Layout | None = None,
        wait_times: WaitTimes = DEFAULT_WAIT_TIMES,
        listener: Listener = silent,
    ) -> None:
        self.limits = limits or Limits()
        self.prefix = prefix
        self._cluster = Cluster(access, patience_seconds=wait_times.patience_seconds, listener=listener)
        try:
            prepare(self._cluster, prefix, layout or Layout())
        except BaseException:
            self._cluster.close()
            raise
        super().__init__(
            Writer(
                Indices(self._cluster, prefix),
                lease_seconds=wait_times.lease_seconds,
                busy_seconds=wait_times.busy_seconds,
                listener=listener,
            )
        )
        self._extents = Extents()

    @property
    def cluster(self) -> Cluster:
        """The connections, for what else is kept there."""
        return self._cluster

    def create(self, name: str, *, last_seq: int = 0) -> SetState:
        """Make sure the set exists (loading when new, with changes from `last_seq` + 1 on) and return it."""
        if not name or not is_text(name) or len(name.encode()) > _LONGEST_NAME:
            raise Unacceptable(f"no name for a set: {name[:200]!a}")
        self._indices.create_head(stamped(SetHead(resource_set=name, last_seq=last_seq), self._writer.stamp()))
        return self.state(name)

    def load(
        self, name: str, events: Sequence[Event], *, after: SetState | None = None, state: StateUpdate = NO_UPDATE
    ) -> int:
        """Apply events without logging changes, while the set is loading; idempotent. Returns the live count."""
        batch = Batch(events, self.limits.of(name), seen=after, rows=writes_in_order(batch_planning.row_writes(state)))
        return self._turn(name, lambda turn: cluster_batch.load(turn, self._extents, batch))

    def open(self, name: str, at: dt.datetime) -> SetState:
        """End the load: the first segment begins with `from_` = `at`. No effect on a set that is open."""
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
        """Log events in order as changes with consecutive sequence numbers and strictly increasing times."""
        rows = writes_in_order(batch_planning.row_writes(state))
        batch = Batch(events, self.limits.of(name), to_microseconds(now), after, rows, state)
        if cluster_batch.is_few(batch):
            with self._lock(name):
                accepted = cluster_batch.record_few(SetWriter(self._writer, name), self._extents, batch)
            if accepted is not None:
                return accepted
        return self._turn(name, lambda turn: cluster_batch.record(turn, self._extents, batch))

    def fence(self, name: str) -> int:
        """Shut out whoever has seen the set before and has not recorded yet: its `record` raises Moved (`after`)."""
        return self._edit(name, lambda head: replace(head, fence=head.fence + 1)).fence

    def mark(self, name: str, now: dt.datetime) -> dt.datetime:
        """Draw a line: return T, the latest of `now` and all earlier times; every later change gets a time after T."""
        now_us = to_microseconds(now)
        head = self._edit(name, lambda head: cluster_head.marked(head, now_us))
        return from_microseconds(now_us if head.last_us is None else head.last_us)

    def remember(self, name: str, memos: Sequence[tuple[str, bytes]], *, newest: int | None = None) -> None:
        """Replace the memos of live resources (others are skipped); no change is logged, no page touched."""
        self._turn(name, lambda turn: cluster_batch.remember(turn, memos, newest))

    def rendered(self, name: str, pages: Sequence[Rendered]) -> None:
        """Note that documents of pages were written from the states with these `touched` counts."""
        self._edit(name, lambda head: cluster_head.rendered(head, pages))

    def close_segment(self, name: str, now: dt.datetime) -> Segment:
        """Close the open segment, also an empty one, and open the next; return the closed one."""
        now_us = to_microseconds(now)
        runs = self._edit(name, lambda head: cluster_head.closed(head, now_us, self.limits.of(name))).runs
        return segment_of(len(runs) - 2, runs[-2])

    def note(self, name: str, notes: bytes) -> None:
        """Replace the publisher's private note of the set."""
        self._edit(name, lambda head: replace(head, notes=notes))

    def lease(self, role: str, who: str) -> Lease:
        """The lease of `role`, not asked for yet; its holder's silence is borne for as long as a writer's."""
        return RoleLease(self._indices, role, who, self._writer.lease_seconds)

    def hurry(self) -> None:
        """Be patient no longer with nodes that do not answer: this process is to end."""
        self._cluster.hurry()

    def close(self) -> None:
        """Give up connections; what was accepted is in the cluster."""
        self._cluster.close()

    def _edit(self, name: str, change: Callable[[SetHead], SetHead]) -> SetHead:
        with self._lock(name):
            return SetWriter(self._writer, name).edit(change)
