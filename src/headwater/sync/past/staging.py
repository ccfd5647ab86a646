"""The staging of what lists tell of a set's past: snapshots and changes as rows, and what was there at the moment."""

from __future__ import annotations

from array import array

from headwater.progress import Progress
from headwater.spec.kinds import Kind
from headwater.spec.records import ChangeKind, Document, Entry
from headwater.spec.times import Coarse
from headwater.storage.sqlite.transaction import Row, Transaction
from headwater.sync.lists.documents import DocumentRead
from headwater.sync.lists.entries import STAGED_COLUMNS, STAGED_VALUES, EntryFilter, ListContext
from headwater.sync.lists.position import IndexedList, Style10, Times, change_order
from headwater.sync.lists.resource_lists import ListedPart
from headwater.sync.source_times import SECOND, last_micros, micros
from headwater.sync.state.schema import LISTED

TABLES = f"""
CREATE TEMP TABLE IF NOT EXISTS seen(
  n INTEGER PRIMARY KEY, snapshot INTEGER, at INTEGER, through INTEGER, {LISTED}, refused INTEGER
);
CREATE TEMP TABLE IF NOT EXISTS told(
  n INTEGER PRIMARY KEY, list INTEGER, ordinal INTEGER, {LISTED}, refused INTEGER, change TEXT, low INTEGER,
  high INTEGER
);
CREATE INDEX IF NOT EXISTS temp.told_place ON told(list, ordinal);
CREATE TEMP TABLE IF NOT EXISTS doubts(
  uri TEXT PRIMARY KEY, state INTEGER, changed_before INTEGER, changed_after INTEGER
) WITHOUT ROWID;
CREATE TEMP TABLE IF NOT EXISTS dated(uri TEXT PRIMARY KEY, at INTEGER) WITHOUT ROWID;
"""
"""`seen`: what snapshots list. `told`: changes. `doubts`: resources of which no list tells in which state they were, or
of what hash; `state` is one of those below. Where it is not `WITHOUT_HASH` they are in `temp.listed` without metadata.
`dated`: when the state was made that a change has told of.
"""

UNKNOWN, EXISTED, WITHOUT_HASH = 0, 1, 2
"""Nobody can tell whether it was there; it was, and nobody can tell in which state; what is told of it has no hash."""

_TELL = f"INSERT INTO temp.told(list, ordinal, {STAGED_COLUMNS}, change) VALUES (?, ?, {STAGED_VALUES}, ?)"  # noqa: S608
_NONE = -(1 << 62)
_ALWAYS = 1 << 62


def clear(t: Transaction) -> None:
    """Forget what was staged of another set."""
    for index in ("seen_uri", "told_uri"):
        t.run(f"DROP INDEX IF EXISTS temp.{index}")
    for table in ("seen", "told", "doubts", "dated"):
        t.run(f"DELETE FROM temp.{table}")  # noqa: S608  our own names


def keep_snapshot(t: Transaction, number: int, parts: tuple[ListedPart, ...]) -> None:
    """Keep the list in `temp.listed` as a snapshot; rows of a document without a moment tell nothing."""
    for part in parts:
        if part.at is not None:
            t.run(
                f"INSERT INTO temp.seen(snapshot, at, through, {STAGED_COLUMNS}) SELECT ?, ?, ?, {STAGED_COLUMNS}"  # noqa: S608
                " FROM temp.listed WHERE n > ? AND n <= ?",
                (number, part.at, part.through, part.before, part.last),
            )


MOST_LAG = 3 * SECOND
"""By how much the clock of `Date`, which has whole seconds and may be a second old, is behind that of lists at most."""


class ToldChanges:
    """Stages the changes of one Change List, or holds the parts of an index of such (an `EntryConsumer`)."""

    def __init__(self, context: ListContext, intake: EntryFilter, number: int) -> None:
        self._database = context.database
        self._listener = context.listener
        self._intake = intake
        self._number = number
        self.parts: list[IndexedList] = []
        self.begin()

    def begin(self) -> None:
        """Forget what an earlier try has brought."""
        with self._database.write() as t:
            t.run("DELETE FROM temp.told WHERE list = ?", (self._number,))
        self.parts = []
        self._count = 0
        self._style: Style10 | None = None
        self._lows, self._highs, self._lastmods = array("q"), array("q"), array("q")

    def take(self, document: Document, entries: list[Entry]) -> None:
        """Take the next entries, in document order."""
        if document.kind is Kind.CHANGE_LIST_INDEX:
            self.parts += [indexed_list(entry) for entry in entries]
        elif document.kind is Kind.CHANGE_LIST:
            if self._style is None:
                self._style = Style10(micros(document.from_), micros(document.until))
            rows = [self._row(entry) for entry in entries]
            with self._database.write() as t:
                t.many(_TELL, rows)
            self._listener(Progress("reading changes", self._count))

    def _row(self, entry: Entry) -> Row:
        assert self._style is not None
        lastmod, low = micros(entry.lastmod), micros(entry.datetime)
        high = last_micros(entry.datetime) if isinstance(entry.datetime, Coarse) else low
        self._style.see(Times(low, high, lastmod))
        for numbers, number in ((self._lows, low), (self._highs, high), (self._lastmods, lastmod)):
            numbers.append(_NONE if number is None else number)
        self._count += 1
        change = (entry.change or ChangeKind.UPDATED).value
        return self._number, self._count - 1, *self._intake.row(entry), change

    def conclude(self, answer: DocumentRead) -> tuple[int, int] | None:
        """Give the staged changes their times; returns the period of which the list tells all, where it says so.

        An open list tells all up to when it was read, by the source's clock.
        """
        document = answer.document
        from_, until, clock = micros(document.from_), micros(document.until), micros(answer.read_at) or 0
        columns = zip(self._lows, self._highs, self._lastmods, strict=True)
        times = [Times(*(None if number == _NONE else number for number in numbers)) for numbers in columns]
        order = change_order(times, self._style, from_, until, clock)
        with self._database.write() as t:
            t.many(
                "UPDATE temp.told SET low = ?, high = ? WHERE list = ? AND ordinal = ?",
                (
                    (
                        -_ALWAYS if span.low is None else span.low,
                        _ALWAYS if span.high is None else span.high,
                        self._number,
                        n,
                    )
                    for n, span in enumerate(order.intervals)
                ),
            )
        if document.from_ is None:
            return None
        if until is None or until > clock + MOST_LAG:  # a list cannot tell of what is to come (DST-C7)
            until = clock
        return last_micros(document.from_), until


def indexed_list(entry: Entry) -> IndexedList:
    """What an index, or an archive, says of a Change List."""
    until = last_micros(entry.until) if entry.until is not None else None
    return IndexedList(entry.loc, micros(entry.from_), until)
