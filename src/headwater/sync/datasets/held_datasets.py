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
_FLAG_OF_DELETED = "SELECT 1 FROM resources WHERE set_id = ? AND path IS NULL AND instr(extra, 'isDataset') LIMIT 1"
_MOST_FILES = 1_000


def held_dataset(t: Transaction, set_id: int, wanted: str | None) -> RdfFile | None:
    """The dataset of a set among what is held of it; None: there is none. Raises NoSingleDataset.

    Where the file that was flagged is deleted there is none: no other one is until a list says so (TIM-A5).
    """
    files = _rdf_files(t.rows(_HELD, (set_id,)))
    if wanted is None and not any(one.flagged for one in files) and t.one(_FLAG_OF_DELETED, (set_id,)) is not None:
        return None
    return chosen_dataset(files, wanted)


def listed_dataset(t: Transaction, wanted: str | None) -> RdfFile | None:
    """The dataset among what was staged of the Resource List, which has no path yet. Raises NoSingleDataset."""
    return chosen_dataset(_rdf_files(t.rows(_LISTED)), wanted)


def _rdf_files(rows: Iterable[Row]) -> list[RdfFile]:
    files: list[RdfFile] = []
    for uri, path, media_type, extra, digest, changed_at in rows:
        found = rdf_file(uri, path, media_type, extra, digest)
        if found is not None:
            files.append(msgspec.structs.replace(found, changed_at=changed_at))
            if len(files) >= _MOST_FILES:
                break
    return files
