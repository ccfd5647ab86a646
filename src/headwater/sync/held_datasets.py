"""The dataset of a set among what the copy holds of it, or among what the Resource List has."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from headwater.patches import N_QUADS_DIFF
from headwater.rdf.syntaxes import NoSingleDataset, RdfFile, chosen_dataset, is_patch, name_of, rdf_file
from headwater.spec.kinds import PATCH
from headwater.spec.records import Link
from headwater.storage.transaction import Row, Transaction
from headwater.sync.lists.entries import all_links, encode_links

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


_FOUND: Final = (
    "SELECT rowid, uri, coalesce(loc, uri), type, hash, length FROM temp.changed WHERE change != 'deleted'"
    " AND (uri LIKE '%.nqud' OR type LIKE ?)"
)
_RESTATE: Final = (
    "UPDATE temp.changed SET uri = ?, loc = NULL, lastmod = NULL, length = NULL, hash = NULL, type = NULL,"
    " encoding = NULL, extra = NULL, change = 'updated', refused = 0, links = ? WHERE rowid = ?"
)


_WITH_PATCH: Final = (
    "SELECT c.n, c.links, r.links, c.hash IS NOT NULL AND c.hash = r.listed_hash FROM temp.changed c"
    " JOIN resources r ON r.set_id = ? AND r.uri = c.uri AND r.links IS NOT NULL WHERE c.pending AND c.links LIKE ?"
)


def keep_links(t: Transaction, set_id: int) -> None:
    """Have changes of datasets say what is held of them: they have one link, to the patch (TIM-A2).

    What a link said of another state than this one, its hash for instance, is left out.
    """
    found = []
    for n, links, held, same in t.rows(_WITH_PATCH, (set_id, f"%{N_QUADS_DIFF}%")):
        told = all_links(links)
        if all(link.rel == PATCH for link in told):
            kept = (link for link in all_links(held) if link.rel != PATCH)
            told += [link if same else Link(rel=link.rel, href=link.href, type=link.type) for link in kept]
            found.append((encode_links(told), n))
    t.many("UPDATE temp.changed SET links = ? WHERE n = ?", found)


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
