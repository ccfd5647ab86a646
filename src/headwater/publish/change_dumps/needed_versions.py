"""Tells which versions published documents need: those of all changes that are in no final package yet."""

from __future__ import annotations

from collections.abc import Iterator

from headwater.catalog.interface import Catalog
from headwater.publish.change_dumps.change_contents import sha256_of
from headwater.publish.publication_state import decode_publication
from headwater.versions.retention import DigestSet

_ROWS = 5_000


def needed_versions(catalog: Catalog) -> DigestSet:
    """The digests that the packages to come will hold, of all sets. Raises the catalog's StoreFaults."""
    return DigestSet(_needed(catalog))


def _needed(catalog: Catalog) -> Iterator[str]:
    for state in catalog.sets():
        dump = decode_publication(state.notes).change_dump
        if dump is None:
            continue
        after = dump.next_first - 1
        while rows := catalog.changes(state.name, after, _ROWS):
            yield from (digest for row in rows if (digest := sha256_of(row.metadata.hash)) is not None)
            after = rows[-1].seq
