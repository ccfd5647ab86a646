"""Invariants of a set: what its state, pages, segments, resources and changes have to satisfy, each written once.

`restore` refuses a set that breaks one; `verify` tells each that a catalog breaks. Whoever restores hears a sentence
(`refusal`), whoever verifies where it is and what was found.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Final, Generic, TypeVar

import msgspec

from headwater.catalog.interface import Change, Metadata, Page, Resource, Segment, SetSnapshot, SetState
from headwater.catalog.state import StateRow
from headwater.spec.records import ChangeKind

MOST_ENTRIES: Final = 50_000
"""Entries of a document (RS-LIM-01): a page or a segment with more could never be published."""

LONGEST_COUNT: Final = 1 << 40
_NO_METADATA: Final = Metadata()

T = TypeVar("T")


class Breach(msgspec.Struct, frozen=True):
    """One place at which an invariant does not hold."""

    where: str
    what: str
    refusal: str


class Invariant(msgspec.Struct, Generic[T], frozen=True):
    """`name` and `what` tell people what holds; `check` finds where it does not."""

    name: str
    what: str
    check: Callable[[T], Iterator[Breach]]


class PlacedResource(msgspec.Struct, frozen=True, gc=False):
    """A resource among those of a page (None: in the order of URIs), in a set of this state."""

    resource: Resource
    page: Page | None
    state: SetState


class LoggedChange(msgspec.Struct, frozen=True, gc=False):
    """A change at the place of change `seq`, after one of the time `before`, in this segment."""

    change: Change
    seq: int
    before: dt.datetime | None
    segment: Segment | None


class LogEnd(msgspec.Struct, frozen=True, gc=False):
    """The state of a set, and the time of the last change in its log (None: there is none)."""

    state: SetState
    at: dt.datetime | None


class OrderedRow(msgspec.Struct, frozen=True, gc=False):
    """A row, and the one that came before it."""

    row: StateRow
    before: StateRow | None


def breaches(invariants: Sequence[Invariant[T]], value: T) -> Iterator[Breach]:
    """Wherever one of the invariants does not hold."""
    for invariant in invariants:
        yield from invariant.check(value)


def _counts(snapshot: SetSnapshot) -> Iterator[Breach]:
    state = snapshot.state
    if not 0 <= state.count < LONGEST_COUNT or not 0 <= state.last_seq < LONGEST_COUNT:
        said = f"{state.count} resources and {state.last_seq} changes cannot be"
        yield Breach("state", said, said)
    if not 0 <= state.state_version < LONGEST_COUNT:
        said = f"{state.state_version} updates of rows cannot be"
        yield Breach("state", said, said)


def _times(snapshot: SetSnapshot) -> Iterator[Breach]:
    state = snapshot.state
    if state.opened_at is not None and (state.last_at is None or state.last_at < state.opened_at):
        said = "the newest time is before the set was opened"
        yield Breach("state", said, said)


def _phase(snapshot: SetSnapshot) -> Iterator[Breach]:
    if snapshot.state.opened_at is None and snapshot.state.last_seq:
        said = "a set that is still loading has no changes"
        yield Breach("state", said, said)
    if snapshot.state.opened_at is None and snapshot.segments:
        yield Breach("segments", "there are some in a set that is still loading", _SEGMENTS)
    if snapshot.state.opened_at is not None and not snapshot.segments:
        yield Breach("segments", "there are none in an open set", _SEGMENTS)


_SEGMENTS = "an open set has segments, and one that is still loading has none"


def _page_numbers(snapshot: SetSnapshot) -> Iterator[Breach]:
    count = snapshot.state.page_count
    if [page.number for page in snapshot.pages] != list(range(count)):
        said = f"not numbered 0 to {count - 1}"
        yield Breach("pages", said, f"the pages are {said}")


def _page_counts(snapshot: SetSnapshot) -> Iterator[Breach]:
    for page in snapshot.pages:
        if not 0 <= page.count <= MOST_ENTRIES:
            yield Breach(
                f"page {page.number}",
                f"says {page.count} resources, a document holds {MOST_ENTRIES}",
                f"page {page.number} has {page.count} resources",
            )


def _page_touches(snapshot: SetSnapshot) -> Iterator[Breach]:
    for page in snapshot.pages:
        if not 0 <= page.rendered <= page.touched < LONGEST_COUNT:
            yield Breach(
                f"page {page.number}",
                f"rendered {page.rendered}, but touched only {page.touched} times",
                f"page {page.number} was touched {page.touched} times, and rendered {page.rendered}",
            )


def _page_staleness(snapshot: SetSnapshot) -> Iterator[Breach]:
    for page in snapshot.pages:
        stale = page.touched > page.rendered
        if snapshot.state.opened_at is not None and stale != (page.stale_at is not None):
            yield Breach(
                f"page {page.number}",
                f"touched {page.touched}, rendered {page.rendered}, stale at {page.stale_at}",
                f"page {page.number} is stale and says not since when, or the reverse",
            )


def _page_sum(snapshot: SetSnapshot) -> Iterator[Breach]:
    total, count = sum(page.count for page in snapshot.pages), snapshot.state.count
    if total != count:
        yield Breach(
            "pages",
            f"hold {total} resources, the set says {count}",
            f"the pages do not have {count} resources together",
        )


def _first_segment(snapshot: SetSnapshot) -> Iterator[Breach]:
    for first in snapshot.segments[:1]:
        if (first.number, first.first, first.from_) != (0, 1, snapshot.state.opened_at):
            yield Breach(
                "segment 0",
                f"is number {first.number} and begins with change {first.first}",
                "the first segment does not begin with change 1 at the opening",
            )


def _segment_order(snapshot: SetSnapshot) -> Iterator[Breach]:
    for one, following in pairwise(snapshot.segments):
        if (following.number, following.first, following.from_) != (one.number + 1, one.last + 1, one.until):
            said = f"does not continue where segment {one.number} ended"
            yield Breach(f"segment {following.number}", said, f"segment {following.number} {said}")
        if following.from_ <= one.from_:
            said = "ends before it begins"
            yield Breach(f"segment {one.number}", said, f"segment {one.number} {said}")


def _segment_counts(snapshot: SetSnapshot) -> Iterator[Breach]:
    for one in snapshot.segments:
        if not -1 <= one.last - one.first < MOST_ENTRIES:
            yield Breach(
                f"segment {one.number}",
                f"says {one.last - one.first + 1} changes, a document holds {MOST_ENTRIES}",
                "a segment has more changes than a document can hold",
            )


def _last_segment(snapshot: SetSnapshot) -> Iterator[Breach]:
    for last in snapshot.segments[-1:]:
        if last.until is not None or last.last != snapshot.state.last_seq:
            said = f"is closed, or does not end with change {snapshot.state.last_seq}"
            yield Breach(f"segment {last.number}", said, f"the last segment {said}")


def _on_its_page(placed: PlacedResource) -> Iterator[Breach]:
    resource, page = placed.resource, placed.page
    if page is not None and resource.page != page.number:
        yield Breach(
            f"page {page.number}",
            f"{resource.uri} says that it lies on page {resource.page}",
            f"a resource of page {resource.page} stands among those of page {page.number}",
        )


def _by_a_change_of_the_set(placed: PlacedResource) -> Iterator[Breach]:
    resource, last_seq = placed.resource, placed.state.last_seq
    if not 0 <= resource.seq <= last_seq:
        said = f"changed last by change {resource.seq} of {last_seq}"
        yield Breach(resource.uri, said, f"a resource {said}")


def _change_number(logged: LoggedChange) -> Iterator[Breach]:
    seq = logged.change.seq
    if seq != logged.seq:
        yield Breach(
            f"change {seq}",
            f"follows change {logged.seq - 1}",
            f"change {seq} stands where change {logged.seq} belongs",
        )


def _change_time(logged: LoggedChange) -> Iterator[Breach]:
    change, before = logged.change, logged.before
    if before is not None and change.at <= before:
        yield Breach(f"change {change.seq}", f"at {change.at}, not later than {before}", _mistimed(change))


def _change_in_segment(logged: LoggedChange) -> Iterator[Breach]:
    change, segment = logged.change, logged.segment
    if segment is None:
        return
    if change.at <= segment.from_ or (segment.until is not None and change.at >= segment.until):
        said = f"at {change.at} is outside of segment {segment.number} that holds it"
        yield Breach(f"change {change.seq}", said, _mistimed(change))


def _mistimed(change: Change) -> str:
    return f"change {change.seq} is not later than what precedes it, or not inside its segment"


def _deletion(logged: LoggedChange) -> Iterator[Breach]:
    change = logged.change
    if change.change is ChangeKind.DELETED and change.metadata != _NO_METADATA:
        said = "deletes, and describes what it deletes"
        yield Breach(f"change {change.seq}", said, f"change {change.seq} {said}")


def _newest_time(end: LogEnd) -> Iterator[Breach]:
    if end.at is not None and (end.state.last_at is None or end.state.last_at < end.at):
        yield Breach(
            "changes",
            f"the newest is of {end.at}, the set says {end.state.last_at}",
            "the newest change is newer than the newest time",
        )


def _row_order(ordered: OrderedRow) -> Iterator[Breach]:
    row, before = ordered.row, ordered.before
    if before is not None and _row_place(row) <= _row_place(before):
        yield Breach(
            f"row {row.kind} {row.key}",
            f"comes after {before.key!a}",
            f"the row {row.kind} {row.key} comes after {before.kind} {before.key}",
        )


def _row_place(row: StateRow) -> tuple[bytes, int, bytes]:
    return row.kind.encode(), row.rank, row.key.encode()


STATE: Final[tuple[Invariant[SetSnapshot], ...]] = (
    Invariant("counts", "resources, changes and updates of rows are counted from 0, within 40 bits", _counts),
    Invariant("times", "the newest time is not before the opening", _times),
    Invariant("phase", "a set that is loading has neither changes nor segments, an open one has a segment", _phase),
)
PAGES: Final[tuple[Invariant[SetSnapshot], ...]] = (
    Invariant("page numbers", "pages are numbered from 0, without holes", _page_numbers),
    Invariant("page counts", "a page has at most as many resources as a document (RS-LIM-01)", _page_counts),
    Invariant("page touches", "no page was rendered more often than touched", _page_touches),
    Invariant("page staleness", "a page of an open set is stale since a time, or not stale", _page_staleness),
    Invariant("page sum", "the pages together have the resources of the set", _page_sum),
)
SEGMENTS: Final[tuple[Invariant[SetSnapshot], ...]] = (
    Invariant("first segment", "the first segment is number 0, from change 1 and the opening on", _first_segment),
    Invariant("segment order", "each segment goes on where the one before ended (AMB-11)", _segment_order),
    Invariant("segment counts", "a segment has at most as many changes as a document (RS-LIM-01)", _segment_counts),
    Invariant("last segment", "the last segment alone is open, and ends with the newest change", _last_segment),
)
SNAPSHOT: Final = (*STATE, *PAGES, *SEGMENTS)
RESOURCE: Final[tuple[Invariant[PlacedResource], ...]] = (
    Invariant("resource on its page", "a resource names the page that it lies on", _on_its_page),
    Invariant("resource changed", "a resource was changed last by a change of its set", _by_a_change_of_the_set),
)
CHANGE: Final[tuple[Invariant[LoggedChange], ...]] = (
    Invariant("change number", "changes are numbered from 1, without holes", _change_number),
    Invariant("change time", "each change is later than the one before (AMB-20)", _change_time),
    Invariant("change in segment", "a change lies inside of the times of its segment (AMB-11)", _change_in_segment),
    Invariant("deletion", "a deletion has no metadata (AMB-34)", _deletion),
)

LOG_END: Final[tuple[Invariant[LogEnd], ...]] = (
    Invariant("newest time", "the newest time of a set is not before its newest change", _newest_time),
)
ROW: Final[tuple[Invariant[OrderedRow], ...]] = (
    Invariant("row order", "rows come by kind, rank and key, none of them twice", _row_order),
)
