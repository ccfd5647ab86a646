"""The retry queue of one set: failed transfers and held-back deletions of earlier runs, added to the plan."""

from __future__ import annotations

from headwater.storage.sqlite.transaction import Transaction
from headwater.sync.lists.refused_entries import any_refused
from headwater.sync.state.set_rows import SetRow
from headwater.sync.transfer.work_queue import ADD_WORK, ListedColumns, PlanCounts, listed_columns
from headwater.sync.update.path_conflicts import PathConflicts

_WAITS = """f.set_id = ?1 AND f.uri = w.uri AND (f.wait_until > ?2 OR (?3 AND f.next_at > ?2
  AND f.hash IS w.hash AND f.length IS w.length AND f.lastmod IS w.lastmod AND f.changed_at IS w.changed_at))"""
_WAITING = f"SELECT w.n, w.held FROM temp.work w JOIN failures f ON {_WAITS}"  # noqa: S608
_LISTED = (name for name in (*ListedColumns.__struct_fields__, "changed_at") if name != "uri")
_NEWS = f"""
UPDATE failures AS f SET {", ".join(f"{name} = w.{name}" for name in _LISTED)}
FROM temp.work w WHERE {_WAITS}"""  # noqa: S608


class _FailureRow(ListedColumns, frozen=True, gc=False):
    """A failure, and the copy that is held of it."""

    path: bytes | None
    key: int | None
    changed_at: int | None
    tries: int


class RetryQueue:
    """Adds to `work` and `deletions` of one set, after whatever a list has put there."""

    def __init__(self, row: SetRow, paths: PathConflicts, counts: PlanCounts) -> None:
        self._set = row
        self._paths = paths
        self._counts = counts

    def failures(self, t: Transaction, now: int, *, patient: bool) -> None:
        """Add the failures of earlier runs that are not planned already: all of them, save where `Retry-After` waits.

        `patient`: a service that follows also keeps its own retry clock (DST-F6).
        """
        query = f"""
            SELECT {listed_columns("f")}, r.path, r.id, f.changed_at, f.tries
            FROM failures f LEFT JOIN resources r ON r.set_id = f.set_id AND r.uri = f.uri AND r.path IS NOT NULL
            WHERE f.set_id = ?1 AND f.uri NOT IN (SELECT uri FROM temp.work)
              AND f.uri NOT IN (SELECT uri FROM temp.tried)
              AND f.uri NOT IN (SELECT uri FROM temp.aside)
              AND max(coalesce(f.wait_until, 0), CASE WHEN ?3 THEN f.next_at ELSE 0 END) <= ?2"""  # noqa: S608
        for row in [_FailureRow(*row) for row in t.rows(query, (self._set.id, now, int(patient)))]:
            path = row.path if row.path is not None else self._paths.path(row.uri)
            if self._paths.takes(row.uri, path):
                known_at = (
                    row.changed_at if row.changed_at is not None else self._set.baseline_at
                )  # DST-5.3, as at first
                fetch = row.planned(path, row.key, changed_at=row.changed_at, known_at=known_at, tries=row.tries)
                t.run(ADD_WORK, fetch)
                self._counts.created += row.path is None
                self._counts.updated += row.path is not None

    def skip_waiting(self, t: Transaction, now: int, *, patient: bool) -> None:
        """Take out of the plan what a server asked us not to try before a moment that has not come (DST-F1).

        What a list says of it by now is remembered: that is what is tried then. `patient`: the retry clock of a service
        that follows holds too, where a list only says again what could not be had (DST-F6).
        """
        rows = list(t.rows(_WAITING, (self._set.id, now, int(patient))))
        t.run(_NEWS, (self._set.id, now, int(patient)))
        t.many("DELETE FROM temp.work WHERE n = ?", [(n,) for n, _ in rows])
        self._counts.created -= sum(held is None for _, held in rows)
        self._counts.updated -= sum(held is not None for _, held in rows)

    def held_back(self, t: Transaction) -> None:
        """Bring back the deletions that earlier runs were not allowed (DST-B4), unless entries are refused now.

        Then nobody can tell whether what was deleted is among these (DST-S12).
        """
        if any_refused(t, self._set.id):
            return
        t.run(
            "INSERT OR IGNORE INTO temp.deletions(id, at) SELECT id, doomed_at FROM resources"
            " WHERE set_id = ? AND doomed_at IS NOT NULL AND path IS NOT NULL"
            " AND uri NOT IN (SELECT uri FROM temp.work)",
            (self._set.id,),
        )
