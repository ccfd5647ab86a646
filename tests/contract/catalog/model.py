"""The catalog's contract as a plain model of lists, and a stateful machine that compares a backend with it.

Not for running programs: it needs hypothesis. Nothing here is shared with what backends are made of, except the weight
of an entry.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from typing import Any, Protocol

import msgspec
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from headwater.catalog.interface import (
    NO_UPDATE,
    Accepted,
    Catalog,
    Change,
    Delete,
    Event,
    Limits,
    Metadata,
    Page,
    Rendered,
    Resource,
    Segment,
    SetState,
    StateRow,
    StateUpdate,
    Upsert,
)
from headwater.catalog.page_filling import weight
from headwater.catalog.verify import verify
from headwater.spec.records import ChangeKind, Link
from tests.contract.catalog.cases import SMALL, START, TICK


class Backend(Protocol):
    """What a backend's tests hand to the contract: catalogs, and second handles on the same state."""

    def fresh(self, limits: Limits | None = None) -> Catalog:
        """A new, empty catalog."""
        ...

    def again(self, catalog: Catalog, limits: Limits | None = None) -> Catalog:
        """Another handle on what `catalog` holds, as a second process would have; its limits unless given others."""
        ...


class ModelSet:
    """One set as lists, oldest first: nothing is tracked that can be counted."""

    def __init__(self, name: str, limits: Limits) -> None:
        self.name = name
        self.limits = limits
        self.opened_at: dt.datetime | None = None
        self.last_at: dt.datetime | None = None
        self.notes = b""
        self.rows: list[StateRow] = []
        self.state_version = 0
        self.live: list[Resource] = []
        self.changes: list[Change] = []
        self.pages: list[dict[str, Any]] = []
        self.ends: list[tuple[int, dt.datetime]] = []

    def find(self, uri: str) -> Resource | None:
        return next((resource for resource in self.live if resource.uri == uri), None)

    def on(self, page: int) -> list[Resource]:
        return [resource for resource in self.live if resource.page == page]

    def octets(self, page: int) -> int:
        return sum(weight(resource.uri, resource.metadata) for resource in self.on(page))

    def in_segment(self, number: int) -> list[Change]:
        first = self.ends[number - 1][0] if number else 0
        last = self.ends[number][0] if number < len(self.ends) else len(self.changes)
        return self.changes[first:last]

    def load(self, events: list[Event]) -> int:
        for event in events:
            if isinstance(event, Upsert):
                self._put(event, 0, None)
            elif (held := self.find(event.uri)) is not None:
                self._take(held, None)
        return len(self.live)

    def open(self, at: dt.datetime) -> None:
        if self.opened_at is None:
            self.opened_at = at
            self.last_at = max(at, self.last_at or at)
            for page in self.pages:
                page["stale_at"] = at if page["touched"] > page["rendered"] else None

    def record(self, events: list[Event], now: dt.datetime) -> Accepted:
        before = len(self.changes)
        ignored = []
        for event in events:
            held = self.find(event.uri)
            if isinstance(event, Upsert):
                change = event.change or (ChangeKind.CREATED if held is None else ChangeKind.UPDATED)
                at = self._log(event.uri, change, event.metadata, min(event.at or now, now))
                self._put(event, len(self.changes), at)
            elif held is not None:
                self._take(held, self._log(event.uri, ChangeKind.DELETED, Metadata(), min(event.at or now, now)))
            else:
                ignored.append(event.uri)
        if len(self.changes) == before:
            return Accepted(0, 0, tuple(ignored))
        return Accepted(before + 1, len(self.changes), tuple(ignored))

    def mark(self, now: dt.datetime) -> dt.datetime:
        self.last_at = max(now, self.last_at or now)
        return self.last_at

    def close_segment(self, now: dt.datetime) -> None:
        assert self.last_at is not None
        self.last_at = max(now, self.last_at + TICK)
        self.ends.append((len(self.changes), self.last_at))

    def rendered(self, said: Rendered) -> None:
        page = self.pages[said.number]
        overtaken = page["touched"] > said.touched
        page["stale_at"] = max(page["stale_at"] or said.at, said.at) if overtaken else None
        page.update(rendered=said.touched, at=said.at, completed=said.completed)

    def update(self, state: StateUpdate) -> None:
        """What an update makes of the rows."""
        for kind, key in (*state.delete, *((row.kind, row.key) for row in state.put)):
            self.rows = [row for row in self.rows if (row.kind, row.key) != (kind, key)]
        self.rows += {(row.kind, row.key): row for row in state.put}.values()
        self.state_version += bool(state.put or state.delete)

    def rows_of(self, kind: str) -> list[StateRow]:
        rows = [row for row in self.rows if row.kind == kind]
        return sorted(rows, key=lambda row: (row.rank, row.key.encode()))

    def remember(self, uri: str, memo: bytes) -> None:
        self.live = [msgspec.structs.replace(r, memo=memo) if r.uri == uri else r for r in self.live]

    def state(self) -> SetState:
        return SetState(
            name=self.name,
            opened_at=self.opened_at,
            last_seq=len(self.changes),
            last_at=self.last_at,
            count=len(self.live),
            page_count=len(self.pages),
            notes=self.notes,
            state_version=self.state_version,
        )

    def page_books(self) -> list[Page]:
        return [
            Page(number=number, count=len(self.on(number)), weight=self.octets(number), **page)
            for number, page in enumerate(self.pages)
        ]

    def segments(self) -> list[Segment]:
        if self.opened_at is None:
            return []
        found = []
        for number in range(len(self.ends) + 1):
            changes = self.in_segment(number)
            first = self.ends[number - 1][0] + 1 if number else 1
            found.append(
                Segment(
                    number=number,
                    first=first,
                    last=first + len(changes) - 1,
                    from_=self.ends[number - 1][1] if number else self.opened_at,
                    until=self.ends[number][1] if number < len(self.ends) else None,
                    weight=sum(weight(change.uri, change.metadata) for change in changes),
                )
            )
        return found

    def _log(self, uri: str, change: ChangeKind, metadata: Metadata, now: dt.datetime) -> dt.datetime:
        assert self.last_at is not None
        inside = self.in_segment(len(self.ends))
        octets = sum(weight(change.uri, change.metadata) for change in inside) + weight(uri, metadata)
        if len(inside) == self.limits.segment_entries or (inside and octets > self.limits.segment_octets):
            self.last_at += TICK
            self.ends.append((len(self.changes), self.last_at))
        self.last_at = max(now, self.last_at + TICK)
        self.changes.append(Change(len(self.changes) + 1, self.last_at, uri, change, metadata))
        return self.last_at

    def _put(self, event: Upsert, seq: int, at: dt.datetime | None) -> None:
        octets = weight(event.uri, event.metadata)
        held = self.find(event.uri)
        if held is not None:
            old = weight(held.uri, held.metadata)
            stays = octets <= old or self.octets(held.page) - old + octets <= self.limits.page_octets
            if stays:
                self._touch(held.page, at)
                self.live[self.live.index(held)] = Resource(event.uri, event.metadata, event.memo, held.page, seq)
                return
            self._take(held, at)
        last = len(self.pages) - 1
        full = last < 0 or len(self.on(last)) >= self.limits.page_entries
        if full or self.octets(last) + octets > self.limits.page_octets:
            self.pages.append({"touched": 0, "rendered": 0, "at": None, "completed": None, "stale_at": None})
            last += 1
        self.live.append(Resource(event.uri, event.metadata, event.memo, last, seq))
        self._touch(last, at)

    def _take(self, held: Resource, at: dt.datetime | None) -> None:
        self.live.remove(held)
        self._touch(held.page, at)

    def _touch(self, page: int, at: dt.datetime | None) -> None:
        self.pages[page]["touched"] += 1
        self.pages[page]["stale_at"] = self.pages[page]["stale_at"] or at


def observed(catalog: Catalog, name: str) -> dict[str, Any]:
    """Everything that a catalog says of one set."""
    pages = catalog.pages(name)
    return {
        "state": catalog.state(name),
        "pages": pages,
        "on": [list(catalog.page(name, page.number)) for page in pages],
        "changes": catalog.changes(name),
        "segments": catalog.segments(name),
        "resources": catalog.resources(name),
        "rows": {kind: catalog.rows_of(name, kind) for kind in sorted(catalog.row_counts(name))},
    }


def expected(model: ModelSet) -> dict[str, Any]:
    """The same of the model."""
    return {
        "state": model.state(),
        "pages": model.page_books(),
        "on": [model.on(number) for number in range(len(model.pages))],
        "changes": model.changes,
        "segments": model.segments(),
        "resources": sorted(model.live, key=lambda resource: resource.uri.encode()),
        "rows": {kind: model.rows_of(kind) for kind in sorted({row.kind for row in model.rows})},
    }


URIS = st.sampled_from(["a", "b", "c/d", "e%20f", "é", "\uffee", "\U0001f600", "http://example.org/x?y=1&z='\""])
METADATA = st.builds(
    Metadata,
    lastmod=st.none() | st.integers(0, 10**15).map(lambda us: START + dt.timedelta(microseconds=us)),
    hash=st.sampled_from([None, "md5:" + "0" * 32]),
    length=st.sampled_from([None, 0, 2**63 - 1]),
    type=st.sampled_from([None, "t/t", "t/" + "t" * 600, "t/" + "t" * 4_000]),
    links=st.sampled_from([(), (Link(rel="describedby", href="http://example.org/?a&b", modified=START),)]),
    extra=st.sampled_from([(), (), (("{urn:x}y", "\u00e4"),)]),
)
MOMENTS = st.integers(-5, 30).map(lambda us: START + us * TICK)
CHANGES = st.sampled_from([None, None, ChangeKind.CREATED, ChangeKind.UPDATED])
UPSERTS: st.SearchStrategy[Event] = st.builds(
    Upsert, URIS, METADATA, st.binary(max_size=3), CHANGES, st.none() | MOMENTS
)
DELETES: st.SearchStrategy[Event] = st.builds(Delete, URIS, st.none() | MOMENTS)
EVENTS = st.lists(UPSERTS | UPSERTS | DELETES, max_size=12)
NAMES = st.sampled_from(["one", "two"])
ROW_KEYS = st.tuples(st.sampled_from(["k", "kind"]), URIS)
ROWS = st.builds(
    lambda key, value, rank: StateRow(key[0], key[1], value, rank), ROW_KEYS, st.binary(max_size=3), st.integers(-2, 3)
)
UPDATES = st.builds(StateUpdate, st.lists(ROWS, max_size=4), st.lists(ROW_KEYS, max_size=3))


class CatalogMachine(RuleBasedStateMachine):
    """Does the same to a fresh catalog of a backend and to the model, and compares; `machine_for` names the backend."""

    make_backend: Callable[[], Backend]

    def __init__(self) -> None:
        super().__init__()
        self.backend = self.make_backend()
        self.catalog = self.backend.fresh(SMALL)
        self.models: dict[str, ModelSet] = {}

    @initialize()
    def create_both(self) -> None:
        for name in ("one", "two"):
            self.models[name] = ModelSet(name, SMALL)
            assert self.catalog.create(name) == self.models[name].state()

    @rule(name=NAMES, events=EVENTS, update=st.just(NO_UPDATE) | UPDATES)
    def load(self, name: str, events: list[Event], update: StateUpdate) -> None:
        if self.models[name].opened_at is None:
            self.models[name].update(update)
            assert self.catalog.load(name, events, state=update) == self.models[name].load(events)

    @rule(name=NAMES, at=MOMENTS)
    def open(self, name: str, at: dt.datetime) -> None:
        self.models[name].open(at)
        assert self.catalog.open(name, at) == self.models[name].state()

    @rule(name=NAMES, events=EVENTS, now=MOMENTS, update=st.just(NO_UPDATE) | UPDATES)
    def record(self, name: str, events: list[Event], now: dt.datetime, update: StateUpdate) -> None:
        model = self.models[name]
        if model.opened_at is not None:
            model.update(update)
            after = self.catalog.state(name)
            accepted = self.catalog.record(name, events, now, after=after, state=update)
            assert accepted == model.record(events, now)

    @rule(name=NAMES, now=MOMENTS)
    def mark(self, name: str, now: dt.datetime) -> None:
        assert self.catalog.mark(name, now) == self.models[name].mark(now)

    @rule(name=NAMES, now=MOMENTS)
    def close_segment(self, name: str, now: dt.datetime) -> None:
        if self.models[name].opened_at is not None:
            self.models[name].close_segment(now)
            assert self.catalog.close_segment(name, now) == self.models[name].segments()[-2]

    @precondition(lambda self: any(model.pages for model in self.models.values()))
    @rule(name=NAMES, data=st.data(), at=MOMENTS)
    def render(self, name: str, data: st.DataObject, at: dt.datetime) -> None:
        model = self.models[name]
        if not model.pages:
            return
        number = data.draw(st.integers(0, len(model.pages) - 1))
        touched = model.pages[number]["touched"] - data.draw(st.sampled_from([0, 0, 1]))
        said = Rendered(number, touched, at, at + TICK)
        model.rendered(said)
        self.catalog.rendered(name, [said])

    @rule(name=NAMES, uri=URIS, memo=st.binary(max_size=2))
    def remember(self, name: str, uri: str, memo: bytes) -> None:
        self.models[name].remember(uri, memo)
        self.catalog.remember(name, [(uri, memo)])

    @rule(name=NAMES, notes=st.binary(max_size=2))
    def note(self, name: str, notes: bytes) -> None:
        self.models[name].notes = notes
        self.catalog.note(name, notes)

    @rule()
    def go_on_elsewhere(self) -> None:
        again = self.backend.again(self.catalog)
        self.catalog.close()
        self.catalog = again

    @invariant()
    def agrees(self) -> None:
        for name, model in self.models.items():
            assert observed(self.catalog, name) == expected(model)
            assert verify(self.catalog, name) == []
            for page in self.catalog.pages(name):
                assert page.count <= SMALL.page_entries
                assert page.weight <= SMALL.page_octets

    def teardown(self) -> None:
        self.catalog.close()


def machine_for(backend: Callable[[], Backend]) -> type[RuleBasedStateMachine]:
    """A hypothesis machine that does the same to a fresh catalog of the backend and to the model, and compares."""
    return type("CatalogMachine", (CatalogMachine,), {"make_backend": staticmethod(backend)})
