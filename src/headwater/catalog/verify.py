"""Counts a set again from what it holds, compares that with its snapshot, and says what cannot be; on every backend.

Run it while nobody writes: it makes many reads, and what changes between them looks like a discrepancy.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import islice, pairwise
from math import inf
from typing import Final, TypeVar

import msgspec

from headwater.catalog.interface import Catalog, Page, Segment, SetSnapshot, SetState, StateRow
from headwater.catalog.page_filling import NO_METADATA, weight
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
    snapshot = SetSnapshot(state, catalog.pages(name), catalog.segments(name))
    total, done = 2 * state.count + state.last_seq, 0  # each resource is read by page and by URI, each change once

    def read(count: int) -> None:
        nonlocal done
        done += count
        listener(Progress(f"verify {name}", min(done, total), total))

    return list(islice(_all(catalog, snapshot, read), most))


def _all(catalog: Catalog, snapshot: SetSnapshot, read: Callable[[int], None]) -> Iterator[Discrepancy]:
    state = snapshot.state
    for page in snapshot.pages:
        yield from _page(catalog, state, page)
        read(page.count)
    yield from (Discrepancy(where, what) for is_wrong, where, what in _snapshot(snapshot) if is_wrong)
    yield from _resources(catalog, state, read)
    yield from _changes(catalog, state, snapshot.segments, read)
    yield from _rows(catalog, state)


def _snapshot(snapshot: SetSnapshot) -> Iterator[tuple[bool, str, str]]:
    """What is said of state, pages and segments: whether it cannot be, where, and what."""
    state, pages, segments = snapshot.state, snapshot.pages, snapshot.segments
    for what in ("count", "last_seq", "state_version"):
        value = getattr(state, what)
        yield not 0 <= value < _LONGEST_COUNT, "state", f"{what} is {value}"
    is_open = state.opened_at is not None
    if state.opened_at is not None:
        is_early = state.last_at is None or state.last_at < state.opened_at
        yield is_early, "state", f"the newest time {state.last_at} is before the opening {state.opened_at}"
    yield not is_open and bool(segments), "segments", "there are some in a set that is still loading"
    yield is_open and not segments, "segments", "there are none in an open set"
    numbers = [page.number for page in pages]
    yield numbers != list(range(state.page_count)), "pages", f"not numbered 0 to {state.page_count - 1}"
    for page in pages:
        where, said = f"page {page.number}", f"touched {page.touched}, rendered {page.rendered}"
        what = f"says {page.count} resources, a document holds {MOST_ENTRIES}"
        yield not 0 <= page.count <= MOST_ENTRIES, where, what
        yield not 0 <= page.rendered <= page.touched < _LONGEST_COUNT, where, said
        is_stale = page.touched > page.rendered
        yield is_open and is_stale != (page.stale_at is not None), where, f"{said}, stale at {page.stale_at}"
    total = sum(page.count for page in pages)
    yield total != state.count, "pages", f"hold {total} resources, the set says {state.count}"
    for one, following in pairwise(segments):
        goes_on = (following.number, following.first, following.from_) == (one.number + 1, one.last + 1, one.until)
        yield not goes_on, f"segment {following.number}", f"does not continue where segment {one.number} ended"
        yield following.from_ <= one.from_, f"segment {one.number}", "ends before it begins"
    for one in segments:
        count = one.last - one.first + 1
        what = f"says {count} changes, a document holds {MOST_ENTRIES}"
        yield not 0 <= count <= MOST_ENTRIES, f"segment {one.number}", what
    if segments:
        first, last = segments[0], segments[-1]
        what = f"is number {first.number} and begins at {first.from_}"
        yield (first.number, first.from_) != (0, state.opened_at), "segment 0", what
        what = f"is closed, or does not end with change {state.last_seq}"
        yield last.until is not None or last.last != state.last_seq, f"segment {last.number}", what


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


def _resources(catalog: Catalog, state: SetState, read: Callable[[int], None]) -> Iterator[Discrepancy]:
    count, before = 0, ""
    for batch in _batches(lambda last: catalog.resources(state.name, last.uri if last else "", _BATCH)):
        read(len(batch))
        for resource in batch:
            count += 1
            if before and resource.uri.encode() <= before.encode():
                yield Discrepancy(resource.uri, f"comes after {before}")
            before = resource.uri
            if not 0 <= resource.seq <= state.last_seq:
                yield Discrepancy(resource.uri, f"changed last by change {resource.seq} of {state.last_seq}")
    if count != state.count:
        yield Discrepancy("resources", f"{count} by URI, the set says {state.count}")


def _changes(
    catalog: Catalog, state: SetState, segments: Sequence[Segment], read: Callable[[int], None]
) -> Iterator[Discrepancy]:
    """Numbers without gaps, times strictly increasing (AMB-20) and inside the segment (AMB-11), no metadata of what is
    deleted (AMB-34); log and resources, and segments and what they say, in agreement."""
    left = list(segments)
    seq = segments[0].first - 1 if segments else state.last_seq
    gone, before = dict[str, int](), None
    count = octets = 0

    def ended(last: float) -> Iterator[Discrepancy]:
        """Segments that end before a change, against what was counted of them."""
        nonlocal count, octets
        while left and left[0].last < last:
            one = left.pop(0)
            said = one.last - one.first + 1
            if (said, one.weight) != (count, octets):
                what = f"says {said} changes of {one.weight} octets, holds {count} of {octets} octets"
                yield Discrepancy(f"segment {one.number}", what)
            count = octets = 0

    for batch in _batches(lambda last: catalog.changes(state.name, last.seq if last else 0, _BATCH)):
        read(len(batch))
        held = catalog.get(state.name, [change.uri for change in batch])
        for change in batch:
            where, is_deleted = f"change {change.seq}", change.change is ChangeKind.DELETED
            yield from ended(change.seq)
            count += 1
            octets += weight(change.uri, change.metadata)
            if change.seq != seq + 1:
                yield Discrepancy(where, f"follows change {seq}")
            if before is not None and change.at <= before:
                yield Discrepancy(where, f"at {change.at}, not later than {before}")
            segment = left[0] if left else None
            if segment and not (segment.from_ < change.at and (segment.until is None or change.at < segment.until)):
                yield Discrepancy(where, f"at {change.at} is outside of segment {segment.number} that holds it")
            if is_deleted and msgspec.structs.replace(change.metadata, links=()) != NO_METADATA:
                yield Discrepancy(where, "deletes, and describes what it deletes")
            resource = held.get(change.uri)
            if resource is None and is_deleted:
                gone.pop(change.uri, None)
            elif resource is None:
                gone[change.uri] = change.seq
            elif resource.seq < change.seq:
                yield Discrepancy(change.uri, f"says change {resource.seq}, but change {change.seq} is newer")
            elif resource.seq == change.seq and (is_deleted or resource.metadata != change.metadata):
                yield Discrepancy(change.uri, f"is not as change {change.seq} left it")
            seq, before = change.seq, change.at
    yield from ended(inf)
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
        while batch := catalog.rows_of(state.name, kind, after=before, limit=_ROWS):
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
