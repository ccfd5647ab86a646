"""Which remembered set is which offered one, also after its Capability List has moved (DST-F10)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

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
    left = [row for row in known if row.id not in taken]
    new = [offer for offer in offers if offer.identity not in rows]
    for same in (_by_list(left, new, known, offers), _by_redirect(left, moved)):
        for offer in new:
            row = same(offer) if left and offer.identity not in rows else None
            if row is not None:
                rows[offer.identity] = row
                left.remove(row)
    return Matches(rows, tuple(left))


def is_of_another(known: Sequence[SetRow], offers: Sequence[Offer], matches: Matches) -> bool:
    """Whether a copy with these sets is that of another source: no set is the same, nor is the origin of any."""
    origins = {origin_of(row.offer.identity) for row in known}
    return bool(known) and not matches.rows and not origins & {origin_of(offer.identity) for offer in offers}


def free_name(name: str, taken: set[str]) -> str:
    """The name, or one like it that no other set has."""
    lowered = {other.lower() for other in taken}
    if name.lower() not in lowered:
        return name
    return next(found for number in range(2, 1 << 30) if (found := f"{name}-{number}").lower() not in lowered)


def _by_list(
    left: list[SetRow], new: list[Offer], known: Sequence[SetRow], offers: Sequence[Offer]
) -> Callable[[Offer], SetRow | None]:
    owners = Counter(uri for row in known for uri in _lists(row.offer)), Counter(u for o in offers for u in _lists(o))

    def same(offer: Offer) -> SetRow | None:
        own = {uri for uri in _lists(offer) if all(count[uri] == 1 for count in owners)}
        return next((row for row in left if own & _lists(row.offer)), None)

    return same


def _by_redirect(left: list[SetRow], moved: Moved) -> Callable[[Offer], SetRow | None]:
    targets: dict[int, str | None] = {}

    def same(offer: Offer) -> SetRow | None:
        for row in left:
            if row.id not in targets:
                target = moved(row.offer.capability_list) if row.offer.capability_list else None
                targets[row.id] = normalise(target) if target else None
            if targets[row.id] == normalise(offer.identity):
                return row
        return None

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
