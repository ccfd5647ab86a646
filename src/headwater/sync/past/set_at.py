"""One set as it was at a moment: reads the evidence, lists what was there, and has it copied (`--at`)."""

from __future__ import annotations

from headwater.errors import Undetermined, UsageFault
from headwater.storage.transaction import Transaction
from headwater.sync.filters import Scope
from headwater.sync.past.evidence import Evidence, EvidenceReader
from headwater.sync.past.listing import CHANGED, ListingResult, fill_listed
from headwater.sync.past.version_applier import VersionApplier
from headwater.sync.reports import SetReport
from headwater.sync.run_context import RunContext
from headwater.sync.source_times import format_micros
from headwater.sync.state import AS_OF, SetRow, fact, keep_fact
from headwater.sync.update.difference import Difference
from headwater.sync.update.set_context import SetContext
from headwater.sync.update.set_sync import report_of

_FORGOTTEN = (
    "DELETE FROM failures WHERE set_id = ? AND coalesce(wait_until, 0) <= ? AND uri NOT IN (SELECT uri FROM temp.work)"
)
_DATED = (
    "UPDATE temp.work AS w SET changed_at = p.changed_before FROM temp.past p"  # noqa: S608  our own number
    f" WHERE p.uri = w.uri AND p.state = {CHANGED}"
)
_IN_USE = (
    "SELECT 1 FROM resources UNION ALL SELECT 1 FROM failures UNION ALL SELECT 1 FROM sets WHERE position IS NOT NULL"
    " LIMIT 1"
)


def mark_copy(t: Transaction, moment: int, where: str) -> None:
    """Remember of which moment the copy is. Raises UsageFault where it is of the present, or of another."""
    known = fact(t, AS_OF)
    if known is None and t.one(_IN_USE) is not None:
        what = f"the folder is a copy that follows the source, and is not turned into one of {format_micros(moment)}"
        raise UsageFault(what, code="HW-SYN-26", where=where)
    if known is not None and int(known) != moment:
        what = f"the folder is a copy of {format_micros(int(known))}, not of {format_micros(moment)}"
        raise UsageFault(what, code="HW-SYN-26", where=where)
    keep_fact(t, AS_OF, str(moment))


class SetAt:
    """The copy of one set as it was at a moment. Call `run` once. `begins`: when anything was there first, if later."""

    def __init__(self, context: RunContext, row: SetRow, scope: Scope, moment: int) -> None:
        self._run = context
        self._set = SetContext(context, row, scope)
        self._moment = moment
        self.begins: int | None = None

    def run(self) -> SetReport:
        """Do what is needed; a fault of the source ends in the report, one of our store is raised."""
        return report_of(self._set, self._copy)

    def _copy(self) -> None:
        reader = EvidenceReader(self._set.lists, self._set.offer, self._moment)
        evidence = reader.read()
        with self._run.database.write() as t:
            filled = fill_listed(t, evidence)
        if self._is_before_all(evidence, filled):
            self.begins = evidence.begins if evidence.begins is not None else self._run.now()
            return
        self._set.report_process("past")
        self._set.report.at = format_micros(evidence.moment)
        proof = evidence.proof is not None
        applier = VersionApplier(self._set, reader, evidence)
        with self._run.database.read() as t:
            applier.wanted_base(t)

        def plan(t: Transaction, difference: Difference) -> None:
            difference.baseline(t, None)
            t.run(_DATED)
            whole = difference.refuse_listed(t, None, complete=proof, skipped=tuple(evidence.skipped))
            if proof and whole:
                difference.gone(t, None)
            t.run(_FORGOTTEN, (self._set.row.id, self._run.now()))

        applier.carry_out(plan, table="listed")
        if not proof and (applier.unanswered or evidence.unread or not self._is_vain(evidence)):
            raise self._unknown(evidence)

    def _is_before_all(self, evidence: Evidence, filled: ListingResult) -> bool:
        """Whether the set had nothing yet, or nobody tells of a time so early, and no TimeGate might."""
        if filled.known or evidence.unread:
            return False
        if evidence.proof is not None:
            return not filled.doubtful and not filled.had_before
        early = evidence.begins is None or evidence.moment < evidence.begins
        return early and not filled.linked

    def _is_vain(self, evidence: Evidence) -> bool:
        """Whether the moment is before all that is told, and no TimeGate had anything either; then all is forgotten."""
        if evidence.begins is None or evidence.moment >= evidence.begins or self._run.options.dry_run:
            return False
        with self._run.database.write() as t:
            if t.one("SELECT 1 FROM resources WHERE set_id = ? LIMIT 1", (self._set.row.id,)) is not None:
                return False
            t.run("DELETE FROM failures WHERE set_id = ?", (self._set.row.id,))
        self.begins = evidence.begins
        return True

    def _unknown(self, evidence: Evidence) -> Undetermined:
        what = evidence.lack()
        if evidence.unread:
            what += f"; not read: {', '.join(evidence.unread[:3])}"
        return Undetermined(what, code="HW-SYN-24", where=self._set.offer.identity, rule="DST-5.1")
