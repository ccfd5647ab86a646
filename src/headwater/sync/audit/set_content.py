"""What the content of a set tells an audit, where its lists do not: of RDF datasets without a hash (TIM-A1, DST-Q)."""

from __future__ import annotations

from pathlib import Path

from headwater.storage.sqlite.transaction import Transaction
from headwater.sync.audit.findings import ContentVerdict
from headwater.sync.lists.entries import ListContext
from headwater.sync.lists.staging import any_patches_alone
from headwater.sync.network.transport import Transport

_UNHASHED = (
    "SELECT 1 FROM temp.expected e JOIN resources r ON r.set_id = ? AND r.uri = e.uri"
    " WHERE coalesce(e.hash, '') NOT LIKE '%:%' LIMIT 1"
)


class SetContent:
    """The changes of one set restated by what they are, and the verdict on its dataset."""

    def __init__(self, transport: Transport, root: Path, wanted: str | None, *, is_past: bool) -> None:
        """`wanted`: the dataset that the user names; of what is past (`is_past`) no content can be asked for."""
        self._transport = transport
        self._root = root
        self._wanted = wanted
        self._is_past = is_past

    def restate(self, t: Transaction, set_id: int) -> None:
        """Changes that are told by their patches alone are those of the dataset (TIM-A1)."""
        if any_patches_alone(t):
            from headwater.sync.datasets.held_datasets import restate_patches  # takes the RDF library along

            restate_patches(t, set_id, self._wanted, listed=True)

    def verdict(self, context: ListContext, set_id: int) -> ContentVerdict | None:
        """The verdict on the dataset of a set, where nothing is listed that would tell more than its time."""
        with context.database.write() as t:
            if self._is_past or t.one(_UNHASHED, (set_id,)) is None:
                return None
        from headwater.sync.audit.dataset_content import DatasetContent  # takes the RDF library along

        return DatasetContent(self._transport, self._root, self._wanted).compare(context, set_id)
