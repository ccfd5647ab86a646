"""Counts a set again from what it holds, compares that with its snapshot, and says what cannot be; on every backend.

Run it while nobody writes: it makes many reads, and what changes between them looks like a discrepancy.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice, pairwise
from typing import Final, TypeVar

import msgspec

from headwater.catalog.interface import Catalog, Change, Page, Resource, Segment, SetSnapshot, SetState
from headwater.catalog.page_filling import NO_METADATA, weight
from headwater.catalog.state import StateRow
from headwater.progress import Listener, Progress, silent
from headwater.spec.records import ChangeKind

MOST_ENTRIES: Final = 50_000
"""Entries of a document (RS-LIM-01): a page or a segment with more could never be published."""
_LONGEST_COUNT: Final = 1 << 40

_BATCH = 10_000
_ROWS = 1_000

T = TypeVar("T")


class Discrepancy(msgspec.Struct, frozen=True):
    """One thing in the snapshot that is not so: `where` in the set, `what` is said and what was found."""

    where: str
    what: str

    def __str__(self) -> str:
        return f"{self.where}: {self.what}"


def verify(catalog: Catalog, name: str, most: int = 1000, listener: Listener = silent) -> list[Discrepancy]:
    """The discrepancies of one set, `most` at most; empty when all is as it must be. Raises UnknownSet."""
    state = catalog.state(name)
    return list(islice(_all(catalog, state, _Teller(listener, state)), most))


class _Teller:
    """Tells how far the recount is: every resource is read twice, by page and by URI, every change once."""

    def __init__(self, listener: Listener, state: SetState) -> None:
        self._listener = listener
        self._phase = f"verify {state.name}"
        self._total = 2 * state.count + state.last_seq
        self._done = 0

    def read(self, count: int) -> None:
        self._done += count
        self._listener(Progress(self._phase, min(self._done, self._total), self._total))


def _all(catalog: Catalog, state: SetState, teller: _Teller) -> Iterator[Discrepancy]:
    snapshot = SetSnapshot(state, catalog.pages(state.name), catalog.segments(state.name))
    for page in snapshot.pages:
        yield from _page(catalog, state, page)
        teller.read(page.count)
    yield from _snapshot_discrepancies(snapshot)
    yield from _resources(catalog, state, teller)
    yield from _changes(catalog, state, teller)
    yield from _rows(catalog, state)


def _snapshot_discrepancies(snapshot: SetSnapshot) -> Iterator[Discrepancy]:
    """What state, pages and segments of a set say that cannot be."""
    yield from _state(snapshot)
    yield from _pages(snapshot)
    yield from _segments(snapshot)


def _state(snapshot: SetSnapshot) -> Iterator[Discrepancy]:
    state = snapshot.state
    for what in ("count", "last_seq", "state_version"):
        if not 0 <= getattr(state, what) < _LONGEST_COUNT:
            yield Discrepancy("state", f"{what} is {getattr(state, what)}")
    if state.opened_at is not None and (state.last_at is None or state.last_at < state.opened_at):
        yield Discrepancy("state", f"the newest time {state.last_at} is before the opening {state.opened_at}")
    if state.opened_at is None and snapshot.segments:
        yield Discrepancy("segments", "there are some in a set that is still loading")
    if state.opened_at is not None and not snapshot.segments:
        yield Discrepancy("segments", "there are none in an open set")


def _pages(snapshot: SetSnapshot) -> Iterator[Discrepancy]:
    state = snapshot.state
    if [page.number for page in snapshot.pages] != list(range(state.page_count)):
        yield Discrepancy("pages", f"not numbered 0 to {state.page_count - 1}")
    for page in snapshot.pages:
        where = f"page {page.number}"
        if not 0 <= page.count <= MOST_ENTRIES:
            yield Discrepancy(where, f"says {page.count} resources, a document holds {MOST_ENTRIES}")
        if not 0 <= page.rendered <= page.touched < _LONGEST_COUNT:
            yield Discrepancy(where, f"rendered {page.rendered}, but touched only {page.touched} times")
        if state.opened_at is not None and (page.touched > page.rendered) != (page.stale_at is not None):
            yield Discrepancy(where, f"touched {page.touched}, rendered {page.rendered}, stale at {page.stale_at}")
    total = sum(page.count for page in snapshot.pages)
    if total != state.count:
        yield Discrepancy("pages", f"hold {total} resources, the set says {state.count}")


def _segments(snapshot: SetSnapshot) -> Iterator[Discrepancy]:
    state, segments = snapshot.state, snapshot.segments
    if segments and (segments[0].number, segments[0].from_) != (0, state.opened_at):
        yield Discrepancy("segment 0", f"is number {segments[0].number} and begins at {segments[0].from_}")
    for one, following in pairwise(segments):
        if (following.number, following.first, following.from_) != (one.number + 1, one.last + 1, one.until):
            what = f"does not continue where segment {one.number} ended"
            yield Discrepancy(f"segment {following.number}", what)
        if following.from_ <= one.from_:
            yield Discrepancy(f"segment {one.number}", "ends before it begins")
    for one in segments:
        if not -1 <= one.last - one.first < MOST_ENTRIES:
            what = f"says {one.last - one.first + 1} changes, a document holds {MOST_ENTRIES}"
            yield Discrepancy(f"segment {one.number}", what)
    if segments and (segments[-1].until is not None or segments[-1].last != state.last_seq):
        what = f"is closed, or does not end with change {state.last_seq}"
        yield Discrepancy(f"segment {segments[-1].number}", what)


def _change_discrepancies(
    change: Change, seq: int, before: dt.datetime | None, segment: Segment | None
) -> Iterator[Discrepancy]:
    """What is wrong with a change at the place of change `seq`, after one of the time `before`, in this segment.

    Changes are numbered without holes, each is later than the one before (AMB-20) and inside of the times of its
    segment (AMB-11), and a deletion has no metadata (AMB-34).
    """
    where = f"change {change.seq}"
    if change.seq != seq:
        yield Discrepancy(where, f"follows change {seq - 1}")
    if before is not None and change.at <= before:
        yield Discrepancy(where, f"at {change.at}, not later than {before}")
    if segment is not None and (
        change.at <= segment.from_ or (segment.until is not None and change.at >= segment.until)
    ):
        yield Discrepancy(where, f"at {change.at} is outside of segment {segment.number} that holds it")
    if change.change is ChangeKind.DELETED and change.metadata != NO_METADATA:
        yield Discrepancy(where, "deletes, and describes what it deletes")


def _page(catalog: Catalog, state: SetState, page: Page) -> Iterator[Discrepancy]:
    where = f"page {page.number}"
    count = octets = 0
    for resource in catalog.page(state.name, page.number):
        count += 1
        octets += weight(resource.uri, resource.metadata)
        if resource.page != page.number:
            yield Discrepancy(where, f"{resource.uri} says that it lies on page {resource.page}")
    if (count, octets) != (page.count, page.weight):
        yield Discrepancy(
            where, f"says {page.count} resources of {page.weight} octets, holds {count} of {octets} octets"
        )


def _resources(catalog: Catalog, state: SetState, teller: _Teller) -> Iterator[Discrepancy]:
    count, before = 0, ""
    for batch in _batches(lambda last: catalog.resources(state.name, last.uri if last else "", _BATCH)):
        teller.read(len(batch))
        for resource in batch:
            count += 1
            if before and resource.uri.encode() <= before.encode():
                yield Discrepancy(resource.uri, f"comes after {before}")
            before = resource.uri
            if not 0 <= resource.seq <= state.last_seq:
                yield Discrepancy(resource.uri, f"changed last by change {resource.seq} of {state.last_seq}")
    if count != state.count:
        yield Discrepancy("resources", f"{count} by URI, the set says {state.count}")


def _changes(catalog: Catalog, state: SetState, teller: _Teller) -> Iterator[Discrepancy]:
    """Numbers without gaps, times strictly increasing and inside the segment, log and resources in agreement."""
    segments = catalog.segments(state.name)
    runs = iter([_Tally(segment) for segment in segments])
    run = next(runs, None)
    seq = segments[0].first - 1 if segments else state.last_seq
    gone = dict[str, int]()
    before: dt.datetime | None = None
    for batch in _batches(lambda last: catalog.changes(state.name, last.seq if last else 0, _BATCH)):
        teller.read(len(batch))
        held = catalog.get(state.name, [change.uri for change in batch])
        for change in batch:
            seq += 1
            while run is not None and change.seq > run.segment.last:
                yield from run.end()
                run = next(runs, None)
            if run is not None:
                run.add(change)
            segment = None if run is None else run.segment
            yield from _change_discrepancies(change, seq, before, segment)
            seq = change.seq
            yield from _against(change, held.get(change.uri), gone)
            before = change.at
    while run is not None:
        yield from run.end()
        run = next(runs, None)
    for uri, last in gone.items():
        yield Discrepancy(uri, f"was there after change {last}, and no deletion followed, but the set does not hold it")
    if seq != state.last_seq:
        yield Discrepancy("changes", f"end with {seq}, the set says {state.last_seq}")
    if before is not None and (state.last_at is None or state.last_at < before):
        yield Discrepancy("changes", f"the newest is of {before}, the set says {state.last_at}")


def _batches(read: Callable[[T | None], list[T]]) -> Iterator[list[T]]:
    """All that `read` gives, which reads on after the last one of a batch."""
    batch = read(None)
    while batch:
        yield batch
        batch = read(batch[-1])


def _rows(catalog: Catalog, state: SetState) -> Iterator[Discrepancy]:
    """As many rows of each kind as are said, each of them found by its key, in their order."""
    for kind, said in catalog.row_counts(state.name).items():
        count = 0
        before: StateRow | None = None
        for batch in _batches(partial(_rows_after, catalog, state.name, kind)):
            held = catalog.rows(state.name, [(row.kind, row.key) for row in batch])
            for row in batch:
                count += 1
                if held.get((kind, row.key)) != row:
                    yield Discrepancy(f"row {kind} {row.key}", "is another by its key than in its order")
                if before is not None and (row.rank, row.key.encode()) <= (before.rank, before.key.encode()):
                    yield Discrepancy(f"row {kind} {row.key}", f"comes after {before.key!a}")
                before = row
        if count != said:
            yield Discrepancy(f"rows {kind}", f"{count} in their order, the catalog counts {said}")


def _rows_after(catalog: Catalog, name: str, kind: str, last: StateRow | None) -> list[StateRow]:
    return catalog.rows_of(name, kind, after=last, limit=_ROWS)


def _against(change: Change, resource: Resource | None, gone: dict[str, int]) -> Iterator[Discrepancy]:
    deleted = change.change is ChangeKind.DELETED
    if resource is None:
        if deleted:
            gone.pop(change.uri, None)
        else:
            gone[change.uri] = change.seq
    elif resource.seq < change.seq:
        yield Discrepancy(change.uri, f"says change {resource.seq}, but change {change.seq} is newer")
    elif resource.seq == change.seq and (deleted or resource.metadata != change.metadata):
        yield Discrepancy(change.uri, f"is not as change {change.seq} left it")


class _Tally:
    """Adds up the changes of one segment."""

    def __init__(self, segment: Segment) -> None:
        self.segment = segment
        self.count = 0
        self.octets = 0

    def add(self, change: Change) -> None:
        self.count += 1
        self.octets += weight(change.uri, change.metadata)

    def end(self) -> Iterator[Discrepancy]:
        segment = self.segment
        said = (segment.last - segment.first + 1, segment.weight)
        if said != (self.count, self.octets):
            yield Discrepancy(
                f"segment {segment.number}",
                f"says {said[0]} changes of {said[1]} octets, holds {self.count} of {self.octets} octets",
            )
