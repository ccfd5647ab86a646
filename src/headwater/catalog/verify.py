"""Counts a set again from what it holds and compares that with its snapshot; works on every backend.

Run it while nobody writes: it makes many reads, and what changes between them looks like a discrepancy.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice, pairwise

import msgspec

from headwater.catalog.entry_size import weight
from headwater.catalog.interface import Catalog, Change, Page, Resource, Segment, SetState
from headwater.catalog.state import StateRow
from headwater.progress import Listener, Progress, silent
from headwater.spec.records import ChangeKind

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
    yield from _pages(catalog, state, teller)
    yield from _resources(catalog, state, teller)
    yield from _segments(catalog, state)
    yield from _changes(catalog, state, teller)
    yield from _rows(catalog, state)


def _pages(catalog: Catalog, state: SetState, teller: _Teller) -> Iterator[Discrepancy]:
    pages = catalog.pages(state.name)
    if [page.number for page in pages] != list(range(state.page_count)):
        yield Discrepancy("pages", f"not numbered 0 to {state.page_count - 1}")
    for page in pages:
        yield from _page(catalog, state, page)
        teller.read(page.count)
    total = sum(page.count for page in pages)
    if total != state.count:
        yield Discrepancy("pages", f"hold {total} resources, the set says {state.count}")


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
    if page.rendered > page.touched:
        yield Discrepancy(where, f"rendered {page.rendered}, but touched only {page.touched} times")
    stale = page.touched > page.rendered
    if state.opened_at is not None and stale != (page.stale_at is not None):
        yield Discrepancy(where, f"touched {page.touched}, rendered {page.rendered}, stale at {page.stale_at}")


def _resources(catalog: Catalog, state: SetState, teller: _Teller) -> Iterator[Discrepancy]:
    count, before = 0, ""
    for resource in _every_resource(catalog, state.name, teller):
        count += 1
        if before and resource.uri.encode() <= before.encode():
            yield Discrepancy(resource.uri, f"comes after {before}")
        before = resource.uri
        if resource.seq > state.last_seq:
            yield Discrepancy(resource.uri, f"changed last by change {resource.seq} of {state.last_seq}")
    if count != state.count:
        yield Discrepancy("resources", f"{count} by URI, the set says {state.count}")


def _every_resource(catalog: Catalog, name: str, teller: _Teller) -> Iterator[Resource]:
    batch = catalog.resources(name, "", _BATCH)
    while batch:
        teller.read(len(batch))
        yield from batch
        batch = catalog.resources(name, batch[-1].uri, _BATCH)


def _segments(catalog: Catalog, state: SetState) -> Iterator[Discrepancy]:
    segments = catalog.segments(state.name)
    if state.opened_at is None:
        if segments:
            yield Discrepancy("segments", "there are some in a set that is still loading")
        return
    if not segments:
        yield Discrepancy("segments", "there are none in an open set")
        return
    first, last = segments[0], segments[-1]
    if (first.number, first.first) != (0, 1):
        yield Discrepancy("segment 0", f"is number {first.number} and begins with change {first.first}")
    for one, following in pairwise(segments):
        if (following.number, following.first, following.from_) != (one.number + 1, one.last + 1, one.until):
            yield Discrepancy(f"segment {following.number}", f"does not go on where segment {one.number} ended")
    if last.until is not None or last.last != state.last_seq:
        yield Discrepancy(f"segment {last.number}", f"is closed, or does not end with change {state.last_seq}")


def _changes(catalog: Catalog, state: SetState, teller: _Teller) -> Iterator[Discrepancy]:
    """Numbers without gaps, times strictly increasing and inside the segment, log and resources in agreement."""
    runs = iter([_Tally(segment) for segment in catalog.segments(state.name)])
    run = next(runs, None)
    seq, gone = 0, dict[str, int]()
    before: Change | None = None
    for batch in _batches(catalog, state.name):
        teller.read(len(batch))
        held = catalog.get(state.name, [change.uri for change in batch])
        for change in batch:
            seq += 1
            where = f"change {change.seq}"
            if change.seq != seq:
                yield Discrepancy(where, f"follows change {seq - 1}")
                seq = change.seq
            if before is not None and change.at <= before.at:
                yield Discrepancy(where, f"at {change.at}, not later than {before.at}")
            while run is not None and change.seq > run.segment.last:
                yield from run.end()
                run = next(runs, None)
            if run is not None:
                yield from run.add(change)
            yield from _against(change, held.get(change.uri), gone)
            before = change
    while run is not None:
        yield from run.end()
        run = next(runs, None)
    for uri, last in gone.items():
        yield Discrepancy(uri, f"was there after change {last}, and no deletion followed, but the set does not hold it")
    if seq != state.last_seq:
        yield Discrepancy("changes", f"end with {seq}, the set says {state.last_seq}")
    if before is not None and (state.last_at is None or state.last_at < before.at):
        yield Discrepancy("changes", f"the newest is of {before.at}, the set says {state.last_at}")


def _batches(catalog: Catalog, name: str) -> Iterator[list[Change]]:
    batch = catalog.changes(name, 0, _BATCH)
    while batch:
        yield batch
        batch = catalog.changes(name, batch[-1].seq, _BATCH)


def _rows(catalog: Catalog, state: SetState) -> Iterator[Discrepancy]:
    """As many rows of each kind as are said, each of them found by its key, in their order."""
    for kind, said in catalog.row_counts(state.name).items():
        count, before = 0, None
        for batch in _row_batches(catalog, state.name, kind):
            held = catalog.rows(state.name, [(row.kind, row.key) for row in batch])
            for row in batch:
                count += 1
                if held.get((kind, row.key)) != row:
                    yield Discrepancy(f"row {kind} {row.key}", "is another by its key than in its order")
                place = (row.rank, row.key.encode())
                if before is not None and place <= before:
                    yield Discrepancy(f"row {kind} {row.key}", f"comes after {before[1]!a}")
                before = place
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

    def add(self, change: Change) -> Iterator[Discrepancy]:
        self.count += 1
        self.octets += weight(change.uri, change.metadata)
        segment = self.segment
        if not segment.from_ < change.at or (segment.until is not None and not change.at < segment.until):
            yield Discrepancy(
                f"change {change.seq}", f"at {change.at} is outside of segment {segment.number} that holds it"
            )

    def end(self) -> Iterator[Discrepancy]:
        segment = self.segment
        said = (segment.last - segment.first + 1, segment.weight)
        if said != (self.count, self.octets):
            yield Discrepancy(
                f"segment {segment.number}",
                f"says {said[0]} changes of {said[1]} octets, holds {self.count} of {self.octets} octets",
            )
