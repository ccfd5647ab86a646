"""What one Change List tells, staged entry by entry while it is read, or which lists an index names (DST-C)."""

from __future__ import annotations

from array import array
from collections.abc import Mapping

import msgspec

from headwater.errors import SourceFault
from headwater.progress import Listener, Progress
from headwater.spec.datetimes import Coarse
from headwater.spec.kinds import Kind
from headwater.spec.records import Change, Document, Entry
from headwater.storage.database import Database, Row
from headwater.sync.moments import last_micros, micros
from headwater.sync.position import Fingerprint, Part, Position, Style10, Times, is_past, mark_of
from headwater.sync.reading.intake import Intake

_INSERT = (
    "INSERT INTO temp.changed(list, ordinal, uri, loc, lastmod, length, hash, type, encoding, mirrors, refused,"
    " pending, change, at, exact) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 0, ?, NULL, 0)"
)
_MOST_LISTS = 100_000
_NONE = -(1 << 62)


class Expected(msgspec.Struct, frozen=True):
    """What a change that could not be done had told of its resource."""

    hash: str | None
    length: int | None
    changed_at: int


class Staging:
    """Takes one document. Of a Change List every entry has its times and its mark here.

    From the first one on that may be new they have rows: with a change that is done again later ones of the same
    resource are too.
    """

    def __init__(
        self,
        database: Database,
        intake: Intake,
        listener: Listener,
        position: Position,
        number: int,
        uri: str,
        failing: Mapping[str, Expected] | None = None,
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
        self.parts: list[Part] = []
        self.marks: list[str] = []
        self.rows = array("q")
        self.corrected: list[int] = []
        self.print = Fingerprint(self._position, self._uri, None)
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
            self.parts.append(Part(entry.loc, micros(entry.from_), until))

    def _take_changes(self, document: Document, entries: list[Entry]) -> None:
        if self.style is None:
            from_, until = micros(document.from_), micros(document.until)
            self.style = Style10(from_, until)
            self._from = from_
            self.print = Fingerprint(self._position, self._uri, from_)
        rows = [self._change(entry) for entry in entries]
        with self._database.write() as t:
            t.many(_INSERT, [row for row in rows if row is not None])
        self._listener(Progress("reading changes", len(self.marks)))

    def _change(self, entry: Entry) -> Row | None:
        """The staged row of one entry; None for one that is certainly done (5.2)."""
        assert self.style is not None
        ordinal = len(self.marks)
        change = (entry.change or Change.UPDATED).value  # AMB-35: GET decides
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
