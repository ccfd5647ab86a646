"""The staging of Change Lists: entries become rows, of which the last one of each resource stays (DST-C, 5.3)."""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence

import msgspec

from headwater.errors import SourceFault
from headwater.progress import Listener, Progress
from headwater.spec.datetimes import Coarse
from headwater.spec.kinds import Kind
from headwater.spec.records import ChangeKind, Document, Entry
from headwater.storage.database import Database, Row, Transaction
from headwater.sync.lists.entries import EntryFilter
from headwater.sync.lists.position import ChangeListFingerprint, IndexedList, Position, Style10, Times, is_past, mark_of
from headwater.sync.source_times import last_micros, micros

_INSERT = (
    "INSERT INTO temp.changed(list, ordinal, uri, loc, lastmod, length, hash, type, encoding, mirrors, refused,"
    " pending, change, at, exact) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 0, ?, NULL, 0)"
)
_MOST_LISTS = 100_000
_NONE = -(1 << 62)


class FailedChange(msgspec.Struct, frozen=True):
    """What a change that could not be done had told of its resource."""

    hash: str | None
    length: int | None
    changed_at: int


class ChangeListStaging:
    """Takes one document. Of a Change List every entry has its times and its mark here.

    From the first one on that may be new they have rows: with a change that is done again later ones of the same
    resource are too.
    """

    def __init__(
        self,
        database: Database,
        intake: EntryFilter,
        listener: Listener,
        position: Position,
        number: int,
        uri: str,
        failing: Mapping[str, FailedChange] | None = None,
        *,
        whole: bool = False,
    ) -> None:
        """`failing`: changes that could not be done; where one is told otherwise by now, it is to be done so.

        `whole`: every entry gets its row, because a list before has changes that are to be done.
        """
        self._database = database
        self._intake = intake
        self._listener = listener
        self._position = position
        self._number = number
        self._uri = uri
        self._failing = failing or {}
        self._whole = whole
        self._clear()

    def _clear(self) -> None:
        self.parts: list[IndexedList] = []
        self.marks: list[str] = []
        self.rows = array("q")
        self.corrected: list[int] = []
        self.print = ChangeListFingerprint(self._position, self._uri, None)
        self.style: Style10 | None = None
        self._lows = array("q")
        self._highs = array("q")
        self._lastmods = array("q")
        self._newest = _NONE
        self._from: int | None = None
        self._any_open = self._whole

    def begin(self) -> None:
        """Forget what an earlier try has brought."""
        with self._database.write() as t:
            t.run("DELETE FROM temp.changed WHERE list >= ?", (self._number,))
        self._clear()

    def take(self, document: Document, entries: list[Entry]) -> None:
        """Take the next entries, in document order. Raises SourceFault for an index beyond all bounds."""
        if document.kind is Kind.CHANGE_LIST_INDEX:
            self._take_parts(entries)
        elif document.kind is Kind.CHANGE_LIST:
            self._take_changes(document, entries)

    def _take_parts(self, entries: list[Entry]) -> None:
        if len(self.parts) + len(entries) > _MOST_LISTS:
            raise SourceFault("an index of too many Change Lists", rule="RS-LIM-04")
        for entry in entries:
            until = last_micros(entry.until) if entry.until is not None else None
            self.parts.append(IndexedList(entry.loc, micros(entry.from_), until))

    def _take_changes(self, document: Document, entries: list[Entry]) -> None:
        if self.style is None:
            from_, until = micros(document.from_), micros(document.until)
            self.style = Style10(from_, until)
            self._from = from_
            self.print = ChangeListFingerprint(self._position, self._uri, from_)
        rows = [self._change(entry) for entry in entries]
        with self._database.write() as t:
            t.many(_INSERT, [row for row in rows if row is not None])
        self._listener(Progress("reading changes", len(self.marks)))

    def _change(self, entry: Entry) -> Row | None:
        """The staged row of one entry; None for one that is certainly done (5.2)."""
        assert self.style is not None
        ordinal = len(self.marks)
        change = (entry.change or ChangeKind.UPDATED).value  # AMB-35: GET decides
        lastmod = micros(entry.lastmod)
        low = high = micros(entry.datetime)
        if isinstance(entry.datetime, Coarse):
            high = last_micros(entry.datetime)
        self.style.see(Times(low, high, lastmod))
        for numbers, number in ((self._lows, low), (self._highs, high), (self._lastmods, lastmod)):
            numbers.append(_NONE if number is None else number)
        done = self._is_done(low, high)
        if self._failing and self._is_corrected(entry, low):
            self.corrected.append(ordinal)
            done = False
        self.print.see(entry.loc, change, low, lastmod, entry.hash)
        if done and not self._any_open:
            self.marks.append("")
            return None
        self._any_open = True
        staged = self._intake.row(entry)
        self.marks.append(mark_of(staged[0], change, entry.hash, entry.length))
        self.rows.append(ordinal)
        return self._number, ordinal, *staged, change

    def _is_done(self, low: int | None, high: int | None) -> bool:
        """A certain time before T, in order, and not among what a known list has got since (DST-C9)."""
        if low is None or low != high or low < self._newest or (self._from is not None and low < self._from):
            return False
        self._newest = low
        since = self._position.time
        return since is not None and is_past(low, since) and not self.print.beyond

    def _is_corrected(self, entry: Entry, low: int | None) -> bool:
        """Whether this is a change that could not be done, and its hash or length has been mended (AMB-87, DST-F6)."""
        expected = self._failing.get(self._intake.uri(entry.loc))
        return (
            expected is not None
            and low == expected.changed_at
            and (entry.hash, entry.length) != (expected.hash, expected.length)
        )

    def times(self) -> list[Times]:
        """The times of every entry, in document order."""
        return [
            Times(*(None if number == _NONE else number for number in numbers))
            for numbers in zip(self._lows, self._highs, self._lastmods, strict=True)
        ]


_AND_LATER = """
UPDATE temp.changed SET pending = 1 WHERE NOT pending AND EXISTS (
  SELECT 1 FROM temp.changed AS earlier WHERE earlier.uri = changed.uri AND earlier.pending
  AND (earlier.list, earlier.ordinal) < (changed.list, changed.ordinal)
  AND (earlier.at <= changed.at OR earlier.at IS NULL OR changed.at IS NULL))"""
"""With a change that is done again all later ones of its resource are, or it would have the last word."""

_OVERTAKEN = """
UPDATE temp.changed SET pending = 0 WHERE pending AND exact AND EXISTS (
  SELECT 1 FROM temp.changed AS earlier WHERE earlier.uri = changed.uri AND earlier.pending
  AND earlier.exact AND earlier.list < changed.list AND earlier.at > changed.at)"""
"""Of two lists that overlap the first may tell the later change: there the time decides, not the place."""

_FOLD = """
UPDATE temp.changed SET pending = 0 WHERE pending AND EXISTS (
  SELECT 1 FROM temp.changed AS later WHERE later.uri = changed.uri AND later.pending
  AND (later.list, later.ordinal) > (changed.list, changed.ordinal))"""


def fold(t: Transaction, listed: Sequence[int], count: int) -> None:
    """Leave pending only the last change of each resource.

    `listed`: the numbers of lists in the order of their index, of `count` in all. One that was polled, and so read
    before those ahead of it in the index, takes its place among them.
    """
    placed = list(dict.fromkeys(listed))
    order = [number for number in range(count) if number not in set(placed)] + placed
    if order != sorted(order):
        t.many("UPDATE temp.changed SET list = ? WHERE list = ?", ((-1 - n, old) for n, old in enumerate(order)))
        t.run("UPDATE temp.changed SET list = -1 - list")
    t.run("CREATE INDEX IF NOT EXISTS temp.changed_uri ON changed(uri, list, ordinal)")
    if t.one("SELECT 1 FROM temp.changed WHERE NOT pending LIMIT 1"):
        t.run(_AND_LATER)
    if count > 1:
        t.run(_OVERTAKEN)
    t.run(_FOLD)


def set_apart(t: Transaction) -> int:
    """Move what the scope refuses out of the pending changes; how much it is."""
    t.run("DELETE FROM temp.refused")
    t.run(
        "INSERT INTO temp.refused(uri, change, at, refused)"
        " SELECT uri, change, at, refused FROM temp.changed WHERE pending AND refused ORDER BY n"
    )
    t.run("DELETE FROM temp.changed WHERE refused")
    return int(t.value("SELECT count(*) FROM temp.refused"))
