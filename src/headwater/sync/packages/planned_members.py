"""Members of a package whose manifest names them in the order of the plan: matched with it row by row, in memory.

That is the usual manifest: what it says of each resource is what the list says, whose digest verifies the member. Where
one entry is otherwise, all are put into `temp.packed`, and matched there (`manifests`).
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from itertools import count

from headwater.packages.faults import BadPath
from headwater.packages.member_paths import member_names, percent_decoded
from headwater.spec.fast_entries import EntryColumns
from headwater.storage.database import Database
from headwater.storage.sqlite.transaction import Row, Transaction
from headwater.sync.packages.cost_model import USUAL_OCTETS, Demand
from headwater.sync.transfer.result_log import ResultLog
from headwater.sync.transfer.verification import all_verifiable
from headwater.sync.transfer.work_queue import COLUMNS, ELIGIBLE, Work

MOST_PLANNED = 100_000
"""So many names are held in memory at most."""

TAKEN_AHEAD = 5_000
_AHEAD_OCTETS = 64 << 20
"""So much is noted as about to be placed at a time: each note waits for the disk, and a run after a kill hashes it."""

_LENGTH = COLUMNS.index("length")

_FIRST = f"SELECT n FROM temp.work WHERE uri = ? AND {ELIGIBLE}"  # noqa: S608  our own names
_ROWS = (
    "SELECT loc, coalesce(hash, ''), coalesce(CAST(length AS TEXT), ''), n FROM temp.work"  # noqa: S608  our own names
    f" WHERE n >= ? AND {ELIGIBLE} ORDER BY n LIMIT ?"
)
_WORK = f"SELECT {', '.join(COLUMNS)} FROM temp.work WHERE n BETWEEN ? AND ? AND {ELIGIBLE} ORDER BY n"  # noqa: S608
_TABULATE = (
    "INSERT INTO temp.packed(place, name, uri, hash, length) SELECT ?, ?, uri, hash, length FROM temp.work WHERE n = ?"
)
"""Without the times of the entry: they count only where no digest is listed."""


class PlannedMembers:
    """The names of the members of one package, each of the row of the work that it may be, in the order of both."""

    def __init__(self, database: Database, uri: Callable[[str], str]) -> None:
        """`uri`: the form in which URIs are compared."""
        self._database = database
        self._uri = uri
        self._next_n = 0
        self.names: list[str] = []
        self._distinct: set[str] = set()
        self._numbers = array("q")
        self.wanted = Demand(0, 0)

    def match(self, found: EntryColumns) -> bool:
        """Take the next entries of the manifest in; False, and none of them, where one is not the next of the plan."""
        rows = self._rows(found.locs[0], len(found.locs))
        if len(rows) < len(found.locs) or len(self.names) + len(rows) > MOST_PLANNED:
            return False
        locs, hashes, lengths, numbers = zip(*rows, strict=True)
        if (found.locs, found.hashes, found.lengths) != (locs, hashes, lengths) or not all_verifiable(hashes):
            return False
        try:
            names = member_names(found.paths)
        except BadPath:
            return False
        distinct = set(names)
        if len(distinct) < len(names) or not self._distinct.isdisjoint(distinct):
            return False  # one member for two resources
        self._distinct |= distinct
        self.names += names
        self._numbers.extend(numbers)
        self._next_n = numbers[-1] + 1
        octets = sum(int(length) if length else USUAL_OCTETS for length in lengths)
        self.wanted = Demand(self.wanted.resources + len(rows), self.wanted.octets + octets)
        return True

    def _rows(self, first_loc: str, count: int) -> list[Row]:
        """The next rows of the work; the first manifest entry says where they begin."""
        with self._database.write() as t:
            if not self.names:
                first = t.one(_FIRST, (self._uri(first_loc),))
                if first is None:
                    return []
                self._next_n = first[0]
            return t.fetch(_ROWS, (self._next_n, count))

    def take(self, results: ResultLog, place: int) -> list[Work | None]:
        """The work of the next members from `place` on, noted as about to be placed; None for what is settled."""
        numbers = self._numbers[place : place + TAKEN_AHEAD]

        def select(t: Transaction) -> list[Row]:
            rows = t.fetch(_WORK, (numbers[0], numbers[-1]))
            octets, most = 0, 0
            for most, row in enumerate(rows, 1):  # noqa: B007  counts
                octets += row[_LENGTH] or 0
                if octets > _AHEAD_OCTETS:
                    break
            return rows[:most]

        found = {work.n: work for work in results.take(select)}
        if not found:
            return [None] * len(numbers)
        last = max(found)
        return [found.get(number) for number in numbers if number <= last]

    def tabulate(self, t: Transaction) -> None:
        """Put what was matched into `temp.packed`; below 0 what paths mean percent-decoded (`manifests`)."""
        t.many(_TABULATE, zip(count(1), self.names, self._numbers, strict=False))
        decoded = ((-place, percent_decoded(name), n) for place, name, n in zip(count(1), self.names, self._numbers))
        t.many(_TABULATE, (row for row in decoded if row[1] is not None))
