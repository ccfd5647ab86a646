"""The stores of one set after its sync: its dataset is found among what is held, and each is brought to its state."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import msgspec

from headwater.errors import Exit, HeadwaterError, SourceFault, StoreFault
from headwater.progress import Progress
from headwater.storage.database import Transaction
from headwater.sync.datasets.dataset_choice import RdfFile, chosen_dataset, rdf_file
from headwater.sync.datasets.kept_states import KeptStates
from headwater.sync.datasets.store_following import bring_up
from headwater.sync.datasets.stores import WantedStore, wanted_stores
from headwater.sync.options import DatasetReport, SetReport, StoreReport, gravest_status
from headwater.sync.run_context import RunContext
from headwater.sync.source_times import format_micros
from headwater.sync.state.set_rows import SetRow
from headwater.triplestores.positions import StorePosition

_HELD = (
    "SELECT uri, path, type, extra, digest, changed_at FROM resources WHERE set_id = ? AND path IS NOT NULL"
    " AND size IS NOT NULL ORDER BY uri"
)
_MOST_FILES = 1_000


def held_dataset(t: Transaction, set_id: int, wanted: str | None) -> RdfFile | None:
    """The dataset of a set among what is held of it; None: there is none. Raises NoSingleDataset."""
    files: list[RdfFile] = []
    for uri, path, media_type, extra, digest, changed_at in t.rows(_HELD, (set_id,)):
        found = rdf_file(uri, path, media_type, extra, digest)
        if found is not None:
            files.append(msgspec.structs.replace(found, changed_at=changed_at))
            if len(files) >= _MOST_FILES:
                break
    return chosen_dataset(files, wanted)


class DatasetSync:
    """Brings the stores of one set to the state of its dataset; faults end in the report."""

    def __init__(self, context: RunContext, row: SetRow, report: SetReport) -> None:
        self._run = context
        self._row = row
        self._report = report

    def run(self) -> None:
        """Do what is needed. Nothing is done in a dry run."""
        if self._run.options.dry_run:
            return
        try:
            with self._run.database.read() as t:
                dataset = held_dataset(t, self._row.id, self._run.options.dataset)
        except SourceFault as fault:
            self._tell(fault)
            return
        if dataset is None:
            return
        self._report.dataset = DatasetReport(uri=dataset.uri)
        for store in wanted_stores(self._run.options, self._row.name, Path(self._run.destination)):
            try:
                self._follow(store, dataset, self._report.dataset)
            except (SourceFault, StoreFault) as fault:
                self._report.dataset.stores.append(StoreReport(store=store.name, done="failed", fault=str(fault)))
                self._tell(fault)

    def _follow(self, wanted: WantedStore, dataset: RdfFile, told: DatasetReport) -> None:
        self._run.listener(Progress(f"store of {self._row.name}", 0))
        kept = KeptStates(wanted.kept)
        state = kept.state_of(dataset, Path(self._run.destination))
        told.sha256, told.quads = state.sha256, state.quads
        at = format_micros(dataset.changed_at) if dataset.changed_at is not None else None
        place = StorePosition(dataset.uri, state.sha256, state.quads, at)
        with closing(wanted.opened(dataset.uri)) as store:
            told.stores.append(bring_up(store, kept, state, place, wanted.name))

    def _tell(self, fault: HeadwaterError) -> None:
        """Put a fault into the report: the set is not complete."""
        self._report.complete = False
        self._report.fault = self._report.fault or str(fault)
        self._report.exit_status = gravest_status([self._report.exit_status, fault.exit_status or Exit.STORE])
        self._run.documents.warn(fault.rule or fault.code, f"{fault.what}. {fault.todo}", fault.where, fault=fault)
