"""The dataset of a set, and triplestores that follow it: each is brought to its state after the sync.

States of the dataset are kept for each store as files of canonical N-Quads, named by their SHA-256; a store knows by
its position which of them it holds. A state is kept before the store goes to it, and removed after the store has
gone from it: killed anywhere, the files of both ends of what was under way are there.
"""

import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import BinaryIO, Final

import msgspec

from headwater.copy_state import FOLDER, JOURNAL_ID
from headwater.errors import Exit, HeadwaterError, SourceFault, StoreFault
from headwater.files.folder_marks import STATE_MARK, mark_folder
from headwater.progress import Progress
from headwater.rdf import N_QUADS_DIFF
from headwater.rdf.canonical import BlankNodes, DatasetSummary, RdfOptions, write_canonical
from headwater.rdf.dataset_choice import NoSingleDataset, RdfFile, chosen_dataset, name_of, rdf_file
from headwater.rdf.syntaxes import N_QUADS, RdfInput, is_patch
from headwater.rdf.unified_diff import PatchSummary, write_patch
from headwater.spec.kinds import PATCH
from headwater.spec.records import Link
from headwater.storage.durable import replace_file, sync_folder
from headwater.storage.transaction import Row, Transaction
from headwater.sync.connection import netrc_authorization
from headwater.sync.copy.held_files import file_has
from headwater.sync.lists.entries import encode_links
from headwater.sync.options import SyncOptions
from headwater.sync.reports import (
    DIFFERENT,
    MISSING,
    NORMALISED,
    SAME,
    UNREADABLE,
    DatasetReport,
    SetReport,
    StoreAudit,
    StoreReport,
    gravest_status,
)
from headwater.sync.source_times import format_micros
from headwater.sync.state import SetRow
from headwater.sync.transfer.work_queue import RunContext
from headwater.triplestores.embedded_store import EmbeddedStore, write_normalised
from headwater.triplestores.sparql_endpoint import EndpointAddress, SparqlEndpoint
from headwater.triplestores.sparql_store import SparqlStore
from headwater.triplestores.sparql_updates import StorePosition, StoreState, iri_text
from headwater.typed_decoding import from_json

# the dataset of a set among what the copy holds of it, or among what the Resource List has

_HELD_FILES: Final = (
    "SELECT uri, path, type, extra, digest, changed_at FROM resources WHERE set_id = ? AND path IS NOT NULL"
    " AND size IS NOT NULL ORDER BY uri"
)
_LISTED_FILES: Final = "SELECT uri, x'', type, extra, NULL, NULL FROM temp.listed WHERE NOT refused ORDER BY uri"
_FLAG_OF_DELETED = "SELECT 1 FROM resources WHERE set_id = ? AND path IS NULL AND instr(extra, 'isDataset') LIMIT 1"
_MOST_FILES = 1_000


def held_dataset(t: Transaction, set_id: int, wanted: str | None) -> RdfFile | None:
    """The dataset of a set among what is held of it; None: there is none. Raises NoSingleDataset.

    Where the file that was flagged is deleted there is none: no other one is until a list says so (TIM-A5).
    """
    files = _rdf_files(t.rows(_HELD_FILES, (set_id,)))
    if wanted is None and not any(one.flagged for one in files) and t.one(_FLAG_OF_DELETED, (set_id,)) is not None:
        return None
    return chosen_dataset(files, wanted)


def listed_dataset(t: Transaction, wanted: str | None) -> RdfFile | None:
    """The dataset among what was staged of the Resource List, which has no path yet; None also where several may be."""
    with suppress(NoSingleDataset):
        return chosen_dataset(_rdf_files(t.rows(_LISTED_FILES)), wanted)
    return None


def _rdf_files(rows: Iterable[Row]) -> list[RdfFile]:
    files = ((rdf_file(*told), changed_at) for *told, changed_at in rows)
    found = (msgspec.structs.replace(one, changed_at=at) for one, at in files if one is not None)
    return list(islice(found, _MOST_FILES))


_FOUND: Final = (
    "SELECT rowid, uri, coalesce(loc, uri), type, hash, length FROM temp.changed WHERE change != 'deleted'"
    " AND (uri LIKE '%.nqud' OR type LIKE ?)"
)
_RESTATE: Final = (
    "UPDATE temp.changed SET uri = ?, loc = NULL, lastmod = NULL, length = NULL, hash = NULL, type = NULL,"
    " encoding = NULL, extra = NULL, change = 'updated', refused = 0, links = ? WHERE rowid = ?"
)


def restate_patches(t: Transaction, set_id: int, wanted: str | None, *, listed: bool = False) -> None:
    """Make staged changes of patches those of the dataset of the set, which is fetched whole where no hash tells what
    a patch leads to. Where no dataset is held, or `listed`, they stay what they are: files.
    """
    try:
        dataset = held_dataset(t, set_id, wanted)
        if dataset is None and listed:
            dataset = listed_dataset(t, wanted)
    except NoSingleDataset:
        return
    if dataset is None:
        return
    found = [row for row in t.rows(_FOUND, (f"{N_QUADS_DIFF}%",)) if is_patch(row[3], name_of(row[1]))]
    for row, _, loc, _, hash_, length in found:
        link = Link(rel=PATCH, href=loc, type=N_QUADS_DIFF, hash=hash_, length=length)
        t.run(_RESTATE, (dataset.uri, encode_links([link]), row))


# the states of the dataset that are kept for one store

_NOTE: Final = "state.json"
_SCRATCH: Final = "rdf-"
"""The beginning of the names of what a killed run may have left."""


class KeptState(msgspec.Struct, frozen=True):
    """A state of the dataset: of which octets it was made, and its canonical form."""

    source_digest: str
    sha256: str
    quads: int
    copy: str = ""  # the identity of the copy whose store it is
    dataset: str = ""  # the URI of the dataset, by which a store may have it


def blank_nodes_of(dataset: RdfFile) -> BlankNodes:
    """What becomes of blank nodes: labels stay where the syntax has some for whole files, else the canonical ones."""
    return BlankNodes.KEPT if dataset.syntax.is_lines else BlankNodes.CANONICAL


def input_of(dataset: RdfFile, root: Path) -> RdfInput:
    """The file of a dataset in the copy, as what is read."""
    return RdfInput(root / os.fsdecode(dataset.path), dataset.syntax, dataset.uri, dataset.uri)


class KeptStates:
    """The folder of the states that are kept for one store."""

    def __init__(self, folder: Path, copy: str = "") -> None:
        """`copy` is the identity of the copy whose dataset the store follows."""
        folder.mkdir(parents=True, exist_ok=True)
        mark_folder(folder, STATE_MARK)
        self._folder = folder
        self._copy = copy
        self._noted: KeptState | None = None
        with suppress(OSError, msgspec.DecodeError):
            self._noted = from_json((folder / _NOTE).read_bytes(), KeptState)
        for path in folder.glob(f"{_SCRATCH}*"):
            shutil.rmtree(path, ignore_errors=True)
            path.unlink(missing_ok=True)

    def path(self, sha256: str) -> Path:
        """Where the file of a state is, or would be."""
        return self._folder / f"{sha256}.nq"

    def __contains__(self, sha256: str) -> bool:
        return self.path(sha256).is_file()

    def former_uri(self) -> str | None:
        """The URI by which this copy has brought its dataset into the store; None: another copy has, or nobody."""
        return None if self._noted is None or self._noted.copy != self._copy else self._noted.dataset

    def state_of(self, dataset: RdfFile, root: Path) -> KeptState:
        """The state that a file of the copy has, kept. Read only where it is not the one that was read last.

        Raises StoreFault where the file is not what was verified: a store that took it would hold it for ever.
        """
        noted = self._noted
        if noted is not None and dataset.digest and noted.source_digest == dataset.digest and noted.sha256 in self:
            state = noted
        else:
            source, options = input_of(dataset, root), RdfOptions(blank_nodes_of(dataset))
            with self.scratch() as folder:
                aside = Path(folder, "next")
                try:
                    made = write_canonical([source], aside, scratch=Path(folder), options=options)
                    state = KeptState(dataset.digest, made.sha256, made.quads)
                    if dataset.digest != f"sha-256:{made.sha256}":  # a patched one is: these are the octets of the file
                        _check(source.path, dataset.digest)
                except SourceFault:
                    _check(source.path, dataset.digest)
                    raise
                aside.rename(self.path(state.sha256))
            sync_folder(self._folder)
        state = msgspec.structs.replace(state, copy=self._copy, dataset=dataset.uri)
        if state != noted:
            self._noted = state
            replace_file(self._folder / _NOTE, [msgspec.json.encode(state)], _SCRATCH)
        return state

    def scratch(self) -> tempfile.TemporaryDirectory[str]:
        """A folder for temporary files."""
        return tempfile.TemporaryDirectory(prefix=_SCRATCH, dir=self._folder)

    @contextmanager
    def changes(self, before: str, after: str) -> Iterator[tuple[Path, PatchSummary]]:
        """What leads from one state that is kept to another, removals and then additions, in a file of a while."""
        with self.scratch() as folder:
            path = Path(folder, "changes")
            with path.open("wb") as file:
                summary = write_patch(self.path(before), self.path(after), file)
            yield path, summary

    def others(self, sha256: str) -> list[Path]:
        """The files of other states: while there are some, nobody has seen that the store holds this one."""
        return [one for one in self._folder.glob("*.nq") if len(one.stem) == 64 and one != self.path(sha256)]

    def keep_only(self, sha256: str) -> None:
        """Remove the files of other states."""
        for path in self.others(sha256):
            path.unlink(missing_ok=True)


def _check(path: Path, digest: str) -> None:
    """Raise StoreFault where a file that was read is not what was verified. Where no digest is known it is taken."""
    if digest.partition(":")[2] and not file_has(path, digest):
        advice = "It was altered since: run the same command again with --repair."
        raise StoreFault("the file of the dataset is not what was verified", where=str(path), advice=advice)


# the stores that the user asks for

_OXIGRAPH: Final = "oxigraph"
FollowingStore = EmbeddedStore | SparqlStore
"""A store that follows a dataset."""


class WantedStore(msgspec.Struct, frozen=True):
    """A store that the user asks for: what it is called, and the folder of its kept states."""

    name: str
    kept: Path
    opened: Callable[[str], FollowingStore]  # makes the store of the dataset with this URI


def wanted_stores(options: SyncOptions, set_name: str, root: Path) -> list[WantedStore]:
    """The stores that are to follow the dataset of one set. Raises UsageFault."""
    stores = []
    if options.store is not None:
        folder = Path(os.path.abspath(options.store)) / set_name
        stores.append(WantedStore(str(folder), folder, lambda _: EmbeddedStore(folder / _OXIGRAPH)))
    if (update := options.sparql) is not None:
        kept = root / FOLDER / "datasets" / set_name / hashlib.sha256(update.encode()).hexdigest()[:16]
        authorization = options.sparql_authorization or (netrc_authorization(update) if options.netrc else None)
        address = EndpointAddress(
            update=update, query=options.sparql_query, authorization=authorization, authorities=options.ca
        )
        stores.append(WantedStore(update, kept, lambda dataset: SparqlStore(SparqlEndpoint(address), dataset, update)))
    return stores


def compared(store: FollowingStore, published: Path, sha256: str, scratch: Path) -> tuple[str, DatasetSummary]:
    """Whether a store holds what a file of canonical N-Quads has, whose SHA-256 this is: `SAME`, `NORMALISED` (with
    literals in other forms) or `DIFFERENT`; and what it holds. Raises StoreFault."""
    with (scratch / "raw").open("wb") as raw:
        store.write_statements(raw)
    held = _canonical(RdfInput(scratch / "raw", N_QUADS), scratch / "held")
    if held.sha256 == sha256:
        return SAME, held
    sums = set()
    for path in (scratch / "held", published):
        write_normalised(path, scratch / "forms")
        sums.add(_canonical(RdfInput(scratch / "forms", N_QUADS), scratch / "normalised").sha256)
    return NORMALISED if len(sums) == 1 else DIFFERENT, held


def _canonical(source: RdfInput, target: Path, blank_nodes: BlankNodes = BlankNodes.KEPT) -> DatasetSummary:
    options = RdfOptions(blank_nodes)
    return write_canonical([source], target, scratch=target.parent, options=options, durable=False)


def bring_up(
    store: FollowingStore, state: StoreState, kept: KeptStates, wanted: KeptState, place: StorePosition, *, name: str
) -> StoreReport:
    """Bring a store from its state to one that is kept. `place` is the position that it gets.

    By what differs, where the state that it says that it has is kept, and it is on its way to no other one: of such a
    state it has some already.
    """
    report, held = StoreReport(store=name), state.position
    is_known = held is not None and held.dataset == iri_text(place.dataset) and held.sha256 in kept
    if not is_known or state.under_way not in (None, wanted.sha256):
        held = None
    if held is not None and held.sha256 == wanted.sha256 and state.under_way is None:
        return report
    most = min(store.most_changes, max(wanted.quads, 1000))
    if held is not None and (changes := _patched(store, kept, held.sha256, place, most)) is not None:
        report.done, report.removed, report.added = "patched", changes.removed, changes.added
    else:
        _load(store, kept, place, report)
    return report


def _load(store: FollowingStore, kept: KeptStates, place: StorePosition, report: StoreReport) -> None:
    store.load(kept.path(place.sha256), place)
    report.done, report.removed, report.added = "loaded", 0, place.quads


def _patched(
    store: FollowingStore, kept: KeptStates, before: str, position: StorePosition, most: int
) -> PatchSummary | None:
    """Apply what differs between two states; None where that is too much, or the file of the first is damaged."""
    if not file_has(kept.path(before), f"sha-256:{before}"):
        return None
    with kept.changes(before, position.sha256) as (path, changes):
        if changes.removed + changes.added > most:
            return None
        with path.open("rb") as removals, path.open("rb") as additions:
            store.apply(_signed(removals, b"-"), _signed(additions, b"+"), position)
    return changes


def _signed(lines: BinaryIO, sign: bytes) -> Iterator[bytes]:
    """The statements of one sign: removals stand before additions."""
    for line in lines:
        if line[:1] == sign:
            yield line[1:]
        elif sign == b"-":
            return


@dataclass
class DatasetSync:
    """Brings the stores of one set to the state of its dataset; faults end in the report."""

    context: RunContext
    row: SetRow
    report: SetReport

    def run(self) -> None:
        """Do what is needed."""
        run, options, name = self.context, self.context.options, self.row.name
        try:
            with run.database.read() as t:
                dataset = held_dataset(t, self.row.id, options.dataset)
                copy = str(t.value("SELECT value FROM facts WHERE name = ?", (JOURNAL_ID,)))
        except SourceFault as fault:
            self._tell(fault)
            return
        stores = wanted_stores(options, name, Path(run.destination))
        if dataset is not None:
            self.report.dataset = DatasetReport(uri=dataset.uri)
            for store in stores:
                try:
                    self._follow(store, KeptStates(store.kept, copy), dataset, self.report.dataset)
                except (SourceFault, StoreFault) as fault:
                    self.report.dataset.stores.append(StoreReport(store=store.name, done="failed", fault=str(fault)))
                    self._tell(fault)
        elif options.dataset is not None:
            what = f"no RDF file of the set {name} is called {options.dataset:.200}"
            run.documents.warn("TIM-A5", what, self.row.offer.capability_list)
        elif any(store.kept.is_dir() for store in stores):
            what = f"the set {name} has no RDF dataset any more: its stores stay as they are"
            run.documents.warn("TIM-A5", what, self.row.offer.capability_list)

    def _follow(self, wanted: WantedStore, kept: KeptStates, dataset: RdfFile, told: DatasetReport) -> None:
        """Bring one store up. One that holds another dataset is refused, unless this copy has brought it there by the
        URI that its own dataset had before the address of the source changed."""
        self.context.listener(Progress(f"store of {self.row.name}", 0))
        with closing(wanted.opened(dataset.uri)) as store:
            held, former = store.state(), kept.former_uri()
            before = held.position
            if before is not None and before.dataset != iri_text(dataset.uri) and former is None:
                what = f"the store holds another dataset: {before.dataset[:200]}"
                raise StoreFault(what, code="HW-TRI-02", where=wanted.name)
            if former and former != dataset.uri:
                store.leave(former)
            state = kept.state_of(dataset, Path(self.context.destination))
            told.sha256, told.quads = state.sha256, state.quads
            place = StorePosition(dataset.uri, state.sha256, state.quads, format_micros(dataset.changed_at))
            report = bring_up(store, held, kept, state, place, name=wanted.name)
            if self._is_altered(store, report, kept, state):
                what = "the store lacks the dataset that it records: Headwater loads it again"
                self.context.documents.warn("DST-C10", what, wanted.name)
                _load(store, kept, place, report)
            kept.keep_only(state.sha256)
            told.stores.append(report)

    def _is_altered(self, store: FollowingStore, report: StoreReport, kept: KeptStates, state: KeptState) -> bool:
        """Whether a store that was not loaded just now does not hold its state: by the number of its statements, or,
        where that is another or what is there is to be proved, by all of them. Somebody else has altered it, or it has
        lost one form of a literal with another one that was removed (NQUD-A7). A service that follows asks only where
        it has changed the store."""
        options = self.context.options
        is_proved = options.repair or options.baseline
        is_settled = report.done == "unchanged" and options.patient and not kept.others(state.sha256)
        if report.done == "loaded" or (not is_proved and (is_settled or store.count() == state.quads)):
            return False
        with kept.scratch() as folder:
            return compared(store, kept.path(state.sha256), state.sha256, Path(folder))[0] == DIFFERENT

    def _tell(self, fault: HeadwaterError) -> None:
        self.report.complete = False
        self.report.fault = self.report.fault or str(fault)
        self.report.exit_status = gravest_status([self.report.exit_status, fault.exit_status or Exit.STORE])
        self.context.documents.warn(fault.rule or fault.code, f"{fault.what}. {fault.todo}", fault.where, fault=fault)


# the audit of the stores of a dataset


def audit_stores(t: Transaction, row: SetRow, root: Path, options: SyncOptions) -> list[StoreAudit]:
    """The verdicts on the stores that the options name; none where the set has no dataset. Modifies nothing.

    A store that normalises the forms of literals is compared after the same was done to the file, and that is told.
    """
    wanted = wanted_stores(options, row.name, root)
    try:
        dataset = held_dataset(t, row.id, options.dataset) if wanted else None
        if dataset is None:
            return []
        with tempfile.TemporaryDirectory(prefix="headwater-audit-") as scratch:
            folder = Path(scratch)
            published = _canonical(input_of(dataset, root), folder / "published", blank_nodes_of(dataset))
            return [_audited(store, dataset, published, folder) for store in wanted]
    except SourceFault as fault:
        return [StoreAudit(store=store.name, verdict=UNREADABLE, reason=str(fault)) for store in wanted]


_REASONS: Final = {
    NORMALISED: "the store changed the form of some literals",
    DIFFERENT: "`headwater sync --repair`, with the same store, loads it anew",
}


def _audited(wanted: WantedStore, dataset: RdfFile, published: DatasetSummary, folder: Path) -> StoreAudit:
    told = StoreAudit(store=wanted.name, verdict=SAME, dataset_quads=published.quads, dataset_sha256=published.sha256)
    try:
        with closing(wanted.opened(dataset.uri)) as store:
            if store.state().position is None:
                told.verdict, told.reason = MISSING, "the dataset is incomplete"
                return told
            told.verdict, held = compared(store, folder / "published", published.sha256, folder)
    except (StoreFault, SourceFault) as fault:
        told.verdict, told.reason = UNREADABLE, str(fault)
        return told
    told.quads, told.sha256, told.reason = held.quads, held.sha256, _REASONS.get(told.verdict)
    return told
