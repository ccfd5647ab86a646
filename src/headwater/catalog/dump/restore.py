"""Checks the parts of a set that is restored: pages and places, sizes of changes, and whether all agrees.

Every backend asks this module while it restores a set, and writes down what it says; what a dump may claim and what a
catalog may hold is decided here alone.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Iterator, Sequence
from typing import NoReturn, TypeVar

import msgspec

from headwater.catalog import invariants
from headwater.catalog.batch_planning import Logged, Place, Put, Run, row_writes, to_microseconds
from headwater.catalog.entry_size import weight
from headwater.catalog.faults import Contradiction, Unacceptable
from headwater.catalog.interface import Change, Metadata, Page, Part, Resource, SetSnapshot, Upsert
from headwater.catalog.state import StateRow, StateUpdate

Kind = TypeVar("Kind", Resource, Change)
T = TypeVar("T")


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
        slot, state = 0, self.snapshot.state
        for page in self.snapshot.pages:
            for _ in range(page.count):
                resource = self._take(Resource, f"page {page.number} has {page.count} resources")
                self._refuse_each(invariants.RESOURCE, invariants.PlacedResource(resource, page, state))
                octets = _octets(resource.uri, resource.metadata)
                self._weights[page.number] += octets
                event = Upsert(resource.uri, resource.metadata, resource.memo)
                yield Put(event, Place(slot, page.number, octets), resource.seq)
                slot += 1

    def changes(self) -> Iterator[Logged]:
        """Every change with its weight (AMB-11, AMB-20)."""
        before: dt.datetime | None = None
        for segment in self.snapshot.segments:
            for seq in range(segment.first, segment.last + 1):
                change = self._take(Change, f"segment {segment.number} ends with change {segment.last}")
                at_us = to_microseconds(change.at)
                self._refuse_each(invariants.CHANGE, invariants.LoggedChange(change, seq, before, segment))
                octets = _octets(change.uri, change.metadata)
                self._octets[segment.number] += octets
                before = change.at
                yield Logged(seq, at_us, change.uri, change.change, change.metadata, octets)
        if self._next is not None and not isinstance(self._next, StateRow):
            self._refuse("more follows than the snapshot say")
        self._refuse_each(invariants.LOG_END, invariants.LogEnd(self.snapshot.state, before))

    def rows(self) -> Iterator[StateRow]:
        """Every row of the set's state, each once; ends when nothing follows the last one."""
        before: StateRow | None = None
        while isinstance(row := self._next, StateRow):
            row_writes(StateUpdate(put=(row,)))
            self._refuse_each(invariants.ROW, invariants.OrderedRow(row, before))
            before = row
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

    def _refuse_each(self, wanted: Sequence[invariants.Invariant[T]], value: T) -> None:
        for breach in invariants.breaches(wanted, value):
            self._refuse(breach.refusal)

    def _refuse(self, what: str) -> NoReturn:
        raise Contradiction(what, where=self._name)


def _octets(uri: str, metadata: Metadata) -> int:
    if not uri:
        raise Unacceptable("an empty URI")
    return weight(uri, metadata)


def _check_snapshot(snapshot: SetSnapshot) -> None:
    """Raise Contradiction for snapshot that do not agree with themselves, Unacceptable for a time without a zone."""
    for moment in _moments(snapshot):
        if moment is not None:
            to_microseconds(moment)
    for breach in invariants.breaches(invariants.SNAPSHOT, snapshot):
        raise Contradiction(breach.refusal, where=snapshot.state.name)


def _moments(snapshot: SetSnapshot) -> Iterator[dt.datetime | None]:
    yield from (snapshot.state.opened_at, snapshot.state.last_at)
    for page in snapshot.pages:
        yield from (page.at, page.completed, page.stale_at)
    for segment in snapshot.segments:
        yield from (segment.from_, segment.until)
