"""The content of a dataset of which no list states a hash: asked for, and compared with the file (TIM-A1, DST-Q).

It is one file of a set, and all that the set is about: without its octets an audit could say nothing but that its times
differ, which patches at the `loc` of changes make them do.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from pathlib import Path
from typing import Final

from headwater.copies.dataset_choice import NoSingleDataset, RdfFile, is_named
from headwater.errors import SourceFault
from headwater.rdf.canonical import RdfOptions, write_canonical
from headwater.rdf.syntaxes import RdfInput
from headwater.storage.database import Database
from headwater.sync.audit.findings import DIFFERENT, SAME, UNREADABLE, UNVERIFIABLE, ContentVerdict
from headwater.sync.copy.file_tree import FileTree
from headwater.sync.datasets.held_datasets import held_dataset
from headwater.sync.datasets.kept_states import blank_nodes_of
from headwater.sync.lists.entries import ListContext
from headwater.sync.transfer.verification import digests_of
from headwater.sync.transfer.work_queue import octet_limit
from headwater.transport.fetch import Fetch, Fetched
from headwater.transport.transport import Transport

_LARGEST: Final = 1 << 40
_HELD: Final = (
    "SELECT e.hash, r.etag, r.digest, coalesce(r.loc, r.uri) FROM temp.expected e JOIN resources r"
    " ON r.set_id = ? AND r.uri = e.uri WHERE e.uri = ?"
)


class DatasetContent:
    """Compares the dataset of a set with what the source has, where only that can tell whether it is the same."""

    def __init__(self, transport: Transport, root: Path, wanted: str | None) -> None:
        """`wanted`: the dataset that the user names."""
        self._transport = transport
        self._root = root
        self._wanted = wanted

    def compare(self, context: ListContext, set_id: int) -> ContentVerdict | None:
        """The verdict; None where there is no dataset, it is not there, or its hash is listed."""
        found = self._dataset(context.database, set_id)
        if found is None:
            return None
        dataset, etag, digest, loc = found
        try:
            with FileTree(self._root, None) as tree, os.fdopen(tree.open(dataset.path), "rb") as file:
                size = os.fstat(file.fileno()).st_size
                held = f"sha-256:{hashlib.file_digest(file, 'sha256').hexdigest()}"
        except FileNotFoundError:
            return None
        except OSError as cause:
            return ContentVerdict(dataset.uri, UNREADABLE, cause.strerror or str(cause))
        known = etag if etag and not etag.startswith("W/") and digest == held else None
        with tempfile.TemporaryDirectory(prefix="headwater-audit-") as scratch:
            answer = self._ask(context, loc, known, size, Path(scratch))
            if answer.status == 304 and known is not None:
                return ContentVerdict(dataset.uri, SAME, "")
            if not answer.ok:
                why = answer.failure.text if answer.failure else f"HTTP status {answer.status}"
                return ContentVerdict(dataset.uri, UNVERIFIABLE, f"no hash is listed, and it was not sent: {why:.300}")
            if f"sha-256:{answer.digests['sha-256']}" == held or self._same_statements(dataset, Path(scratch)):
                return ContentVerdict(dataset.uri, SAME, "")
        return ContentVerdict(dataset.uri, DIFFERENT, "no hash is listed; the source sends other statements")

    def _dataset(self, database: Database, set_id: int) -> tuple[RdfFile, str | None, str | None, str] | None:
        with database.write() as t:  # its temporary tables are those of this connection
            try:
                dataset = held_dataset(t, set_id, self._wanted)
            except NoSingleDataset:
                return None
            if dataset is None or not (dataset.flagged or self._wanted or is_named(dataset.uri)):
                return None
            row = t.one(_HELD, (set_id, dataset.uri))
        if row is None or digests_of(row[0]):
            return None
        return dataset, row[1], row[2], row[3]

    def _ask(self, context: ListContext, loc: str, etag: str | None, size: int, scratch: Path) -> Fetched:
        headers = (("Accept-Encoding", "identity"), *((("If-None-Match", etag),) if etag else ()))
        fetch = Fetch(
            loc,
            headers=headers,
            into=str(scratch / "sent"),
            algorithms=("sha-256",),
            max_octets=octet_limit(size, _LARGEST),
            objection=context.scope.objection,
        )
        return self._transport.one(fetch)

    def _same_statements(self, dataset: RdfFile, scratch: Path) -> bool:
        """Whether the octets that differ are the same dataset, in another order or syntax."""
        sums = []
        for number, path in enumerate((self._root / os.fsdecode(dataset.path), scratch / "sent")):
            source = RdfInput(path, dataset.syntax, dataset.uri, dataset.uri)
            target = scratch / f"canonical-{number}"
            try:
                made = write_canonical([source], target, scratch=scratch, options=RdfOptions(blank_nodes_of(dataset)))
            except SourceFault:
                return False
            sums.append(made.sha256)
        return sums[0] == sums[1]
