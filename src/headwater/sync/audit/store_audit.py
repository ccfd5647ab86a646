"""The audit of stores that follow a dataset: what they hold, as canonical N-Quads, compared with the copy of the file.

A store that normalises the forms of literals is compared after the same was done to the file, and that is told.
"""

from __future__ import annotations

import os
import tempfile
from contextlib import closing
from pathlib import Path

from headwater.copies.dataset_choice import RdfFile
from headwater.errors import SourceFault, StoreFault
from headwater.rdf.canonical import DatasetSummary, RdfOptions, write_canonical
from headwater.rdf.syntaxes import RdfInput
from headwater.storage.transaction import Transaction
from headwater.sync.audit.findings import DIFFERENT, MISSING, NORMALISED, SAME, UNREADABLE, StoreAudit
from headwater.sync.datasets.dataset_sync import compared
from headwater.sync.datasets.held_datasets import held_dataset
from headwater.sync.datasets.kept_states import blank_nodes_of
from headwater.sync.datasets.stores import WantedStore, wanted_stores
from headwater.sync.options import SyncOptions
from headwater.sync.state import SetRow


def audit_stores(t: Transaction, row: SetRow, root: Path, options: SyncOptions) -> list[StoreAudit]:
    """The verdicts on the stores that the options name; none where the set has no dataset. Modifies nothing."""
    wanted = wanted_stores(options, row.name, root)
    if not wanted:
        return []
    try:
        dataset = held_dataset(t, row.id, options.dataset)
        if dataset is None:
            return []
        with tempfile.TemporaryDirectory(prefix="headwater-audit-") as scratch:
            folder = Path(scratch)
            source = RdfInput(root / os.fsdecode(dataset.path), dataset.syntax, dataset.uri, dataset.uri)
            published = write_canonical(
                [source], folder / "published", scratch=folder, options=RdfOptions(blank_nodes_of(dataset))
            )
            return [_audited(store, dataset, published, folder) for store in wanted]
    except SourceFault as fault:
        return [StoreAudit(store=store.name, verdict=UNREADABLE, reason=str(fault)) for store in wanted]


def _audited(wanted: WantedStore, dataset: RdfFile, published: DatasetSummary, folder: Path) -> StoreAudit:
    told = StoreAudit(store=wanted.name, verdict=SAME, dataset_quads=published.quads, dataset_sha256=published.sha256)
    try:
        with closing(wanted.opened(dataset.uri)) as store:
            if store.state().position is None:
                told.verdict, told.reason = MISSING, "the dataset is not there as a whole"
                return told
            content = compared(store, folder / "published", published.sha256, folder)
    except (StoreFault, SourceFault) as fault:
        told.verdict, told.reason = UNREADABLE, str(fault)
        return told
    told.quads, told.sha256 = content.held.quads, content.held.sha256
    if not content.is_same:
        told.verdict = NORMALISED if content.is_normalised else DIFFERENT
    if told.verdict == NORMALISED:
        told.reason = "the store has other forms of some literals than were published"
    elif told.verdict == DIFFERENT:
        told.reason = "`headwater sync --repair`, with the same store, loads it anew"
    return told
