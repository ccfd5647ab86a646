"""Reads the state, pages and segments of a set, or of all sets, in as few requests as the backend can."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping
from typing import Protocol, runtime_checkable

from headwater.catalog.interface import Catalog, SetSnapshot


@runtime_checkable
class SnapshotReader(Protocol):
    """A catalog that tells the snapshot of a set from one state."""

    def snapshot_of(self, name: str, newest: int | None = None) -> SetSnapshot:
        """One set's; with `newest`, as of any committed state that has this change. Raises UnknownSet."""
        ...


@runtime_checkable
class AllSnapshotsReader(SnapshotReader, Protocol):
    """A catalog that tells the snapshot of all sets in a few requests."""

    def snapshots(self) -> Iterator[SetSnapshot]:
        """Every set's, by name; each set's from one state."""
        ...

    def times(self, wanted: Mapping[str, int]) -> dict[str, dt.datetime]:
        """When the change of this number happened, for each set that has it."""
        ...


def read_snapshot(catalog: Catalog, name: str, newest: int | None = None) -> SetSnapshot:
    """The snapshot of one set, where the catalog can tell them from one state. Raises UnknownSet, the catalog's faults.

    With `newest` they are those of any committed state that has this change: the one that it remembers will do.
    """
    if isinstance(catalog, SnapshotReader):
        return catalog.snapshot_of(name, newest)
    state = catalog.state(name)
    return SetSnapshot(state, catalog.pages(name), catalog.segments(name))


def read_snapshots(catalog: Catalog, names: frozenset[str] = frozenset()) -> Iterator[SetSnapshot]:
    """The snapshot of the sets, by name; all, when none is named. Raises the catalog's faults."""
    if isinstance(catalog, AllSnapshotsReader):
        yield from (snapshot for snapshot in catalog.snapshots() if not names or snapshot.state.name in names)
        return
    for state in catalog.sets():
        if not names or state.name in names:
            yield SetSnapshot(state, catalog.pages(state.name), catalog.segments(state.name))


def times_of(catalog: Catalog, wanted: Mapping[str, int]) -> dict[str, dt.datetime]:
    """When the change of this number happened, for each set that has it. Raises the catalog's faults."""
    if isinstance(catalog, AllSnapshotsReader):
        return catalog.times(wanted)
    found = {name: catalog.changes(name, seq - 1, 1) for name, seq in wanted.items()}
    return {name: changes[0].at for name, changes in found.items() if changes}
