"""The dataset of a set among what the copy holds of it, or among what the Resource List has."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from headwater.copies.dataset_choice import RdfFile, chosen_dataset, rdf_file
from headwater.storage.sqlite.transaction import Row, Transaction

_HELD = (
    "SELECT uri, path, type, extra, digest, changed_at FROM resources WHERE set_id = ? AND path IS NOT NULL"
    " AND size IS NOT NULL ORDER BY uri"
)
_LISTED = "SELECT uri, x'', type, extra, NULL, NULL FROM temp.listed WHERE NOT refused ORDER BY uri"
_MOST_FILES = 1_000


def held_dataset(t: Transaction, set_id: int, wanted: str | None) -> RdfFile | None:
    """The dataset of a set among what is held of it; None: there is none. Raises NoSingleDataset."""
    return _chosen(t.rows(_HELD, (set_id,)), wanted)


def listed_dataset(t: Transaction, wanted: str | None) -> RdfFile | None:
    """The dataset among what was staged of the Resource List, which has no path yet. Raises NoSingleDataset."""
    return _chosen(t.rows(_LISTED), wanted)


def _chosen(rows: Iterable[Row], wanted: str | None) -> RdfFile | None:
    files: list[RdfFile] = []
    for uri, path, media_type, extra, digest, changed_at in rows:
        found = rdf_file(uri, path, media_type, extra, digest)
        if found is not None:
            files.append(msgspec.structs.replace(found, changed_at=changed_at))
            if len(files) >= _MOST_FILES:
                break
    return chosen_dataset(files, wanted)
