"""Which remembered set is which offered one, also after its Capability List has moved (DST-F10)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence

import msgspec

from headwater.errors import SourceFault
from headwater.spec.uris import normalise
from headwater.storage.database import Transaction
from headwater.sync.filters import origin_of
from headwater.sync.reading.documents import Documents
from headwater.sync.state import Offer, SetRow

Moved = Callable[[str], str | None]
"""Says where a document's URI permanently redirects to; None when it does not, or when nothing answers there."""


class Matches(msgspec.Struct, frozen=True):
    """The remembered set of each offer, by the offer's identity, and the sets that are not offered any more."""

    rows: dict[str, SetRow]
    gone: tuple[SetRow, ...]


def match(known: Sequence[SetRow], offers: Sequence[Offer], moved: Moved) -> Matches:
    """Match by identity; what is left by a list that both name and nobody else does, then by a permanent redirect.

    `moved` is asked only where sets and offers are both left over.
    """
    by_identity = {row.offer.identity: row for row in known}
    rows = {offer.identity: by_identity[offer.identity] for offer in offers if offer.identity in by_identity}
    taken = {row.id for row in rows.values()}
    left = {row.id: row for row in known if row.id not in taken}
    new = [offer for offer in offers if offer.identity not in rows]
    for same in (_by_list(left, new, known, offers), _by_redirect(left, moved)):
        for offer in new:
            row = same(offer) if left and offer.identity not in rows else None
            if row is not None:
                rows[offer.identity] = row
                del left[row.id]
    return Matches(rows, tuple(left.values()))


def is_of_another(known: Sequence[SetRow], identities: Iterable[str], matches: Matches) -> bool:
    """Whether a copy with these sets is that of another source: no set is the same, nor is the origin of any."""
    origins = {origin_of(row.offer.identity) for row in known}
    return bool(known) and not matches.rows and origins.isdisjoint(map(origin_of, identities))


def _by_list(
    left: dict[int, SetRow], new: Sequence[Offer], known: Sequence[SetRow], offers: Sequence[Offer]
) -> Callable[[Offer], SetRow | None]:
    if not left or not new:
        return lambda _offer: None
    owners = Counter(uri for row in known for uri in _lists(row.offer)), Counter(u for o in offers for u in _lists(o))
    rows = {uri: row for row in left.values() for uri in _lists(row.offer)}

    def same(offer: Offer) -> SetRow | None:
        own = (uri for uri in _lists(offer) if all(count[uri] == 1 for count in owners))
        found = sorted({rows[uri].id for uri in own if uri in rows and rows[uri].id in left})
        return left[found[0]] if found else None

    return same


def _by_redirect(left: dict[int, SetRow], moved: Moved) -> Callable[[Offer], SetRow | None]:
    unasked = iter(list(left.values()))
    targets: dict[str, SetRow] = {}

    def same(offer: Offer) -> SetRow | None:
        wanted = normalise(offer.identity)
        while wanted not in targets:
            row = next(unasked, None)
            if row is None:
                return None
            uri = row.offer.capability_list if row.id in left else None
            target = moved(uri) if uri else None
            if target:
                targets.setdefault(normalise(target), row)
        found = targets[wanted]
        return found if found.id in left else None

    return same


def _lists(offer: Offer) -> set[str]:
    return {normalise(uri) for uri in (offer.resource_list, offer.change_list) if uri is not None}


def redirects_of(documents: Documents) -> Moved:
    """Asks the source where a document has moved to."""

    def moved(uri: str) -> str | None:
        try:
            return documents.look(uri, most_entries=1).moved_to
        except SourceFault:
            return None

    return moved


def move_set(transaction: Transaction, row: SetRow, offer: Offer) -> SetRow:
    """Remember that a set is found elsewhere by now; its name, folder, base, files and position stay."""
    offer = msgspec.structs.replace(offer, name=row.name)
    transaction.run(
        "UPDATE sets SET identity = ?, offer = ? WHERE id = ?",
        (offer.identity, msgspec.json.encode(offer).decode(), row.id),
    )
    return msgspec.structs.replace(row, offer=offer)
