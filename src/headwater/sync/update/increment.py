"""The increment of one set: reads its Change Lists after the position, applies them, and moves the position."""

from __future__ import annotations

import time

import msgspec

from headwater.storage.sqlite.transaction import Transaction
from headwater.sync.alternates.staged_alternates import keep_representations
from headwater.sync.archives.gap import lists_over_gap
from headwater.sync.lists.change_lists import ChangeListReader, ChangeListReading, ReadingOutcome
from headwater.sync.lists.position import Position, kept_ahead
from headwater.sync.lists.refused_entries import any_refused
from headwater.sync.packages.package_download import OtherPackage
from headwater.sync.sets.relocation import CHANGED
from headwater.sync.source_times import SECOND, format_micros
from headwater.sync.state.facts import fact, keep_fact
from headwater.sync.state.pushed_changes import let_changes_decide
from headwater.sync.state.set_rows import keep_position
from headwater.sync.state.validators import keep_validators
from headwater.sync.update.applier import Applier
from headwater.sync.update.contradictions import any_asked, delete_what_is_gone
from headwater.sync.update.difference import Difference
from headwater.sync.update.set_context import SetContext

_RACE_SECONDS = 0.5
_GAP_SINCE = "gap of set {}"  # a fact: the position before the changes that are in no document
_GAP_TRIED = "gap of set {} tried at"  # a fact: when a service that follows last looked whether they are by now
_GAP_PAUSE = 3_600 * SECOND


_MAY_PASS = (ReadingOutcome.GAP, ReadingOutcome.MISSING, ReadingOutcome.ELSEWHERE)


class Increment:
    """Carries out increments, until there are no further changes."""

    def __init__(self, context: SetContext, applier: Applier) -> None:
        self._set = context
        self._run = context.run
        self._applier = applier
        self.archives: str | None = None
        """Where the Change List has said that its archive is (RS-ARC-05)."""

        self._closes_gap = False

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
            self._delete_what_is_gone()
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

    def _delete_what_is_gone(self) -> None:
        """Do deletions that the Resource List contradicts, where the source has not what they name."""
        with self._run.database.write() as t:
            is_due = not self._run.options.dry_run and any_asked(t)
        if is_due:
            number = self._set.row.id
            self._applier.carry_out(lambda t, _: delete_what_is_gone(t, number), retry_queue=False)

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

    def pass_over_gap(self, reading: ChangeListReading) -> ChangeListReading:
        """No newer Resource List bridges the gap: do what is known, remember the gap, and say so (DST-5.1)."""
        if reading.earliest is None or self._set.row.position is None:
            return reading
        row, position = self._set.row, self._set.row.position
        beyond = max(reading.earliest, position.time or reading.earliest)
        with self._run.database.write() as t:
            if (
                position.time is not None and row.hole_until is None
            ):  # of several gaps the first one begins where it does
                keep_fact(t, _GAP_SINCE.format(row.id), str(position.time))
            t.run("UPDATE sets SET hole_until = ? WHERE id = ?", (reading.earliest, row.id))
            keep_position(t, self._set.row.id, Position(time=beyond))
        self._set.reload()
        return self.carry_out()

    def is_gap_due(self) -> bool:
        """Whether documents are to be read for a remembered gap: by a run always, by a service hourly (DST-F6)."""
        row, now = self._set.row, self._run.now()
        if row.hole_until is None or not self._run.options.patient:
            return row.hole_until is not None
        with self._run.database.write() as t:
            tried = fact(t, _GAP_TRIED.format(row.id))
            is_due = tried is None or not now - _GAP_PAUSE < int(tried) <= now
            if is_due and not self._run.options.dry_run:
                keep_fact(t, _GAP_TRIED.format(row.id), str(now))
        return is_due

    def close_gap(self) -> ChangeListReading | None:
        """Do the changes since before a remembered gap, where the Change Lists cover that time by now (DST-5.1)."""
        since = self._gap_since()
        return None if since is None else self._close_gap(since)

    def close_gap_by_archive(self, uri: str) -> None:
        """The same by the Change List Archive, which may have got the lists since (RS-ARC-34)."""
        since, until = self._gap_since(), self._set.row.hole_until
        if since is None or until is None or (found := lists_over_gap(self._set.lists, uri, since, until)) is None:
            return
        what = f"changes before {format_micros(until)}: {len(found.lists):,} archived Change Lists are read"
        self._set.warn("RS-ARC-34", what, found.uri)
        with self._set.reading(found.uri, found.lists):
            self._close_gap(since)

    def _gap_since(self) -> int | None:
        row = self._set.row
        with self._run.database.read() as t:
            since = fact(t, _GAP_SINCE.format(row.id)) or row.baseline_at
        return None if since is None or self._set.since is not None else int(since)

    def _close_gap(self, since: int) -> ChangeListReading | None:
        self._set.since, self._closes_gap = Position(time=since), True
        try:
            closing = self.carry_out() if _covers(self._read_changes()) else None
        finally:
            self._set.since, self._closes_gap = None, False
        if closing is None or not _covers(closing):
            return None
        if not self._run.options.dry_run:
            with self._run.database.write() as t:
                t.run("UPDATE sets SET hole_until = NULL WHERE id = ?", (self._set.row.id,))
            self._set.reload()
        return closing

    def _read_changes(self, *, fresh: bool = False) -> ChangeListReading:
        held, row = self._set, self._set.row
        position = held.since or row.position or Position()
        before = None if self._closes_gap or held.chain is not None else held.before
        if held.chain is not None:
            position = msgspec.structs.replace(position, open=False)  # the list that was polled is none of the chain
        compare = held.compare_from(position)
        reading = ChangeListReader(
            held.lists, row.id, held.offer, position,
            before=before, compare=compare, also_top=row.is_offer_asked, fresh=fresh,
        ).read()  # fmt: skip
        self.archives = reading.archives or self.archives
        return reading

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


def _covers(reading: ChangeListReading) -> bool:
    """Whether all changes since the position are in what was read, by what the lists state."""
    return reading.outcome is ReadingOutcome.READ and reading.reaches_back
