"""A read-ahead buffer of the catalog's rows: destinations ask for resources in the order of the list.

A look-up brings the rows that come next, as long as enough of them are asked for, and each is handed out once. It knows
of no change: a row may be old, and is held against the file that it is about. Belongs to one thread.
"""

from __future__ import annotations

from collections.abc import Container, Sequence

from headwater.catalog.interface import Resource

AHEAD = 128
"""How many resources a look-up brings along …"""
KEPT_AHEAD = 4_096
"""… and how many of these wait to be asked for."""
_TRIAL = 512
"""How many of them are brought before it is judged whether they are asked for."""
_PAYS = 8
"""One in so many must be: reading a row ahead costs about a tenth of a look-up."""


class ReadAheadBuffer:
    """Rows that were read ahead, each until it is asked for, and the experience whether that pays."""

    def __init__(self) -> None:
        self._rows: dict[tuple[str, str], Resource] = {}
        self._brought = 0
        self._used = 0
        self._misses = 0

    def keep(self, set_name: str, rows: Sequence[Resource], known: Container[tuple[str, str]]) -> None:
        """Keep rows until they are asked for, except those of which more is `known`."""
        if len(self._rows) >= KEPT_AHEAD:
            self._rows.clear()
        self._rows |= {(set_name, row.uri): row for row in rows if (set_name, row.uri) not in known}
        self._brought += len(rows)

    def take(self, set_name: str, relative: str) -> Resource | None:
        """The row of a resource, which is asked for now."""
        row = self._rows.pop((set_name, relative), None)
        self._used += row is not None
        return row

    def pays(self, misses: int) -> bool:
        """Whether to read ahead after so many look-ups, by experience."""
        before = self._misses
        self._misses += misses
        if self._brought > 4 * _TRIAL:  # old experience fades
            self._brought, self._used = self._brought // 2, self._used // 2
        by_chance = before // 64 != self._misses // 64
        return self._brought < _TRIAL or self._used * _PAYS >= self._brought or by_chance
