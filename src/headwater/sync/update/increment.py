"""The increment of one set: reads its Change Lists after the position, applies them, and moves the position."""

from __future__ import annotations

import time

import msgspec

from headwater.storage.transaction import Transaction
from headwater.sync.alternates import keep_representations
from headwater.sync.lists.change_lists import ChangeListReader, ChangeListReading, ReadingOutcome
from headwater.sync.lists.position import Position, kept_ahead
from headwater.sync.lists.refused_entries import any_refused
from headwater.sync.packages.package_download import OtherPackage
from headwater.sync.sets.relocation import CHANGED
from headwater.sync.state.pushed_changes import let_changes_decide
from headwater.sync.state.set_rows import keep_position
from headwater.sync.state.validators import keep_validators
from headwater.sync.update.applier import Applier
from headwater.sync.update.contradictions import any_asked, delete_what_is_gone, plan_as_listed
from headwater.sync.update.difference import Difference
from headwater.sync.update.set_context import SetContext

_RACE_SECONDS = 0.5
_MAY_PASS = (ReadingOutcome.GAP, ReadingOutcome.MISSING, ReadingOutcome.ELSEWHERE)


class Increment:
    """Carries out increments, until there are no further changes."""

    def __init__(self, context: SetContext, applier: Applier) -> None:
        self._set = context
        self._run = context.run
        self._applier = applier

    def carry_out(self, *, once_more: bool = False) -> ChangeListReading:
        """Read what has changed, do it, and move the position over it.

        `once_more`: only to see whether there is more by now; what earlier runs have left was done before.
        """
        reading = self._read_changes()
        if reading.outcome in _MAY_PASS or isinstance(reading.fault, OtherPackage):
            time.sleep(_RACE_SECONDS)  # a list before it exists, a dump that is rewritten: ordinary races (AMB-63)
            reading = self._read_changes(fresh=reading.outcome is ReadingOutcome.ELSEWHERE)
        if reading.outcome is ReadingOutcome.ELSEWHERE:
            return reading
        self._set.look_for_move()
        if self._set.move is not None and reading.outcome in (ReadingOutcome.READ, ReadingOutcome.UNCHANGED):
            self._set.take_along(CHANGED)
        if reading.pending_count or self._is_refused(reading):
            self._set.report_process("increment")
            self._applier.carry_out(lambda t, difference: self._plan(t, difference, reading), table="changed")
            self._settle_contradictions()
        else:
            if reading.outcome is ReadingOutcome.READ:
                self._set.report_process("increment")
            if not once_more and reading.outcome not in (
                ReadingOutcome.GAP,
                ReadingOutcome.MISSING,
            ):  # else a list may tell what of it still holds
                self._applier.left_over()
        if not self._run.options.dry_run and not self._is_kept(reading):
            self._keep_reading(reading)
        return reading

    def _settle_contradictions(self) -> None:
        """Take what came as the Resource List has it, and do deletions of what the source has not (AMB-25)."""
        with self._run.database.write() as t:
            is_due = not self._run.options.dry_run and any_asked(t)
        if is_due:
            self._applier.carry_out(self._plan_contradictions, retry_queue=False)

    def _plan_contradictions(self, t: Transaction, difference: Difference) -> None:
        plan_as_listed(t, self._set.row, difference.counts)
        delete_what_is_gone(t, self._set.row.id)

    def _plan(self, t: Transaction, difference: Difference, reading: ChangeListReading) -> None:
        difference.restate_by_changes(t)
        self._set.is_doubted |= let_changes_decide(t, self._set.row.id, reading.position.time)
        difference.increment(t)
        difference.refuse_changed(t, reading.position.time, tuple(reading.skipped))

    def _is_refused(self, reading: ChangeListReading) -> bool:
        """Whether something was refused, or settles what was refused before (DST-S12)."""
        if reading.refused_count or any(count for _, count in reading.skipped):
            return True
        with self._run.database.read() as t:
            return bool(reading.skipped) and any_refused(t, self._set.row.id)

    def _read_changes(self, *, fresh: bool = False) -> ChangeListReading:
        held, row = self._set, self._set.row
        position = held.since or row.position or Position()
        before = None if held.chain is not None else held.before
        if held.chain is not None:
            position = msgspec.structs.replace(position, open=False)  # the list that was polled is none of the chain
        held.compare_from(position)
        return ChangeListReader(
            held.lists, row.id, held.offer, position,
            before=before, also_top=row.is_offer_asked, fresh=fresh,
        ).read(held.chain)  # fmt: skip

    def _is_kept(self, reading: ChangeListReading) -> bool:
        """Whether nothing new was read: of thousands of sets that are what they were nothing is to be written."""
        row = self._set.row
        as_it_was = (
            reading.outcome is ReadingOutcome.UNCHANGED and not reading.documents and reading.position == row.position
        )
        return as_it_was and row.scope == self._set.signature

    def _keep_reading(self, reading: ChangeListReading) -> None:
        """The position moves last, over what was applied or is remembered as failed (DST-F6)."""
        whole = reading.outcome in (ReadingOutcome.READ, ReadingOutcome.UNCHANGED)
        with self._run.database.write() as t:
            if whole:
                keep_representations(t, self._set.row.id, whole=False)
            if whole or self._set.since is None:
                keep_position(t, self._set.row.id, self._not_back(reading.position))
            if whole:
                for uri, etag, modified in reading.documents:
                    keep_validators(t, self._set.row.id, uri, etag, modified)
                if self._set.since is not None:
                    self._set.read_again(t, None)
                if self._set.row.scope is None or self._set.offer.baseline_document is None:
                    t.run("UPDATE sets SET scope = ? WHERE id = ?", (self._set.signature, self._set.row.id))
        self._set.reload()
        if whole:
            self._set.before = self._set.row.position

    def _not_back(self, reached: Position) -> Position:
        """Where changes were only done again, and fewer are on offer than once were, T stays (DST-F12)."""
        held = self._set.row.position
        if self._set.since is None or held is None or held.time is None:
            return reached
        if not reached.lists:
            return held
        return kept_ahead(reached, held)
