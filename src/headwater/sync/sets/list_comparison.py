"""The comparison of an offered Resource List with what is held, by its beginning: is it a moved set? (DST-F10)."""

from __future__ import annotations

from collections.abc import Callable

from headwater.errors import SourceFault
from headwater.spec.kinds import Kind
from headwater.spec.records import Entry
from headwater.storage.database import Database
from headwater.sync.filters import Scope
from headwater.sync.lists.documents import Documents
from headwater.sync.lists.entries import EntryFilter, Staged, scope_origins
from headwater.sync.sets.relocation import LISTED, agreement
from headwater.sync.state.set_rows import Offer, SetRow

_MOST = 2_000
_STAGE = (
    "INSERT INTO temp.listed(uri, loc, lastmod, length, hash, type, encoding, mirrors, refused)"
    " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
)


def compare_lists(documents: Documents, database: Database, *given: str) -> Callable[[SetRow, Offer], float]:
    """A function that says how much of what is listed first is held, with the same hash.

    Only lists on the hosts of the source's documents are asked for: the addresses `given`, and the Capability List.
    """
    listed: dict[str, list[Staged]] = {}

    def alike(row: SetRow, offer: Offer) -> float:
        if offer.identity not in listed:
            listed.clear()
            scope = Scope(scope_origins(*given, offer.capability_list))
            everything = EntryFilter(Scope(frozenset(), any_host=True))
            listed[offer.identity] = [everything.row(entry) for entry in _beginning(documents, offer, scope)]
        rows = listed[offer.identity]
        with database.write() as t:
            t.run("DELETE FROM temp.listed")
            t.many(_STAGE, rows)
            found = agreement(t, row, offer, LISTED)
            t.run("DELETE FROM temp.listed")
        compared = min(found.held, len(rows))
        return found.same / compared if compared else 0.0

    return alike


def _beginning(documents: Documents, offer: Offer, scope: Scope) -> list[Entry]:
    """The first entries of what an offer's Resource List lists; nothing where it cannot be read."""
    uri = offer.resource_list
    for _ in range(3):  # an index, and an index in it (AMB-65)
        if uri is None or scope.refusal(uri) is not None:
            break
        try:
            probe = documents.probe(uri, most_entries=_MOST)
        except SourceFault:
            break
        kind = probe.document.kind if probe.document is not None else None
        if kind in (Kind.RESOURCE_LIST, Kind.SITEMAP):
            return list(probe.entries[:_MOST])
        uri = probe.entries[0].loc if kind in (Kind.RESOURCE_LIST_INDEX, Kind.SITEMAP_INDEX) and probe.entries else None
    return []
