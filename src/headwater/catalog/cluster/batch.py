"""One batch on a search cluster: documents ahead, one compare-and-set of the head, then the resources.

New resources of a load go straight to their place: nobody sees them before the head counts their revisions. Whatever
replaces a document that readers see is written beside it first (the log, or the journal), committed, then applied. For
a few changes there is a shorter way (`record_few`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain

import msgspec
from msgspec.structs import replace

from headwater.catalog import batch_planning
from headwater.catalog.batch_planning import Log, Places, check_after
from headwater.catalog.cluster.documents import (
    JournalDocument,
    RowWrite,
    after_change,
    change_documents,
    change_operations,
    journal_documents,
    journal_operations,
    redone_operation,
    resource_operation,
    to_json,
)
from headwater.catalog.cluster.head import (
    SetHead,
    Tail,
    fills_of,
    log_of,
    state_of,
    valid,
    with_log,
    with_places,
    with_rows,
)
from headwater.catalog.cluster.writer import Overtaken, SetWriter
from headwater.catalog.faults import WrongPhase
from headwater.catalog.interface import Accepted, Event, Limits, SetState
from headwater.catalog.state import NO_UPDATE, NumberedChange, StateUpdate
from headwater.progress import Notice
from headwater.storage.cluster_faults import ClusterFault


class Extents:
    """The highest URI that a set can hold, as far as one handle knows: what lies beyond need not be looked up."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[int, str]] = {}

    def beyond(self, head: SetHead, uris: Sequence[str]) -> bool:
        """Whether the set certainly holds none of the URIs."""
        highest = self._highest(head)
        return highest is not None and (not uris or min(uris) > highest)

    def grown(self, before: SetHead, after: SetHead, uris: Sequence[str]) -> None:
        """The set has been given these URIs, between two revisions."""
        highest = self._highest(before)
        if highest is not None:
            self._known[before.resource_set] = (after.rev, max(highest, *uris) if uris else highest)

    def _highest(self, head: SetHead) -> str | None:
        if head.next_slot == 0:
            return ""
        rev, uri = self._known.get(head.resource_set, (-1, ""))
        return uri if rev == head.rev else None


class Batch(msgspec.Struct, frozen=True):
    """What one call writes: events and rows, over the state that the caller has seen."""

    events: Sequence[Event]
    limits: Limits
    now_us: int = 0
    seen: SetState | None = None
    rows: tuple[RowWrite, ...] = ()
    update: StateUpdate = NO_UPDATE

    def rows_with(self, changes: Sequence[NumberedChange]) -> tuple[RowWrite, ...]:
        """The rows, and those that follow from what is logged. Raises Unacceptable."""
        more = batch_planning.rows_of_changes(self.update, changes)
        return (*self.rows, *(RowWrite(row.kind, row.key, row.value, row.rank) for row in more))


def load(turn: SetWriter, extents: Extents, batch: Batch) -> int:
    """Apply events without logging changes; the live count. Raises WrongPhase, Unacceptable, Moved."""
    before, name = turn.head, turn.name
    check_after(state_of(before), batch.seen)
    if before.opened_us is not None:
        raise WrongPhase("the set is open: changes are recorded, not loaded", where=name)
    uris = batch_planning.uris_of(batch.events)
    places = _places_of(turn, extents, uris, batch.limits)
    batch_planning.load(places, batch.events)
    outcome = places.outcome()
    moved = {uri for uri, _ in outcome.gone}
    fresh = [put for put in outcome.fresh if put.event.uri not in moved]
    first = before.rev + 1
    turn.write_ahead(turn.indices.resource, (resource_operation(name, put, first + n) for n, put in enumerate(fresh)))
    journal = journal_documents(name, outcome, first + len(fresh))
    after = replace(with_places(turn.head, places), rev=before.rev + len(fresh) + len(journal))
    if journal:
        after = _commit_journal(turn, after, journal, batch.rows)
    else:
        after = with_rows(after, batch.rows)
        if turn.commit(replace(after, lease=None)):
            _apply_or_leave(turn)  # rows, which the head itself says until then
    extents.grown(before, after, uris)
    return after.count


def _apply_or_leave(turn: SetWriter) -> None:
    """Put what the head says into its places; what fails here is left to whoever writes next."""
    try:
        turn.apply()
    except ClusterFault as fault:
        turn.writer.listener(Notice(fault.code, f"{fault.what}; recorded, to be applied later", turn.name))
    except Overtaken:
        pass


def record(turn: SetWriter, extents: Extents, batch: Batch) -> Accepted:
    """Log events in order and apply them. Raises WrongPhase, Unacceptable, Moved."""
    before = turn.head
    check_after(state_of(before), batch.seen)
    log = log_of(before, batch.limits)
    uris = batch_planning.uris_of(batch.events)
    places = _places_of(turn, extents, uris, batch.limits)
    ignored = tuple(batch_planning.record(places, log, batch.events, batch.now_us))
    if not log.changes and not batch.rows:
        turn.release()
        return Accepted(0, 0, ignored)
    changes = change_documents(turn.name, log.changes, places.outcome(), before.rev + 1)
    turn.write_ahead(turn.indices.change, change_operations(changes))
    count = len(changes)
    tail = Tail(before.rev + 1, count, log.last_seq + 1 - count, journal=False)
    snapshot = with_log(with_places(turn.head, places), log)
    after = with_rows(replace(snapshot, rev=before.rev + count, tail=tail), batch.rows_with(log.changes))
    if turn.commit(after):
        documents = map(after_change, changes)
        redone = (redone_operation(document) for document in documents if document is not None)
        turn.finish(chain(redone, _row_operations(turn, after)))
    extents.grown(before, after, uris)
    return _accepted_of(log, ignored)


def _accepted_of(log: Log, ignored: tuple[str, ...]) -> Accepted:
    """What the caller of `record` is told."""
    if not log.changes:
        return Accepted(0, 0, ignored)
    return Accepted(log.changes[0].seq, log.last_seq, ignored)


def remember(turn: SetWriter, memos: Sequence[tuple[str, bytes]], newest: int | None) -> None:
    """Replace the memos of live resources that no change after `newest` has touched."""
    head, said = turn.head, dict(memos)
    held = [
        document
        for document in turn.indices.resources_of(turn.name, list(said))
        if document.live and valid(head, document.rev) and (newest is None or document.seq <= newest)
    ]
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
    turn.write_ahead(turn.indices.change, journal_operations(journal))
    after = replace(after, stamps=turn.head.stamps, tail=Tail(journal[0].rev, len(journal), 0, journal=True))
    after = with_rows(after, rows)
    if turn.commit(after):
        turn.finish(chain(_redone(journal), _row_operations(turn, after)))
    return after


def _row_operations(turn: SetWriter, after: SetHead) -> Iterator[bytes]:
    return iter(()) if after.tail is None else turn.indices.row_operations(turn.name, after.tail)


def _redone(journal: list[JournalDocument]) -> Iterator[bytes]:
    return (redone_operation(entry.redo) for entry in journal)


def _places_of(turn: SetWriter, extents: Extents, uris: list[str], limits: Limits) -> Places:
    """Where the resources of the batch lie, how full their pages are, and how full the last page is."""
    head = turn.head
    found = [] if extents.beyond(head, uris) else turn.indices.resources_of(turn.name, uris)
    held = {document.uri: document.place for document in found if document.live and valid(head, document.rev)}
    return Places(limits, held, fills_of(head, {place.page for place in held.values()}), head.next_slot)


IS_ON = True
"""False: every batch takes the lease."""

MOST_EVENTS = 24
"""A batch of so many events at most is written with the head that commits it …"""
MOST_OCTETS = 32_768
"""… unless it is larger than this: until it is in its places, every head carries it."""


def is_few(batch: Batch) -> bool:
    """Whether it is worth trying."""
    return IS_ON and len(batch.events) <= MOST_EVENTS


def record_few(turn: SetWriter, extents: Extents, batch: Batch) -> Accepted | None:
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
        places = _places_of(turn, extents, uris, batch.limits)
        ignored = tuple(batch_planning.record(places, log, batch.events, batch.now_us))
        changes = tuple(change_documents(turn.name, log.changes, places.outcome(), head.rev + 1))
        rows = batch.rows_with(log.changes)
        count, written = len(changes), (*changes, *rows)
        if not written or sum(len(to_json(part)) for part in written) > MOST_OCTETS:
            return head
        tail = Tail(head.rev + 1, count, log.last_seq + 1 - count, journal=False, changes=changes)
        snapshot = with_log(with_places(head, places), log)
        before, after = head, with_rows(replace(snapshot, rev=head.rev + count, tail=tail), rows)
        accepted = _accepted_of(log, ignored)
        return after

    uris = batch_planning.uris_of(batch.events)
    turn.edit(change)
    if before is None or after is None:
        return None
    _apply_or_leave(turn)
    extents.grown(before, after, uris)
    return accepted
