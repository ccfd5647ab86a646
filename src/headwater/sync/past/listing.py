"""The list of a moment: fills `temp.listed` with what a set had then, as far as the evidence tells.

What did not change while the lists tell of it is taken over as a whole; the others are judged one by one (`state_at`).
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from operator import itemgetter
from typing import NamedTuple

from headwater.spec.records import Link
from headwater.storage.sqlite.transaction import Row, Transaction
from headwater.sync.lists.entries import STAGE_LISTED, STAGED_COLUMNS, StagedEntry, encode_links, links_of
from headwater.sync.past.evidence import Evidence
from headwater.sync.past.staging import EXISTED, UNKNOWN, WITHOUT_HASH
from headwater.sync.past.state_at import (
    Absent,
    Changed,
    Listed,
    Sighting,
    ToldChange,
    Unknown,
    span_of,
    state_at,
)
from headwater.typed_decoding import from_json

_UNCHANGED = f"""
INSERT INTO temp.listed({STAGED_COLUMNS}) SELECT {STAGED_COLUMNS} FROM temp.seen s
WHERE s.snapshot = ? AND s.at = ? AND s.through = ? AND NOT EXISTS (SELECT 1 FROM temp.told d WHERE d.uri = s.uri)
  AND NOT EXISTS (SELECT 1 FROM temp.listed l WHERE l.uri = s.uri) ORDER BY s.n"""  # noqa: S608  our own names
_DOUBTFUL = (
    "SELECT DISTINCT s.uri, s.refused FROM temp.seen s"
    " WHERE NOT EXISTS (SELECT 1 FROM temp.listed l WHERE l.uri = s.uri)"
    " AND NOT EXISTS (SELECT 1 FROM temp.told d WHERE d.uri = s.uri)"
)
_TOLD = "SELECT d.uri, d.n, d.low, d.high, d.change FROM temp.told d ORDER BY d.uri, d.low, d.list, d.ordinal"
_OF_RESOURCE = "SELECT snapshot, at, through, n FROM temp.seen WHERE uri = ?"
_LINKS = (
    "SELECT links FROM (SELECT links, 1 AS o, n FROM temp.told WHERE uri = ?1 AND links IS NOT NULL"
    " UNION ALL SELECT links, 0, n FROM temp.seen WHERE uri = ?1 AND links IS NOT NULL ORDER BY 2, 3 DESC)"
)
_DOUBT = "INSERT OR REPLACE INTO temp.doubts(uri, state, changed_before, changed_after) VALUES (?, ?, ?, ?)"
_OF_ALL_STATES = ("timegate", "timemap")
"""Links that are the same whatever state of a resource an entry is about (RS-REL-09, RS-REL-10)."""


class ListingResult(NamedTuple):
    """How many resources were there, and of how many nobody can tell in which state, or whether."""

    known: int
    doubtful: int
    linked: bool
    """Whether some of the doubtful have a TimeGate or a TimeMap."""

    had_before: bool
    """Whether anything tells of resources at the moment or before."""


def fill_listed(t: Transaction, evidence: Evidence) -> ListingResult:
    """Fill `temp.listed` and `temp.doubts` from what was staged."""
    t.run("DROP INDEX IF EXISTS temp.listed_uri")
    t.run("DELETE FROM temp.listed")
    t.run("CREATE INDEX temp.listed_uri ON listed(uri)")
    proof = evidence.proof
    for snapshot, at, through in _parts(t, evidence):
        if proof is None or proof.number == snapshot:
            t.run(_UNCHANGED, (snapshot, at, through))
    doubtful: list[Row] = []
    if proof is None:
        doubtful += [(uri, UNKNOWN, None, None, refused) for uri, refused in t.rows(_DOUBTFUL)]
    known = list(_judged(t, evidence, doubtful))
    t.many(STAGE_LISTED, known)
    linked = False
    rows: list[StagedEntry] = []
    for uri, *_, refused in doubtful:
        links = _all_links(t, uri, None)
        linked = linked or links is not None
        rows.append(StagedEntry(uri, None, None, None, None, None, None, links, None, refused))
    t.many(STAGE_LISTED, rows)
    t.many(_DOUBT, (row[:4] for row in doubtful))
    count = int(t.value("SELECT count(*) FROM temp.listed"))
    earlier = t.one("SELECT 1 FROM temp.told WHERE low <= ? LIMIT 1", (evidence.moment,)) is not None
    seen = any(one.at <= evidence.moment for one in evidence.snapshots)
    return ListingResult(count - len(doubtful), len(doubtful), linked, earlier or seen)


def _parts(t: Transaction, evidence: Evidence) -> list[tuple[int, int, int]]:
    """The documents of snapshots from which, or to which, every change is told: what was before the moment first."""
    rows = t.rows("SELECT DISTINCT snapshot, at, through FROM temp.seen ORDER BY at > ?, at", (evidence.moment,))
    return [
        (snapshot, at, through)
        for snapshot, at, through in rows
        if evidence.coverage.tells(*span_of(evidence.moment, at, through))
    ]


def _judged(t: Transaction, evidence: Evidence, doubtful: list[Row]) -> Iterator[StagedEntry]:
    """What was there of the resources of which changes are told; those that nobody can tell go to `doubtful`."""
    moment, coverage = evidence.moment, evidence.coverage
    told = map(ToldRow._make, t.rows(_TOLD))
    for uri, rows in groupby(told, key=itemgetter(0)):
        changes = [ToldChange(row.low, row.high, row.change, row.n) for row in rows]
        before = max((change.low for change in changes if change.high <= moment), default=None)
        state = state_at(moment, changes, _sightings(t, evidence, uri), coverage)
        if isinstance(state, Absent):
            continue
        if isinstance(state, Listed | Changed):
            table = "seen" if isinstance(state, Listed) else "told"
            row = t.one(f"SELECT {STAGED_COLUMNS} FROM temp.{table} WHERE n = ?", (state.row,))  # noqa: S608
            assert row is not None
            entry = StagedEntry(*row)
            if isinstance(state, Changed):
                t.run("INSERT OR REPLACE INTO temp.dated(uri, at) VALUES (?, ?)", (uri, before))
            if entry.hash is None:
                t.run(_DOUBT, (uri, WITHOUT_HASH, before, state.changed_after))
            yield entry._replace(links=_all_links(t, uri, entry.links))
            continue
        refused = t.value("SELECT max(refused) FROM temp.told WHERE uri = ?", (uri,))
        doubtful.append((uri, UNKNOWN if isinstance(state, Unknown) else EXISTED, before, state.changed_after, refused))


class ToldRow(NamedTuple):
    """A row of `temp.told`, as far as it takes part in the judgement."""

    uri: str
    n: int
    low: int
    high: int
    change: str


def _sightings(t: Transaction, evidence: Evidence, uri: str) -> list[Sighting]:
    found = {snapshot: Sighting(at, through, n) for snapshot, at, through, n in t.rows(_OF_RESOURCE, (uri,))}
    for one in evidence.snapshots:
        if one.is_whole and one.number not in found:
            found[one.number] = Sighting(one.at, one.through)
    return list(found.values())


def _all_links(t: Transaction, uri: str, own: str | None) -> str | None:
    """The links of the state itself, and those to all states that any entry of the resource has."""
    missing = [rel for rel in _OF_ALL_STATES if not links_of(own, rel)]
    if missing:
        for (kept,) in t.rows(_LINKS, (uri,)):
            more = [link for rel in missing for link in links_of(kept, rel)]
            if more:
                return encode_links([*from_json(own or "[]", list[Link]), *more])
    return own
