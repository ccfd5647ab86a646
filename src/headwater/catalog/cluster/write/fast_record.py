"""A few changes recorded on a search cluster by the head alone: one compare-and-set says and commits them, no lease.

A fast path beside `batch.record`, which does the same under the lease of the set with two writes of the head more. Most
batches of a source that is fed are of an event or two.
"""

from __future__ import annotations

from msgspec.structs import replace

from headwater.catalog import batch_planning
from headwater.catalog.batch_planning import check_after
from headwater.catalog.cluster.documents import change_documents, to_json
from headwater.catalog.cluster.head import SetHead, Tail, log_of, state_of, with_log, with_places, with_rows
from headwater.catalog.cluster.write.batch import Batch, Extents, accepted_of, apply_or_leave, places_of
from headwater.catalog.cluster.write.set_writer import SetWriter
from headwater.catalog.interface import Accepted

IS_ON = True
"""False: every batch takes the lease."""

MOST_EVENTS = 24
"""A batch of so many events at most is written with the head that commits it …"""
MOST_OCTETS = 32_768
"""… unless it is larger than this: until it is in its places, every head carries it."""


def may_take(batch: Batch) -> bool:
    """Whether it is worth trying."""
    return IS_ON and len(batch.events) <= MOST_EVENTS


def record(turn: SetWriter, extents: Extents, batch: Batch) -> Accepted | None:
    """Log a few events by one replacement of the head, which says them itself, then put them into their places.

    None, and nothing done, when that takes a lease: too much, or nothing to write. Raises as `record` does.
    """
    accepted = Accepted(0, 0)
    before = after = None

    def change(head: SetHead) -> SetHead:
        nonlocal accepted, before, after
        before = after = None
        check_after(state_of(head), batch.seen)
        turn.apply()
        head = turn.head
        log = log_of(head, batch.limits)
        places = places_of(turn, extents, uris, batch.limits)
        ignored = tuple(batch_planning.record(places, log, batch.events, batch.now_us))
        changes = tuple(change_documents(turn.name, log.changes, places.outcome(), head.rev + 1))
        rows = batch.rows_with(log.changes)
        count, written = len(changes), (*changes, *rows)
        if not written or sum(len(to_json(part)) for part in written) > MOST_OCTETS:
            return head
        tail = Tail(head.rev + 1, count, log.last_seq + 1 - count, journal=False, changes=changes)
        snapshot = with_log(with_places(head, places), log)
        before, after = head, with_rows(replace(snapshot, rev=head.rev + count, tail=tail), rows)
        accepted = accepted_of(log, ignored)
        return after

    uris = batch_planning.uris_of(batch.events)
    turn.edit(change)
    if before is None or after is None:
        return None
    apply_or_leave(turn)
    extents.grown(before, after, uris)
    return accepted
