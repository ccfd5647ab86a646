"""Records changes of a set that others tell of, with what is kept and noted of them where the set asks for it."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Iterator, Sequence

from headwater.catalog.interface import Catalog, Event, Metadata, Resource, SetState, Upsert
from headwater.catalog.state import StateUpdate
from headwater.versions.history import History
from headwater.versions.predecessors import Predecessors


class ChangeRecorder:
    """Writes to the set `name`: loads it while it is loading, then logs changes."""

    def __init__(self, catalog: Catalog, name: str, clock: Callable[[], dt.datetime]) -> None:
        self.catalog = catalog
        self.name = name
        self.clock = clock
        self.keep: Callable[[Sequence[Event]], set[str]] | None = None
        """Has the octets of events kept before they are recorded, where the set offers Change Dumps or patches; returns
        the digests that are not."""
        self.history: History | None = None
        """Notes which state a resource had when, where the set keeps versions."""
        self.predecessors: Predecessors | None = None
        """Notes what updates replace, where the set has patches."""

    def held(self, uris: Iterable[str]) -> dict[str, Resource]:
        """The live resources among these."""
        return self.catalog.get(self.name, list(dict.fromkeys(uris)))

    def record(self, events: Sequence[Event], update: StateUpdate, seen: SetState | None = None) -> int:
        """Record events and rows, all or nothing; with `seen` only while that is the set. Returns the newest change.

        Raises what the catalog raises.
        """
        state = seen or self.catalog.state(self.name)
        if state.opened_at is None:
            if self.keep is not None and (self.predecessors is not None or self.history is not None):
                lost = self.keep(events)
                update = update if self.history is None else self.history.loading(events, lost, update)
            self.catalog.load(self.name, events, after=seen, state=update)
            return 0
        lost = self.keep(events) if self.keep is not None else set()
        if self.predecessors is not None:
            update = StateUpdate(update.put, update.delete, self.predecessors.notes(self._replaced(events)))
        if self.history is not None and events:
            update = self.history.update(events, lost, update)
        accepted = self.catalog.record(self.name, events, self.clock(), after=seen, state=update)
        return accepted.last or state.last_seq

    def _replaced(self, events: Sequence[Event]) -> Iterator[tuple[Metadata | None, Upsert]]:
        """What is held before each of these, in order, and the event."""
        newest = {uri: one.metadata for uri, one in self.held(one.uri for one in events).items()}
        for one in events:
            before = newest.pop(one.uri, None)
            if isinstance(one, Upsert):
                newest[one.uri] = one.metadata
                yield before, one
