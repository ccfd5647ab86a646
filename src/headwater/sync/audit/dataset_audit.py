"""The audit of a dataset: of its file, where no list states a hash, and of the triplestores that follow it.

The dataset is one file of a set, and all that the set is about: without its octets an audit could say nothing but that
its times differ, which patches at the `loc` of changes make them do. So it is asked for. What a store holds is compared
as canonical N-Quads; one that normalises the forms of literals is compared after the same was done to the file, and
that is told (TIM-A1, DST-Q).
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from contextlib import closing
from pathlib import Path
from typing import Final

from headwater.errors import SourceFault, StoreFault
from headwater.rdf.canonical import DatasetSummary, RdfOptions, write_canonical
from headwater.rdf.syntaxes import NoSingleDataset, RdfFile, RdfInput, is_named
from headwater.storage.database import Database
from headwater.storage.transaction import Transaction
from headwater.sync.audit.findings import (
    DIFFERENT,
    MISSING,
    NORMALISED,
    SAME,
    UNREADABLE,
    UNVERIFIABLE,
    ContentVerdict,
    StoreAudit,
)
from headwater.sync.copy.file_tree import FileTree
from headwater.sync.dataset_sync import WantedStore, blank_nodes_of, compared, wanted_stores
from headwater.sync.held_datasets import held_dataset
from headwater.sync.lists.entries import ListContext
from headwater.sync.options import SyncOptions
from headwater.sync.state import SetRow
from headwater.sync.transfer.verification import digests_of
from headwater.sync.transfer.work_queue import octet_limit
from headwater.transport.fetch import Fetch
from headwater.transport.transport import Transport

_LARGEST: Final = 1 << 40
_HELD: Final = (
    "SELECT e.hash, r.etag, r.digest, coalesce(r.loc, r.uri) FROM temp.expected e JOIN resources r"
    " ON r.set_id = ? AND r.uri = e.uri WHERE e.uri = ?"
)


def audit_dataset(
    context: ListContext, set_id: int, transport: Transport, root: Path, wanted: str | None
) -> ContentVerdict | None:
    """The verdict on the dataset of a set (`wanted`: the one that the user names), by what the source sends for it.

    None where there is no dataset, it is not there, or its hash is listed.
    """
    found = _unhashed_dataset(context.database, set_id, wanted)
    if found is None:
        return None
    dataset, etag, digest, loc = found
    try:
        with FileTree(root, None) as tree, os.fdopen(tree.open(dataset.path), "rb") as file:
            size = os.fstat(file.fileno()).st_size
            held = f"sha-256:{hashlib.file_digest(file, 'sha256').hexdigest()}"
    except FileNotFoundError:
        return None
    except OSError as cause:
        return ContentVerdict(dataset.uri, UNREADABLE, cause.strerror or str(cause))
    known = etag if etag and not etag.startswith("W/") and digest == held else None
    with tempfile.TemporaryDirectory(prefix="headwater-audit-") as scratch:
        sent = Path(scratch, "sent")
        fetch = Fetch(
            loc,
            headers=(("Accept-Encoding", "identity"), *((("If-None-Match", known),) if known else ())),
            into=str(sent),
            algorithms=("sha-256",),
            max_octets=octet_limit(size, _LARGEST),
            objection=context.scope.objection,
        )
        answer = transport.one(fetch)
        if answer.status == 304 and known is not None:
            return ContentVerdict(dataset.uri, SAME, "")
        if not answer.ok:
            why = answer.failure.text if answer.failure else f"HTTP status {answer.status}"
            return ContentVerdict(dataset.uri, UNVERIFIABLE, f"no hash is listed, and it was not sent: {why:.300}")
        file_here = root / os.fsdecode(dataset.path)
        if f"sha-256:{answer.digests['sha-256']}" == held or _same_statements(dataset, file_here, sent):
            return ContentVerdict(dataset.uri, SAME, "")
    return ContentVerdict(dataset.uri, DIFFERENT, "no hash is listed; the source sends other statements")


def _unhashed_dataset(
    database: Database, set_id: int, wanted: str | None
) -> tuple[RdfFile, str | None, str | None, str] | None:
    """The dataset of which no hash is listed: with its ETag, the digest that was recorded, and its `loc`."""
    with database.write() as t:  # its temporary tables are those of this connection
        try:
            dataset = held_dataset(t, set_id, wanted)
        except NoSingleDataset:
            return None
        if dataset is None or not (dataset.flagged or wanted or is_named(dataset.uri)):
            return None
        row = t.one(_HELD, (set_id, dataset.uri))
    if row is None or digests_of(row[0]):
        return None
    return dataset, row[1], row[2], row[3]


def _same_statements(dataset: RdfFile, held: Path, sent: Path) -> bool:
    """Whether octets that differ are the same dataset, in another order or syntax."""
    sums: list[str] = []
    for path in (held, sent):
        source = RdfInput(path, dataset.syntax, dataset.uri, dataset.uri)
        target, options = sent.with_name(f"canonical-{len(sums)}"), RdfOptions(blank_nodes_of(dataset))
        try:
            sums.append(write_canonical([source], target, scratch=sent.parent, options=options).sha256)
        except SourceFault:
            return False
    return sums[0] == sums[1]


# triplestores


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
