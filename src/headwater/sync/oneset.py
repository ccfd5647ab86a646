"""One set, brought up to date: a baseline or an increment, whichever is needed, and the position last (4, 5).

The order of every step: read, plan, transfer, delete, and only then move the position. Whatever is killed in between is
found by the next run and done again without harm (DST-F7).
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable

import msgspec

from headwater.errors import Exit, HeadwaterError, SourceFault
from headwater.progress import Listener, Progress
from headwater.spec.kinds import Kind
from headwater.spec.uris import normalise
from headwater.storage.database import Database, Transaction
from headwater.sync.changes import Changes, Outcome, Reading
from headwater.sync.digest import digest_of_descriptor
from headwater.sync.discover import offer_of
from headwater.sync.documents import Documents, Missing
from headwater.sync.faults import FixedBase, Moving, NothingToCopy, Unreachable, WrongDocument
from headwater.sync.filters import Choice, Scope
from headwater.sync.listing import Listing, OtherKind, Same, Snapshot
from headwater.sync.moments import text
from headwater.sync.options import Action, Failed, Options, SetReport, gravest
from headwater.sync.place import Tree
from headwater.sync.plan import Planner, clear, first_base, guard
from headwater.sync.position import FUTURE, Position
from headwater.sync.state import (
    SetRow,
    forget_documents,
    intend,
    keep_offer,
    keep_position,
    keep_validators,
    one_set,
    validators,
)
from headwater.sync.transfer import Transfer
from headwater.sync.transport import Transport

_MOST_ACTIONS = 10_000
_MOST_FAILURES = 100
_DELETIONS = 500
_RACE_SECONDS = 0.5

PlanStep = Callable[[Transaction, Planner], None]


class Kit(msgspec.Struct, kw_only=True):
    """What the sets of one run share."""

    documents: Documents
    transport: Transport
    database: Database
    tree: Tree | None
    temp: str
    run: int
    options: Options
    listener: Listener
    now: Callable[[], int]
    adopt: bool


class OneSet:
    """Brings one set up to date. Call `run` once."""

    def __init__(self, kit: Kit, row: SetRow, scope: Scope) -> None:
        self._kit = kit
        self._row = row
        self._offer = row.offer
        self._scope = scope
        self._choice = Choice(kit.options.include, kit.options.exclude)
        self._signature = msgspec.json.encode(
            (kit.options.include, kit.options.exclude, kit.options.allow_hosts, kit.options.any_host)
        ).decode()
        self._statuses: list[int] = []
        self._held_before: int | None = None
        self._baseline_tried = False
        self._since: Position | None = None
        self._refreshed = False
        self.report = SetReport(name=row.name, folder=row.folder, capability_list=row.offer.capability_list)

    def run(self) -> SetReport:
        """Do what is needed; a fault of the source ends in the report, one of our store is raised."""
        self._wanted_base()
        try:
            if self._kit.options.repair:
                self._look_for_damage()
            self._synchronise()
        except HeadwaterError as fault:
            if fault.exit_status not in (Exit.SOURCE, Exit.UNDETERMINED):
                raise
            self._say(fault)
        self._summarise()
        return self.report

    def _say(self, fault: HeadwaterError) -> None:
        self._statuses.append(fault.exit_status)
        self.report.complete = False
        self.report.fault = self.report.fault or str(fault)
        self._warn(fault.rule or fault.code, f"{fault.what}. {fault.todo}", fault.where)

    def _warn(self, rule: str, message: str, where: str | None = None) -> None:
        self._kit.documents.warn(rule, message, where)

    # which process

    def _synchronise(self) -> None:
        offer, row = self._offer, self._row
        if offer.resource_list is None and offer.change_list is None:
            raise NothingToCopy("the source offers no Resource List and no Change List", where=offer.identity)
        wanted = self._kit.options.baseline or self._kit.options.repair or self._rescoped()
        if self._rescoped() and offer.resource_list is None:
            self._start_over()
        if offer.resource_list is not None and (row.position is None or wanted):
            if not self._first_of_all(force=wanted or not row.baseline_done) or self._kit.options.dry_run:
                return
        elif offer.change_list is None:
            self._baseline(force=False)
            return
        if self._offer.change_list is not None:
            self._increments()

    def _first_of_all(self, *, force: bool) -> bool:
        """The baseline; a repair does what it can without one."""
        try:
            return self._baseline(force=force)
        except SourceFault as fault:
            if self._row.position is None or self._kit.options.baseline or self._rescoped():
                raise
            self._say(fault)
            self._left_over()
            return True

    def _rescoped(self) -> bool:
        """Whether another choice of resources holds than for all that was done so far."""
        return self._row.scope not in (None, self._signature)

    def _start_over(self) -> None:
        """Without a Resource List only the changes themselves tell what another choice lets in: all are read again."""
        with self._kit.database.write() as t:
            forget_documents(t, self._row.id)
            keep_position(t, self._row.id, Position())
        self._reload()

    def _increments(self) -> None:
        """Increments from the position; a gap leads to a baseline, once (5.1, DST-C4, DST-C5)."""
        hole = self._row.hole_until
        if hole is not None and not self._baseline_tried and self._offer.resource_list is not None:
            self._baseline(force=False)
        reading = self._increment()
        if reading.outcome is Outcome.GAP and self._since is not None:
            self._since = None  # those since the Resource List are not on offer any more, and had been done once
            reading = self._increment()
        if reading.outcome is Outcome.MISSING and self._refresh_offer():
            reading = self._increment()
        if reading.outcome in (Outcome.GAP, Outcome.MISSING):
            self._warn("DST-C4", f"{reading.reason}: a baseline is needed", self._offer.change_list)
            if self._offer.resource_list is not None and not self._baseline_tried:
                self._baseline(force=False)
                if self._kit.options.dry_run:
                    return
                reading = self._increment()
        if reading.outcome is Outcome.GAP:
            reading = self._over_the_hole(reading)
        if reading.outcome is Outcome.BROKEN and reading.fault is not None:
            raise reading.fault
        if reading.outcome is Outcome.MISSING:
            raise Unreachable(reading.reason, where=self._offer.change_list, rule="DST-C5")
        if self._row.hole_until is not None:
            raise Moving(
                f"changes before {text(self._row.hole_until)} are in no document of the source",
                where=self._offer.change_list,
                rule="DST-C4",
                advice="The next Resource List closes the gap: run the same command again when there is one.",
            )

    def _over_the_hole(self, reading: Reading) -> Reading:
        """No newer Resource List bridges the gap: do what is known, remember the hole, and say so (5.1)."""
        if reading.earliest is None or self._row.position is None:
            return reading
        position = self._row.position
        beyond = max(reading.earliest, position.time or reading.earliest)
        with self._kit.database.write() as t:
            t.run("UPDATE sets SET hole_until = ? WHERE id = ?", (reading.earliest, self._row.id))
            keep_position(t, self._row.id, Position(time=beyond))
        self._reload()
        return self._increment()

    # baseline

    def _baseline(self, *, force: bool) -> bool:
        """A baseline from the Resource List; False when its position cannot be relied on."""
        self._baseline_tried = True
        offer = self._offer
        uri = offer.resource_list
        assert uri is not None
        if refusal := self._scope.refusal(uri):
            raise Unreachable(f"the Resource List is refused: {refusal.value}", where=uri, rule="DST-S12")
        found = self._read_list(uri, force=force)
        if isinstance(found, Missing):
            if self._refresh_offer() and self._offer.resource_list not in (None, uri):
                return self._baseline(force=force)
            raise Unreachable(f"the Resource List is missing: HTTP status {found.status}", where=uri, rule="DST-F4")
        if isinstance(found, OtherKind):
            return self._other_kind(uri, found.kind)
        if isinstance(found, Same):
            self._nothing_new(found)
            return True
        return self._apply(found)

    def _read_list(self, uri: str, *, force: bool) -> Snapshot | Same | OtherKind | Missing:
        row = self._row
        listing = Listing(
            self._kit.documents,
            self._kit.database,
            self._scope,
            self._kit.listener,
            sitemap=self._offer.is_sitemap,
            doubt=lambda: self._offer.change_list is None or self._would_remove(),
        )
        if force or not row.baseline_done or row.baseline_uri != uri:
            return listing.read(uri)
        with self._kit.database.write() as t:
            held = validators(t, row.id, uri)
        return listing.read(uri, held, row.baseline_at)

    def _would_remove(self) -> bool:
        """Whether something held is not in what was listed."""
        with self._kit.database.write() as t:
            query = (
                "SELECT 1 FROM resources r WHERE r.set_id = ? AND r.path IS NOT NULL"
                " AND NOT EXISTS (SELECT 1 FROM temp.listed l WHERE l.uri = r.uri) LIMIT 1"
            )
            t.run("CREATE INDEX IF NOT EXISTS temp.listed_uri ON listed(uri)")
            return t.one(query, (self._row.id,)) is not None

    def _other_kind(self, uri: str, kind: Kind) -> bool:
        """The Capability List called it a Resource List; the document decides (DST-A7)."""
        self._warn("DST-A7", f"listed as a Resource List, but it is a {kind.value}", uri)
        if kind in (Kind.CHANGE_LIST, Kind.CHANGE_LIST_INDEX):
            change_list = self._offer.change_list or uri
            if self._rescoped():
                self._start_over()
            self._offer = msgspec.structs.replace(self._offer, resource_list=None, change_list=change_list)
            return True
        raise WrongDocument(f"this is a {kind.value}, not a Resource List", where=uri, rule="DST-A7")

    def _nothing_new(self, same: Same) -> None:
        """The list of the last baseline (DST-B1): what is left are failures and deletions held back."""
        if same.etag or same.last_modified:
            with self._kit.database.write() as t:
                keep_validators(t, self._row.id, same.uri, same.etag, same.last_modified)
        self._left_over()

    def _left_over(self) -> None:
        with self._kit.database.write() as t:
            due = t.one("SELECT 1 FROM failures WHERE set_id = ? LIMIT 1", (self._row.id,))
            doomed = t.one(
                "SELECT 1 FROM resources WHERE set_id = ? AND doomed_at IS NOT NULL LIMIT 1", (self._row.id,)
            )
        if due or doomed:
            self._carry_out(lambda _t, _planner: None)

    def _is_stale(self, snapshot: Snapshot) -> bool:
        """Whether a list that was made before the one of the last baseline came back, from a cache perhaps."""
        known, stated = self._row.baseline_at, snapshot.stated_at
        if known is None or stated is None or known > self._kit.now() + FUTURE:
            return False
        return stated < known

    def _keep_newer(self, snapshot: Snapshot) -> bool:
        """A stale list: what is held is newer than all it says, so nothing of it is done (DST-B2, DST-F12)."""
        message = f"the Resource List of {text(snapshot.stated_at)} is older than that of the last baseline"
        self._warn("DST-F12", message, snapshot.uri)
        self._left_over()
        if self._kit.options.baseline or self._rescoped():
            stale = Moving(
                message,
                where=snapshot.uri,
                rule="DST-F12",
                advice="Run the same command again when there is a newer list; where the source was really set back,"
                " copy into a new folder.",
            )
            self._say(stale)
        return True

    def _apply(self, snapshot: Snapshot) -> bool:
        if self._is_stale(snapshot):
            return self._keep_newer(snapshot)
        self._note("baseline")
        self.report.refused += snapshot.refused
        self.report.at = text(snapshot.at)
        may_remove = snapshot.complete and snapshot.settled
        again = self._row.baseline_done and snapshot.stated_at == self._row.baseline_at and not self._rescoped()

        def plan(t: Transaction, planner: Planner) -> None:
            planner.baseline(t, snapshot.at, self._intact, self._digest_of)
            if may_remove:
                planner.gone(t, snapshot.at, again=again)

        self._carry_out(plan, table="listed")
        if self._kit.options.dry_run:
            return True
        if not snapshot.complete:
            raise Unreachable(
                f"the Resource List is incomplete: {'; '.join(snapshot.faults[:3])}", where=snapshot.uri, rule="DST-B2"
            )
        if not snapshot.settled and self._offer.change_list is None:
            raise Moving("the Resource List changed each time it was read", where=snapshot.uri, rule="DST-F13")
        self._keep_baseline(snapshot)
        return True

    def _keep_baseline(self, snapshot: Snapshot) -> None:
        """The position after a baseline: T is the snapshot's `at` (4.5), and goes back only for another choice.

        What was passed over under the choice before may be in changes that were read long ago. For a baseline or a
        repair that was asked for they are read again too, but what is remembered stays where it was. To do changes
        again does no harm (5.3, DST-B2).
        """
        row, rescoped = self._row, self._rescoped()
        before = row.position.time if row.position else None
        times = [moment for moment in (before, snapshot.at) if moment is not None]
        position = since = Position(time=snapshot.at)
        if not rescoped:
            position = Position(time=max(times) if times and snapshot.at is not None else before)
            asked = self._kit.options.baseline or self._kit.options.repair
            self._since = since if asked and since != position else None
        closes = row.hole_until is not None and snapshot.at is not None and snapshot.at >= row.hole_until
        with self._kit.database.write() as t:
            forget_documents(t, row.id)
            if snapshot.settled:
                keep_validators(t, row.id, snapshot.uri, snapshot.etag, snapshot.last_modified)
            t.run(
                "UPDATE sets SET baseline_at = ?, baseline_uri = ?, baseline_done = ?, scope = ?,"
                " hole_until = CASE WHEN ? THEN NULL ELSE hole_until END WHERE id = ?",
                (
                    snapshot.stated_at,
                    snapshot.uri,
                    int(snapshot.settled),
                    self._signature,
                    int(closes),
                    row.id,
                ),
            )
            if snapshot.at is not None:
                t.run(
                    "DELETE FROM resources WHERE set_id = ? AND path IS NULL AND changed_at <= ?", (row.id, snapshot.at)
                )
            keep_position(t, row.id, position)
        self._reload()

    # increment

    def _increment(self) -> Reading:
        reading = self._read_changes()
        if reading.outcome in (Outcome.GAP, Outcome.MISSING):
            time.sleep(_RACE_SECONDS)  # a list named before it exists is an ordinary race (AMB-63)
            reading = self._read_changes()
        if reading.pending_count:
            self._note("increment")
            self._carry_out(lambda t, planner: planner.increment(t, self._intact, self._digest_of), table="changed")
        else:
            if reading.outcome is Outcome.READ:
                self._note("increment")
            self._left_over()
        if not self._kit.options.dry_run:
            self._keep_reading(reading)
        return reading

    def _read_changes(self) -> Reading:
        if self._offer.change_list and (refusal := self._scope.refusal(self._offer.change_list)):
            raise Unreachable(
                f"the Change List is refused: {refusal.value}", where=self._offer.change_list, rule="DST-S12"
            )
        position = self._since or self._row.position or Position()
        kit = self._kit
        changes = Changes(kit.documents, kit.database, self._scope, kit.listener, self._row.id, self._offer, position)
        return changes.read()

    def _keep_reading(self, reading: Reading) -> None:
        """The position moves last, over what was applied or is remembered as failed (DST-F6)."""
        whole = reading.outcome in (Outcome.READ, Outcome.UNCHANGED)
        with self._kit.database.write() as t:
            if whole or self._since is None:
                keep_position(t, self._row.id, self._not_back(reading.position))
            if whole:
                for uri, etag, modified in reading.documents:
                    keep_validators(t, self._row.id, uri, etag, modified)
                if self._row.scope is None or self._offer.resource_list is None:
                    t.run("UPDATE sets SET scope = ? WHERE id = ?", (self._signature, self._row.id))
        self._reload()

    def _not_back(self, reached: Position) -> Position:
        """Where changes were only done again, and fewer are on offer than once were, T stays (DST-F12)."""
        held = self._row.position
        if self._since is None or held is None or held.time is None:
            return reached
        return held if reached.time is None or reached.time < held.time else reached

    def _refresh_offer(self) -> bool:
        """Read the Capability List anew, and say whether it names other documents by now (DST-C5)."""
        uri = self._offer.capability_list
        if uri is None or self._refreshed:
            return False
        self._refreshed = True
        try:
            look = self._kit.documents.look(uri)
        except SourceFault:
            return False
        if look.document is None or look.document.kind is not Kind.CAPABILITY_LIST:
            return False
        fresh = offer_of(look, self._offer.description, self._kit.documents)
        fresh = msgspec.structs.replace(fresh, name=self._offer.name, identity=self._offer.identity)
        changed = (fresh.resource_list, fresh.change_list) != (self._offer.resource_list, self._offer.change_list)
        if changed and (fresh.resource_list or fresh.change_list):
            self._offer = fresh
            with self._kit.database.write() as t:
                keep_offer(t, self._row.id, fresh)
        return changed

    # carrying out

    def _carry_out(self, step: PlanStep, table: str | None = None) -> None:
        """Plan, transfer, delete. What may not be deleted is remembered."""
        kit, now = self._kit, self._kit.now()
        with kit.database.write() as t:
            clear(t)
            planner = Planner(self._row, self._choice, self._base(t, table))
            step(t, planner)
            planner.remembered(t, now, patient=kit.options.patient)
            planner.skip_waiting(t, now)
            planner.held_back_again(t)
            doomed = int(t.value("SELECT count(*) FROM temp.doomed"))
            allowed = kit.options.delete and guard(doomed, self._held(t), kit.options.max_delete)
            early = allowed and planner.doomed_in_the_way(t)
        if kit.options.dry_run:
            self._show_plan(planner, doomed, allowed)
            return
        assert kit.tree is not None
        if early:
            self._delete(kit.tree, planner)
        with kit.database.write() as t:
            planner.settle_names(t)
        try:
            Transfer(
                kit.transport, kit.database, kit.tree, kit.temp, self._row, kit.run, planner.counts, kit.listener,
                self._warn, now=kit.now, adopt=kit.adopt, largest=kit.options.largest,
            ).run()  # fmt: skip
            if allowed:
                self._delete(kit.tree, planner)
            elif doomed:
                self._hold_back(doomed)
        finally:
            self._add(planner)

    def _base(self, t: Transaction, table: str | None) -> str:
        row, base = self._row, self._wanted_base()
        if row.base is not None:
            return row.base
        if base is None and table is not None:
            base = first_base(t, table, self._offer.capability_list)
        if base is not None:
            t.run("UPDATE sets SET base = ? WHERE id = ?", (base, row.id))
            self._row = one_set(t, row.id)
        return base or ""

    def _wanted_base(self) -> str | None:
        """The base that the caller wants; it cannot be another than that of the names already made."""
        wanted = self._kit.options.base
        if wanted is None:
            return None
        base = normalise(wanted if wanted.endswith("/") else f"{wanted}/")
        if self._row.base not in (None, base):
            raise FixedBase(f"the names of this copy were made with base {self._row.base}", where=self._row.name)
        return base

    def _held(self, t: Transaction) -> int:
        """How many files the set held when the run began: what the guard measures by."""
        if self._held_before is None:
            self._held_before = int(
                t.value("SELECT count(*) FROM resources WHERE set_id = ? AND path IS NOT NULL", (self._row.id,))
            )
        return self._held_before

    def _delete(self, tree: Tree, planner: Planner) -> None:
        """Remove files, a batch at a time: first the file, then the row (a killed run repeats it without harm)."""
        database, last = self._kit.database, 0
        while True:
            with database.write() as t:
                rows = list(
                    t.rows(
                        "SELECT d.id, r.path, d.at, r.uri FROM temp.doomed d JOIN resources r ON r.id = d.id"
                        " WHERE d.id > ? AND r.path IS NOT NULL ORDER BY d.id LIMIT ?",
                        (last, _DELETIONS),
                    )
                )
                if not rows:
                    return
                intent = intend(t, self._row.id, [(uri, path) for _, path, _, uri in rows])
            for _, path, _, _ in rows:
                tree.remove(path)
            last = rows[-1][0]
            with database.write() as t:
                t.run("DELETE FROM intents WHERE id = ?", (intent,))
                t.many(
                    "UPDATE resources SET path = NULL, size = NULL, digest = NULL, etag = NULL, newer = 0,"
                    " doomed_at = NULL, changed_at = coalesce(?, changed_at, 0) WHERE id = ?",
                    [(at, key) for key, _, at, _ in rows],
                )
            planner.counts.deleted += len(rows)
            self._kit.listener(Progress("deleting", planner.counts.deleted))

    def _hold_back(self, doomed: int) -> None:
        with self._kit.database.write() as t:
            t.run(
                "UPDATE resources SET doomed_at = (SELECT coalesce(d.at, 0) FROM temp.doomed d"
                " WHERE d.id = resources.id) WHERE id IN (SELECT id FROM temp.doomed)"
            )
        self.report.held_back = doomed
        if self._kit.options.delete:
            self._statuses.append(Exit.TRANSFERS_FAILED)
            share = doomed / max(self._held_before or 1, 1)
            self._warn(
                "DST-B4",
                f"{doomed} deletions ({share:.0%} of what is held) are held back: --max-delete {min(share, 1):.2f} "
                "allows them",
                self._row.name,
            )

    def _add(self, planner: Planner) -> None:
        counts, report = planner.counts, self.report
        report.created += counts.created
        report.updated += counts.updated
        report.deleted += counts.deleted
        report.unchanged += counts.unchanged
        report.left_out += counts.left_out
        report.newer_than_listed += counts.newer
        report.adopted += counts.adopted
        report.octets += counts.octets

    def _show_plan(self, planner: Planner, doomed: int, allowed: bool) -> None:
        report = self.report
        self._add(planner)
        report.deleted = doomed if allowed else 0
        report.held_back = 0 if allowed else doomed
        if doomed and not allowed and self._kit.options.delete:
            self._statuses.append(Exit.TRANSFERS_FAILED)
        with self._kit.database.write() as t:
            work = t.rows(f"SELECT held, uri, path FROM temp.work ORDER BY n LIMIT {_MOST_ACTIONS + 1}")  # noqa: S608
            for held, uri, path in work:
                report.plan.append(Action("create" if held is None else "update", uri, _shown(path)))
            gone = t.rows(
                "SELECT r.uri, r.path FROM temp.doomed d JOIN resources r ON r.id = d.id ORDER BY r.path LIMIT ?",
                (_MOST_ACTIONS + 1,),
            )
            for uri, path in gone:
                report.plan.append(Action("delete" if allowed else "hold back", uri, _shown(path)))
        report.plan_is_cut = len(report.plan) > _MOST_ACTIONS
        del report.plan[_MOST_ACTIONS:]

    # local files

    def _intact(self, path: bytes, size: int, mtime_ns: int) -> bool:
        tree = self._kit.tree
        found = tree.stat(path) if tree is not None else None
        return found is not None and found.st_size == size and found.st_mtime_ns == mtime_ns

    def _digest_of(self, path: bytes, algorithm: str) -> str | None:
        return None if self._kit.tree is None else digest_of_path(self._kit.tree, path, algorithm)

    def _look_for_damage(self) -> None:
        """`--repair`: hash every held file, and remember what is missing or different, so that it is fetched again."""
        last = 0
        while True:
            with self._kit.database.write() as t:
                rows = list(
                    t.rows(
                        "SELECT id, uri, path, digest FROM resources WHERE set_id = ? AND id > ?"
                        " AND path IS NOT NULL ORDER BY id LIMIT 1000",
                        (self._row.id, last),
                    )
                )
                if not rows:
                    return
                last = rows[-1][0]
                for key, uri, path, digest in rows:
                    algorithm, _, wanted = (digest or "sha-256:").partition(":")
                    if not wanted or self._digest_of(path, algorithm) != wanted:
                        remember_damage(t, self._row.id, key, uri, self._kit.now())

    # the end

    def _note(self, process: str) -> None:
        known = self.report.process
        if process not in known:
            self.report.process = process if known == "none" else f"{known}+{process}"

    def _reload(self) -> None:
        with self._kit.database.write() as t:
            self._row = one_set(t, self._row.id)

    def _summarise(self) -> None:
        report, row = self.report, self._row
        with self._kit.database.write() as t:
            report.failed = int(t.value("SELECT count(*) FROM failures WHERE set_id = ?", (row.id,)))
            report.held = int(
                t.value("SELECT count(*) FROM resources WHERE set_id = ? AND path IS NOT NULL", (row.id,))
            )
            query = f"SELECT uri, reason, tries FROM failures WHERE set_id = ? LIMIT {_MOST_FAILURES}"  # noqa: S608
            report.failures = [Failed(*found) for found in t.rows(query, (row.id,))]
        report.base = row.base
        report.position = text(row.position.time) if row.position else None
        if report.failed and not self._kit.options.dry_run:
            self._statuses.append(Exit.TRANSFERS_FAILED)
        report.exit_status = gravest(self._statuses)


def digest_of_path(tree: Tree, path: bytes, algorithm: str) -> str | None:
    """The hex digest of a held file; None when there is none to be read."""
    try:
        descriptor = tree.open(path)
    except OSError:
        return None
    try:
        return digest_of_descriptor(descriptor, algorithm)
    except OSError:
        return None
    finally:
        os.close(descriptor)


def remember_damage(t: Transaction, set_id: int, key: int, uri: str, now: int) -> None:
    """Remember a held file as failed, so that it is fetched again with what was listed of it."""
    t.run(
        "INSERT OR IGNORE INTO failures(set_id, uri, loc, reason, status, tries, first_at, last_at, next_at, lastmod,"
        " length, hash, changed_at) SELECT set_id, uri, ?, 'the file is missing or was changed', 0, 0, ?, ?, 0,"
        " lastmod, listed_length, listed_hash, changed_at FROM resources WHERE set_id = ? AND id = ?",
        (uri, now, now, set_id, key),
    )


def _shown(path: bytes) -> str:
    return path.decode("utf-8", "backslashreplace")
