"""The applier of a plan: settles paths, transfers, retries earlier failures, deletes as far as the guard allows."""

from __future__ import annotations

from collections.abc import Callable, Container
from typing import NamedTuple

from headwater.errors import Exit, StoreFault, UsageFault
from headwater.files.file_copies import Room
from headwater.files.folder_marks import has_reserved
from headwater.progress import Done, Progress
from headwater.quantities import consent_for, human_octets, needs_consent
from headwater.storage.transaction import Transaction
from headwater.sync.alternates import hold_needed
from headwater.sync.copy.file_names import base_folder
from headwater.sync.copy.file_tree import FileTree, flush, printable_path
from headwater.sync.copy.held_files import fold_held, held_otherwise, intend, stamp
from headwater.sync.metadata import stages
from headwater.sync.reports import PlannedAction
from headwater.sync.state import (
    any_refused,
    deleted_before,
    forget_measure,
    former_bases,
    held_back_count,
    keep_measure,
    measure,
    one_set,
)
from headwater.sync.transfer.content_at_hand import UnconfirmedContent, fitting_base, is_listed
from headwater.sync.transfer.patching import FirstImport
from headwater.sync.transfer.resources import ResourceTransfer
from headwater.sync.transfer.work_queue import ADD_WORK, LEAST_RESOURCES, ListedColumns, clear_plan, listed_columns
from headwater.sync.update.difference import Difference
from headwater.sync.update.path_conflicts import PathConflicts, first_base
from headwater.sync.update.set_context import SetContext
from headwater.transport.scheduler import FIRST_LIMIT

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


_MOST_ACTIONS = 10_000
_GROWTH = (
    "SELECT coalesce(sum(w.length), 0) - coalesce(sum(r.size), 0) FROM temp.work w"
    " LEFT JOIN resources r ON r.id = w.held AND r.path IS NOT NULL WHERE w.round = 0 AND w.length <= ?"
)
"""By how much the copy grows. A length beyond the whole disk is taken for a mistake of the list."""

_TO_BE_FREED = "SELECT sum(r.size) FROM temp.deletions d JOIN resources r ON r.id = d.id AND r.path IS NOT NULL"

_BATCH = 500
_NEVER = 1 << 62
_HELD_AND_GONE = (
    "SELECT count(path), count(*) FILTER (WHERE path IS NULL AND changed_at > ?2) FROM resources WHERE set_id = ?1"
)

_NEXT_DELETIONS = (
    "SELECT d.id, r.uri, r.path, d.at FROM temp.deletions d JOIN resources r ON r.id = d.id"
    " WHERE d.id > ? AND r.path IS NOT NULL ORDER BY d.id LIMIT ?"
)


class _Deletion(NamedTuple):
    """A file to be deleted: its row of `resources`, and when the source deleted it, where that is known."""

    id: int
    uri: str
    path: bytes
    at: int | None


PlanStep = Callable[[Transaction, Difference], None]


class Applier:
    """Plans and carries out changes of the copy, as often as a run needs it."""

    def __init__(self, context: SetContext) -> None:
        self._set = context
        self._run = context.run
        self._held_before = 0
        self._deleted_before = 0
        self._begun = False
        self.unconfirmed = UnconfirmedContent(context.run.database, context.run.tree)
        """What this run has received that is newer than listed."""

    def wanted_base(self, t: Transaction) -> str | None:
        """The base that the caller wants; it cannot be another than that of the names already made."""
        if self._run.options.base is None:
            return None
        base = base_folder(self._run.options.base)
        if self._set.move is not None:
            return None  # what the names are made with moves along
        if self._set.row.base not in (None, base) and base not in former_bases(t, self._set.row.id):
            raise UsageFault(
                f"the names of this copy were made with base {self._set.row.base}",
                code="HW-SYN-08",
                where=self._set.row.name,
            )
        return base

    def confirm(self) -> None:
        """Ask once more for what no list has confirmed: what comes equal twice may have its place (DST-5.3)."""
        if self.unconfirmed.count:
            kept, number = self.unconfirmed, self._set.row.id
            self.carry_out(lambda t, difference: kept.plan_again(t, number, difference.counts), retry_queue=False)

    def carry_out(self, step: PlanStep, table: str | None = None, *, retry_queue: bool = True) -> None:
        """Plan, transfer, delete. What may not be deleted is remembered. `retry_queue`: and what earlier runs left."""
        context, report, now = self._run, self._set.report, self._run.now()
        failed_before = report.failed
        folds = context.tree is not None and context.tree.folds
        with context.database.write() as t:
            clear_plan(t)
            if not self._begun:
                t.run("DELETE FROM temp.tried")  # those of the set before
                self._begun = True
            paths = PathConflicts(self._set.row, self._set.choice, self._base(t, table), t, folds=folds)
            objection = self._set.scope.objection if context.options.patches != "off" else None
            step(t, Difference(self._set.row, paths, report, context.tree, objection))
            if retry_queue and self._has_left(t):
                self._add_failures(t, paths, now, patient=context.options.patient)
                self._skip_waiting(t, now, patient=context.options.patient)
                self._add_held_back(t)
            deletions = int(t.value("SELECT count(*) FROM temp.deletions"))
            allowed = not deletions or (context.options.delete and self._may_delete(t, deletions))
            if allowed and retry_queue:  # else what is held back was not looked at
                forget_measure(t, self._set.row.id)
            early = deletions and allowed and (paths.deletions_in_the_way(t) or self._deletions_make_room(t))
            if not (early or context.options.dry_run):
                paths.settle(t, deletes=allowed)
        if context.options.dry_run:
            self._show_plan(deletions, allowed=allowed)
            return
        assert context.tree is not None
        self._stamp(context.tree)
        if early:
            self._delete(context.tree)
            with context.database.write() as t:
                paths.settle(t)
        if table == "listed" and self._begins_with_patches():
            self._bring_dataset()
        self._check_room(context.tree)
        self.bring()
        if report.failed > failed_before:
            self._note_failures()
        if deletions and allowed:
            self._delete(context.tree)
        elif deletions:
            self._hold_back()

    def _stamp(self, tree: FileTree) -> None:
        """Give files whose content is what is listed the time that is listed, some hundred at a time."""
        last = 0
        query = (
            "SELECT r.id, r.path, r.lastmod FROM temp.stamps s JOIN resources r ON r.id = s.id"
            " WHERE s.id > ? AND r.path IS NOT NULL AND r.lastmod IS NOT NULL ORDER BY s.id LIMIT ?"
        )
        while True:
            with self._run.database.write() as t:
                rows = t.fetch(query, (last, _BATCH))
                for key, path, lastmod in rows:
                    stamp(tree, t, key, path, lastmod)
            if not rows:
                return
            last = rows[-1][0]

    def _check_room(self, tree: FileTree) -> None:
        """Raise StoreFault where what is listed has no room, before anything is fetched."""
        if tree.room is None:
            return
        with self._run.database.write() as t:
            growth, left = self._growth(t, tree, tree.room)
        if growth > left:
            lacks = human_octets(growth - left)
            said = (
                f"the copy grows by {human_octets(growth)}, and has room for {human_octets(left)}: {lacks} too little"
            )
            raise StoreFault(said, code="HW-SYN-23", where=self._run.destination)

    def _deletions_make_room(self, t: Transaction) -> bool:
        """Whether what is listed has room as soon as what is to be deleted is gone, and no sooner.

        What has no listed length may need all that becomes free.
        """
        tree = self._run.tree
        if tree is None or tree.room is None:
            return False
        growth, left = self._growth(t, tree, tree.room)
        freed = int(t.value(_TO_BE_FREED) or 0)
        is_known = t.one("SELECT 1 FROM temp.work WHERE length IS NULL LIMIT 1") is None
        return growth - freed <= left < growth + (0 if is_known else freed)

    def _growth(self, t: Transaction, tree: FileTree, room: Room) -> tuple[int, int]:
        """By how much the copy grows, and by how much it may."""
        growth, left = int(t.value(_GROWTH, (room.capacity,)) or 0), room.left()
        if growth > left and self._run.adopt:
            new = t.rows("SELECT path, length FROM temp.work WHERE held IS NULL AND round = 0 AND length > 0")
            there = ((tree.stat(path), length) for path, length in new)
            growth -= sum(length for found, length in there if found is not None and found.st_size == length)
        return growth, left

    def bring(self) -> None:
        """Fetch, verify and place what is planned; metadata records first, where they are asked for (DST-S5)."""
        held = self._set
        ordered = stages(self._run.database, held.row.id) if self._run.options.with_metadata else (None,)
        for _ in ordered:
            transfer = ResourceTransfer(
                self._run, held.row, held.report, self.unconfirmed, held.warn, held.scope.objection
            )
            transfer.take_what_is_here()
            self._by_packages()
            self._ask_for_pace()
            transfer.run()

    def _ask_for_pace(self) -> None:
        """Ask how quickly the source wants to be asked, where that makes a difference and the user does not say it."""
        if self._run.options.rate is not None:
            return
        with self._run.database.write() as t:
            found = t.one("SELECT coalesce(loc, uri) FROM temp.work LIMIT 1 OFFSET ?", (FIRST_LIMIT,))
        if found is not None:
            self._run.documents.ask_for_pace(found[0])

    def _begins_with_patches(self) -> bool:
        """Whether a dataset is to be made from its changes before anything else is fetched."""
        return self._run.options.patches == "all"

    def _bring_dataset(self, among: Container[int] | None = None) -> None:
        """Make a dataset that is not held yet from its changes (TIM-A6), if its row of `temp.work` is `among` these."""
        held = self._set
        FirstImport(self._run, held.row, held.lists, self.unconfirmed).bring(held.report, held.warn, among)

    def _by_packages(self) -> None:
        """Have packages bring what they can, or tell in a dry run what they would.

        Their modules are loaded only where they may be worth it: most runs find little, and all of it in lists.
        """
        context, held = self._run, self._set
        has_lists = held.offer.resource_list is not None and held.offer.change_list is not None
        least = LEAST_RESOURCES if has_lists and context.options.prefer == "auto" else 1
        with context.database.write() as t:
            is_wanted = t.one("SELECT 1 FROM temp.work LIMIT 1 OFFSET ?", (least - 1,)) is not None
        if not is_wanted or context.options.prefer == "lists":
            return
        from headwater.sync.packages.package_transfer import PackageTransfer, merged_ways

        packages = PackageTransfer(context, held.row, held.offer, held.report, held.scope, held.warn)
        ways = packages.preview() if context.options.dry_run else packages.run()
        held.report.ways = merged_ways(held.report.ways, ways)

    def _note_failures(self) -> None:
        """Note failures, which are not retried in this run unless a list or a change says something new of them."""
        with self._run.database.write() as t:
            t.run(
                "INSERT OR IGNORE INTO temp.tried"
                " SELECT uri FROM failures WHERE set_id = ? AND uri IN (SELECT uri FROM temp.work)",
                (self._set.row.id,),
            )

    # the retry queue: failures and held-back deletions of earlier runs

    def retry_earlier(self) -> None:
        """Retry failures and held-back deletions of earlier runs."""
        with self._run.database.read() as t:
            left = self._has_left(t)
        if left:
            self.carry_out(lambda _t, _difference: None)

    def _has_left(self, t: Transaction) -> bool:
        """Whether failures or deletions held back are remembered."""
        left = (
            "SELECT 1 FROM failures WHERE set_id = ?1"
            " UNION ALL SELECT 1 FROM resources WHERE set_id = ?1 AND doomed_at IS NOT NULL LIMIT 1"
        )
        return t.one(left, (self._set.row.id,)) is not None

    def _add_failures(self, t: Transaction, paths: PathConflicts, now: int, *, patient: bool) -> None:
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
        for row in [_FailureRow(*row) for row in t.rows(query, (self._set.row.id, now, int(patient)))]:
            path = row.path if row.path is not None else paths.path(row.uri)
            if paths.takes(row.uri, path):
                at_first = self._set.row.baseline_at  # DST-5.3
                known_at = at_first if row.changed_at is None else row.changed_at
                fetch = row.planned(path, row.key, changed_at=row.changed_at, known_at=known_at, tries=row.tries)
                t.run(ADD_WORK, fetch)
                self._set.report.created += row.path is None
                self._set.report.updated += row.path is not None

    def _skip_waiting(self, t: Transaction, now: int, *, patient: bool) -> None:
        """Take out of the plan what a server asked us not to try before a moment that has not come (DST-F1).

        What a list says of it by now is remembered: that is what is tried then. `patient`: the retry clock of a service
        that follows holds too, where a list only says again what could not be had (DST-F6).
        """
        rows = list(t.rows(_WAITING, (self._set.row.id, now, int(patient))))
        t.run(_NEWS, (self._set.row.id, now, int(patient)))
        t.many("DELETE FROM temp.work WHERE n = ?", [(n,) for n, _ in rows])
        self._set.report.created -= sum(held is None for _, held in rows)
        self._set.report.updated -= sum(held is not None for _, held in rows)

    def _add_held_back(self, t: Transaction) -> None:
        """Bring back the deletions that earlier runs were not allowed (DST-B4), unless entries are refused now.

        Then nobody can tell whether what was deleted is among these (DST-S12).
        """
        if any_refused(t, self._set.row.id):
            return
        t.run(
            "INSERT OR IGNORE INTO temp.deletions(id, at) SELECT id, doomed_at FROM resources"
            " WHERE set_id = ? AND doomed_at IS NOT NULL AND path IS NOT NULL"
            " AND uri NOT IN (SELECT uri FROM temp.work)",
            (self._set.row.id,),
        )

    # the base of names

    def _base(self, t: Transaction, table: str | None) -> str:
        row, base = self._set.row, self.wanted_base(t)
        if row.base is not None:
            return row.base
        if base is None and table is not None:
            base = first_base(t, table, self._set.offer.capability_list)
            if base is not None and self._run.adopt and self._run.tree is not None:
                base = self._base_of_what_is_there(t, table, self._run.tree, base)
        if base is not None:
            t.run("UPDATE sets SET base = ? WHERE id = ?", (base, row.id))
            self._set.row = one_set(t, row.id)
        return base or ""

    def _base_of_what_is_there(self, t: Transaction, table: str, tree: FileTree, default: str) -> str:
        """The base under which files that another tool has left have the names of what is listed (DST-B5)."""
        prefix = self._set.row.folder.encode() + b"/" if self._set.row.folder else b""
        found = fitting_base(t, table, tree, prefix, default)
        if found is None:
            return default
        base, fits, tried = found
        told = ""
        if not fits and not prefix and t.one("SELECT 1 FROM resources LIMIT 1") is None:
            told = "no file here has the name of a listed resource: none is adopted; if the files are in a subfolder,"
            told += " copy into that one"
        elif fits and base != default:
            told = f"the names of files of {fits} of {tried} sampled resources fit the base"
            told += f" {base or '(none: names begin with the host)'}: it is used, and the right files are adopted"
        if told:
            self._set.warn("DST-B5", told, self._run.destination)
        return base

    # deletions

    def _held(self, t: Transaction) -> int:
        """How many files the set held at most since the run began: the guard counts all of them.

        So a run that deletes in steps deletes no more by that, and files that it has just copied count.
        """
        held, gone = t.one(_HELD_AND_GONE, (self._set.row.id, self._confirmed_until())) or (0, 0)
        self._deleted_before = max(gone, deleted_before(t, self._set.row.id))
        self._held_before = max(self._held_before, held + self._deleted_before)
        return self._held_before

    def _confirmed_until(self) -> int:
        """The time up to which lists were read to their end: later deletions are judged together.

        They may have come by many payloads, or in a run that was killed.
        """
        position = self._set.row.position
        return _NEVER if position is None or position.time is None else position.time

    def _may_delete(self, t: Transaction, deletions: int) -> bool:
        """Whether so many may be deleted (DST-B4, DST-F9). Where the user names a share, it counts for few as well."""
        share = self._run.options.max_delete
        held = self._measure(t)
        all_deletions = deletions + self._deleted_before
        if share is None:
            return not needs_consent(all_deletions, held)
        return not needs_consent(all_deletions, held, share, floor=0)

    def _measure(self, t: Transaction) -> int:
        """What the guard measures deletions by: without consent, what was held when some were first held back.

        Files that came since, from another place perhaps, let none of them go.
        """
        held, before = self._held(t), measure(t, self._set.row.id)
        return held if before is None or self._run.options.max_delete is not None else min(before, held)

    def _delete(self, tree: FileTree) -> None:
        """Remove files, a batch at a time: first the file, then the row (a killed run repeats it without harm).

        The notes of what is removed are kept until the disk has it, so that a power loss brings none of it back.
        """
        database, report, last = self._run.database, self._set.report, 0
        if self._run.options.prefer_types:
            with database.write() as t:
                hold_needed(t, self._set.row.id)
        if tree.folds:
            with database.write() as t:
                fold_held(t, without_deletions=True)
        notes: list[int] = []
        while True:
            with database.write() as t:
                batch = [_Deletion(*row) for row in t.rows(_NEXT_DELETIONS, (last, _BATCH))]
                if not batch:
                    break
                notes.append(intend(t, self._set.row.id, [(row.uri, row.path) for row in batch], removal=True))
                others = {row.id: held_otherwise(t, row.path) for row in batch} if tree.folds else {}
                if renamed := [other for other in others.values() if other is not None]:
                    notes.append(intend(t, self._set.row.id, renamed))
            for row in batch:
                other = others.get(row.id)
                if has_reserved(row.path):  # of a version that did not know the name for one
                    told = "a deleted resource has a reserved name: it is held no more, and the file is left"
                    self._set.warn("DST-P3", told, printable_path(row.path))
                elif other is None or not tree.respell(row.path, other[1]):
                    tree.remove(row.path)
                self._run.each(Done("deleted", row.uri, printable_path(row.path)))
            last = batch[-1].id
            with database.write() as t:
                t.many(
                    "UPDATE resources SET path = NULL, size = NULL, digest = NULL, etag = NULL, newer = 0,"
                    " doomed_at = NULL, changed_at = coalesce(?, changed_at, 0) WHERE id = ?",
                    [(row.at, row.id) for row in batch],
                )
            report.deleted += len(batch)
            self._run.listener(Progress("deleting", report.deleted))
        if notes:
            flush(tree.root)
            with database.write() as t:
                t.many("DELETE FROM intents WHERE id = ?", [(number,) for number in notes])

    def _hold_back(self) -> None:
        """Remember what may not be deleted, and tell of all that is held back, since consent is to all of it."""
        with self._run.database.write() as t:
            t.run(
                "UPDATE resources SET doomed_at = (SELECT coalesce(d.at, 0) FROM temp.deletions d"
                " WHERE d.id = resources.id) WHERE id IN (SELECT id FROM temp.deletions)"
            )
            deletions = held_back_count(t, self._set.row.id)
            refused = any_refused(t, self._set.row.id)
            if self._run.options.delete and measure(t, self._set.row.id) is None:
                keep_measure(t, self._set.row.id, self._held_before, self._deleted_before)
        if self._run.options.delete and refused:
            told = f"{_deletions_are(deletions)} held back: entries are refused, and may name what seems deleted"
            self._set.warn("DST-B4", told, self._set.row.name)
        elif self._run.options.delete:
            earlier = self._deleted_before
            share = (deletions + earlier) / max(self._held_before, 1)
            consent = consent_for(deletions + earlier, self._held_before)
            with_others = f" with {earlier} since the lists were read," if earlier else ""
            told = f"{_deletions_are(deletions)} held back,{with_others} {share:.0%} of what is held:"
            told += f" --max-delete {consent} allows them"
            self._set.warn("DST-B4", told, self._set.row.name)

    def _show_plan(self, deletions: int, *, allowed: bool) -> None:
        report = self._set.report
        report.deleted = deletions if allowed else 0
        report.held_back = 0 if allowed else deletions
        if deletions and not allowed and self._run.options.delete:
            self._set.statuses.append(Exit.TRANSFERS_FAILED)
        with self._run.database.write() as t:
            for n, held, uri, path, *listed in t.rows(
                "SELECT n, held, uri, path, hash, length, lastmod FROM temp.work ORDER BY n"
            ):
                action = "create" if held is None else "update"
                if held is None and self._would_adopt(path, *listed):
                    report.adopted += 1
                    action = "adopt"
                    t.run("DELETE FROM temp.work WHERE n = ?", (n,))  # no package is asked for it
                elif listed[1] is None:
                    report.to_fetch_unmeasured += 1
                else:
                    report.to_fetch_octets += listed[1]
                if len(report.plan) <= _MOST_ACTIONS:
                    report.plan.append(PlannedAction(action, uri, printable_path(path)))
            gone = t.rows(
                "SELECT r.uri, r.path FROM temp.deletions d JOIN resources r ON r.id = d.id ORDER BY r.path LIMIT ?",
                (_MOST_ACTIONS + 1,),
            )
            for uri, path in gone:
                report.plan.append(PlannedAction("delete" if allowed else "hold back", uri, printable_path(path)))
        report.plan_is_cut = len(report.plan) > _MOST_ACTIONS
        del report.plan[_MOST_ACTIONS:]
        self._by_packages()

    def _would_adopt(self, path: bytes, hash_: str | None, length: int | None, lastmod: int | None) -> bool:
        tree = self._run.tree
        return self._run.adopt and tree is not None and is_listed(tree, path, hash_, length, lastmod)


def _deletions_are(count: int) -> str:
    return f"{count:,} deletions are" if count != 1 else "1 deletion is"
