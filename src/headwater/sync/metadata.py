"""What lists and changes state of records and what these describe, remembered for whoever chooses (RS-REL-05, -06).

Three tables, for sets with such a choice alone: `descriptions` has each link once for each side that states it,
`listing` what is listed, whether it is chosen or not, because a record that comes later may choose it, and `released`
what is held, was chosen once, and is not any more: it is deleted when the source deletes it, and left alone till then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from headwater.spec.kinds import PATCH
from headwater.spec.uris import normalise
from headwater.storage.database import Database
from headwater.storage.transaction import Row, Transaction
from headwater.sync.lists.entries import links_of, without_links
from headwater.sync.options import Choice
from headwater.sync.state import LISTED_COLUMNS as _LISTED
from headwater.sync.transfer.result_log import SETTLED_ROUND
from headwater.sync.transfer.work_queue import WAITING_ROUND

Takes = Callable[[str, bytes], bool]
"""Whether a resource with this URI and path is chosen, by what is remembered at the moment of the question."""

_STATER = "CASE {0}.by_record WHEN 1 THEN {0}.record ELSE {0}.content END"
_MENTIONS = """links LIKE '%"describ%'"""
_DESCRIBE = "INSERT OR IGNORE INTO temp.described(content, record, by_record) VALUES (?, ?, ?)"
_RELEASE = "INSERT OR IGNORE INTO released(set_id, uri) VALUES (?, ?)"

_KNOWN_BY_COPY = (
    "INSERT OR IGNORE INTO listing(set_id, uri, refused, is_change)"
    " SELECT set_id, uri, 0, 0 FROM resources WHERE set_id = ? AND path IS NOT NULL",
    f"SELECT uri, links FROM resources WHERE set_id = ? AND path IS NOT NULL AND {_MENTIONS}",  # noqa: S608
    "INSERT OR IGNORE INTO descriptions(set_id, content, record, by_record)"
    " SELECT ?, content, record, by_record FROM temp.described",
)
"""The first time, what is held says how it was described; of what has gone since nothing else does."""

_LOST_BY_LIST = """
SELECT r.uri, r.path FROM resources r WHERE r.set_id = ?1 AND r.path IS NOT NULL AND (
  NOT EXISTS (SELECT 1 FROM temp.listed l WHERE l.uri = r.uri)
  OR r.uri IN (SELECT d.content FROM descriptions d WHERE d.set_id = ?1 AND NOT EXISTS (SELECT 1 FROM temp.described n
    WHERE n.content = d.content AND n.record = d.record AND n.by_record = d.by_record))
  OR r.uri IN (SELECT d.record FROM descriptions d WHERE d.set_id = ?1 AND (
    NOT EXISTS (SELECT 1 FROM temp.listed l WHERE l.uri = d.content)
    OR NOT EXISTS (SELECT 1 FROM temp.described n
      WHERE n.content = d.content AND n.record = d.record AND n.by_record = d.by_record))))"""
"""What is held, and may be chosen no more after this list."""

_LATER = "(l.is_change AND l.at > :at)"
_FORGET_LINKS = f"""
DELETE FROM descriptions AS d WHERE d.set_id = :set AND NOT EXISTS (SELECT 1 FROM listing l
  WHERE l.set_id = :set AND l.uri = {_STATER.format("d")} AND {_LATER})
AND (:whole OR EXISTS (SELECT 1 FROM temp.listed t WHERE t.uri = {_STATER.format("d")}))"""  # noqa: S608
_FORGET_LISTED = f"""
DELETE FROM listing AS l WHERE l.set_id = :set AND coalesce(NOT {_LATER}, 1)
AND (:whole OR EXISTS (SELECT 1 FROM temp.listed t WHERE t.uri = l.uri))"""  # noqa: S608
_KEEP_LISTED = f"""
INSERT OR IGNORE INTO listing(set_id, {_LISTED}, refused, at, exact, is_change)
SELECT :set, {_LISTED}, refused, :at, 0, 0 FROM temp.listed WHERE NOT EXISTS (SELECT 1 FROM resources r
  WHERE r.set_id = :set AND r.uri = listed.uri AND r.path IS NULL AND r.changed_at > :at)"""  # noqa: S608
_KEEP_LINKS = f"""
INSERT OR IGNORE INTO descriptions(set_id, content, record, by_record)
SELECT :set, n.content, n.record, n.by_record FROM temp.described n JOIN listing l
  ON l.set_id = :set AND l.uri = {_STATER.format("n")} AND NOT l.is_change AND NOT l.refused"""  # noqa: S608
"""DST-B2: what a later change has said of a resource is not this list's to judge."""

_NEWS = (
    "INSERT OR IGNORE INTO temp.restated(uri) SELECT c.uri FROM temp.changed c LEFT JOIN listing l"
    " ON l.set_id = ? AND l.uri = c.uri WHERE c.pending AND NOT coalesce(l.is_change AND c.exact AND l.at > c.at, 0)"
)
_LOST_BY_CHANGES = """
SELECT r.uri, r.path FROM resources r WHERE r.set_id = ?1 AND r.path IS NOT NULL AND r.uri IN (
  SELECT uri FROM temp.restated
  UNION SELECT d.record FROM descriptions d JOIN temp.restated c ON c.uri = d.content WHERE d.set_id = ?1
  UNION SELECT d.content FROM descriptions d JOIN temp.restated c ON c.uri = d.record WHERE d.set_id = ?1)"""

_RESTATE = (
    "DELETE FROM descriptions WHERE set_id = ?1 AND NOT by_record AND content IN (SELECT uri FROM temp.restated)",
    "DELETE FROM descriptions WHERE set_id = ?1 AND by_record AND record IN (SELECT uri FROM temp.restated)",
    "DELETE FROM listing WHERE set_id = ?1 AND uri IN (SELECT uri FROM temp.restated)",
    f"INSERT OR REPLACE INTO listing(set_id, {_LISTED}, refused, at, latest, exact, is_change)"  # noqa: S608
    f" SELECT ?1, {_LISTED}, 0, at, latest, exact, 1 FROM temp.changed"
    " WHERE pending AND change <> 'deleted' AND uri IN (SELECT uri FROM temp.restated)",
    "INSERT OR REPLACE INTO listing(set_id, uri, refused, at, is_change)"
    " SELECT ?1, uri, refused, at, 1 FROM temp.refused WHERE change <> 'deleted'",
    "INSERT OR IGNORE INTO descriptions(set_id, content, record, by_record)"  # noqa: S608
    " SELECT ?1, n.content, n.record, n.by_record FROM temp.described n"
    f" WHERE {_STATER.format('n')} IN (SELECT uri FROM temp.restated)",
)

_NEWLY_CHOSEN = f"""
SELECT {", ".join(f"l.{name.strip()}" for name in _LISTED.split(","))}, l.refused, l.at, l.latest, l.exact, r.path
FROM listing l LEFT JOIN resources r ON r.set_id = l.set_id AND r.uri = l.uri AND r.path IS NOT NULL
WHERE l.set_id = ?1 AND l.uri IN (
  SELECT record FROM descriptions WHERE set_id = ?1 AND content IN (SELECT uri FROM temp.restated)
  UNION SELECT content FROM descriptions WHERE set_id = ?1 AND record IN (SELECT uri FROM temp.restated)
  UNION SELECT e.record FROM descriptions d JOIN descriptions e ON e.set_id = d.set_id AND e.content = d.content
    WHERE d.set_id = ?1 AND d.record IN (SELECT uri FROM temp.restated))
AND l.uri NOT IN (SELECT uri FROM temp.restated)
AND NOT EXISTS (SELECT 1 FROM failures f WHERE f.set_id = ?1 AND f.uri = l.uri)
AND NOT coalesce(r.listed_hash IS l.hash AND r.listed_length IS l.length AND r.lastmod IS l.lastmod
  AND r.path IS NOT NULL, 0)"""  # noqa: S608
"""What no change names, and a changed link may choose: not held, or held as it was when it was left out."""

_ADD_CHANGE = (
    f"INSERT INTO temp.changed({_LISTED}, change, at, latest, exact, refused, pending)"  # noqa: S608
    " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, 'updated', ?, ?, ?, 0, 1)"
)
_ADD_REFUSED = "INSERT INTO temp.refused(uri, change, at, refused) VALUES (?, 'updated', ?, ?)"

_TABLES = ("descriptions", "listing", "released")


def forget_statements(t: Transaction, set_id: int) -> None:
    """Forget all of this for a set whose choice does not ask for it."""
    if t.one("SELECT 1 FROM listing WHERE set_id = ? LIMIT 1", (set_id,)) is not None:
        for table in _TABLES:
            t.run(f"DELETE FROM {table} WHERE set_id = ?", (set_id,))  # noqa: S608  our own names


def restate_by_list(
    t: Transaction, set_id: int, takes: Takes, at: int | None, *, complete: bool, anew: bool = False
) -> None:
    """Remember what the list in `temp.listed`, which is as of `at`, states.

    `complete`: what it does not have is not listed any more. `anew`: another choice holds than before.
    """
    if anew:
        t.run("DELETE FROM released WHERE set_id = ?", (set_id,))
    if t.one("SELECT 1 FROM listing WHERE set_id = ? LIMIT 1", (set_id,)) is None:
        known, links, described = _KNOWN_BY_COPY
        t.run(known, (set_id,))
        _stage(t, t.rows(links, (set_id,)))
        t.run(described, (set_id,))
    t.run("CREATE INDEX IF NOT EXISTS temp.listed_uri ON listed(uri)")
    _stage(t, t.rows(f"SELECT uri, links FROM temp.listed WHERE NOT refused AND {_MENTIONS}"))  # noqa: S608
    _release(t, set_id, takes, _LOST_BY_LIST)
    values = {"set": set_id, "at": at, "whole": int(complete)}
    for statement in (_FORGET_LINKS, _FORGET_LISTED, _KEEP_LISTED, _KEEP_LINKS):
        t.run(statement, values)


def restate_by_changes(t: Transaction, set_id: int, takes: Takes, path: Callable[[str], bytes]) -> None:
    """Remember what the pending changes state, and add to them what no change names and is chosen by them now."""
    t.run("DELETE FROM temp.restated")
    t.run(_NEWS, (set_id,))
    t.run("INSERT OR IGNORE INTO temp.restated(uri) SELECT uri FROM temp.refused")
    query = f"SELECT uri, links FROM temp.changed WHERE pending AND change <> 'deleted' AND {_MENTIONS}"  # noqa: S608
    _stage(t, t.rows(query))
    _release(t, set_id, takes, _LOST_BY_CHANGES)
    for statement in _RESTATE:
        t.run(statement, (set_id,))
    for *listed, refused, at, latest, exact, held in t.fetch(_NEWLY_CHOSEN, (set_id,)):
        uri = listed[0]
        if not takes(uri, path(uri) if held is None else held):
            continue
        if refused:
            t.run(_ADD_REFUSED, (uri, at, refused))
            continue
        links = listed[7]
        listed[7] = without_links(links, PATCH) if links and PATCH in links else links  # DST-S1: changes were missed
        t.run(_ADD_CHANGE, (*listed, at, latest, exact or 0))


def _release(t: Transaction, set_id: int, takes: Takes, lost: str) -> None:
    """Remember what is chosen as long as nothing of this is stated, and may not be any more."""
    t.run(
        "DELETE FROM released WHERE set_id = ?1 AND NOT EXISTS"
        " (SELECT 1 FROM resources r WHERE r.set_id = ?1 AND r.uri = released.uri AND r.path IS NOT NULL)",
        (set_id,),
    )
    t.many(_RELEASE, ((set_id, uri) for uri, path in t.rows(lost, (set_id,)) if takes(uri, path)))


def _stage(t: Transaction, rows: Iterator[Row]) -> None:
    """Fill `temp.described` from the links of resources."""
    t.run("DELETE FROM temp.described")
    for uri, links in rows:
        told = [(uri, normalise(link.href), 0) for link in links_of(links, "describedby")]
        told += [(normalise(link.href), uri, 1) for link in links_of(links, "describes")]
        t.many(_DESCRIBE, [one for one in told if one[0] != one[1]])


_IS_DESCRIBED = "SELECT 1 FROM descriptions WHERE set_id = ? AND content = ? LIMIT 1"
_CONTENTS = """
SELECT d.content, r.path FROM descriptions d
JOIN listing l ON l.set_id = d.set_id AND l.uri = d.content AND NOT l.refused
LEFT JOIN resources r ON r.set_id = d.set_id AND r.uri = d.content
WHERE d.set_id = ? AND d.record = ?"""
"""What a record describes, as far as it is listed itself: a link to something else chooses nothing."""

_RELEASED = "SELECT 1 FROM released WHERE set_id = ? AND uri = ?"


def is_chosen(
    choice: Choice, *, own: bool, is_described: Callable[[], bool], describes_chosen: Callable[[], bool]
) -> bool:
    """Whether a resource is copied.

    `own`: the patterns let it in; `is_described`: some record describes it; `describes_chosen`: it is a record of a
    resource that is chosen for itself. A record of a record is not chosen by this, so that circles choose nothing.
    """
    if own and (not choice.only_described or is_described()):
        return True
    return (own or choice.with_metadata) and describes_chosen()


class DescribedChoice:
    """Asks, within one transaction, what is remembered of the set's links."""

    def __init__(self, t: Transaction, set_id: int, choice: Choice, own: Callable[[str, bytes | None], bool]) -> None:
        """`own`: whether the patterns let a resource in; its path is None where it has none yet."""
        self._t = t
        self._set = set_id
        self._choice = choice
        self._own = own

    def takes(self, uri: str, path: bytes) -> bool:
        """Whether the resource is copied."""
        if self._choice.skips(uri):
            return False
        return is_chosen(
            self._choice,
            own=self._own(uri, path),
            is_described=lambda: self._t.one(_IS_DESCRIBED, (self._set, uri)) is not None,
            describes_chosen=lambda: any(
                self._own(content, held) for content, held in self._t.rows(_CONTENTS, (self._set, uri))
            ),
        )

    def was_taken(self, uri: str) -> bool:
        """Whether this choice has brought what is held, though it does not take it any more."""
        return self._t.one(_RELEASED, (self._set, uri)) is not None


MOST_STAGES = 8
"""So many transfers are made one after another for records of records; what waits still is fetched at once then."""

_RECORD_IN_WORK = """EXISTS (SELECT 1 FROM descriptions d JOIN temp.work o ON o.uri = d.record
WHERE d.set_id = ?1 AND d.content = work.uri AND o.round = {})"""
_AWAITED = f"""EXISTS (SELECT 1 FROM descriptions d JOIN temp.work o ON o.uri = d.content
WHERE d.set_id = ?1 AND d.record = work.uri AND o.round = {WAITING_ROUND})"""  # noqa: S608

_HOLD = f"UPDATE temp.work SET round = {WAITING_ROUND} WHERE round = 0 AND {_RECORD_IN_WORK.format(0)}"  # noqa: S608
_FREE = f"UPDATE temp.work SET round = 0 WHERE round = {WAITING_ROUND}"  # noqa: S608
_NEXT = (f"{_FREE} AND NOT {_RECORD_IN_WORK.format(WAITING_ROUND)}", f"{_FREE} AND {_AWAITED}")
"""What waits for nothing; of a circle, what others wait for."""


def stages(database: Database, set_id: int) -> Iterator[None]:
    """Yields once for each transfer that is to be made: what may not be fetched yet is in no round until then.

    What describes what is in no list is not waited for, nor is a record that is held already or has failed.
    """
    with database.write() as t:
        t.run(_HOLD, (set_id,))
    for stage in range(MOST_STAGES):
        if stage:
            with database.write() as t:
                t.run(f"UPDATE temp.work SET round = {SETTLED_ROUND} WHERE round >= 0")  # noqa: S608  no round meets it
                last = stage == MOST_STAGES - 1
                freed = t.run(_FREE) if last else any(t.run(statement, (set_id,)) for statement in _NEXT)
            if not freed:
                return
        yield
