"""When the Capability List of each set is asked for again, where a Change List is polled in its place (DST-C5).

A list that is polled may stay where it was, and say nothing new for ever, after the source has begun another one.
"""

from __future__ import annotations

from headwater.storage.database import Database
from headwater.sync.source_times import DAY, SECOND
from headwater.sync.state.facts import keep_fact

_PREFIX = "offer asked for at"
_SINCE = f"{_PREFIX} all"
"""The fact from which the first times of all sets follow."""

_MINUTES = 1_440
_STRIDE = 719
"""Minutes between the times of day of one set and the next: they are spread over the day."""


class OfferTimes:
    """The times of one copy, in microseconds of its own clock; read once."""

    def __init__(self, database: Database, now: int) -> None:
        self._database = database
        self._now = now
        with database.read() as t:
            rows = t.fetch("SELECT name, value FROM facts WHERE name GLOB ?", (f"{_PREFIX} *",))
        self._asked = {name: int(value) for name, value in rows}
        if _SINCE not in self._asked:
            self._note(_SINCE)

    def is_due(self, set_id: int) -> bool:
        """Whether a day has passed since the set was asked for, which is noted. The first day is a part of one."""
        name = f"{_PREFIX} {set_id}"
        first = self._asked[_SINCE] - set_id * _STRIDE % _MINUTES * 60 * SECOND
        if self._now - DAY < self._asked.get(name, first) <= self._now:
            return False
        self._note(name)
        return True

    def _note(self, name: str) -> None:
        self._asked[name] = self._now
        with self._database.write() as t:
            keep_fact(t, name, str(self._now))
