"""The state of each resource at a moment, by what lists of other moments tell of it, and so the list of that moment.

An answer is right or it is "not known". Evidence are snapshots (Resource Lists, each of which was true at some moment
from its `at` to its `completed`), changes, and the periods of which all changes are told. All times are those of the
source, in microseconds. `state_at` is a pure rule over values; `fill_listed` has each resource judged by it.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from operator import attrgetter
from typing import NamedTuple

import msgspec

from headwater.spec.records import Link, parse_hash
from headwater.storage.transaction import Row, Transaction
from headwater.sync.lists.archives import ToldPeriods
from headwater.sync.lists.entries import STAGE_LISTED, STAGED_COLUMNS, StagedEntry, encode_links, links_of
from headwater.sync.past.evidence import PRESENT, Evidence, span_of
from headwater.sync.transfer.past_ways import second_before
from headwater.typed_decoding import from_json


class ToldChange(msgspec.Struct, frozen=True, gc=False):
    """One change of the resource: some time from `low` to `high` (the same where it is known), and its row."""

    low: int
    high: int
    kind: str
    """`created`, `updated` or `deleted`."""

    row: int = 0


class Sighting(msgspec.Struct, frozen=True, gc=False):
    """What a snapshot, which was true at some moment from `at` to `through`, has of the resource: a row, or nothing."""

    at: int
    through: int
    row: int | None = None


class Listed(msgspec.Struct, frozen=True, gc=False, tag=True):
    """It was there, as the row of a snapshot says."""

    row: int
    changed_after: int | None = None
    """When it was changed next, where that is known."""


class Changed(msgspec.Struct, frozen=True, gc=False, tag=True):
    """It was there, as the row of a change says, which was the last one until then."""

    row: int
    changed_after: int | None = None


class Absent(msgspec.Struct, frozen=True, gc=False, tag=True):
    """It was not there."""


class Existed(msgspec.Struct, frozen=True, gc=False, tag=True):
    """It was there, and nothing tells in which state."""

    changed_after: int | None = None


class Unknown(msgspec.Struct, frozen=True, gc=False, tag=True):
    """Nobody can tell whether it was there."""

    changed_after: int | None = None


StateAt = Listed | Changed | Absent | Existed | Unknown


def state_at(moment: int, changes: Sequence[ToldChange], sightings: Sequence[Sighting], told: ToldPeriods) -> StateAt:
    """The state at `moment`, by the `changes` of one resource in the order in which they were, and by `sightings`.

    1. The last change until then counts, where none after it can be missing.
    2. A snapshot counts, where the resource did not change between the snapshot and the moment.
    3. Where the first change after it is told, and none before that can be missing, it says whether there was anything.
    """
    later = [change for change in changes if change.low > moment]
    earlier = [change for change in changes if change.high <= moment]
    following = later[0].low if later else None
    if len(later) + len(earlier) < len(changes):
        return Unknown(following)  # a change without a certain time, which may have been before or after
    last = earlier[-1] if earlier else None
    if last is not None and told.tells(last.high, moment):
        return Absent() if last.kind == "deleted" else Changed(last.row, following)
    for seen in sightings:
        if _still_was(moment, seen, changes, told):
            return Absent() if seen.row is None else Listed(seen.row, following)
    if later and told.tells(moment, later[0].high):
        return Absent() if later[0].kind == "created" else Existed(following)
    return Unknown(following)


def _still_was(moment: int, seen: Sighting, changes: Sequence[ToldChange], coverage: ToldPeriods) -> bool:
    after, until = span_of(moment, seen.at, seen.through)
    if not coverage.tells(after, until):
        return False
    return not any(change.high > after and change.low <= until for change in changes)


# the list of a moment: `temp.listed` has what a set had then, `temp.past` what is known of each state

UNKNOWN, EXISTED, LISTED, CHANGED = 0, 1, 2, 3
"""Nobody can tell whether it was there; it was, and nobody can tell in which state; as a snapshot lists it; as the last
change before has made it. Of the first two `temp.listed` has no metadata."""

_TABLE = """
CREATE TEMP TABLE IF NOT EXISTS past(
  uri TEXT PRIMARY KEY, state INTEGER, changed_before INTEGER, changed_after INTEGER, is_present INTEGER,
  has_rested INTEGER
) WITHOUT ROWID;
DELETE FROM temp.past;
"""
_ALL = (
    f"SELECT n, document, change, low, high, {STAGED_COLUMNS} FROM temp.stated"  # noqa: S608  our own names
    " ORDER BY uri, low, document, n"
)
_KEEP = "INSERT INTO temp.past VALUES (?, ?, ?, ?, ?, ?)"
_OF_ALL_STATES = ("timegate", "timemap")
"""Links that are the same whatever state of a resource an entry is about (RS-REL-09, RS-REL-10)."""


class JudgedState(NamedTuple):
    """A row of `temp.past`: what is known of the state that a resource had; the fields are the columns."""

    uri: str
    state: int
    changed_before: int | None
    changed_after: int | None
    is_present: bool
    """Whether `loc` has it still, as far as lists tell; the octets decide."""

    has_rested: bool
    """Whether no change of it is told from the beginning of the second of the moment up to the moment."""


class ListingResult(NamedTuple):
    """How many resources were there, and of how many nobody can tell in which state, or whether."""

    known: int
    doubtful: int
    linked: bool
    """Whether some of the doubtful have a TimeGate or a TimeMap."""

    had_before: bool
    """Whether anything tells of resources at the moment or before."""


def fill_listed(t: Transaction, evidence: Evidence) -> ListingResult:
    """Fill `temp.listed` and `temp.past` from what lists state."""
    t.run("DROP INDEX IF EXISTS temp.listed_uri")
    t.run("DELETE FROM temp.listed")
    t.run(_TABLE)
    known = doubtful = 0
    is_linked = False
    judge = _Judge(evidence)
    for _, rows in groupby(map(_Stated.of, t.rows(_ALL)), key=attrgetter("uri")):
        found = judge.judged(list(rows))
        if found is None:
            continue
        entry, past = found
        t.run(STAGE_LISTED, entry)
        t.run(_KEEP, past)
        is_doubtful = past.state in (UNKNOWN, EXISTED)
        known += not is_doubtful
        doubtful += is_doubtful
        is_linked = is_linked or (is_doubtful and entry.links is not None)
    t.run("CREATE INDEX temp.listed_uri ON listed(uri)")
    had_before = t.one("SELECT 1 FROM temp.stated WHERE low <= ? LIMIT 1", (evidence.moment,)) is not None
    seen = any(one.at <= evidence.moment for one in evidence.snapshots)
    return ListingResult(known, doubtful, is_linked, had_before or seen)


class _Stated(msgspec.Struct, frozen=True, gc=False):
    """A row of `stated`."""

    n: int
    document: int
    change: str | None
    low: int
    high: int
    entry: StagedEntry

    @classmethod
    def of(cls, row: Row) -> _Stated:
        n, document, change, low, high, *entry = row
        return cls(n, document, change, low, high, StagedEntry(*entry))

    @property
    def uri(self) -> str:
        return self.entry.uri


class _Judge:
    """Judges the resources of a set, one after another."""

    def __init__(self, evidence: Evidence) -> None:
        self._moment = evidence.moment
        self._coverage = evidence.coverage
        proof = evidence.proof
        self._first = None if proof is None else proof.number
        self._is_listed_now = self._first == PRESENT
        self._whole = [Sighting(one.at, one.through) for one in evidence.snapshots if one.is_whole]
        self._numbers = [one.number for one in evidence.snapshots if one.is_whole]

    def judged(self, rows: list[_Stated]) -> tuple[StagedEntry, JudgedState] | None:
        """The entry of a resource as it was, and what is known of it, by all that is stated; None: it was not there."""
        changes = [row for row in rows if row.change is not None]
        told = [ToldChange(row.low, row.high, row.change or "", row.n) for row in changes]
        state = state_at(self._moment, told, self._sightings(rows), self._coverage)
        if isinstance(state, Absent):
            return None
        if isinstance(state, Listed | Changed):
            own = next(row.entry for row in rows if row.n == state.row)
        else:
            refused = max(row.entry.refused for row in changes or rows)
            own = StagedEntry(rows[0].uri, None, None, None, None, None, None, None, None, refused)
        entry = own._replace(links=_all_links(own.links, rows))
        before = max((change.low for change in told if change.high <= self._moment), default=None)
        since = second_before(self._moment)
        has_rested = not any(change.low <= self._moment and change.high > since for change in told)
        number = _NUMBERS[type(state)]
        is_present = self._is_present(state, entry, rows)
        return entry, JudgedState(entry.uri, number, before, state.changed_after, is_present, has_rested)

    def _sightings(self, rows: list[_Stated]) -> list[Sighting]:
        """What snapshots say, that which proves most first; then those of before the moment, the earliest first."""
        seen = {row.document: Sighting(row.low, row.high, row.n) for row in rows if row.change is None}
        for number, nothing in zip(self._numbers, self._whole, strict=True):
            seen.setdefault(number, nothing)
        order = sorted(seen.items(), key=lambda one: (one[0] != self._first, one[1].at > self._moment, one[1].at))
        return [sighting for _, sighting in order]

    def _is_present(self, state: StateAt, entry: StagedEntry, rows: list[_Stated]) -> bool:
        """Whether the present list has the state, and no change is told that is later than that.

        What was changed since, and has no hash to tell that by, is asked for as it was.
        """
        now = next((row for row in rows if row.change is None and row.document == PRESENT), None)
        if now is None or not isinstance(state, Listed | Changed):
            return False
        if any(row.change is not None and row.low > max(self._moment, now.high) for row in rows):
            return False
        if entry.hash is not None:
            return _same_hash(entry.hash, now.entry.hash)
        if state.changed_after is not None:
            return False
        told = entry.length is not None and entry.lastmod is not None
        same = (entry.length, entry.lastmod) == (now.entry.length, now.entry.lastmod)
        return (told and same) or self._is_listed_now


_NUMBERS = {Unknown: UNKNOWN, Existed: EXISTED, Listed: LISTED, Changed: CHANGED}


def _same_hash(one: str, other: str | None) -> bool:
    """Whether two `hash` attributes have a digest in common and none that differs."""
    if one == other:
        return True
    if other is None:
        return False
    theirs = {digest.algorithm: digest.hex for digest in parse_hash(other).digests}
    shared = [digest for digest in parse_hash(one).digests if digest.algorithm in theirs]
    return bool(shared) and all(theirs[digest.algorithm] == digest.hex for digest in shared)


def _all_links(own: str | None, rows: list[_Stated]) -> str | None:
    """The links of the state itself, and those to all states that any entry of the resource has."""
    missing = [rel for rel in _OF_ALL_STATES if not links_of(own, rel)]
    for row in sorted(rows, key=lambda row: (row.change is not None, -row.n)) if missing else ():
        more = [link for rel in missing for link in links_of(row.entry.links, rel)]
        if more:
            return encode_links([*from_json(own or "[]", list[Link]), *more])
    return own
