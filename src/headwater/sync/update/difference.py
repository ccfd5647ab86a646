"""The difference between a copy and its lists, as queries; and who prevails: lists, changes or notifications.

The rules for single resources are in `verification`. What is to be transferred goes to `work`, what is to be deleted to
`deletions`; what turns out to be the same is confirmed in place. Contradictions are changes that the Resource List does
not have, and those that payloads of notifications told ahead of the lists.
"""

from collections.abc import Iterator
from typing import Final

import msgspec

from headwater.rdf import N_QUADS_DIFF
from headwater.spec.kinds import PATCH
from headwater.storage.transaction import Row, Transaction
from headwater.sync.copy.file_tree import FileTree
from headwater.sync.copy.held_files import digest_of_path, is_intact
from headwater.sync.linked_resources import add_chosen
from headwater.sync.lists.entries import BY_URI, IS_FOLLOWED
from headwater.sync.options import Stated
from headwater.sync.reports import SetReport
from headwater.sync.source_times import SECOND, mtime_ns
from headwater.sync.state import SetRow, Validators, fact, keep_fact, keep_listed, left_out_before
from headwater.sync.transfer.patching import PENDING_CHANGES, PendingChange, planned_patches
from headwater.sync.transfer.results_and_retries import CONFIRM
from headwater.sync.transfer.verification import CopyState, ListedResource, LocalCopy, compare, digests_of
from headwater.sync.transfer.work_queue import ADD_WORK, ListedColumns, PatchAttempt, listed_columns
from headwater.sync.update.path_conflicts import PathConflicts
from headwater.transport.fetch import Objection

_NOT_LATER = f"""(?2 IS NULL OR changed_at IS NULL
  OR (changed_at <= ?2 AND NOT (changed_at % {SECOND} = 0 AND changed_at < ?2 AND ?2 - changed_at < {SECOND})))"""
"""Not changed after the list's `at`: a whole second that `at` lies within may be later (AMB-06)."""

_SETTLED = "DELETE FROM failures WHERE set_id = ? AND uri = ? AND coalesce(changed_at <= ?, 1)"
"""What is held is what the list or change says: an earlier state that could not be had is not wanted any more."""

_HELD = """
  r.id, r.path, r.size, r.mtime_ns, r.digest, r.listed_hash, r.listed_length, r.lastmod, r.newer, r.etag,
  r.last_modified, f.tries
FROM temp.{} s LEFT JOIN resources r ON r.set_id = :set AND r.uri = s.uri
LEFT JOIN failures f ON f.set_id = :set AND f.uri = s.uri WHERE """

_LISTED = (
    f"SELECT {listed_columns('s')}, :at, NULL, 0, 0, 0,"
    f" coalesce(r.changed_at > :at OR r.doomed_at > :at OR f.changed_at > :at, 0), {_HELD.format('listed')}"
    " NOT s.refused ORDER BY s.n"
)
"""DST-B2: what was changed after the list was made, or deleted, which may wait for consent, or has failed, is later."""

_CHANGED = (
    f"SELECT {listed_columns('s')}, s.at, iif(s.exact, s.at, s.latest), 1, s.exact,"
    " s.hash IS NULL OR s.asked IS 'held',"
    f" coalesce(s.exact AND r.changed_at > s.at AND r.changed_at % {SECOND} <> {SECOND - 1}"
    f" AND NOT (s.at % {SECOND} = 0 AND r.changed_at - s.at < {SECOND}), 0), {_HELD.format('changed')}"
    " s.pending AND s.change != 'deleted' ORDER BY s.n"
)
"""A later change of the resource has been done already: for certain, as `is_past` has it, and not up to a bound."""


class _StatedRow(ListedColumns, frozen=True, gc=False):
    """What a list or a change states of a resource, and what is recorded of the copy (nothing, where there is none)."""

    at: int | None  # the moment that it speaks of
    known: int | None  # of a change: no list made before that has the last word on the resource
    is_change: int
    is_exact: int
    is_doubtful: int
    """Whether the source alone knows if the resource has changed: after a change without a hash, or one in doubt."""

    is_overtaken: int
    key: int
    path: bytes | None
    size: int
    mtime_ns: int
    digest: str | None
    listed_hash: str | None
    listed_length: int | None
    held_lastmod: int | None
    newer: int
    etag: str | None
    last_modified: str | None
    tries: int | None


class Difference(msgspec.Struct, frozen=True):
    """Fills `work` and `deletions` for one set from a staging table, and counts."""

    row: SetRow
    paths: PathConflicts
    counts: SetReport
    tree: FileTree | None  # the folder of the copy, if there is one
    objection: Objection | None  # why a patch is not asked for; None: none is
    trusts_times: bool = False  # whether an unchanged `lastmod` is believed where a list states neither hash nor length

    # a baseline

    def baseline(self, t: Transaction, at: int | None, *, complete: bool, skipped: tuple[tuple[str, int], ...]) -> bool:
        """Plan from `temp.listed`, which is as of `at`: what is new, what differs, what is the same.

        Remembered is what it has that is refused. Returns whether the list is whole without (DST-S12).
        """
        self.counts.left_out = 0
        t.many(ADD_WORK, self._planned(t, _LISTED, at))
        whole, left_out = keep_listed(t, self.row.id, at, self.paths.takes_refused, complete=complete, skipped=skipped)
        self.counts.left_out += left_out
        return whole

    def gone(self, t: Transaction, at: int | None) -> None:
        """Mark for deletion what a complete snapshot no longer lists (DST-4.4), and forget such failures (DST-B2).

        What a change later than `at` brought, or failed to bring, is not the snapshot's to judge.
        """
        query = f"""
            SELECT r.id, r.uri, r.path FROM resources r
            WHERE r.set_id = ?1 AND r.path IS NOT NULL AND {_NOT_LATER}
              AND NOT EXISTS (SELECT 1 FROM temp.listed l WHERE l.uri = r.uri)"""  # noqa: S608
        t.many(
            "INSERT OR IGNORE INTO temp.deletions(id, at) VALUES (?, ?)",
            ((key, at) for key, uri, path in t.rows(query, (self.row.id, at)) if self.paths.takes_deletion(uri, path)),
        )
        t.run(
            f"DELETE FROM failures WHERE set_id = ?1 AND {_NOT_LATER}"  # noqa: S608
            " AND NOT EXISTS (SELECT 1 FROM temp.listed l WHERE l.uri = failures.uri)",
            (self.row.id, at),
        )

    # an increment

    def increment(self, t: Transaction) -> None:
        """Plan from the pending rows of `temp.changed`, folded to the last change of each URI (DST-5.3).

        To these is added what they choose by the metadata records that they state (RS-DST-16).
        """
        if self.paths.is_by_metadata:
            add_chosen(t, self.row.id, self.paths.takes, self.paths.path)
        if self.counts.left_out and not self.paths.takes_all:
            self.counts.left_out -= left_out_before(t, self.paths.takes_refused)
        t.many(ADD_WORK, self._planned(t, _CHANGED))
        t.many(
            "INSERT OR REPLACE INTO temp.deletions(id, at) VALUES (?, ?)",
            (
                (key, at)
                for key, uri, path, at in t.rows(
                    "SELECT r.id, r.uri, r.path, c.at FROM temp.changed c"
                    " JOIN resources r ON r.set_id = ? AND r.uri = c.uri AND r.path IS NOT NULL"
                    " WHERE c.pending AND c.change = 'deleted' AND NOT (c.exact AND"
                    " coalesce(r.changed_at > c.at AND r.changed_at % ? <> ?, 0))",
                    (self.row.id, SECOND, SECOND - 1),
                )
                if self.paths.takes_deletion(uri, path)
            ),
        )
        t.run(
            "DELETE FROM failures WHERE set_id = ? AND uri IN"
            " (SELECT uri FROM temp.changed WHERE pending AND change = 'deleted')",
            (self.row.id,),
        )

    # what is stated, compared with what is held

    def _planned(self, t: Transaction, query: str, at: int | None = None) -> Iterator[Row]:
        """The rows of `work` for what is new and what differs; what is the same is confirmed."""
        for values in t.rows(query, {"set": self.row.id, "at": at}):
            row = _StatedRow(*values)
            if row.is_overtaken:
                self.counts.unchanged += row.path is not None
                continue
            path = row.path or self.paths.path(row.uri)
            stated = Stated(row.type, row.length, row.lastmod, row.links)
            if not (self.paths.takes_all or self.paths.takes(row.uri, path, stated)):
                self.counts.left_out += 1
                continue
            if row.path is None:
                yield row.planned(path, changed_at=row.known, known_at=row.at, tries=row.tries)
                continue
            present = is_intact(self.tree, path, row.size, row.mtime_ns)
            same = self._compared(row, path) if present else CopyState.NO
            if same is CopyState.YES and not row.is_doubtful:
                self._confirm(t, row)
                continue
            # after a change with a hash, which is another one, 304 would confirm what is not there
            ask = same is not CopyState.NO and not row.newer and (row.is_doubtful or not row.is_change)
            yield row.planned(
                path, row.key, changed_at=row.known, known_at=row.at, tries=row.tries,
                attempts=self._patches(t, row) if present and row.is_change else (),
                validators=Validators(row.etag, row.last_modified) if ask else Validators(),
            )  # fmt: skip

    def _confirm(self, t: Transaction, row: _StatedRow) -> None:
        """Note that what is held is as it is stated.

        Earlier failures of it are forgotten, and its file is to have the time that is listed (`temp.stamps`).
        """
        self.counts.unchanged += 1
        t.run(CONFIRM, (row.hash, row.length, row.lastmod, *row.stated, row.known, None, row.key))
        if row.tries is not None:
            t.run(_SETTLED, (self.row.id, row.uri, row.at))
        if mtime_ns(row.lastmod) not in (None, row.mtime_ns):
            t.run("INSERT OR IGNORE INTO temp.stamps(id) VALUES (?)", (row.key,))

    def _compared(self, row: _StatedRow, path: bytes) -> CopyState:
        """`compare`, but where no digest is shared the held file itself is hashed rather than transferred again."""
        is_repeated = (row.hash, row.length) == (row.listed_hash, row.listed_length) and not (
            row.newer or row.is_change
        )
        if row.hash and is_repeated:
            return CopyState.YES  # the list says what it said before
        is_timed = row.lastmod is not None and row.hash is None and row.length is None and not row.is_change
        if self.trusts_times and is_timed and row.lastmod == row.held_lastmod and not row.newer:
            return CopyState.YES
        listed = ListedResource(row.hash, row.length, row.lastmod)
        same = compare(listed, LocalCopy(row.digest, row.size, row.held_lastmod, row.listed_hash, bool(row.newer)))
        wanted = digests_of(row.hash)
        if same is not CopyState.ASK or not wanted or any(d.algorithm in (row.digest or "") for d in wanted):
            return same
        return CopyState.YES if digest_of_path(self.tree, path, wanted[0].algorithm) == wanted[0].hex else CopyState.NO

    def _patches(self, t: Transaction, row: _StatedRow) -> tuple[PatchAttempt, ...]:
        """The patches by which a change is done, where the copy is known to be a state before it (DST-S1)."""
        if row.links is None or PATCH not in row.links or row.hash is None or row.digest is None:
            return ()
        if self.objection is None:
            return ()
        listed = map(str, digests_of(row.listed_hash))
        is_previous = bool(row.is_exact) and not row.newer and row.tries is None and row.digest in listed
        pending = [PendingChange(*one) for one in t.rows(PENDING_CHANGES, (row.uri,))]
        attempt = planned_patches(row.digest, row.size, pending, self.objection, is_previous=is_previous)
        return () if attempt is None else (attempt,)


# changes of before a Resource List's `at` that it does not have: that `at` is false then, or the list is (AMB-25)
#
# The source is asked for such a resource, and the hash decides. A deletion among them is not done: what is held is
# asked for, stays where it is served, and goes where it is gone. `temp.changed.asked` says for what: `held` for what is
# held, although it is what is listed; `changed` for what a change tells that the Resource List does not have.

_DONE_BEFORE: Final = (
    "SELECT c.uri, c.n, c.change, l.uri IS NOT NULL, c.hash, l.hash FROM (SELECT *, row_number() OVER"
    " (PARTITION BY uri ORDER BY at DESC, list DESC, ordinal DESC) AS place FROM temp.changed) AS c"
    " LEFT JOIN temp.listed l ON l.uri = c.uri WHERE c.place = 1 AND NOT c.pending"
    " AND c.exact AND c.at < ?"
    " AND ((c.change = 'deleted') = (l.uri IS NOT NULL) OR (l.uri IS NOT NULL AND c.hash IS NOT l.hash))"
    " AND NOT c.refused AND NOT coalesce(l.refused, 0)"
    " AND c.uri NOT LIKE '%.nqud' AND coalesce(c.links, '') NOT LIKE ? ORDER BY c.uri"
)
_OLD_DELETIONS: Final = (
    "SELECT c.n FROM temp.changed c JOIN resources r ON r.set_id = ? AND r.uri = c.uri"  # noqa: S608
    " JOIN sets s ON s.id = r.set_id WHERE c.pending AND c.exact AND c.change = 'deleted' AND r.path IS NOT NULL"
    " AND (c.asked IS NOT NULL OR (r.changed_at IS NULL"
    " AND c.at < s.baseline_at AND s.baseline_at <= json_extract(s.position, '$.time')))"
    f" AND NOT {IS_FOLLOWED.format('c')}"
)
_ASK: Final = (
    "UPDATE temp.changed SET asked = 'held', change = 'updated', (hash, length) = (SELECT r.listed_hash,"
    " r.listed_length FROM resources r WHERE r.set_id = ? AND r.uri = changed.uri) WHERE n = ?"
)
_NOT_THERE: Final = (
    "SELECT f.uri FROM failures f JOIN temp.changed c ON c.uri = f.uri"
    " WHERE f.set_id = ?1 AND f.status IN (404, 410) AND c.pending AND c.asked = 'held'"
)
_GONE: Final = (
    "INSERT OR REPLACE INTO temp.deletions(id, at) SELECT r.id, c.at FROM temp.changed c"  # noqa: S608
    " JOIN resources r ON r.set_id = ?1 AND r.uri = c.uri WHERE c.pending AND c.asked = 'held'"
    f" AND c.uri IN ({_NOT_THERE})"
)
_LISTED_INSTEAD: Final = (
    f"SELECT {listed_columns('l')}, r.path, r.id, f.tries FROM temp.changed c JOIN temp.listed l ON l.uri = c.uri"  # noqa: S608
    " JOIN failures f ON f.set_id = ? AND f.uri = c.uri AND f.status IN (200, 203)"
    " JOIN resources r ON r.set_id = f.set_id AND r.uri = c.uri AND r.path IS NOT NULL"
    " WHERE c.pending AND c.asked = 'changed' AND l.hash IS NOT NULL"
)


def contradicted(t: Transaction, since: int) -> Iterator[tuple[int, str]]:
    """The last changes before a Resource List's `at` that it does not have: their rows, and of which resources.

    `temp.listed` is that list; of datasets the order of patches decides.
    """
    for uri, n, change, is_listed, hash_, listed in t.rows(_DONE_BEFORE, (since, f"%{N_QUADS_DIFF}%")):
        stated = {digest.algorithm: digest.hex for digest in digests_of(listed)}
        is_other = any(stated.get(one.algorithm, one.hex) != one.hex for one in digests_of(hash_))
        if (change == "deleted") == bool(is_listed) or is_other:
            yield n, uri


def ask_for_old_deletions(t: Transaction, set_id: int) -> None:
    """Have the source asked for what a change says is deleted, and the Resource List after it, or beside it, has."""
    t.run(BY_URI)
    t.many(_ASK, [(set_id, n) for (n,) in t.rows(_OLD_DELETIONS, (set_id,))])


def settle_contradictions(t: Transaction, row: SetRow) -> None:
    """Plan what came otherwise than such a change says to be taken as the Resource List has it, if it is that; and do
    such deletions of which the source has said that the resource is gone."""
    for *listed, path, held, tries in list(t.rows(_LISTED_INSTEAD, (row.id,))):
        work = ListedColumns(*listed).planned(path, held, changed_at=None, known_at=row.baseline_at, tries=tries)
        t.run(ADD_WORK, work)
    # what the source has said to be gone is deleted, and no failure
    t.run(_GONE, (row.id,))
    t.run(f"DELETE FROM failures WHERE set_id = ?1 AND uri IN ({_NOT_THERE})", (row.id,))  # noqa: S608


# changes that payloads of notifications have told ahead of the lists (decision 054)
#
# The lists decide them once more. A list tells no change after the position, so whatever is remembered with a later
# time was told by a payload. It holds against lists that are older, and against no list that has led as far.

_NAME: Final = "pushed {}"
"""The fact that payloads were applied to a set, so that the lists look for what these have told; or that they told what
no list tells, which the Resource List has to judge."""

_AHEAD: Final = (
    "set_id = ?1 AND max(coalesce(changed_at, 0), coalesce(doomed_at, 0)) >"
    " (SELECT json_extract(position, '$.time') FROM sets WHERE id = ?1)"
)
_IS_REACHED: Final = "max(coalesce(changed_at, 0), coalesce(doomed_at, 0)) <= ?2"
_IS_NAMED: Final = "uri IN (SELECT uri FROM temp.changed WHERE pending)"
_IS_TOLD: Final = (
    "uri IN (SELECT c.uri FROM temp.changed c CROSS JOIN resources q ON q.set_id = ?1 AND q.uri = c.uri WHERE c.pending"
    " AND (NOT c.exact OR (c.at >= max(coalesce(q.changed_at, 0), coalesce(q.doomed_at, 0))) IS NOT 0))"
)
_TOLD_AHEAD: Final = f"SELECT 1 FROM resources WHERE {_AHEAD} AND {_IS_REACHED} AND NOT {_IS_NAMED} LIMIT 1"  # noqa: S608
_LET_DECIDE: Final = "UPDATE resources SET changed_at = 0, doomed_at = NULL WHERE {}"
_DELETED_BEFORE: Final = (
    "SELECT max(coalesce(r.changed_at, 0), c.at), r.id FROM temp.changed c"
    " CROSS JOIN resources r ON r.set_id = ? AND r.uri = c.uri"
    " WHERE c.pending AND c.change = 'deleted' AND c.at IS NOT NULL AND r.path IS NULL"
)
_NOT_AFTER: Final = (
    "UPDATE resources SET changed_at = min(changed_at, ?2), doomed_at = min(doomed_at, ?2)"
    " WHERE set_id = ?1 AND uri IN (SELECT uri FROM temp.changed)"
)


def note_payload(t: Transaction, set_id: int) -> None:
    """Note that payloads are applied to a set: `temp.changed` has what they tell."""
    keep_fact(t, _NAME.format(set_id), fact(t, _NAME.format(set_id)) or "ahead")


def bound_times(t: Transaction, set_id: int, now: int) -> None:
    """See that no time that payloads have told, up to `now`, is later: else no list would ever have led as far."""
    t.run(_NOT_AFTER, (set_id, now))


def let_changes_decide(t: Transaction, set_id: int, reached: int | None) -> bool:
    """Let the pending changes, of lists that have led to `reached`, decide what payloads told up to that time.

    What payloads tell of a later time stays, unless these lists tell of that time: they may be older. Returns whether
    payloads have told what lists that have led further do not; that goes on until the Resource List has judged it.
    """
    told = fact(t, _NAME.format(set_id))
    if told is None:
        return False
    if t.one(_TOLD_AHEAD, (set_id, reached)) is not None:
        told = "untold"
        keep_fact(t, _NAME.format(set_id), told)
    t.run(_LET_DECIDE.format(f"{_AHEAD} AND ({_IS_REACHED} OR {_IS_TOLD})"), (set_id, reached))
    t.many("UPDATE resources SET changed_at = ? WHERE id = ?", t.fetch(_DELETED_BEFORE, (set_id,)))
    return told == "untold"


def let_list_decide(t: Transaction, set_id: int) -> None:
    """Let a Resource List that is about to be applied, and the changes after it, decide all that payloads have told."""
    if fact(t, _NAME.format(set_id)) is not None:
        t.run(_LET_DECIDE.format(_AHEAD), (set_id,))


def forget_pushed(t: Transaction, set_id: int) -> None:
    """A Resource List has judged what payloads have told."""
    t.run("DELETE FROM facts WHERE name = ?", (_NAME.format(set_id),))
