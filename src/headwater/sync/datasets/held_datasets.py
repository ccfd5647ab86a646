"""The dataset of a set among what the copy holds of it."""

from __future__ import annotations

import msgspec

from headwater.storage.database import Transaction
from headwater.sync.datasets.dataset_choice import RdfFile, chosen_dataset, rdf_file

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
