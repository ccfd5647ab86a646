"""The applier of a plan: settles paths, transfers, retries earlier failures, deletes as far as the guard allows."""

from collections.abc import Callable, Container, Iterator

import msgspec

from headwater.errors import Exit, SourceFault, StoreFault, UsageFault
from headwater.files.folder_marks import has_reserved
from headwater.files.hashing import HASHERS
from headwater.patches import PatchRefused
from headwater.progress import Progress
from headwater.quantities import consent_for, human_octets, needs_consent
from headwater.storage.database import Database
from headwater.storage.transaction import Transaction
from headwater.sync.copy.file_names import base_folder
from headwater.sync.copy.file_tree import FileTree, flush, printable_path
from headwater.sync.copy.held_files import fold_held, held_otherwise, intend, stamp
from headwater.sync.linked_resources import hold_needed, keep_listing, recall_listing
from headwater.sync.lists.change_lists import ChangeListReader, ReadingOutcome
from headwater.sync.lists.position import NEVER, Position
from headwater.sync.options import Choice, Stated
from headwater.sync.reports import Done, PlannedAction, ignored, with_stated
from headwater.sync.state import (
    AWAITS_CONSENT,
    AWAITS_UPDATE_CONSENT,
    BROUGHT,
    CHANGE_LIST,
    HELD_UPDATE,
    RESOURCE_LIST,
    Offer,
    any_refused,
    fact,
    former_bases,
    keep_fact,
    measured,
    one_set,
    unsettled,
)
from headwater.sync.transfer.adoption import fitting_base, listed_file
from headwater.sync.transfer.patching import PENDING_CHANGES, PendingChange, patches_from_nothing
from headwater.sync.transfer.resources import ResourceTransfer
from headwater.sync.transfer.work_queue import (
    ADD_WORK,
    LEAST_RESOURCES,
    WAITING_ROUND,
    ListedColumns,
    PatchAttempt,
    RunContext,
    clear_plan,
    encode_attempts,
    listed_columns,
)
from headwater.sync.update.difference import Difference
from headwater.sync.update.path_conflicts import PathConflicts, first_base
from headwater.sync.update.set_context import SetContext
from headwater.transport.scheduler import FIRST_LIMIT

_WAITS = """f.set_id = ?1 AND f.uri = w.uri AND (f.wait_until > ?2 OR (?3 AND f.next_at > ?2
  AND f.hash IS w.hash AND f.length IS w.length AND f.lastmod IS w.lastmod AND f.changed_at IS w.changed_at))"""
_WAITING = f"SELECT w.n FROM temp.work w JOIN failures f ON {_WAITS}"  # noqa: S608
_LISTED = (name for name in (*ListedColumns.__struct_fields__, "changed_at") if name != "uri")
_NEWS = f"""
UPDATE failures AS f SET {", ".join(f"{name} = w.{name}" for name in _LISTED)}
FROM temp.work w WHERE {_WAITS}"""  # noqa: S608


_MOST_ACTIONS = 10_000
_GROWTH = (
    "SELECT coalesce(sum(w.length), 0) - coalesce(sum(r.size), 0) FROM temp.work w"
    " LEFT JOIN resources r ON r.id = w.held AND r.path IS NOT NULL WHERE w.round = 0 AND w.length <= ?"
)
"""By how much the copy grows. A length beyond the whole disk is taken for a mistake of the list."""

_TO_BE_FREED = "SELECT sum(r.size) FROM temp.deletions d JOIN resources r ON r.id = d.id AND r.path IS NOT NULL"

_LEFT = (
    "SELECT 1 FROM failures WHERE set_id = ?1"
    " UNION ALL SELECT 1 FROM resources WHERE set_id = ?1 AND doomed_at IS NOT NULL LIMIT 1"
)
_HELD_BACK = (
    "INSERT OR IGNORE INTO temp.deletions(id, at) SELECT id, doomed_at FROM resources"
    " WHERE set_id = ? AND doomed_at IS NOT NULL AND path IS NOT NULL AND uri NOT IN (SELECT uri FROM temp.work)"
)
_BATCH = 500

_OVERWRITTEN = (
    "FROM temp.work w JOIN resources r ON r.id = w.held WHERE r.path IS NOT NULL AND r.size > 0"
    " AND (w.hash IS NULL OR w.hash IS NOT r.listed_hash)"
)
"""Updates of files that have content: not those that only bring again what was listed before."""

_NOTHING = " OR ".join(f"w.hash LIKE '%{make().hexdigest()}%'" for make in HASHERS.values())
_EMPTIED = f"(w.length = 0 OR (w.length IS NULL AND ({_NOTHING})))"
_IS_HELD_UPDATE = f"(r.set_id, w.uri) IN (SELECT set_id, uri FROM failures WHERE reason = '{HELD_UPDATE}')"  # noqa: S608
_HOLD_UPDATES = (
    "INSERT OR REPLACE INTO failures(set_id, uri, loc, reason, tries, first_at, last_at, next_at, lastmod, length,"
    " hash, type, encoding, links, extra, changed_at) SELECT ?1, w.uri, coalesce(w.loc, w.uri), ?3, 0, coalesce("
    "(SELECT first_at FROM failures f WHERE f.set_id = ?1 AND f.uri = w.uri), ?2), ?2, 0, w.lastmod, w.length, w.hash,"
    " w.type, w.encoding, w.links, w.extra, w.changed_at "
)
_FIRST = "SELECT n, uri, hash, known_at FROM temp.work WHERE uri = ? AND held IS NULL"
_NEXT_DELETIONS = (
    "SELECT d.id, r.uri, r.path, d.at, r.digest, r.size, r.type, r.lastmod, r.links"
    " FROM temp.deletions d JOIN resources r ON r.id = d.id"
    " WHERE d.id > ? AND r.path IS NOT NULL ORDER BY d.id LIMIT ?"
)


class Applier:
    """Plans and carries out changes of the copy, as often as a run needs it."""

    def __init__(self, context: SetContext) -> None:
        self._set = context
        self._run = context.run
        self._held_before = 0
        self._deleted_before = 0
        self.began = context.run.now()

    def wanted_base(self, t: Transaction) -> str | None:
        """The base that the caller wants; it cannot be another than that of the names already made."""
        if self._run.options.base is None:
            return None
        base = base_folder(self._run.options.base)
        if self._set.move is not None:
            return None  # what the names are made with moves along
        if self._set.row.base not in (None, base) and base not in former_bases(t, self._set.row.id):
            what = f"the names of this copy were made with base {self._set.row.base}"
            raise UsageFault(what, code="HW-SYN-08", where=self._set.row.name)
        return base

    def retry_earlier(self) -> None:
        """Retry failures and held-back deletions of earlier runs."""
        with self._run.database.read() as t:
            left = t.one(_LEFT, (self._set.row.id,)) is not None
        if left:
            self.carry_out(lambda _t, _difference: None)

    def carry_out(
        self, step: Callable[[Transaction, Difference], None], table: str | None = None, *, retry_queue: bool = True
    ) -> None:
        """Plan, transfer, delete. What may not be deleted is remembered. `retry_queue`: and what earlier runs left."""
        context, report = self._run, self._set.report
        folds = context.tree is not None and context.tree.folds
        with context.database.write() as t:
            clear_plan(t)
            if table is None and self._set.choice.by_links:
                recall_listing(t, self._set.row.id)
            paths = PathConflicts(self._set.row, self._set.choice, self._base(t, table), t, folds=folds)
            objection = self._set.scope.objection if context.options.patches != "off" else None
            if not unsettled(t, self._set.row.id).deletions:
                t.run("DELETE FROM facts WHERE name = ?", (AWAITS_CONSENT.format(self._set.row.id),))
            trusts = context.options.trust_lastmod
            brought = None
            if context.options.max_update is not None:  # counted before the plan confirms what is held
                brought = int(t.value(BROUGHT, (self._set.row.id, self._measure(t), NEVER)))
            step(t, Difference(self._set.row, paths, report, context.tree, objection, trusts))
            if retry_queue and t.one(_LEFT, (self._set.row.id,)) is not None:
                self._add_what_is_left(t, paths)
            held_updates = self._hold_updates(t, brought)
            deletions = int(t.value("SELECT count(*) FROM temp.deletions"))
            allowed = not deletions or (context.options.delete and self._may_delete(t, deletions))
            early = deletions and allowed and (paths.deletions_in_the_way(t) or self._deletions_make_room(t))
            if not (early or context.options.dry_run):
                paths.settle(t, deletes=allowed)
        if context.options.dry_run:
            self._show_plan(deletions, held_updates, allowed=allowed)
            return
        assert context.tree is not None
        self._stamp(context.tree)
        if early:
            self._delete(context.tree)
        with context.database.write() as t:
            if early:
                paths.settle(t)
            growth, left = self._growth(t)
        if growth > left:
            said = f"the copy grows by {human_octets(growth)}, and has room for {human_octets(left)}:"
            said += f" {human_octets(growth - left)} too little"
            raise StoreFault(said, code="HW-SYN-23", where=context.destination)
        if not allowed:  # before anything comes: what a killed run has brought is no reason to delete more
            self._hold_back()
        self.bring(table)
        if deletions and allowed:
            self._delete(context.tree)
        if table is not None and self._set.choice.by_links:
            with context.database.write() as t:
                keep_listing(t, self._set.row.id)

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

    def _growth(self, t: Transaction) -> tuple[int, int]:
        """By how much the copy grows, and by how much it may."""
        tree = self._run.tree
        if tree is None or tree.room is None:
            return 0, 0
        growth, left = int(t.value(_GROWTH, (tree.room.capacity,)) or 0), tree.room.left()
        if growth > left and self._run.adopt:
            new = t.rows("SELECT path, length FROM temp.work WHERE held IS NULL AND round = 0 AND length > 0")
            there = ((tree.stat(path), length) for path, length in new)
            growth -= sum(length for found, length in there if found is not None and found.st_size == length)
        return growth, left

    def _deletions_make_room(self, t: Transaction) -> bool:
        """Whether what is listed has room after the deletions alone; without a length it may need all they free."""
        growth, left = self._growth(t)
        freed = int(t.value(_TO_BE_FREED) or 0)
        is_known = t.one("SELECT 1 FROM temp.work WHERE length IS NULL LIMIT 1") is None
        return growth - freed <= left < growth + (0 if is_known else freed)

    def bring(self, table: str | None) -> None:
        """Fetch, verify and place what is planned; metadata records first, where they are asked for (DST-S5)."""
        held, options = self._set, self._run.options
        if table == "listed" and options.patches == "all" and (first := self._first_patches()) is not None:
            with self._run.database.write() as t:
                t.run("UPDATE temp.work SET attempt_json = ? WHERE n = ?", (encode_attempts((first[1],)), first[0]))
        for _ in _stages(self._run.database) if options.with_metadata else (None,):
            transfer = ResourceTransfer(self._run, held.row, held.report, held.warn, held.scope.objection)
            transfer.adopt()
            self._by_packages()
            if options.rate is None:  # how quickly the source wants to be asked, where that makes a difference
                with self._run.database.write() as t:
                    found = t.one("SELECT coalesce(loc, uri) FROM temp.work LIMIT 1 OFFSET ?", (FIRST_LIMIT,))
                if found is not None:
                    self._run.documents.ask_for_pace(found[0])
            transfer.run()

    def _first_patches(self, among: Container[int] | None = None) -> tuple[int, PatchAttempt] | None:
        """The row of `temp.work` of a dataset that is to be fetched for the first time, and the patches that make it of
        nothing (TIM-A6). None where there is none `among` these rows, or no such patches, which is told."""
        from headwater.sync.dataset_sync import listed_dataset, restate_patches  # takes the RDF library along

        held, database, name = self._set, self._run.database, self._run.options.dataset
        with database.write() as t:
            dataset = listed_dataset(t, name)
            row = None if dataset is None else t.one(_FIRST, (dataset.uri,))
        if row is None or (among is not None and row[0] not in among):
            return None
        n, uri, hash_, known_at = row
        lists = msgspec.structs.replace(  # what is listed stays as the Resource List has it
            held.lists, choice=Choice(), restate=lambda t, set_id: restate_patches(t, set_id, name, listed=True)
        )
        try:
            reading = ChangeListReader(lists, held.row.id, held.offer, Position()).read()
            if reading.outcome is not ReadingOutcome.READ:
                raise PatchRefused(reading.reason or "the Change List cannot be read")
            with database.write() as t:
                changes = [PendingChange(*one) for one in t.rows(PENDING_CHANGES, (uri,))]
                t.run("DELETE FROM temp.changed")
            return n, patches_from_nothing(hash_, known_at, changes, held.scope.objection)
        except (PatchRefused, SourceFault) as cause:
            what = cause.what if isinstance(cause, SourceFault) else str(cause)
            held.warn("TIM-A6", f"Headwater fetches the dataset instead of its changes: {what:.300}", uri)
            return None

    def _by_packages(self) -> None:
        """Have packages bring what they can, or tell in a dry run what they would."""
        context, held = self._run, self._set
        has_lists = {RESOURCE_LIST, CHANGE_LIST} <= held.offer.documents.keys()
        least = LEAST_RESOURCES if has_lists and context.options.prefer == "auto" else 1
        with context.database.write() as t:
            is_wanted = t.one("SELECT 1 FROM temp.work LIMIT 1 OFFSET ?", (least - 1,)) is not None
        if is_wanted:
            self._by_package_transfer(context, held.offer)

    def _by_package_transfer(self, context: RunContext, offer: Offer, at: str | None = None) -> None:
        if context.options.prefer == "lists":
            return
        # imported where it may be worth it: most runs find little, and all of it in lists
        from headwater.sync.packages.package_transfer import PackageTransfer

        held = self._set
        packages = PackageTransfer(context, held.row, offer, held.report, held.scope, held.warn)
        packages.preview() if context.options.dry_run else packages.run(at)

    def _add_what_is_left(self, t: Transaction, paths: PathConflicts) -> None:
        """Add failures and held-back deletions of earlier runs to the plan, and leave out what has to wait.

        All failures are tried again, save those of this run, of which a list or a change has to say something new, and
        where a server asked us not to before a moment that has not come (DST-F1). In a service that follows, the retry
        clock holds too, where a list only says again what could not be had (DST-F6).
        Where entries are refused now nobody can tell whether what was deleted is among these (DST-S12).
        """
        number, when = self._set.row.id, (self._run.now(), int(self._run.options.patient))
        query = f"""
            SELECT {listed_columns("f")}, r.path, r.id, f.changed_at, f.tries
            FROM failures f LEFT JOIN resources r ON r.set_id = f.set_id AND r.uri = f.uri AND r.path IS NOT NULL
            WHERE f.set_id = ?1 AND f.uri NOT IN (SELECT uri FROM temp.work)
              AND NOT (f.tries AND f.last_at BETWEEN ?4 AND ?2)
              AND max(coalesce(f.wait_until, 0), CASE WHEN ?3 THEN f.next_at ELSE 0 END) <= ?2"""  # noqa: S608
        for *stated, path, key, changed_at, tries in list(t.rows(query, (number, *when, self.began))):
            row = ListedColumns(*stated)
            path = paths.path(row.uri) if path is None else path
            if paths.takes(row.uri, path, Stated(row.type, row.length, row.lastmod, row.links)):
                known_at = self._set.row.baseline_at if changed_at is None else changed_at  # DST-5.3
                t.run(ADD_WORK, row.planned(path, key, changed_at=changed_at, known_at=known_at, tries=tries))
            elif self._run.tree is not None:  # left out: it has no failures, and without its file no record
                t.run("DELETE FROM failures WHERE set_id = ? AND uri = ?", (number, row.uri))
                if key is not None and self._run.tree.stat(path) is None:
                    t.run("INSERT OR IGNORE INTO temp.deletions(id) VALUES (?)", (key,))
        waiting = t.fetch(_WAITING, (number, *when))
        t.run(_NEWS, (number, *when))  # what is tried then is what a list says of it by now
        t.many("DELETE FROM temp.work WHERE n = ?", waiting)
        if not any_refused(t, number):
            t.run(_HELD_BACK, (number,))

    # the base of names

    def _base(self, t: Transaction, table: str | None) -> str:
        row, base = self._set.row, self.wanted_base(t)
        if row.base is not None:
            return row.base
        if base is None and table is not None:
            base = first_base(t, table, self._set.offer.capability_list)
            prefix, found = row.folder.encode() + b"/" if row.folder else b"", None
            if base is not None and self._run.adopt and self._run.tree is not None:  # files that another tool has left
                found = fitting_base(t, table, self._run.tree, prefix, base, trusts=self._run.options.trust_lastmod)
            if found is not None:
                default, told = base, ""
                base, fits, tried = found
                if not fits and not prefix and t.one("SELECT 1 FROM resources LIMIT 1") is None:
                    told = "no file here has the name of a listed resource with its length, and with its time where no"
                    told += " hash is listed: none is adopted; if the files are in a subfolder, copy into that one"
                elif fits and base != default:
                    told = f"the names of files of {fits} of {tried} sampled resources fit the base "
                    told += base or "(none: names begin with the host)"
                    told += ": it is used, and the right files are adopted"
                if told:
                    self._set.warn("DST-B5", told, self._run.destination)
        if base is not None:
            t.run("UPDATE sets SET base = ? WHERE id = ?", (base, row.id))
            self._set.row = one_set(t, row.id)
        return base or ""

    # deletions

    def _may_delete(self, t: Transaction, deletions: int) -> bool:
        """Whether so many may be deleted (DST-B4, DST-F9). Where the user names a share, it counts for few as well.

        Counted are all files that the set held at most since the run began, and all that were deleted since lists were
        read to their end: they may have come by many payloads, or in a run that was killed. While deletions of an
        earlier run wait for consent, none is done without it: files that came since let none of them go.
        """
        number = self._set.row.id
        self._measure(t)
        waits = unsettled(t, number).deletions > 0
        deletions += self._deleted_before
        return self._may(t, AWAITS_CONSENT.format(number), deletions, self._run.options.max_delete, waits=waits)

    def _measure(self, t: Transaction) -> int:
        """Count what is held, and what was deleted of it since lists were read to their end; returns when that was."""
        until, held, self._deleted_before = measured(t, self._set.row)
        self._held_before = max(self._held_before, held + self._deleted_before)
        return until

    def _may(self, t: Transaction, name: str, count: int, share: float | None, *, waits: bool) -> bool:
        """Whether so many may go, or be overwritten; the fact `name`: how many were held when some began to wait."""
        if share is not None:
            return not needs_consent(count, self._held_before, share, floor=0)
        awaits = fact(t, name)
        if awaits and not waits:  # a list decides anew what was told: by what was held then
            self._held_before, awaits = min(self._held_before, int(awaits)), None
        return not awaits and not needs_consent(count, self._held_before)

    def _hold_updates(self, t: Transaction, done: int | None) -> list[PlannedAction]:
        """Take updates that overwrite more of the copy than may be out of the plan; of a dry run they are the result.

        Where the user names no share, those that leave nothing of a file, or wait already, count. Each run plans them
        anew, as failures. `done`: how many were updated before this plan, where the user names a share.
        """
        number, options = self._set.row.id, self._run.options
        name, waits = AWAITS_UPDATE_CONSENT.format(number), unsettled(t, number).updates > 0
        if not waits:
            t.run("DELETE FROM facts WHERE name = ?", (name,))
        is_any = options.max_update is not None
        which = _OVERWRITTEN if is_any else f"{_OVERWRITTEN} AND ({_EMPTIED} OR {_IS_HELD_UPDATE})"
        planned = int(t.value(f"SELECT count(*) {which}"))
        if not planned:
            return []
        done = int(t.value(BROUGHT, (number, self._measure(t), 0))) if done is None else done
        if self._may(t, name, planned + done, options.max_update, waits=waits):
            return []
        if is_any or needs_consent(planned + done, self._held_before):
            keep_fact(t, name, str(self._held_before))
        told = f"{planned:,} updates are" if planned != 1 else "1 update is"
        told += f" held back, {100 * (planned + done) / max(self._held_before, 1):.4g}% of what is held would"
        consent = consent_for(done + int(t.value(f"SELECT count(*) {_OVERWRITTEN}")), self._held_before)
        is_any = is_any or int(t.value(f"SELECT count(*) {_OVERWRITTEN} AND {_EMPTIED}")) < planned
        told += f" {'be overwritten' if is_any else 'become empty'}: --max-update {consent} allows them"
        self._set.warn("DST-B4", told, self._set.row.name)
        rows = t.fetch(f"SELECT w.uri, w.path {which} ORDER BY w.n") if options.dry_run else []
        t.run(f"{_HOLD_UPDATES} {which}", (number, self._run.now(), HELD_UPDATE))
        t.run(f"DELETE FROM temp.work WHERE n IN (SELECT w.n {which})")  # noqa: S608
        return [PlannedAction("hold back", uri, printable_path(path)) for uri, path in rows]

    def _delete(self, tree: FileTree) -> None:
        """Remove files, a batch at a time: first the file, then the row (a killed run repeats it without harm).

        The notes of what is removed are kept until the disk has it, so that a power loss brings none of it back.
        """
        database, report, last = self._run.database, self._set.report, 0
        if types := self._run.options.prefer_types:
            with database.write() as t:
                hold_needed(t, self._set.row.id, types)
        if tree.folds:
            with database.write() as t:
                fold_held(t, without_deletions=True)
        notes: list[int] = []
        while True:
            with database.write() as t:
                batch = t.fetch(_NEXT_DELETIONS, (last, _BATCH))
                if not batch:
                    break
                notes.append(intend(t, self._set.row.id, [(uri, path) for _, uri, path, *_ in batch], removal=True))
                others = {key: held_otherwise(t, path) for key, _, path, *_ in batch} if tree.folds else {}
                if renamed := [other for other in others.values() if other is not None]:
                    notes.append(intend(t, self._set.row.id, renamed))
            for key, uri, path, _, digest, size, *stated in batch:
                other = others.get(key)
                if has_reserved(path):  # of a version that did not know the name for one
                    told = "a deleted resource has a reserved name: Headwater leaves the file"
                    self._set.warn("DST-P3", told, printable_path(path))
                elif other is None or not tree.respell(path, other[1]):
                    tree.remove(path)
                if self._run.each is not ignored:
                    gone = Done("deleted", uri, printable_path(path), hash=digest, length=size)
                    self._run.each(with_stated(gone, *stated))
            self._run.settle()
            last = batch[-1][0]
            with database.write() as t:
                t.many(
                    "UPDATE resources SET path = NULL, size = NULL, digest = NULL, etag = NULL, newer = 0,"
                    " doomed_at = NULL, changed_at = coalesce(?, changed_at, 0) WHERE id = ?",
                    [(at, key) for key, _, _, at, *_ in batch],
                )
            report.deleted += len(batch)
            self._run.listener(Progress("deleting", report.deleted))
        if notes:
            flush(tree.root)
            with database.write() as t:
                t.many("DELETE FROM intents WHERE id = ?", [(number,) for number in notes])

    def _hold_back(self) -> None:
        """Remember what may not be deleted, and tell of all that is held back, since consent is to all of it."""
        number, earlier = self._set.row.id, self._deleted_before
        with self._run.database.write() as t:
            t.run(
                "UPDATE resources SET doomed_at = (SELECT coalesce(d.at, 0) FROM temp.deletions d"
                " WHERE d.id = resources.id) WHERE id IN (SELECT id FROM temp.deletions)"
            )
            deletions = unsettled(t, number).deletions
            if self._run.options.delete and needs_consent(deletions + earlier, self._held_before):
                keep_fact(t, AWAITS_CONSENT.format(number), str(self._held_before))
        self._set.awaits_consent = self._run.options.delete

    def _show_plan(self, deletions: int, held_updates: list[PlannedAction], *, allowed: bool) -> None:
        report, tree, trusts = self._set.report, self._run.tree, self._run.options.trust_lastmod
        report.deleted = deletions if allowed else 0
        report.held_back = len(held_updates) + (0 if allowed else deletions)
        report.plan += held_updates
        if held_updates or (deletions and not allowed and self._run.options.delete):
            self._set.statuses.append(Exit.TRANSFERS_FAILED)
        with self._run.database.write() as t:
            for n, held, uri, path, *listed in t.rows(
                "SELECT n, held, uri, path, hash, length, lastmod FROM temp.work ORDER BY held IS NOT NULL, n"
            ):
                action = "create" if held is None else "update"
                report.created += held is None
                report.updated += held is not None
                if held is None and tree and self._run.adopt and listed_file(tree, path, *listed, trusts=trusts):
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


# the order in which metadata records and what they describe are fetched (DST-S5)

_HOLD_CONTENTS = f"""
UPDATE temp.work SET round = {WAITING_ROUND} WHERE round = 0
AND uri IN (SELECT d.content FROM temp.described d JOIN temp.work o ON o.uri = d.record)
AND uri NOT IN (SELECT d.record FROM temp.described d JOIN temp.work o ON o.uri = d.content)"""  # noqa: S608  our own number


def _stages(database: Database) -> Iterator[None]:
    """Yields once for each transfer that is to be made: that of metadata records, then that of what they describe.

    A record that is held already, has failed, or is in no list is not waited for; nor are records for their records.
    """
    with database.write() as t:
        is_held = t.run(_HOLD_CONTENTS) > 0
    yield
    if is_held:
        with database.write() as t:
            t.run(f"UPDATE temp.work SET round = 0 WHERE round = {WAITING_ROUND}")  # noqa: S608
        yield
