"""The sync of one set: a baseline or increments, whichever is needed, and the position last.

An increment reads the Change Lists after the position and applies them. The order of every step: read, plan, transfer,
delete, and only then move the position. Whatever is killed in between is found by the next run and done again without
harm (DST-F7).
"""

import shlex
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress

import msgspec

from headwater.errors import Exit, HeadwaterError, SourceFault, Undetermined
from headwater.storage.transaction import Transaction
from headwater.sync.connection import AnotherSet, IncompleteList, MovedElsewhere, RedirectRefused, Scope, Unreachable
from headwater.sync.copy.held_files import find_damage
from headwater.sync.lists.archives import CHANGE_LIST_ARCHIVE, lists_over_gap
from headwater.sync.lists.change_lists import ChangeListReader, ChangeListReading, ReadingOutcome
from headwater.sync.lists.position import IndexedList, Position
from headwater.sync.options import Choice
from headwater.sync.packages.dump_documents import OtherPackage
from headwater.sync.reports import FailedTransfer, SetReport, gravest_status
from headwater.sync.sets.moved_sets import CHANGED
from headwater.sync.source_times import format_micros
from headwater.sync.state import (
    CHANGE_DUMP,
    CHANGE_LIST,
    HELD_UPDATE,
    Offer,
    SetRow,
    any_refused,
    consent_commands,
    held_count,
    keep_changed,
    keep_position,
    keep_validators,
    measured,
    refused_entries,
    unsettled,
)
from headwater.sync.transfer.work_queue import RunContext
from headwater.sync.update.applier import Applier
from headwater.sync.update.baseline import ACCEPT, Baseline
from headwater.sync.update.difference import Difference, let_changes_decide, settle_contradictions
from headwater.sync.update.set_context import SetContext, SetRelocated
from headwater.transport.fetch import DeadlineMet
from headwater.typed_decoding import from_json

_RACE_SECONDS = 0.5
_ANNOUNCED_SECONDS = 1.0  # what a source serves already it tells of in a moment
_STILL_FAILING = "SELECT 1 FROM failures WHERE set_id = ? AND last_at >= ? AND status IN (200, 404, 410) LIMIT 1"
"""Tried in this run, and what came is not what was listed: the list may have been wrong, or is another by now."""

_NEWS = (
    "SELECT 1 FROM failures WHERE set_id = ?1 AND first_at >= ?2 AND status IN (200, 404, 410)"
    " UNION ALL SELECT 1 FROM resources WHERE set_id = ?1 AND newer AND run = ?3 LIMIT 1"
)
"""Of these a change that was made while the resource was fetched is the usual cause."""

_GAPS = (ReadingOutcome.GAP, ReadingOutcome.MISSING)
_MAY_PASS = (*_GAPS, ReadingOutcome.ELSEWHERE)
_READ = (ReadingOutcome.READ, ReadingOutcome.UNCHANGED)


class SetSync:
    """The sync of one set. Call `run` once."""

    def __init__(self, context: RunContext, row: SetRow, scope: Scope) -> None:
        self._run = context
        self._set = SetContext(context, row, scope)
        self._applier = Applier(self._set)
        self._baseline = Baseline(self._set, self._applier)
        self._is_daily = row.is_offer_asked
        """Whether this is the one run of a day in which more is asked for than the Change List that is polled."""

        self._is_push_contradicted = False
        """Whether a push payload contradicts newer lists (decision 054)."""

        self._reading = ChangeListReading(outcome=ReadingOutcome.UNCHANGED, position=row.position or Position())
        """How far the changes were read."""

    def run(self) -> SetReport:
        """Do what is needed; a fault of the source ends in the report, one of our store is raised."""
        with self._run.database.read() as t:
            self._applier.wanted_base(t)
        return report_of(self._set, self._within_scope)

    def _within_scope(self) -> None:
        """Synchronise; where a list is redirected to another host, the Capability List may have moved there too."""
        try:
            self._synchronise()
        except SetRelocated:
            self._synchronise()
        except RedirectRefused:
            with suppress(SetRelocated):
                if not self._set.is_elsewhere():
                    raise
            self._synchronise()

    def _synchronise(self) -> None:
        """Bring the set up to date.

        1. A baseline, where one is wanted or there is nothing else: from the list as it is, if the source was set back.
        2. The changes after the position. Over a gap a baseline; where they do not read on, the Resource List decides.
        3. What no document tells of any more is a fault of the source.
        4. What could not be placed is settled by lists that are read once more.

        In a dry run nothing is told of what would come after a baseline.
        """
        offer, options, row = self._set.offer, self._run.options, self._set.row
        if self._set.rescoped and (before := from_json(row.scope or "[]", Choice).words) != self._set.choice.words:
            told = f"the filters differ from those of the last run ({shlex.join(before) or 'none'})"
            self._set.warn("DST-S12", f"{told}: all is compared again")
        is_accepted = options.accept_reset and row.position is not None and offer.baseline_document is not None
        is_other = self._set.rescoped or self._set.move is not None
        is_wanted = options.baseline or options.repair or row.baseline_uri is None or is_other
        if offer.baseline_document is None:
            if is_other or options.accept_reset:
                self._set.start_over()
        elif is_accepted:
            self._set_back()
        elif is_wanted or row.position is None or offer.changes_document is None:
            try:
                self._apply_list(force=is_wanted)
            except SourceFault as fault:
                is_needed = self._set.rescoped or self._set.move is not None or self._set.row.position is None
                if is_needed or options.baseline or isinstance(fault, RedirectRefused):
                    raise
                self._set.report_fault(fault)  # what was done before goes on without a baseline
                self._applier.retry_earlier()
        is_told = options.dry_run and self._baseline.tried
        if self._set.offer.changes_document is not None and not is_told:
            if not is_accepted:
                self._follow()
            if not (options.dry_run and self._baseline.tried):
                self._conclude_changes()
        if not options.dry_run:
            self._settle()

    def _apply_list(self, *, force: bool) -> None:
        """A baseline; after one that could not be read completely the changes are done all the same (DST-C11)."""
        try:
            self._baseline.carry_out(force=force)
        except IncompleteList as fault:
            self._set.report_fault(fault, f"{fault.what.partition(':')[0]}: it deletes nothing")

    def _set_back(self) -> None:
        """The Change Lists do not read on from where the copy is: the Resource List decides (DST-C10)."""
        accepted, offer, why = self._run.options.accept_reset, self._set.offer, self._reading.reason
        self._baseline.decides = True
        if not accepted:
            self._set.warn("DST-C10", f"{why}: the Resource List decides", offer.changes_document)
        try:
            if offer.baseline_document is None:
                raise SourceFault("the source offers no Resource List", code="HW-SYN-05", where=offer.identity)
            self._baseline.carry_out(force=True)
        except (RedirectRefused, MovedElsewhere):
            raise
        except (SourceFault, Undetermined) as fault:
            if accepted:
                raise
            self._applier.retry_earlier()
            self._set.keep_before()
            raise Undetermined(
                f"{why}, and no Resource List decides: {fault.what}",
                code="HW-SYN-11",
                where=offer.changes_document,
                rule="DST-C10",
                advice=ACCEPT,
            ) from fault
        finally:
            self._baseline.decides = False
        if not self._run.options.dry_run and self._set.offer.changes_document is not None:
            self._reading = self._increment()

    def _follow(self) -> None:
        """Changes from the position on (DST-5.1).

        A list may be missing, or be none, because the Capability List has named another one since. Where it leads to
        another host, the set may have moved instead.
        """
        reading = self._increment()
        is_unusable = reading.outcome in (ReadingOutcome.MISSING, ReadingOutcome.BROKEN)
        if is_unusable and not isinstance(reading.fault, RedirectRefused) and self._set.is_elsewhere():
            reading = self._increment()
        self._reading = reading
        if reading.outcome in _GAPS:
            self._bridge()
        if self._reading.outcome is ReadingOutcome.ELSEWHERE:
            self._set_back()

    def _bridge(self) -> None:
        """A baseline over a gap, once (DST-C4, DST-C5); what is remembered is done in any case (DST-F6).

        Other documents may close the gap, after which the Change List reads on (DST-5.1).
        """
        held, is_dry = self._set, self._run.options.dry_run
        for offer, lists in self._ways_over_gap() if self._reading.outcome is ReadingOutcome.GAP else ():
            known, held.offer = held.offer, offer
            try:
                bridge = self._increment(archived=lists)
            finally:
                held.offer = known
            if bridge.outcome in _READ:
                held.is_bridged = True
                self._reading = bridge if is_dry else self._increment()
                if self._reading.outcome not in _GAPS:
                    return
            elif lists is not None:
                held.warn("RS-ARC-34", f"the archive does not close the gap: {bridge.reason}", offer.changes_document)
        held.is_bridged = False
        held.warn("DST-C4", f"{self._reading.reason}: a baseline is needed", held.offer.changes_document)
        if held.offer.baseline_document is None or self._baseline.tried:
            return
        try:
            self._apply_list(force=False)
        except SourceFault:
            self._applier.retry_earlier()
            raise
        if not is_dry:
            self._reading = self._increment()

    def _ways_over_gap(self) -> Iterator[tuple[Offer, Sequence[IndexedList] | None]]:
        """What may have, without a hole, the changes that the Change List has no more, in its place.

        The lists of the Change List Archive that is offered, or that a list has linked (RS-ARC-34, RS-ARC-02,
        RS-ARC-05); then the Change Dump that is offered beside the Change List.
        """
        held, reading, position = self._set, self._reading, self._set.row.position
        if position is not None and position.time is not None and (reading.earliest or 0) > position.time:
            if CHANGE_LIST_ARCHIVE not in held.offer.documents and reading.archives is None:
                held.is_elsewhere()
            uri = held.offer.documents.get(CHANGE_LIST_ARCHIVE) or reading.archives
            found = None if uri is None else lists_over_gap(held.lists, uri, position.time, reading.earliest or 0)
            if found is not None:
                held.warn("RS-ARC-34", f"{reading.reason}: {len(found):,} archived Change Lists are read", uri)
                yield held.offer.with_document(CHANGE_LIST, uri), found
        dump = held.offer.documents.get(CHANGE_DUMP)
        if dump is not None and CHANGE_LIST in held.offer.documents and self._run.options.prefer != "lists":
            held.warn("DST-C4", f"{self._reading.reason}: the Change Dump is read", dump)
            yield held.offer.with_document(CHANGE_LIST, None), None

    def _conclude_changes(self) -> None:
        """Judge how far the changes have led: what no document tells of any more is a fault of the source."""
        reading = self._reading
        if reading.outcome is ReadingOutcome.BROKEN and reading.fault is not None:
            raise reading.fault
        if reading.outcome in _GAPS or reading.outcome is ReadingOutcome.ELSEWHERE:
            self._applier.retry_earlier()
            if self._baseline.applied:
                self._set.keep_before()
        if reading.outcome is ReadingOutcome.ELSEWHERE:
            raise Undetermined(reading.reason, code="HW-SYN-11", where=self._set.offer.changes_document, rule="DST-C10")
        if reading.outcome is ReadingOutcome.MISSING:
            raise Unreachable(reading.reason, where=self._set.offer.changes_document, rule="DST-C5")
        if reading.outcome is ReadingOutcome.GAP:
            raise Undetermined(
                f"changes before {format_micros(reading.earliest)} are in no document of the source",
                code="HW-SYN-11",
                where=self._set.offer.changes_document,
                rule="DST-C4",
                advice="The next Resource List closes the gap, or a Change List that begins before it:"
                " run the same command again when there is one.",
            )

    def _settle(self) -> None:
        """Settle what came otherwise than listed, by lists that are read once more (DST-5.3, DST-F6)."""
        with self._run.database.read() as t:
            news = t.one(_NEWS, (self._set.row.id, self._applier.began, self._run.run_number)) is not None
        if news and self._set.offer.changes_document is not None:
            time.sleep(_ANNOUNCED_SECONDS)
            self._increment(once_more=True)
        if self._set.offer.baseline_document is not None and not self._baseline.applied:
            self._reconsider(self._set.offer.baseline_document)
        if self._baseline.stale is not None:
            raise self._baseline.stale

    def _reconsider(self, uri: str) -> None:
        """Let the Resource List settle what the changes do not: failures, what is unconfirmed, changes told no more.

        What payloads have told, and lists that have led further do not, it judges even if it is no newer (decision
        054). Entries that were refused may stand there rightly by now: once a day a newer one is looked for (DST-S12).
        """
        with self._run.database.read() as t:
            failed = t.one(_STILL_FAILING, (self._set.row.id, self._applier.began))
            doubtful = failed is not None or unsettled(t, self._set.row.id).unconfirmed > 0
            is_refused_daily = self._is_daily and any_refused(t, self._set.row.id)
        contradicted = self._is_push_contradicted
        if contradicted:
            told = "a notification has told what no list tells: the Resource List is compared with"
            self._set.warn("DST-C9", told, uri)
        if contradicted or doubtful or is_refused_daily:
            try:
                self._baseline.carry_out(force=contradicted)
            except (SourceFault, Undetermined) as fault:
                if contradicted:
                    self._set.report_fault(fault)
                else:  # all that is due was done before
                    self._set.warn(fault.rule or fault.code, fault.what, fault.where)
        if not self._baseline.applied or self._set.offer.changes_document is None:
            return
        # what was told after a list that is older than the position, and was just applied, is done once more: what it
        # lists and changes have deleted since cannot be had, and is no failure (DST-5.3)
        reading = self._increment(once_more=True)
        if reading.outcome is ReadingOutcome.ELSEWHERE:
            raise Undetermined(reading.reason, code="HW-SYN-11", where=self._set.offer.changes_document, rule="DST-C10")

    # an increment

    def _increment(
        self, *, once_more: bool = False, archived: Sequence[IndexedList] | None = None
    ) -> ChangeListReading:
        """Read what has changed, do it, and move the position over it.

        `once_more`: only to see whether there is more by now; what earlier runs have left was done before. `archived`:
        the lists to read in the place of the Change List, where that does not reach far enough (RS-ARC-34).
        """
        reading = self._read_changes(archived)
        if reading.outcome in _MAY_PASS or isinstance(reading.fault, OtherPackage):
            time.sleep(_RACE_SECONDS)  # a list before it exists, a dump that is rewritten: ordinary races (AMB-63)
            reading = self._read_changes(archived, fresh=reading.outcome is ReadingOutcome.ELSEWHERE)
        if reading.outcome is ReadingOutcome.ELSEWHERE:
            return reading
        self._set.look_for_move()
        if self._set.move is not None and reading.outcome in _READ:
            self._set.take_along(CHANGED)
        has_refused = reading.refused_count > 0 or any(count for _, count in reading.skipped)
        if reading.skipped and not has_refused:  # it may settle what was refused before (DST-S12)
            with self._run.database.read() as t:
                has_refused = any_refused(t, self._set.row.id)
        if reading.pending_count or has_refused:
            self._set.report_process("increment")
            table = "changed" if reading.pending_count or reading.refused_count else None
            self._applier.carry_out(lambda t, difference: self._plan(t, difference, reading), table=table)
            with self._run.database.write() as t:
                is_asked = t.one("SELECT 1 FROM temp.changed WHERE pending AND asked IS NOT NULL LIMIT 1") is not None
            if is_asked and not self._run.options.dry_run:  # (AMB-25)
                settle, row = settle_contradictions, self._set.row
                self._applier.carry_out(lambda t, _plan: settle(t, row), retry_queue=False)
        else:
            if reading.outcome is ReadingOutcome.READ:
                self._set.report_process("increment")
            if not once_more and reading.outcome not in _GAPS:  # else a list may tell what of it still holds
                self._applier.retry_earlier()
        row = self._set.row
        is_kept = (  # of thousands of sets that are what they were nothing is to be written
            reading.outcome is ReadingOutcome.UNCHANGED
            and not reading.documents
            and (reading.position, self._set.signature) == (row.position, row.scope)
        )
        if not self._run.options.dry_run and not is_kept:
            self._keep_reading(reading)
        return reading

    def _plan(self, t: Transaction, difference: Difference, reading: ChangeListReading) -> None:
        self._is_push_contradicted |= let_changes_decide(t, self._set.row.id, reading.position.time)
        difference.increment(t)
        takes, reached, skipped = difference.paths.takes_refused, reading.position.time, tuple(reading.skipped)
        difference.counts.left_out += keep_changed(t, self._set.row.id, reached, takes, skipped)

    def _read_changes(self, archived: Sequence[IndexedList] | None, *, fresh: bool = False) -> ChangeListReading:
        held, row = self._set, self._set.row
        position = row.position or Position()
        before = held.before if archived is None and not held.is_bridged else None
        if archived is not None:
            position = msgspec.structs.replace(position, open=False)  # the list that was polled is none of the chain
        is_comparable = held.is_listed and archived is None and position.list_uri is None  # (DST-4.5)
        held.compared = position.done_until if is_comparable and not self._run.options.prefer_types else None
        return ChangeListReader(
            held.lists, row.id, held.offer, position,
            before=before, also_top=row.is_offer_asked, fresh=fresh,
        ).read(archived)  # fmt: skip

    def _keep_reading(self, reading: ChangeListReading) -> None:
        """The position moves last, over what was applied or is remembered as failed (DST-F6)."""
        whole, row = reading.outcome in _READ, self._set.row
        with self._run.database.write() as t:
            keep_position(t, row.id, reading.position)
            if whole:
                for uri, etag, modified in reading.documents:
                    keep_validators(t, row.id, uri, etag, modified)
                if row.scope is None or self._set.offer.baseline_document is None:
                    t.run("UPDATE sets SET scope = ? WHERE id = ?", (self._set.signature, row.id))
        self._set.reload()
        if whole:
            self._set.before = self._set.row.position


_MOST_FAILURES = 100
_IS_FAILING = "SELECT 1 FROM failures WHERE set_id = ? AND uri = ?"


def report_of(context: SetContext, carry_out: Callable[[], None]) -> SetReport:
    """Have a set carried out; a fault of the source ends in the report, one of our store is raised."""
    run, offer = context.run, context.offer
    try:
        if run.options.repair:
            find_damage(run.database, run.tree, run.now(), "set_id", context.row.id)
        if offer.baseline_document is None and offer.changes_document is None:
            raise SourceFault(
                "the source offers no Resource List, no Change List and no dump", code="HW-SYN-05", where=offer.identity
            )
        carry_out()
    except HeadwaterError as fault:
        if fault.exit_status not in (Exit.SOURCE, Exit.UNDETERMINED) or isinstance(fault, (DeadlineMet, AnotherSet)):
            raise
        context.report_fault(fault)
    summarise(context)
    return context.report


def summarise(context: SetContext) -> None:
    """Put into the report of a set what is remembered of it at the end of a run."""
    report, row, run = context.report, context.row, context.run
    with run.database.read() as t:
        left = unsettled(t, row.id)
        report.failed, report.newer_than_listed = left.failed, left.unconfirmed
        report.held = held_count(t, row.id)
        if not run.options.dry_run:
            report.held_back = left.deletions + left.updates
        query = (
            "SELECT uri, reason, tries, wait_until FROM failures"  # noqa: S608  our own number
            f" WHERE set_id = ? AND reason <> ? LIMIT {_MOST_FAILURES}"
        )
        report.failures = [
            FailedTransfer(uri, reason, tries, format_micros(wait_until) if (wait_until or 0) > run.now() else None)
            for uri, reason, tries, wait_until in t.rows(query, (row.id, HELD_UPDATE))
        ]
        refused = refused_entries(t, row.id)
        if context.awaits_consent and left.deletions:
            context.warn("DST-B4", _held_back(context, t, left.deletions), row.name)
        failed = [one for uri, one in run.failed.items() if t.one(_IS_FAILING, (row.id, uri))]
    for one in failed:
        run.each(one)
    run.settle()
    report.refused, report.skipped = refused.refused, refused.skipped
    for rule, told, where in refused.sentences:
        context.warn(rule, told, where)
    new = report.updated + (0 if run.options.dry_run else report.created)
    report.unchanged = min(report.unchanged, max(0, report.held - new))  # a baseline and changes see many twice
    report.base = row.base
    report.position = format_micros(row.position.time) if row.position else None
    is_undone = report.failed or left.updates or (report.held_back and run.options.delete)
    if (is_undone and not run.options.dry_run) or refused.refused or refused.skipped or left.unconfirmed:
        context.statuses.append(Exit.TRANSFERS_FAILED)
    report.exit_status = gravest_status(context.statuses)


def _held_back(context: SetContext, t: Transaction, deletions: int) -> str:
    """What is told of deletions that wait for consent, which is to all of them."""
    told = f"{deletions:,} deletions are" if deletions != 1 else "1 deletion is"
    if any_refused(t, context.row.id):
        return f"{told} held back: refused entries may name these files"
    row, run = msgspec.structs.replace(context.row, scope=context.signature), context.run
    _, held, earlier = measured(t, row)
    command = consent_commands(t, row, run.source, run.destination)["delete"]
    told += f" held back until you consent ({f'with {earlier:,} since the lists were read, ' if earlier else ''}"
    return f"{told}of {held + earlier:,} held): {command} (with your other options, such as --changes)"
