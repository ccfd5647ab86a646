"""One batch on a search cluster: documents ahead, one compare-and-set of the head, then the resources.

A few changes go into the head itself: one compare-and-set says and commits them, and no lease is needed. New resources
of a load go straight to their place: nobody sees them before the head counts their revisions. Whatever replaces a
document that readers see is written beside it first (the log, or the journal), committed, then applied.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from headwater.catalog import ledger
from headwater.catalog.cluster.bodies import resource_bodies
from headwater.catalog.cluster.documents import (
    JournalDocument,
    after_change,
    arrival_documents,
    change_documents,
    change_operations,
    journal_documents,
    journal_operations,
    redone_operation,
    resource_operation,
    to_json,
)
from headwater.catalog.cluster.head import Head, Tail, fills_of, log_of, valid, with_log, with_places
from headwater.catalog.cluster.turn import Overtaken, Turn
from headwater.catalog.interface import Accepted, Event, Limits, SetState, WrongPhase, check_after
from headwater.catalog.ledger import Places
from headwater.progress import Notice
from headwater.storage.cluster_faults import ClusterFault

AT_ONCE = 24
"""A batch of so many events at most is written with the head that commits it …"""
AT_ONCE_OCTETS = 32_768
"""… unless it is larger than this: until it is in its places, every head carries it."""


class Extents:
    """The highest URI that a set can hold, as far as one handle knows: what lies beyond need not be looked up."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[int, str]] = {}

    def beyond(self, head: Head, uris: Sequence[str]) -> bool:
        """Whether the set certainly holds none of the URIs."""
        highest = self._highest(head)
        return highest is not None and (not uris or min(uris) > highest)

    def grown(self, before: Head, after: Head, uris: Sequence[str]) -> None:
        """The set has been given these URIs, between two revisions."""
        highest = self._highest(before)
        if highest is not None:
            self._known[before.resource_set] = (after.rev, max(highest, *uris) if uris else highest)

    def _highest(self, head: Head) -> str | None:
        if head.next_slot == 0:
            return ""
        rev, uri = self._known.get(head.resource_set, (-1, ""))
        return uri if rev == head.rev else None


def load(turn: Turn, extents: Extents, events: Sequence[Event], limits: Limits) -> int:
    """Apply events without logging changes; the live count. Raises WrongPhase, Unacceptable."""
    before, name = turn.head, turn.name
    if before.opened_us is not None:
        raise WrongPhase("the set is open: changes are recorded, not loaded", where=name)
    uris = ledger.uris_of(events)
    places = _places(turn, extents, uris, limits)
    arrivals = ledger.arrivals(places, events)
    if arrivals is None:
        after = _replaced(turn, places, events)
    else:
        bodies = resource_bodies(name, arrival_documents(name, arrivals, before.rev + 1))
        turn.write_ahead(turn.indices.resource, bodies)
        after = replace(with_places(turn.head, places), rev=before.rev + len(arrivals.events))
        turn.commit(replace(after, lease=None))
    extents.grown(before, after, uris)
    return after.count


def _replaced(turn: Turn, places: Places, events: Sequence[Event]) -> Head:
    """Load what also replaces or deletes; the head that was committed."""
    before, name = turn.head, turn.name
    ledger.load(places, events)
    outcome = places.outcome()
    moved = {uri for uri, _ in outcome.gone}
    fresh = [put for put in outcome.fresh if put.event.uri not in moved]
    first = before.rev + 1
    turn.write_ahead(turn.indices.resource, (resource_operation(name, put, first + n) for n, put in enumerate(fresh)))
    journal = journal_documents(name, outcome, first + len(fresh))
    after = replace(with_places(turn.head, places), rev=before.rev + len(fresh) + len(journal))
    if journal:
        _commit_journal(turn, after, journal)
    else:
        turn.commit(replace(after, lease=None))
    return after


def record(
    turn: Turn, extents: Extents, events: Sequence[Event], limits: Limits, now_us: int, seen: SetState | None = None
) -> Accepted:
    """Log events in order and apply them. Raises WrongPhase, Unacceptable, Moved."""
    before = turn.head
    check_after(turn.name, before.last_seq, seen, before.fence)
    log = log_of(before, limits)
    uris = ledger.uris_of(events)
    places = _places(turn, extents, uris, limits)
    ignored = tuple(ledger.record(places, log, events, now_us))
    if not log.changes:
        turn.release()
        return Accepted(0, 0, ignored)
    changes = change_documents(turn.name, log.changes, places.outcome(), before.rev + 1)
    turn.write_ahead(turn.indices.change, change_operations(changes))
    first, count = changes[0].seq, len(changes)
    books = with_log(with_places(turn.head, places), log)
    after = replace(books, rev=before.rev + count, tail=Tail(before.rev + 1, count, first, journal=False))
    if turn.commit(after):
        turn.finish(redone_operation(document) for document in map(after_change, changes) if document is not None)
    extents.grown(before, after, uris)
    return Accepted(first, log.last_seq, ignored)


def record_at_once(
    turn: Turn, extents: Extents, events: Sequence[Event], limits: Limits, now_us: int, seen: SetState | None = None
) -> Accepted | None:
    """Log a few events by one replacement of the head, which says them itself, then put them into their places.

    None, and nothing done, when that takes a lease: too much, or nothing to log. Raises as `record` does.
    """
    ignored: tuple[str, ...] = ()
    before = after = None

    def change(head: Head) -> Head:
        nonlocal ignored, before, after
        before = after = None
        check_after(turn.name, head.last_seq, seen, head.fence)
        turn.apply()
        head = turn.head
        log = log_of(head, limits)
        places = _places(turn, extents, uris, limits)
        ignored = tuple(ledger.record(places, log, events, now_us))
        changes = tuple(change_documents(turn.name, log.changes, places.outcome(), head.rev + 1))
        if not changes or sum(len(to_json(one)) for one in changes) > AT_ONCE_OCTETS:
            return head
        tail = Tail(head.rev + 1, len(changes), changes[0].seq, journal=False, changes=changes)
        books = with_log(with_places(head, places), log)
        before, after = head, replace(books, rev=head.rev + len(changes), tail=tail)
        return after

    uris = ledger.uris_of(events)
    turn.edit(change)
    if before is None or after is None or after.tail is None:
        return None
    try:
        turn.apply()
    except ClusterFault as fault:
        turn.writer.listener(Notice(fault.code, f"{fault.what}; recorded, to be applied later", turn.name))
    except Overtaken:
        pass  # who writes next applies it
    extents.grown(before, after, uris)
    return Accepted(after.tail.first, after.last_seq, ignored)


def remember(turn: Turn, memos: Sequence[tuple[str, bytes]]) -> None:
    """Replace the memos of live resources."""
    head, said = turn.head, dict(memos)
    held = [
        document
        for document in turn.indices.resources_of(turn.name, list(said))
        if document.live and valid(head, document.rev)
    ]
    if not held:
        turn.release()
        return
    journal = [
        JournalDocument(turn.name, rev, replace(document, rev=rev, memo=said[document.uri]))
        for rev, document in enumerate(held, head.rev + 1)
    ]
    _commit_journal(turn, replace(head, rev=head.rev + len(journal)), journal)


def _commit_journal(turn: Turn, after: Head, journal: list[JournalDocument]) -> None:
    turn.write_ahead(turn.indices.change, journal_operations(journal))
    after = replace(after, stamps=turn.head.stamps, tail=Tail(journal[0].rev, len(journal), 0, journal=True))
    if turn.commit(after):
        turn.finish(_redone(journal))


def _redone(journal: list[JournalDocument]) -> Iterator[bytes]:
    return (redone_operation(entry.redo) for entry in journal)


def _places(turn: Turn, extents: Extents, uris: list[str], limits: Limits) -> Places:
    """Where the resources of the batch lie, how full their pages are, and how full the last page is."""
    head = turn.head
    found = [] if extents.beyond(head, uris) else turn.indices.resources_of(turn.name, uris)
    held = {document.uri: document.place for document in found if document.live and valid(head, document.rev)}
    return Places(limits, held, fills_of(head, {place.page for place in held.values()}), head.next_slot)
