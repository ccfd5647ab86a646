"""The stores of one set after its sync: its dataset is found among what is held, and each is brought to its state."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from headwater.copies.dataset_choice import RdfFile
from headwater.copies.schema import JOURNAL_ID
from headwater.errors import Exit, HeadwaterError, SourceFault, StoreFault
from headwater.progress import Progress
from headwater.sync.datasets.held_datasets import held_dataset
from headwater.sync.datasets.kept_states import KeptStates
from headwater.sync.datasets.store_following import bring_up, is_altered
from headwater.sync.datasets.stores import WantedStore, wanted_stores
from headwater.sync.reports import DatasetReport, SetReport, StoreReport, gravest_status
from headwater.sync.run_context import RunContext
from headwater.sync.source_times import format_micros
from headwater.sync.state.set_rows import SetRow
from headwater.triplestores.positions import StorePosition


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
            store.refuse_others(dataset.uri, is_of_copy=kept.is_of_this_copy(dataset))
            if (former := kept.former_uri(dataset)) is not None:
                store.leave(former)
        state = kept.state_of(dataset, Path(self._run.destination))
        told.sha256, told.quads = state.sha256, state.quads
        at = format_micros(dataset.changed_at) if dataset.changed_at is not None else None
        place = StorePosition(dataset.uri, state.sha256, state.quads, at)
        options = self._run.options
        with closing(wanted.opened(dataset.uri)) as store:
            anew = is_altered(store, kept, state, proved=options.repair or options.baseline)
            if anew:
                what = "the store does not hold what the last run left there: the dataset is loaded anew"
                self._run.documents.warn("DST-C10", what, wanted.name)
            told.stores.append(bring_up(store, kept, state, place, name=wanted.name, anew=anew))

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
