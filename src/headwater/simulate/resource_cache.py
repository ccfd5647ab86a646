"""A read-ahead and write-through cache of the catalog's rows, for the content of resources that are asked for.

A destination asks for tens of thousands in a row, and a catalog in a cluster takes milliseconds for an answer. What was
known is never older than what is published: who has recorded changes says so before he publishes them.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable

import msgspec

from headwater.catalog.interface import Catalog, Event, Metadata, Resource, Upsert

AHEAD = 128
"""So many are read at once, and count as in a row."""
KEPT = 8_192


class CachedResource(msgspec.Struct, frozen=True, gc=False):
    """What is known of one resource."""

    metadata: Metadata
    memo: bytes


class ResourceCache:
    """The resources of all sets. Safe for several threads."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._lock = threading.Lock()
        self._ahead = threading.Lock()
        self._known: dict[tuple[str, str], CachedResource | None] = {}
        self._learnt = 0
        self._last: dict[str, int] = {}

    def is_known(self, name: str, uri: str) -> bool:
        """Whether `find` can tell without asking the catalog."""
        return (name, uri) in self._known

    def find(self, name: str, uri: str, number: int) -> CachedResource | None:
        """The resource as the catalog holds it, or None. `number` says where in the order of URIs it comes."""
        key = (name, uri)
        with self._lock:
            learnt = self._learnt
            in_a_row = abs(number - self._last.get(name, -AHEAD - 1)) <= AHEAD
            self._last[name] = number
            if key in self._known:
                return self._known[key]
        if not in_a_row:
            return self._read(key, self._catalog.get(name, [uri]).values(), learnt)
        with self._ahead:  # whoever asks for the next ones meanwhile finds them here then
            with self._lock:
                learnt = self._learnt
                if key in self._known:
                    return self._known[key]
            return self._read(key, self._catalog.resources(name, _before(uri), AHEAD), learnt)

    def _read(self, key: tuple[str, str], rows: Iterable[Resource], learnt: int) -> CachedResource | None:
        found = {(key[0], row.uri): CachedResource(row.metadata, row.memo) for row in rows}
        with self._lock:
            if learnt == self._learnt:  # else what was read may be older than what has been learnt
                self._keep(found)
        return found.get(key)

    def learn(self, name: str, events: Iterable[Event]) -> None:
        """These events are recorded; who follows the changes asks for just these."""
        with self._lock:
            self._learnt += 1
            self._keep(
                {
                    (name, event.uri): CachedResource(event.metadata, event.memo) if isinstance(event, Upsert) else None
                    for event in events
                }
            )

    def forget(self) -> None:
        """Anything may have changed."""
        with self._lock:
            self._learnt += 1
            self._known.clear()

    def _keep(
        self, found: dict[tuple[str, str], CachedResource] | dict[tuple[str, str], CachedResource | None]
    ) -> None:
        if len(self._known) >= KEPT:
            self._known.clear()
        self._known.update(found)


def _before(uri: str) -> str:
    """A text that comes before the URI, and after every other name of ours that comes before it."""
    return uri[:-1] + chr(ord(uri[-1]) - 1) + "~"
