"""Fast path for a load of nothing but new resources, of which a first load consists: no plan for each one.

Whatever else a batch holds is planned by `batch_planning.load`.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import msgspec

from headwater.catalog.batch_planning import Places, octets_of, to_optional
from headwater.catalog.interface import Event, Upsert
from headwater.catalog.sqlite.rows import more
from headwater.storage.sqlite.transaction import Row

IS_ON = True
"""False: each resource is planned on its own."""


class Arrivals(msgspec.Struct, frozen=True):
    """New resources that get the slots from `first_slot` on; `runs` are pairs of a page and how many lie on it."""

    events: list[Upsert]
    weights: list[int]
    first_slot: int
    runs: list[tuple[int, int]]


def arrivals(places: Places, events: Sequence[Event]) -> Arrivals | None:
    """What `load` makes of new resources; None, and nothing done, when that is not all there is.

    Any other batch holds deletions, a URI twice, or what the set holds already. Raises Unacceptable.
    """
    upserts = [event for event in events if isinstance(event, Upsert)]
    if not IS_ON or places.held or len({event.uri for event in upserts}) < len(events):
        return None
    largest = places.limits.page_octets
    weights = [octets_of(event, largest) for event in upserts]
    return Arrivals(upserts, weights, places.next_slot, places.append(weights))


def arrival_rows(base: int, set_id: int, new: Arrivals) -> Iterator[Row]:
    """The rows of `rows.fresh_row`, made column by column. Raises Unacceptable for a time without a zone."""
    events, metadatas = new.events, [event.metadata for event in new.events]
    first = base | new.first_slot
    return zip(
        range(first, first + len(events)),
        itertools.repeat(set_id),
        [event.uri for event in events],
        itertools.chain.from_iterable(itertools.repeat(page, count) for page, count in new.runs),
        new.weights,
        [event.seq for event in events],
        [to_optional(metadata.lastmod) for metadata in metadatas],
        [metadata.hash for metadata in metadatas],
        [metadata.length for metadata in metadatas],
        [metadata.type for metadata in metadatas],
        map(more, metadatas),
        [event.memo or None for event in events],
    )
