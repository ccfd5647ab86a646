"""One set as it was at a moment (`--at`): reads the evidence, lists what was there, and has each state brought.

A state comes by patches, by packages, or by versions: each resource has a list of attempts (`versions`).
"""

import msgspec

from headwater.errors import Undetermined, UsageFault
from headwater.storage.transaction import Transaction
from headwater.sync.connection import Scope
from headwater.sync.lists.archives import CHANGE_DUMP_ARCHIVE, RESOURCE_DUMP_ARCHIVE
from headwater.sync.lists.entries import links_of
from headwater.sync.past.evidence import CHANGED, EXISTED, UNKNOWN, Evidence, ListingResult
from headwater.sync.past.versions import VersionTransfer, dumps_around, second_before, ways_of
from headwater.sync.reports import SetReport
from headwater.sync.sets.moved_sets import LISTED
from headwater.sync.source_times import format_micros
from headwater.sync.state import AS_OF, CHANGE_DUMP, RESOURCE_DUMP, SetRow, fact, keep_fact
from headwater.sync.transfer.verification import digests_of
from headwater.sync.transfer.work_queue import Attempt, KnownOfState, RunContext, encode_attempts, past_attempts
from headwater.sync.update.applier import Applier
from headwater.sync.update.difference import Difference
from headwater.sync.update.set_context import SetContext
from headwater.sync.update.set_sync import report_of

_WAITS = 99  # a round that never comes: what dumps of earlier states are not fetched for
_SET_APART = (
    f"UPDATE temp.work SET round = {_WAITS} WHERE round = 0"  # noqa: S608  our own number
    " AND uri IN (SELECT uri FROM temp.past WHERE is_present)"
)
"""What is still as it was waits, so that no dump is fetched for it."""

_WANTED = """
SELECT w.n, w.loc, w.hash, w.links, coalesce(p.state, 0), p.changed_before, p.changed_after, coalesce(p.has_rested, 0)
FROM temp.work w LEFT JOIN temp.past p ON p.uri = w.uri WHERE w.round = 0 ORDER BY w.n"""
_MADE_AT = """
UPDATE temp.work AS w SET changed_at = (SELECT max(s.low) FROM temp.stated s
  WHERE s.uri = w.uri AND s.change IS NOT NULL AND s.high <= ? AND s.hash IS w.hash)
WHERE round = 0 AND changed_at IS NULL"""
_PLAN = "UPDATE temp.work SET round = 1, attempt_json = ? WHERE n = ?"
_BY_PATCHES = f"UPDATE temp.work SET round = {_WAITS}, attempt_json = ? WHERE n = ?"  # noqa: S608


class _WantedRow(msgspec.Struct, frozen=True, gc=False):
    """What is wanted of a resource that is no more as it was, and what is known of that state (`temp.past`)."""

    n: int
    loc: str
    hash: str | None
    links: str | None
    state: int
    changed_before: int | None
    changed_after: int | None
    has_rested: int

    @property
    def has_no_version(self) -> bool:
        """Whether no list leads to versions of it, so that a package may be all there is."""
        return not any(links_of(self.links, relation) for relation in ("memento", "timegate", "timemap"))


class _VersionApplier(Applier):
    """Applies the list of a moment."""

    def __init__(self, context: SetContext, evidence: Evidence) -> None:
        super().__init__(context)
        self._evidence = evidence
        self.unanswered = False
        """Whether a TimeGate or a TimeMap was not asked, or gave no answer."""

    def bring(self, table: str | None) -> None:
        """Have patches, then packages of then, bring what is no more as it was; then what is; the rest one by one."""
        held = self._set
        transfer = VersionTransfer(self._run, held.row, held.report, held.warn, held.scope.objection)
        transfer.moment = self._evidence.moment
        transfer.adopt()
        # a source of a dataset keeps no earlier states, but all patches: for what they make no package is fetched
        with self._run.database.write() as t:
            t.run(_SET_APART)
            unversioned = {row.n: row for row in self._wanted(t) if row.has_no_version and row.hash is not None}
        first = self._first_patches(unversioned) if unversioned and self._run.options.patches != "off" else None
        if first is not None:  # (TIM-A6)
            n, patches = first
            with self._run.database.write() as t:
                t.run(_BY_PATCHES, (encode_attempts((patches, *self._attempts(unversioned[n]))), n))
        offer = held.offer
        if offer.on_demand is not None and offer.on_demand.past and self._is_wanted():
            self._by_package_transfer(self._run, offer, format_micros(self._evidence.moment))
        self._by_dumps()
        with self._run.database.write() as t:
            gone = self._wanted(t)
            t.run(f"UPDATE temp.work SET round = 0 WHERE round = {_WAITS}")  # noqa: S608
            t.many(_PLAN, ((encode_attempts(self._attempts(row)), row.n) for row in gone))
        transfer.adopt()
        self._by_packages()
        try:
            transfer.run()
        finally:
            self.unanswered = transfer.unanswered

    def _wanted(self, t: Transaction) -> list[_WantedRow]:
        """What is no more as it was, and was not brought yet."""
        return [_WantedRow(*row) for row in t.rows(_WANTED)]

    def _by_dumps(self) -> None:
        """Have the packages of dumps, archived or present, bring earlier states: what does not verify stays wanted."""
        context, held, archived = self._run, self._set, self._evidence.archived
        moment, present = self._evidence.moment, held.offer.documents.get(CHANGE_DUMP)
        changes = [one.uri for one in reversed(archived[CHANGE_DUMP_ARCHIVE]) if (one.from_ or 0) <= moment]
        nearest = dumps_around(archived[RESOURCE_DUMP_ARCHIVE], moment)
        offers = [(CHANGE_DUMP, uri) for uri in (*([present] if present else []), *changes)]
        offers += [(RESOURCE_DUMP, one.uri) for one in nearest]
        if not offers or context.options.prefer == "lists" or not self._is_wanted():
            return
        with context.database.write() as t:
            may_be_all = any(row.has_no_version for row in self._wanted(t))
        if may_be_all and offers[0][0] == CHANGE_DUMP:  # packages are chosen by the times of changes
            self._evidence.changes(0, moment)  # they tell when the states were made that a snapshot has
            with context.database.write() as t:
                t.run(_MADE_AT, (moment,))
        # an offer of one dump, beside lists, so that nothing is taken from the dump but octets that verify
        kept = {name: where for name, where in held.offer.documents.items() if name not in (RESOURCE_DUMP, CHANGE_DUMP)}
        lists = {"resourcelist": held.offer.identity, "changelist": held.offer.identity} | kept
        eager = msgspec.structs.replace(context, options=msgspec.structs.replace(context.options, prefer="dumps"))
        for capability, uri in offers:
            one = msgspec.structs.replace(held.offer, documents=lists | {capability: uri}, on_demand=None)
            self._by_package_transfer(eager, one)
            if not self._is_wanted():
                return

    def _is_wanted(self) -> bool:
        with self._run.database.write() as t:
            return t.one("SELECT 1 FROM temp.work WHERE round = 0 LIMIT 1") is not None

    def _attempts(self, row: _WantedRow) -> tuple[Attempt, ...]:
        at = format_micros(self._evidence.moment)
        doubt = None
        if row.state == UNKNOWN:
            doubt = f"no list says whether it was there at {at}"
        elif row.state == EXISTED:
            doubt = f"no list says in which state it was at {at}"
        asked_at = moment = self._evidence.moment
        if row.has_rested and self._evidence.coverage.tells(second_before(moment), moment):
            asked_at = second_before(moment)
        has_hash = bool(digests_of(row.hash))
        known = KnownOfState(row.changed_before, row.changed_after, row.state != UNKNOWN, has_hash, asked_at)
        return past_attempts(ways_of(row.loc, row.links, known, tried_loc=False), known, doubt)


# one set

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
        what = f"the folder is a copy that follows the source, not one of {format_micros(moment)}"
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
        evidence = Evidence(self._set.lists, self._set.offer, self._moment)
        evidence.read()
        with self._run.database.write() as t:
            filled = evidence.fill_listed(t)
        if self._is_before_all(evidence, filled):
            self.begins = evidence.begins if evidence.begins is not None else self._run.now()
            return
        if self._set.move is not None:
            self._set.take_along(LISTED)
        self._set.report_process("past")
        self._set.report.at = format_micros(evidence.moment)
        proof = evidence.proof is not None
        applier = _VersionApplier(self._set, evidence)
        with self._run.database.read() as t:
            applier.wanted_base(t)

        def plan(t: Transaction, difference: Difference) -> None:
            whole = difference.baseline(t, None, complete=proof, skipped=tuple(evidence.skipped))
            t.run(_DATED)
            if proof and whole:
                difference.gone(t, None)
            t.run(_FORGOTTEN, (self._set.row.id, self._run.now()))

        applier.carry_out(plan, table="listed")
        if not self._run.options.dry_run:
            with self._run.database.write() as t:  # an audit goes by what was chosen
                t.run("UPDATE sets SET scope = ? WHERE id = ?", (self._set.signature, self._set.row.id))
        if not proof and (applier.unanswered or evidence.unread or not self._is_vain(evidence)):
            what = evidence.lack()
            if evidence.unread:
                what += f"; not read: {', '.join(evidence.unread[:3])}"
            raise Undetermined(what, code="HW-SYN-24", where=self._set.offer.identity, rule="DST-5.1")

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
