"""Counts a set again from what it holds and compares that with its snapshot; works on every backend.

Run it while nobody writes: it makes many reads, and what changes between them looks like a discrepancy.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import TypeVar

import msgspec

from headwater.catalog import invariants
from headwater.catalog.entry_size import weight
from headwater.catalog.interface import Catalog, Change, Page, Resource, Segment, SetSnapshot, SetState
from headwater.catalog.state import StateRow
from headwater.progress import Listener, Progress, silent
from headwater.spec.records import ChangeKind

T = TypeVar("T")

_BATCH = 10_000
_ROWS = 1_000


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
    yield from _discrepancies(invariants.SNAPSHOT, snapshot)
    yield from _resources(catalog, state, teller)
    yield from _changes(catalog, state, teller)
    yield from _rows(catalog, state)


def _discrepancies(wanted: Sequence[invariants.Invariant[T]], value: T) -> Iterator[Discrepancy]:
    return (Discrepancy(breach.where, breach.what) for breach in invariants.breaches(wanted, value))


def _page(catalog: Catalog, state: SetState, page: Page) -> Iterator[Discrepancy]:
    where = f"page {page.number}"
    count = octets = 0
    for resource in catalog.page(state.name, page.number):
        count += 1
        octets += weight(resource.uri, resource.metadata)
        yield from _discrepancies(invariants.RESOURCE[:1], invariants.PlacedResource(resource, page, state))
    if (count, octets) != (page.count, page.weight):
        yield Discrepancy(
            where, f"says {page.count} resources of {page.weight} octets, holds {count} of {octets} octets"
        )


def _resources(catalog: Catalog, state: SetState, teller: _Teller) -> Iterator[Discrepancy]:
    count, before = 0, ""
    for resource in _every_resource(catalog, state.name, teller):
        count += 1
        if before and resource.uri.encode() <= before.encode():
            yield Discrepancy(resource.uri, f"comes after {before}")
        before = resource.uri
        yield from _discrepancies(invariants.RESOURCE, invariants.PlacedResource(resource, None, state))
    if count != state.count:
        yield Discrepancy("resources", f"{count} by URI, the set says {state.count}")


def _every_resource(catalog: Catalog, name: str, teller: _Teller) -> Iterator[Resource]:
    batch = catalog.resources(name, "", _BATCH)
    while batch:
        teller.read(len(batch))
        yield from batch
        batch = catalog.resources(name, batch[-1].uri, _BATCH)


def _changes(catalog: Catalog, state: SetState, teller: _Teller) -> Iterator[Discrepancy]:
    """Numbers without gaps, times strictly increasing and inside the segment, log and resources in agreement."""
    runs = iter([_Tally(segment) for segment in catalog.segments(state.name)])
    run = next(runs, None)
    seq, gone = 0, dict[str, int]()
    before: dt.datetime | None = None
    for batch in _batches(catalog, state.name):
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
            yield from _discrepancies(invariants.CHANGE, invariants.LoggedChange(change, seq, before, segment))
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
    yield from _discrepancies(invariants.LOG_END, invariants.LogEnd(state, before))


def _batches(catalog: Catalog, name: str) -> Iterator[list[Change]]:
    batch = catalog.changes(name, 0, _BATCH)
    while batch:
        yield batch
        batch = catalog.changes(name, batch[-1].seq, _BATCH)


def _rows(catalog: Catalog, state: SetState) -> Iterator[Discrepancy]:
    """As many rows of each kind as are said, each of them found by its key, in their order."""
    for kind, said in catalog.row_counts(state.name).items():
        count = 0
        before: StateRow | None = None
        for batch in _row_batches(catalog, state.name, kind):
            held = catalog.rows(state.name, [(row.kind, row.key) for row in batch])
            for row in batch:
                count += 1
                if held.get((kind, row.key)) != row:
                    yield Discrepancy(f"row {kind} {row.key}", "is another by its key than in its order")
                yield from _discrepancies(invariants.ROW, invariants.OrderedRow(row, before))
                before = row
        if count != said:
            yield Discrepancy(f"rows {kind}", f"{count} in their order, the catalog counts {said}")


def _row_batches(catalog: Catalog, name: str, kind: str) -> Iterator[list[StateRow]]:
    batch = catalog.rows_of(name, kind, limit=_ROWS)
    while batch:
        yield batch
        batch = catalog.rows_of(name, kind, after=batch[-1], limit=_ROWS)


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
