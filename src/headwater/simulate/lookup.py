"""What the catalog holds of a resource that is asked for, read ahead for those who ask in the order of the list.

A destination asks for tens of thousands in a row, and a catalog in a cluster takes milliseconds for an answer. What was
read ahead is never older than what is published: who records a change has it forgotten before he publishes it.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable

from headwater.catalog.interface import Catalog, Resource

AHEAD = 128
"""So many are read at once, and count as in a row."""
KEPT = 8_192


class Lookup:
    """The resources of all sets. Safe for several threads."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._lock = threading.Lock()
        self._held: dict[tuple[str, str], Resource] = {}
        self._forgotten = 0
        self._last: dict[str, int] = {}

    def find(self, name: str, uri: str, number: int) -> Resource | None:
        """The resource as the catalog holds it, or None. `number` says where in the order of URIs it comes."""
        with self._lock:
            held = self._held.get((name, uri))
            forgotten = self._forgotten
            in_a_row = abs(number - self._last.get(name, -AHEAD - 1)) <= AHEAD
            self._last[name] = number
        if held is not None:
            return held
        if not in_a_row:
            return self._catalog.get(name, [uri]).get(uri)
        rows = self._catalog.resources(name, _before(uri), AHEAD)
        with self._lock:
            if forgotten == self._forgotten:  # else what was read may be older than what is forgotten
                if len(self._held) >= KEPT:
                    self._held.clear()
                self._held |= {(name, row.uri): row for row in rows}
        return next((row for row in rows if row.uri == uri), None)

    def forget(self, name: str, uris: Iterable[str]) -> None:
        """These have changed, and the catalog knows it."""
        with self._lock:
            self._forgotten += 1
            for uri in uris:
                self._held.pop((name, uri), None)

    def clear(self) -> None:
        """Anything may have changed."""
        with self._lock:
            self._forgotten += 1
            self._held.clear()


def _before(uri: str) -> str:
    """A text that comes before the URI, and after every other name of ours that comes before it."""
    return uri[:-1] + chr(ord(uri[-1]) - 1) + "~"
