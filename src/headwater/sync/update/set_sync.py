"""One set, brought up to date: a baseline or an increment, whichever is needed, and the position last (4, 5).

The order of every step: read, plan, transfer, delete, and only then move the position. Whatever is killed in between is
found by the next run and done again without harm (DST-F7).
"""

from __future__ import annotations

import time

from headwater.errors import Exit, HeadwaterError, SourceFault
from headwater.sync.copy.local_files import LocalFiles, find_damage
from headwater.sync.faults import Moving, NothingToCopy, RedirectRefused, Unreachable
from headwater.sync.filters import Scope
from headwater.sync.lists.change_lists import ReadingOutcome
from headwater.sync.lists.refused_entries import refused_entries
from headwater.sync.options import FailedTransfer, SetReport, gravest_status
from headwater.sync.run_context import RunContext
from headwater.sync.state import SetRow
from headwater.sync.timestamps import format_micros
from headwater.sync.update.applier import Applier
from headwater.sync.update.baseline import Baseline
from headwater.sync.update.increment import Increment
from headwater.sync.update.set_context import SetContext, SetMoved

_MOST_FAILURES = 100
_ANNOUNCED_SECONDS = 1.0  # what a source serves already it tells of in a moment
_STILL_FAILING = "SELECT 1 FROM failures WHERE set_id = ? AND last_at >= ? AND status IN (200, 404, 410) LIMIT 1"
"""Tried in this run, and what came is not what was listed: the list may have been wrong, or is another by now."""

_NEW_FAILURE = "SELECT 1 FROM failures WHERE set_id = ? AND first_at >= ? AND status IN (200, 404, 410) LIMIT 1"
"""Of these a change that was made while the resource was fetched is the usual cause."""

UNCONFIRMED = "SELECT count(*) FROM resources WHERE set_id = ? AND newer AND path IS NOT NULL"

HELD_BACK = "SELECT count(*) FROM resources WHERE set_id = ? AND doomed_at IS NOT NULL AND path IS NOT NULL"


class SetSync:
    """Brings one set up to date. Call `run` once."""

    def __init__(self, context: RunContext, row: SetRow, scope: Scope) -> None:
        self._context = context
        self._set = SetContext(context, row, scope)
        self._applier = Applier(self._set)
        self._baseline = Baseline(self._set, self._applier)
        self._increment = Increment(self._set, self._applier)
        self._began = context.now()

    def run(self) -> SetReport:
        """Do what is needed; a fault of the source ends in the report, one of our store is raised."""
        with self._context.database.write() as t:
            self._applier.wanted_base(t)
        try:
            if self._context.options.repair:
                find_damage(
                    self._context.database, LocalFiles(self._context.tree), self._set.row.id, self._context.now()
                )
            self._within_scope()
        except HeadwaterError as fault:
            if fault.exit_status not in (Exit.SOURCE, Exit.UNDETERMINED):
                raise
            self._set.say(fault)
        finally:
            self._applier.unconfirmed.clear()
        self._summarise()
        return self._set.report

    def _within_scope(self) -> None:
        """Synchronise; where a list is redirected to another host, the Capability List may have moved there too."""
        try:
            self._synchronise()
        except SetMoved:
            self._synchronise()
        except RedirectRefused:
            if not self._set.has_moved():
                raise
            self._synchronise()

    def _synchronise(self) -> None:
        offer, row = self._set.offer, self._set.row
        if offer.resource_list is None and offer.change_list is None:
            raise NothingToCopy("the source offers no Resource List and no Change List", where=offer.identity)
        moved = self._set.move is not None
        wanted = self._context.options.baseline or self._context.options.repair or self._set.rescoped or moved
        if (self._set.rescoped or moved) and offer.resource_list is None:
            self._set.start_over()
        if offer.resource_list is not None and (row.position is None or wanted):
            if not self._first_of_all(force=wanted or not row.baseline_done) or self._context.options.dry_run:
                return
        elif offer.change_list is None:
            self._baseline.carry_out(force=False)
            self._settle()
            return
        if self._set.offer.change_list is not None:
            self._increments()
        self._settle()

    def _settle(self) -> None:
        """Settle what this run has received and could not place, by lists that are read once more (5.3, DST-F6)."""
        if self._context.options.dry_run:
            return
        with self._context.database.write() as t:
            news = t.one(_NEW_FAILURE, (self._set.row.id, self._began)) is not None
        if (news or self._applier.unconfirmed.count) and self._set.offer.change_list is not None:
            time.sleep(_ANNOUNCED_SECONDS if news else 0)
            self._increment.carry_out(once_more=True)
        self._applier.confirm()
        self._reconsider()
        self._applier.confirm()

    def _first_of_all(self, *, force: bool) -> bool:
        """The baseline; a repair does what it can without one."""
        try:
            return self._baseline.carry_out(force=force)
        except SourceFault as fault:
            if self._set.move is not None or self._set.row.position is None or self._context.options.baseline:
                raise
            if self._set.rescoped:
                raise
            self._set.say(fault)
            self._applier.left_over()
            return True

    def _increments(self) -> None:
        """Increments from the position; a gap leads to a baseline, once (5.1, DST-C4, DST-C5)."""
        hole = self._set.row.hole_until
        if hole is not None and not self._baseline.tried and self._set.offer.resource_list is not None:
            self._baseline.carry_out(force=False)
        reading = self._increment.carry_out()
        if reading.outcome is ReadingOutcome.GAP and self._set.since is not None:
            self._set.since = None  # those since the Resource List are not on offer any more, and had been done once
            reading = self._increment.carry_out()
        if reading.outcome is ReadingOutcome.MISSING and self._set.refresh_offer():
            reading = self._increment.carry_out()
        if reading.outcome in (ReadingOutcome.GAP, ReadingOutcome.MISSING):
            self._set.warn("DST-C4", f"{reading.reason}: a baseline is needed", self._set.offer.change_list)
            if self._set.offer.resource_list is not None and not self._baseline.tried:
                self._bridge()
                if self._context.options.dry_run:
                    return
                reading = self._increment.carry_out()
        if reading.outcome is ReadingOutcome.GAP:
            reading = self._increment.over_the_hole(reading)
        if reading.outcome is ReadingOutcome.BROKEN and reading.fault is not None:
            raise reading.fault
        if reading.outcome in (ReadingOutcome.GAP, ReadingOutcome.MISSING):
            self._applier.left_over()
        if reading.outcome is ReadingOutcome.MISSING:
            raise Unreachable(reading.reason, where=self._set.offer.change_list, rule="DST-C5")
        if self._set.row.hole_until is not None:
            raise Moving(
                f"changes before {format_micros(self._set.row.hole_until)} are in no document of the source",
                where=self._set.offer.change_list,
                rule="DST-C4",
                advice="The next Resource List closes the gap: run the same command again when there is one.",
            )

    def _bridge(self) -> None:
        """A baseline over a gap; what is remembered is done also where there is none (DST-F6)."""
        try:
            self._baseline.carry_out(force=False)
        except SourceFault:
            self._applier.left_over()
            raise

    def _reconsider(self) -> None:
        """Let the Resource List settle what the changes do not: failures, what is unconfirmed, changes told no more."""
        if self._context.options.dry_run or self._set.offer.resource_list is None or self._baseline.applied:
            return
        position = self._set.row.position
        with self._context.database.write() as t:
            failed = t.one(_STILL_FAILING, (self._set.row.id, self._began))
            doubtful = failed is not None or int(t.value(UNCONFIRMED, (self._set.row.id,))) > 0
        if doubtful or (position is not None and position.rewound):
            self._baseline.reconsider(corrected=doubtful)

    def _left_as_they_were(self) -> int:
        """How many files this run can have left as they were: a baseline and the changes after it see many twice."""
        report, dry = self._set.report, self._context.options.dry_run
        return max(0, report.held - report.updated - (0 if dry else report.created))

    def _summarise(self) -> None:
        report, row = self._set.report, self._set.row
        with self._context.database.write() as t:
            report.failed = int(t.value("SELECT count(*) FROM failures WHERE set_id = ?", (row.id,)))
            report.held = int(
                t.value("SELECT count(*) FROM resources WHERE set_id = ? AND path IS NOT NULL", (row.id,))
            )
            report.newer_than_listed = int(t.value(UNCONFIRMED, (row.id,)))
            if not self._context.options.dry_run:
                report.held_back = int(t.value(HELD_BACK, (row.id,)))
            query = f"SELECT uri, reason, tries, wait_until FROM failures WHERE set_id = ? LIMIT {_MOST_FAILURES}"  # noqa: S608
            report.failures = [
                FailedTransfer(
                    uri, reason, tries, format_micros(wait_until) if (wait_until or 0) > self._context.now() else None
                )
                for uri, reason, tries, wait_until in t.rows(query, (row.id,))
            ]
            refused = refused_entries(t, row.id)
        report.refused, report.skipped = refused.refused, refused.skipped
        for rule, told, where in refused.sentences():
            self._set.warn(rule, told, where)
        report.unchanged = min(report.unchanged, self._left_as_they_were())
        report.base = row.base
        report.position = format_micros(row.position.time) if row.position else None
        undeleted = report.held_back and self._context.options.delete
        if (report.failed or undeleted) and not self._context.options.dry_run:
            self._set.statuses.append(Exit.TRANSFERS_FAILED)
        if refused or report.newer_than_listed:
            self._set.statuses.append(Exit.TRANSFERS_FAILED)
        report.exit_status = gravest_status(self._set.statuses)
