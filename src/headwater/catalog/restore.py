"""Checks the parts of a set that is restored: pages and places, sizes of changes, and whether all agrees.

Every backend asks this module while it restores a set, and writes down what it says; what a dump may claim and what a
catalog may hold is decided here alone.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Final, NoReturn, TypeVar

import msgspec

from headwater.catalog.accepted_times import to_microseconds
from headwater.catalog.entry_size import weight
from headwater.catalog.interface import (
    Change,
    Contradiction,
    Metadata,
    Page,
    Part,
    Resource,
    SetSnapshot,
    SetState,
    Unacceptable,
    Upsert,
)
from headwater.catalog.ledger import Logged, Place, Put, Run, row_writes
from headwater.catalog.state import StateRow, StateUpdate
from headwater.spec.records import ChangeKind

MOST_ENTRIES: Final = 50_000
"""Entries of a document (RS-LIM-01): a page or a segment with more could never be published."""

_LONGEST_COUNT: Final = 1 << 40

Kind = TypeVar("Kind", Resource, Change)


class RestoredPage(msgspec.Struct, frozen=True, gc=False):
    """One page as it is restored: its snapshot, the weight of what came, and the first of its slots."""

    page: Page
    weight: int
    first_slot: int


class Restoring:
    """Takes the parts of one set. Read `snapshot`, all of `resources`, `changes` and `rows`; then `pages` and `runs`.

    Raises Contradiction and Unacceptable from each of them, and whatever `parts` raises.
    """

    def __init__(self, parts: Iterable[Part]) -> None:
        self._parts = iter(parts)
        first = next(self._parts, None)
        if not isinstance(first, SetSnapshot):
            raise Contradiction("a set begins with its snapshot")
        self.snapshot = first
        self._name = first.state.name
        self._next: Part | None = next(self._parts, None)
        self._weights = [0] * len(first.pages)
        self._octets = [0] * len(first.segments)
        self.row_count = 0
        """The rows that were taken."""
        _check_snapshot(first)

    @property
    def next_slot(self) -> int:
        """The first slot never used: slots are numbered anew, without holes."""
        return self.snapshot.state.count

    def resources(self) -> Iterator[Put]:
        """Every resource with its place; slots count from 0, page after page."""
        slot, last_seq = 0, self.snapshot.state.last_seq
        for page in self.snapshot.pages:
            for _ in range(page.count):
                resource = self._take(Resource, f"page {page.number} has {page.count} resources")
                if resource.page != page.number:
                    self._refuse(f"a resource of page {resource.page} stands among those of page {page.number}")
                if not 0 <= resource.seq <= last_seq:
                    self._refuse(f"a resource changed last by change {resource.seq} of {last_seq}")
                octets = _octets(resource.uri, resource.metadata)
                self._weights[page.number] += octets
                event = Upsert(resource.uri, resource.metadata, resource.memo)
                yield Put(event, Place(slot, page.number, octets), resource.seq)
                slot += 1

    def changes(self) -> Iterator[Logged]:
        """Every change with its weight (AMB-11, AMB-20)."""
        before_us: int | None = None
        for segment in self.snapshot.segments:
            from_us = to_microseconds(segment.from_)
            until_us = None if segment.until is None else to_microseconds(segment.until)
            before_us = from_us if before_us is None else max(before_us, from_us)
            for seq in range(segment.first, segment.last + 1):
                change = self._take(Change, f"segment {segment.number} ends with change {segment.last}")
                at_us = to_microseconds(change.at)
                if change.seq != seq:
                    self._refuse(f"change {change.seq} stands where change {seq} belongs")
                if at_us <= before_us or (until_us is not None and at_us >= until_us):
                    self._refuse(f"change {seq} is not later than what precedes it, or not inside its segment")
                if change.change is ChangeKind.DELETED and change.metadata != _NOTHING:
                    self._refuse(f"change {seq} deletes, and describes what it deletes")
                octets = _octets(change.uri, change.metadata)
                self._octets[segment.number] += octets
                before_us = at_us
                yield Logged(seq, at_us, change.uri, change.change, change.metadata, octets)
        if self._next is not None and not isinstance(self._next, StateRow):
            self._refuse("more follows than the snapshot say")
        state = self.snapshot.state
        if before_us is not None and (state.last_at is None or to_microseconds(state.last_at) < before_us):
            self._refuse("the newest change is newer than the newest time")

    def rows(self) -> Iterator[StateRow]:
        """Every row of the set's state, each once; ends when nothing follows the last one."""
        before: tuple[str, int, str] | None = None
        while isinstance(row := self._next, StateRow):
            row_writes(StateUpdate(put=(row,)))
            place = (row.kind, row.rank, row.key)
            if before is not None and _octets_of(place) <= _octets_of(before):
                self._refuse(f"the row {row.kind} {row.key} comes after {before[0]} {before[2]}")
            before = place
            self.row_count += 1
            yield row
            self._next = next(self._parts, None)
        if self._next is not None:
            self._refuse("more follows than the snapshot say")

    def pages(self) -> list[RestoredPage]:
        """The pages, once all resources were taken."""
        found, slot = [], 0
        for page, octets in zip(self.snapshot.pages, self._weights, strict=True):
            found.append(RestoredPage(page, octets, slot))
            slot += page.count
        return found

    def runs(self) -> list[Run]:
        """The segments, once all changes were taken."""
        return [
            Run(
                one.number,
                one.first,
                one.last,
                to_microseconds(one.from_),
                octets,
                None if one.until is None else to_microseconds(one.until),
            )
            for one, octets in zip(self.snapshot.segments, self._octets, strict=True)
        ]

    def _take(self, kind: type[Kind], said: str) -> Kind:
        part = self._next
        if not isinstance(part, kind):
            self._refuse(f"{said}, but there are fewer")
        self._next = next(self._parts, None)
        return part

    def _refuse(self, what: str) -> NoReturn:
        raise Contradiction(what, where=self._name)


_NOTHING = Metadata()


def _octets_of(place: tuple[str, int, str]) -> tuple[bytes, int, bytes]:
    return place[0].encode(), place[1], place[2].encode()


def _octets(uri: str, metadata: Metadata) -> int:
    if not uri:
        raise Unacceptable("an empty URI")
    return weight(uri, metadata)


def _check_snapshot(snapshot: SetSnapshot) -> None:
    """Raise Contradiction for snapshot that do not agree with themselves, Unacceptable for a time without a zone."""
    for moment in _moments(snapshot):
        if moment is not None:
            to_microseconds(moment)
    for wrong in _wrong(snapshot):
        raise Contradiction(wrong, where=snapshot.state.name)


def _moments(snapshot: SetSnapshot) -> Iterator[dt.datetime | None]:
    yield from (snapshot.state.opened_at, snapshot.state.last_at)
    for page in snapshot.pages:
        yield from (page.at, page.completed, page.stale_at)
    for segment in snapshot.segments:
        yield from (segment.from_, segment.until)


def _wrong(snapshot: SetSnapshot) -> Iterator[str]:
    yield from _wrong_state(snapshot.state)
    yield from _wrong_pages(snapshot)
    yield from _wrong_segments(snapshot)


def _wrong_state(state: SetState) -> Iterator[str]:
    if not 0 <= state.count < _LONGEST_COUNT or not 0 <= state.last_seq < _LONGEST_COUNT:
        yield f"{state.count} resources and {state.last_seq} changes cannot be"
    if state.opened_at is not None and (state.last_at is None or state.last_at < state.opened_at):
        yield "the newest time is before the set was opened"
    if not 0 <= state.state_version < _LONGEST_COUNT:
        yield f"{state.state_version} updates of rows cannot be"
    if state.opened_at is None and state.last_seq:
        yield "a set that is still loading has no changes"


def _wrong_pages(snapshot: SetSnapshot) -> Iterator[str]:
    state = snapshot.state
    if [page.number for page in snapshot.pages] != list(range(state.page_count)):
        yield f"the pages are not numbered 0 to {state.page_count - 1}"
    for page in snapshot.pages:
        if not 0 <= page.count <= MOST_ENTRIES:
            yield f"page {page.number} has {page.count} resources"
        if not 0 <= page.rendered <= page.touched < _LONGEST_COUNT:
            yield f"page {page.number} was touched {page.touched} times, and rendered {page.rendered}"
        stale = page.touched > page.rendered
        if state.opened_at is not None and stale != (page.stale_at is not None):
            yield f"page {page.number} is stale and says not since when, or the reverse"
    if sum(page.count for page in snapshot.pages) != state.count:
        yield f"the pages do not have {state.count} resources together"


def _wrong_segments(snapshot: SetSnapshot) -> Iterator[str]:
    state, segments = snapshot.state, snapshot.segments
    if (state.opened_at is None) != (not segments):
        yield "an open set has segments, and one that is still loading has none"
    if not segments:
        return
    first, last = segments[0], segments[-1]
    if (first.number, first.first, first.from_) != (0, 1, state.opened_at):
        yield "the first segment does not begin with change 1 at the opening"
    for one, following in pairwise(segments):
        if (following.number, following.first, following.from_) != (one.number + 1, one.last + 1, one.until):
            yield f"segment {following.number} does not go on where segment {one.number} ended"
        if following.from_ <= one.from_:
            yield f"segment {one.number} ends before it begins"
    if any(not -1 <= one.last - one.first < MOST_ENTRIES for one in segments):
        yield "a segment has more changes than a document can hold"
    if last.until is not None or last.last != state.last_seq:
        yield f"the last segment is closed, or does not end with change {state.last_seq}"
