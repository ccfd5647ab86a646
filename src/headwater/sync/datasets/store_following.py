"""A store brought to the state of its dataset: by what has changed between two states, or loaded as a whole.

The changes are those between the state in which the store says it is and the one wanted, so that no patch can be lost,
come twice or in another order: whatever became of patches on the way, what counts is the file, which is verified.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO, Protocol

from headwater.rdf.differences import PatchSummary
from headwater.sync.datasets.kept_states import KeptState, KeptStates
from headwater.sync.reports import StoreReport
from headwater.triplestores.positions import StorePosition, StoreState, iri_text
from headwater.triplestores.value_forms import forms_still_there


class FollowingStore(Protocol):
    """A store that follows a dataset."""

    most_changes: int
    """More changes than these are loaded as a whole."""

    def state(self) -> StoreState:
        """The position, and what is under way."""
        ...

    def load(self, dataset: Path, position: StorePosition) -> None:
        """Hold what is in a file, and nothing else."""
        ...

    def apply(self, removals: Iterable[bytes], additions: Iterable[bytes], position: StorePosition) -> None:
        """Remove and add statements, and move the position."""
        ...


def bring_up(
    store: FollowingStore, kept: KeptStates, wanted: KeptState, place: StorePosition, name: str
) -> StoreReport:
    """Bring a store to a state that is kept. `place` is the position that it gets."""
    report = StoreReport(store=name)
    state = store.state()
    held = state.position
    if held is not None and held.dataset != iri_text(place.dataset):
        held = None
    way = _way(state.under_way, held, wanted.sha256, kept)
    if state.under_way is not None and not way:
        held = None  # it has some of a state that nobody has kept, whatever it says that it had
    for target in way:
        assert held is not None
        position = place if target == wanted.sha256 else StorePosition(place.dataset, target, 0)
        changes = _patched(store, kept, held.sha256, position, min(store.most_changes, max(wanted.quads, 1000)))
        if changes is None:
            held = None
            break
        held = position
        report.done = "patched"
        report.removed, report.added = changes.removed, changes.added
    if held is None or held.sha256 != wanted.sha256:
        store.load(kept.path(wanted.sha256), place)
        report.done, report.removed, report.added = "loaded", 0, wanted.quads
    kept.forget_changes()
    kept.keep_only(wanted.sha256)
    return report


def _way(under_way: str | None, held: StorePosition | None, wanted: str, kept: KeptStates) -> list[str]:
    """The states to go to, one after the other; none where the store is there, or has to be loaded.

    What was begun is done first: a store on its way to a state may have some of it already.
    """
    if held is None or held.sha256 not in kept or (under_way is not None and under_way not in kept):
        return []
    steps = [wanted] if under_way in (None, wanted) else [str(under_way), wanted]
    return [] if under_way is None and held.sha256 == wanted else steps


def _patched(
    store: FollowingStore, kept: KeptStates, before: str, position: StorePosition, most: int
) -> PatchSummary | None:
    """Apply what differs between two states; None where that is too much."""
    try:
        path, changes = kept.changes(before, position.sha256)
        if changes.removed + changes.added > most:
            return None
        with path.open("rb") as removals, path.open("rb") as again, path.open("rb") as additions:
            restored = forms_still_there(_signed(again, b"-"), kept.path(position.sha256))
            store.apply(_signed(removals, b"-"), _both(_signed(additions, b"+"), restored), position)
    finally:
        kept.forget_changes()
    return changes


def _both(first: Iterable[bytes], second: Iterable[bytes]) -> Iterator[bytes]:
    yield from first
    yield from second


def _signed(lines: BinaryIO, sign: bytes) -> Iterator[bytes]:
    """The statements of one sign: removals stand before additions."""
    for line in lines:
        if line[:1] == sign:
            yield line[1:]
        elif sign == b"-":
            return
