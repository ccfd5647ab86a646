"""The stores of one set after its sync: its dataset is found among what is held, and each is brought to its state."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from itertools import chain
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple

from headwater.copy_state import JOURNAL_ID
from headwater.errors import Exit, HeadwaterError, SourceFault, StoreFault
from headwater.progress import Progress
from headwater.rdf.canonical import LABELS_KEPT, DatasetSummary, write_canonical
from headwater.rdf.syntaxes import N_QUADS, RdfFile, RdfInput
from headwater.rdf.unified_diff import PatchSummary
from headwater.sync.datasets.held_datasets import held_dataset
from headwater.sync.datasets.kept_states import CountedState, KeptState, KeptStates
from headwater.sync.datasets.stores import FollowingStore, WantedStore, wanted_stores
from headwater.sync.reports import DatasetReport, SetReport, StoreReport, gravest_status
from headwater.sync.run_context import RunContext
from headwater.sync.source_times import format_micros
from headwater.sync.state import SetRow
from headwater.triplestores.embedded_store import forms_still_there, write_normalised
from headwater.triplestores.statements import StorePosition, StoreState, iri_text

_RARELY: Final = 100
"""Where nothing has changed, a count that took more than a second is made again after so many times as long."""


class StoreContent(NamedTuple):
    """What a store holds, and whether that is a dataset: as it was published, or with literals in other forms."""

    held: DatasetSummary
    is_same: bool
    is_normalised: bool


def compared(store: FollowingStore, published: Path, sha256: str, scratch: Path) -> StoreContent:
    """What a store holds, compared with a file of canonical N-Quads that has this SHA-256. Raises StoreFault."""
    with (scratch / "raw").open("wb") as raw:
        store.write_statements(raw)
    held = _canonical(scratch / "raw", scratch / "held")
    if held.sha256 == sha256:
        return StoreContent(held, is_same=True, is_normalised=False)
    sums = []
    for path in (scratch / "held", published):
        write_normalised(path, scratch / "forms")
        sums.append(_canonical(scratch / "forms", scratch / "normalised").sha256)
    return StoreContent(held, is_same=False, is_normalised=sums[0] == sums[1])


def _canonical(source: Path, target: Path) -> DatasetSummary:
    inputs = [RdfInput(source, N_QUADS)]
    return write_canonical(inputs, target, scratch=target.parent, options=LABELS_KEPT, durable=False)


def is_altered(store: FollowingStore, state: StoreState, kept: KeptStates, wanted: KeptState, *, proved: bool) -> bool:
    """Whether a store does not hold what it was left with: seen by the number of its statements, or, where that is
    another or what is there is to be `proved`, by all of them. One that is on its way, or that no run knows, is not."""
    held, counted = state.position, kept.counted
    if held is None or state.under_way is not None or held.sha256 not in kept:
        return False
    if counted is None or counted.sha256 != held.sha256:
        counted = CountedState(held.sha256, held.quads)  # of an earlier version, or a killed run
    rests = held.sha256 == wanted.sha256 and counted.seconds > 1 and not proved
    if rests and time.time() - counted.at < _RARELY * counted.seconds:
        return False
    found = _count(store, held.sha256)
    if proved or found.count != counted.count:
        with kept.scratch() as folder:
            content = compared(store, kept.path(held.sha256), held.sha256, Path(folder))
        if not (content.is_same or content.is_normalised):
            return True
    kept.remember(found)
    return False


def _count(store: FollowingStore, sha256: str) -> CountedState:
    began = time.monotonic()
    count = store.count()
    return CountedState(sha256, count, time.time(), time.monotonic() - began)


def bring_up(
    store: FollowingStore, state: StoreState, kept: KeptStates, wanted: KeptState, place: StorePosition, *, name: str
) -> StoreReport:
    """Bring a store from its state to one that is kept. `place` is the position that it gets."""
    report = StoreReport(store=name)
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
    if report.done != "unchanged":
        kept.remember(_count(store, wanted.sha256))
    return report


def _refuse_others(held: StorePosition | None, dataset: RdfFile, kept: KeptStates, name: str) -> None:
    """Raise StoreFault where a store holds another dataset, but for one of this copy, whose URI has changed with the
    address of its source."""
    if held is not None and held.dataset != iri_text(dataset.uri) and not kept.is_of_this_copy(dataset):
        raise StoreFault(f"the store holds another dataset: {held.dataset[:200]}", code="HW-TRI-02", where=name)


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
            store.apply(_signed(removals, b"-"), chain(_signed(additions, b"+"), restored), position)
    finally:
        kept.forget_changes()
    return changes


def _signed(lines: BinaryIO, sign: bytes) -> Iterator[bytes]:
    """The statements of one sign: removals stand before additions."""
    for line in lines:
        if line[:1] == sign:
            yield line[1:]
        elif sign == b"-":
            return


class DatasetSync:
    """Brings the stores of one set to the state of its dataset; faults end in the report."""

    def __init__(self, context: RunContext, row: SetRow, report: SetReport) -> None:
        self._run = context
        self._row = row
        self._report = report

    def run(self) -> None:
        """Do what is needed."""
        try:
            with self._run.database.read() as t:
                dataset = held_dataset(t, self._row.id, self._run.options.dataset)
        except SourceFault as fault:
            self._tell(fault)
            return
        if dataset is None:
            self._tell_of_none()
            return
        self._report.dataset = DatasetReport(uri=dataset.uri)
        for store in wanted_stores(self._run.options, self._row.name, Path(self._run.destination)):
            try:
                self._follow(store, dataset, self._report.dataset)
            except (SourceFault, StoreFault) as fault:
                self._report.dataset.stores.append(StoreReport(store=store.name, done="failed", fault=str(fault)))
                self._tell(fault)

    def _tell_of_none(self) -> None:
        """Tell that there is no dataset, where the user has named one, or a store holds one."""
        options = self._run.options
        stores = wanted_stores(options, self._row.name, Path(self._run.destination))
        if options.dataset is not None:
            what = f"no RDF file of the set {self._row.name} is called {options.dataset:.200}"
        elif any(store.kept.is_dir() for store in stores):
            what = f"the set {self._row.name} has no RDF dataset any more: its stores stay as they are"
        else:
            return
        self._run.documents.warn("TIM-A5", what, self._row.offer.capability_list)

    def _follow(self, wanted: WantedStore, dataset: RdfFile, told: DatasetReport) -> None:
        self._run.listener(Progress(f"store of {self._row.name}", 0))
        kept = KeptStates(wanted.kept, self._copy())
        with closing(wanted.opened(dataset.uri)) as store:
            _refuse_others(store.state().position, dataset, kept, wanted.name)
            if (former := kept.former_uri(dataset)) is not None:
                store.leave(former)
        state = kept.state_of(dataset, Path(self._run.destination))
        told.sha256, told.quads = state.sha256, state.quads
        at = format_micros(dataset.changed_at) if dataset.changed_at is not None else None
        place = StorePosition(dataset.uri, state.sha256, state.quads, at)
        options = self._run.options
        with closing(wanted.opened(dataset.uri)) as store:
            held = store.state()
            if is_altered(store, held, kept, state, proved=options.repair or options.baseline):
                held = StoreState(None)
                what = "the store does not hold what the last run left there: the dataset is loaded anew"
                self._run.documents.warn("DST-C10", what, wanted.name)
            told.stores.append(bring_up(store, held, kept, state, place, name=wanted.name))

    def _copy(self) -> str:
        """The identity of this copy."""
        with self._run.database.read() as t:
            return str(t.value("SELECT value FROM facts WHERE name = ?", (JOURNAL_ID,)))

    def _tell(self, fault: HeadwaterError) -> None:
        """Put a fault into the report: the set is not complete."""
        self._report.complete = False
        self._report.fault = self._report.fault or str(fault)
        self._report.exit_status = gravest_status([self._report.exit_status, fault.exit_status or Exit.STORE])
        self._run.documents.warn(fault.rule or fault.code, f"{fault.what}. {fault.todo}", fault.where, fault=fault)
