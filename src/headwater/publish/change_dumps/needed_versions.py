"""Tells which versions are needed: of changes that are in no final package yet, of patches to come, of histories.

The next patch of a resource starts from the version that it has now.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from headwater.catalog.interface import Catalog
from headwater.publish.change_dumps.change_contents import sha256_of
from headwater.publish.publication_state import decode_publication
from headwater.versions.history import History, has_history
from headwater.versions.history_retention import needed_digests
from headwater.versions.predecessors import Predecessors
from headwater.versions.retention import DigestSet

_ROWS = 5_000


def needed_versions(catalog: Catalog) -> DigestSet:
    """The digests of the versions that packages and patches to come and the histories need, of all sets.

    Raises the catalog's StoreFaults.
    """
    return DigestSet(chain(_needed(catalog), _patchable(catalog), _remembered(catalog)))


def _needed(catalog: Catalog) -> Iterator[str]:
    for state in catalog.sets():
        dump = decode_publication(state.notes).change_dump
        if dump is None:
            continue
        after = dump.next_first - 1
        while rows := catalog.changes(state.name, after, _ROWS):
            yield from (digest for row in rows if (digest := sha256_of(row.metadata.hash)) is not None)
            after = rows[-1].seq


def _patchable(catalog: Catalog) -> Iterator[str]:
    for state in catalog.sets():
        kinds, after = decode_publication(state.notes).patch, ""
        while kinds and (rows := catalog.resources(state.name, after, _ROWS)):
            keeps = Predecessors(kinds).keeps
            yield from (digest for row in rows if keeps(row.metadata) and (digest := sha256_of(row.metadata.hash)))
            after = rows[-1].uri


def _remembered(catalog: Catalog) -> Iterator[str]:
    for name in has_history(catalog):
        yield from needed_digests(History(catalog, name))
