"""What a set keeps and notes of its changes beside them, and how changes that others tell of are recorded with it."""

import datetime as dt
from collections.abc import Callable, Iterable, Sequence

import msgspec

from headwater.catalog.content import ContentReader
from headwater.catalog.interface import Catalog, Event, Metadata, Resource, SetState, StateUpdate, Unacceptable, Upsert
from headwater.catalog.page_filling import weight
from headwater.progress import Listener
from headwater.versions.history import History
from headwater.versions.keeping import ContentKeeping
from headwater.versions.predecessors import Predecessors
from headwater.versions.store import VersionStore


class KeptChanges(msgspec.Struct, frozen=True, kw_only=True):
    """Where a set keeps the octets of its changes; None: it does not.

    `predecessors` notes for patches what updates replace, `history` which state a resource had when. Only octets of
    resources that may have patches are kept, unless it `keeps_all`.
    """

    store: VersionStore | None = None
    predecessors: Predecessors | None = None
    history: History | None = None
    keeps_all: bool = True

    def keeps(self, metadata: Metadata) -> bool:
        """Whether versions of such a resource are kept."""
        return self.keeps_all or self.predecessors is None or self.predecessors.keeps(metadata)


NOTHING_KEPT = KeptChanges()


def is_acceptable(uri: str, metadata: Metadata) -> bool:
    """Whether a catalog takes it: one that it refuses would take the whole batch with it."""
    try:
        weight(uri, metadata)
    except Unacceptable:
        return False
    return True


class ChangeRecorder:
    """Writes to the set `name`: loads it while it is loading, then logs changes."""

    def __init__(self, catalog: Catalog, name: str, clock: Callable[[], dt.datetime]) -> None:
        self.catalog = catalog
        self.name = name
        self.clock = clock
        self.keep: Callable[[Sequence[Event]], set[str]] | None = None
        """Has the octets of events kept before they are recorded, where the set offers Change Dumps or patches; returns
        the digests that are not."""
        self.kept = NOTHING_KEPT

    def keep_versions(self, kept: KeptChanges, contents: ContentReader, listener: Listener) -> None:
        """Keep the octets of events, as `contents` has them, before they are recorded."""
        if kept.store is not None:
            self.keep = ContentKeeping(kept.store, contents, self.name, listener, kept.keeps).keep
            self.kept = kept

    def held(self, uris: Iterable[str]) -> dict[str, Resource]:
        """The live resources among these."""
        return self.catalog.get(self.name, list(dict.fromkeys(uris)))

    def record(self, events: Sequence[Event], update: StateUpdate, seen: SetState | None = None) -> int:
        """Record events and rows, all or nothing; with `seen` only while that is the set. Returns the newest change.

        Raises what the catalog raises.
        """
        state, predecessors, history = seen or self.catalog.state(self.name), self.kept.predecessors, self.kept.history
        if state.opened_at is None:
            if self.keep is not None and (predecessors is not None or history is not None):
                self.keep(events)
            self.catalog.load(self.name, events, after=seen, state=update)
            return 0
        lost = self.keep(events) if self.keep is not None else set()
        if predecessors is not None:
            newest = {uri: one.metadata for uri, one in self.held(one.uri for one in events).items()}
            replaced = list[tuple[Metadata | None, Upsert]]()  # what is held before each, in order, and the event
            for one in events:
                before = newest.pop(one.uri, None)
                if isinstance(one, Upsert):
                    newest[one.uri] = one.metadata
                    replaced.append((before, one))
            update = StateUpdate(update.put, update.delete, predecessors.notes(replaced))
        if history is not None and events:
            update = history.update(events, lost, update)
        accepted = self.catalog.record(self.name, events, self.clock(), after=seen, state=update)
        return accepted.last or state.last_seq
