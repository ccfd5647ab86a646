"""The applier of a copy of the past: plans the way to the earlier state of each resource, and has it brought."""

from __future__ import annotations

import msgspec

from headwater.spec.hashes import parse_hash
from headwater.storage.sqlite.transaction import Transaction
from headwater.sync.lists.entries import links_of
from headwater.sync.past.evidence import PRESENT, Evidence, EvidenceReader
from headwater.sync.past.staging import EXISTED, UNKNOWN
from headwater.sync.past.version_transfer import VersionTransfer
from headwater.sync.source_times import format_micros
from headwater.sync.state.set_rows import CHANGE_DUMP, RESOURCE_DUMP, Offer
from headwater.sync.transfer.past_ways import KnownOfState, second_before, ways_of
from headwater.sync.transfer.verification import digests_of
from headwater.sync.transfer.work_queue import PastAttempt, PlanCounts, encode_attempt
from headwater.sync.update.applier import Applier
from headwater.sync.update.set_context import SetContext

_MOST_DUMPS = 3
_WANTED = """
SELECT w.n, w.loc, w.hash, w.length, w.lastmod, w.links, p.n, p.hash, p.length, p.lastmod, d.state, d.changed_before,
  d.changed_after,
  NOT EXISTS (SELECT 1 FROM temp.told t WHERE t.uri = w.uri AND t.low <= ?2 AND t.high >= ?3),
  EXISTS (SELECT 1 FROM temp.told t WHERE t.uri = w.uri AND t.low > max(?2, p.through))
FROM temp.work w LEFT JOIN temp.seen p ON p.uri = w.uri AND p.snapshot = ?1 LEFT JOIN temp.doubts d ON d.uri = w.uri
WHERE w.round = 0 ORDER BY w.n"""
_WAITS = 99  # a round that never comes: what dumps of earlier states are not fetched for
_MADE_AT = """
UPDATE temp.work AS w SET changed_at = (
  SELECT max(d.low) FROM temp.told d WHERE d.uri = w.uri AND d.high <= ? AND d.hash IS w.hash)
WHERE round = 0 AND changed_at IS NULL"""
_MADE = "SELECT n FROM temp.work WHERE uri IN (SELECT uri FROM temp.aside)"
_BACK = f"UPDATE temp.work SET round = 0 WHERE round = {_WAITS}"  # noqa: S608
_PLAN = "UPDATE temp.work SET round = 1, attempt_json = ? WHERE n = ? AND round = 0"


class _WantedRow(msgspec.Struct, frozen=True, gc=False):
    """What is wanted of a resource, and what the present list says of it."""

    n: int
    loc: str
    hash: str | None
    length: int | None
    lastmod: int | None
    links: str | None
    present: int | None
    present_hash: str | None
    present_length: int | None
    present_lastmod: int | None
    state: int | None
    changed_before: int | None
    changed_after: int | None
    rested: int
    """Whether no change of it is told from the beginning of the second of the moment up to the moment."""

    overtaken: int
    """Whether a change of it is told that is later than the present list."""

    @property
    def has_no_version(self) -> bool:
        """Whether no list leads to versions of it, so that a package may be all there is."""
        return not any(links_of(self.links, relation) for relation in ("memento", "timegate", "timemap"))

    def is_present(self, *, listed_now: bool) -> bool:
        """Whether `loc` has it still, as far as lists tell; the octets decide. `listed_now`: the present list says so.

        What was changed since, and has no hash to tell that by, is asked for as it was.
        """
        if self.present is None or self.overtaken or self.state in (UNKNOWN, EXISTED):
            return False
        if self.hash is not None:
            return _same_hash(self.hash, self.present_hash)
        if self.changed_after is not None:
            return False
        told = self.length is not None and self.lastmod is not None
        same = (self.length, self.lastmod) == (self.present_length, self.present_lastmod)
        return (told and same) or listed_now


class VersionApplier(Applier):
    """Applies the list of a moment. Call `at` before anything else."""

    def __init__(self, context: SetContext, reader: EvidenceReader, evidence: Evidence) -> None:
        super().__init__(context)
        self._reader = reader
        self._evidence = evidence
        self.unanswered = False
        """Whether a TimeGate or a TimeMap was not asked, or gave no answer."""

    def bring(self, counts: PlanCounts) -> None:
        """Have patches, then packages of then, bring what is no more as it was; then what is; the rest one by one."""
        with self._run.database.write() as t:
            gone = self._set_apart(t)
        gone = self._by_patches(counts, gone)
        self._by_demand(counts, gone)
        self._by_dumps(counts, gone)
        with self._run.database.write() as t:
            t.run(_BACK)
            t.many(_PLAN, ((encode_attempt(self._attempt(row)), row.n) for row in gone))
        self._by_packages(counts)
        held, moment = self._set, self._evidence.moment
        transfer = VersionTransfer(self._run, held.row, counts, self.unconfirmed, held.warn, held.scope.objection).at(
            moment
        )
        try:
            transfer.run()
        finally:
            self.unanswered = transfer.unanswered
            held.report.unverified += transfer.unverified
            held.report.unverified_versions += transfer.unverified_versions

    def _set_apart(self, t: Transaction) -> list[_WantedRow]:
        """What is no more as it was; the rest waits, so that no dump is fetched for it."""
        proof, moment, before = self._evidence.proof, self._evidence.moment, second_before(self._evidence.moment)
        listed_now = proof is not None and proof.number == PRESENT
        wanted = [_WantedRow(*row) for row in t.rows(_WANTED, (PRESENT, moment, before + 1))]
        gone = [row for row in wanted if not row.is_present(listed_now=listed_now)]
        t.run(f"UPDATE temp.work SET round = {_WAITS} WHERE round = 0")  # noqa: S608
        t.many("UPDATE temp.work SET round = 0 WHERE n = ?", ((row.n,) for row in gone))
        return gone

    def _begins_with_patches(self) -> bool:
        """Not before it is known what is no more as it was."""
        return False

    def _by_patches(self, counts: PlanCounts, wanted: list[_WantedRow]) -> list[_WantedRow]:
        """Make the state of a dataset from its changes up to then (TIM-A6); what is wanted still is returned.

        A source of a dataset keeps no earlier states, but all patches. What they make waits aside for the first round.
        """
        unversioned = {row.n for row in wanted if row.has_no_version and row.hash is not None}
        if not unversioned or self._run.options.patches == "off":
            return wanted
        self._bring_dataset(counts, unversioned)
        with self._run.database.write() as t:
            made = {n for (n,) in t.rows(_MADE)}
            t.many(f"UPDATE temp.work SET round = {_WAITS} WHERE n = ?", ((n,) for n in made))  # noqa: S608
        return [row for row in wanted if row.n not in made]

    def _by_demand(self, counts: PlanCounts, wanted: list[_WantedRow]) -> None:
        """Ask for resources as they were, by packages on demand, where the source offers that."""
        held, offer = self._set, self._set.offer.on_demand
        if not wanted or offer is None or not offer.past:
            return
        from headwater.sync.packages.package_transfer import PackageTransfer, merged_ways

        packages = PackageTransfer(self._run, held.row, held.offer, counts, held.scope, held.warn)
        held.report.ways = merged_ways(held.report.ways, packages.run(format_micros(self._evidence.moment)))

    def _by_dumps(self, counts: PlanCounts, wanted: list[_WantedRow]) -> None:
        """Have the packages of dumps, archived or present, bring earlier states: what does not verify stays wanted."""
        context, held = self._run, self._set
        moment, documents = self._evidence.moment, self._evidence.documents
        changes = [one.uri for one in reversed(documents.change_dumps) if (one.from_ or 0) <= moment]
        nearest = sorted(documents.resource_dumps, key=lambda one: abs((one.at or 0) - moment))[:_MOST_DUMPS]
        present = held.offer.documents.get(CHANGE_DUMP)
        offers = [(CHANGE_DUMP, uri) for uri in (*([present] if present else []), *changes)]
        offers += [(RESOURCE_DUMP, one.uri) for one in nearest]
        if not offers or context.options.prefer == "lists" or not self._is_wanted():
            return
        from headwater.sync.packages.package_transfer import PackageTransfer, merged_ways

        if offers[0][0] == CHANGE_DUMP and any(row.has_no_version for row in wanted):
            self._reader.read_back()  # the packages are chosen by the times of changes
            with context.database.write() as t:
                t.run(_MADE_AT, (moment,))
        eager = msgspec.structs.replace(context, options=msgspec.structs.replace(context.options, prefer="dumps"))
        for capability, uri in offers:
            offer = _only(held.offer, capability, uri)
            ways = PackageTransfer(eager, held.row, offer, counts, held.scope, held.warn).run()
            held.report.ways = merged_ways(held.report.ways, ways)
            if not self._is_wanted():
                return

    def _is_wanted(self) -> bool:
        """Whether anything is left that dumps may bring."""
        with self._run.database.write() as t:
            return t.one("SELECT 1 FROM temp.work WHERE round = 0 LIMIT 1") is not None

    def _attempt(self, row: _WantedRow) -> PastAttempt:
        at = format_micros(self._evidence.moment)
        doubt = None
        if row.state == UNKNOWN:
            doubt = f"no list tells whether it was there at {at}"
        elif row.state == EXISTED:
            doubt = f"no list tells in which state it was at {at}"
        asked_at, moment = None, self._evidence.moment
        if row.rested and self._evidence.coverage.tells(second_before(moment), moment):
            asked_at = second_before(moment)
        has_hash = bool(digests_of(row.hash))
        known = KnownOfState(row.changed_before, row.changed_after, row.state != UNKNOWN, has_hash, asked_at)
        return PastAttempt(ways_of(row.loc, row.links, known, tried_loc=False), 0, known, doubt)


def _only(offer: Offer, capability: str, uri: str) -> Offer:
    """An offer of one dump, beside lists, so that nothing is taken from the dump but octets that verify."""
    kept = {name: where for name, where in offer.documents.items() if name not in (RESOURCE_DUMP, CHANGE_DUMP)}
    listed = {"resourcelist": offer.identity, "changelist": offer.identity} | kept
    return msgspec.structs.replace(offer, documents=listed | {capability: uri}, on_demand=None)


def _same_hash(one: str, other: str | None) -> bool:
    """Whether two `hash` attributes have a digest in common and none that differs."""
    if one == other:
        return True
    if other is None:
        return False
    theirs = {digest.algorithm: digest.hex for digest in parse_hash(other).digests}
    shared = [digest for digest in parse_hash(one).digests if digest.algorithm in theirs]
    return bool(shared) and all(theirs[digest.algorithm] == digest.hex for digest in shared)
