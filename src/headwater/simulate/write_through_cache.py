"""A write-through cache of the catalog's rows, which reads ahead, for the content of resources that are asked for.

There is no file by which an old row would be found out, so it has to know
of every change, and what has just changed is asked for next. In a row, it takes a third of the time of asking SQLite.

A destination asks for tens of thousands in a row, and a catalog in a cluster takes milliseconds for an answer. What was
known is never older than what is published: who has recorded changes says so before he publishes them.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping

from headwater.catalog.content import RecordedResource
from headwater.catalog.interface import Catalog, Event, Resource, Upsert

AHEAD = 128
"""So many are read at once, and count as in a row."""
KEPT = 8_192


class WriteThroughCache:
    """The resources of all sets. Safe for several threads."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._lock = threading.Lock()
        self._ahead = threading.Lock()
        self._known: dict[tuple[str, str], RecordedResource | None] = {}
        self._learnt = 0
        self._last: dict[str, int] = {}

    def is_known(self, name: str, uri: str) -> bool:
        """Whether `find` can tell without asking the catalog."""
        return (name, uri) in self._known

    def find(self, name: str, uri: str, number: int) -> RecordedResource | None:
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

    def _read(self, key: tuple[str, str], rows: Iterable[Resource], learnt: int) -> RecordedResource | None:
        found = {(key[0], row.uri): row for row in rows}
        with self._lock:
            if learnt == self._learnt:  # else what was read may be older than what has been learnt
                self._keep(found)
        return found.get(key)

    def learn(self, name: str, events: Iterable[Event]) -> None:
        """These events are recorded; who follows the changes asks for just these."""
        with self._lock:
            self._learnt += 1
            self._keep({(name, event.uri): event if isinstance(event, Upsert) else None for event in events})

    def forget(self) -> None:
        """Anything may have changed."""
        with self._lock:
            self._learnt += 1
            self._known.clear()

    def _keep(self, found: Mapping[tuple[str, str], RecordedResource | None]) -> None:
        if len(self._known) >= KEPT:
            self._known.clear()
        self._known.update(found)


def _before(uri: str) -> str:
    """A text that comes before the URI, and after every other name of ours that comes before it."""
    return uri[:-1] + chr(ord(uri[-1]) - 1) + "~"
