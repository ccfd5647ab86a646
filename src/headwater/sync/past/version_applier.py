"""The applier of a copy of the past: plans the way to the earlier state of each resource, and has it brought."""

from __future__ import annotations

import msgspec

from headwater.spec.hashes import parse_hash
from headwater.storage.database import Transaction
from headwater.sync.past.evidence import PRESENT, Evidence
from headwater.sync.past.staging import EXISTED, UNKNOWN
from headwater.sync.past.version_transfer import VersionTransfer
from headwater.sync.source_times import format_micros
from headwater.sync.state.set_rows import CHANGE_DUMP, RESOURCE_DUMP, Offer
from headwater.sync.transfer.past_ways import KnownOfState, ways_of
from headwater.sync.transfer.verification import digests_of
from headwater.sync.transfer.work_queue import PastAttempt, PlanCounts, encode_attempt
from headwater.sync.update.applier import Applier
from headwater.sync.update.set_context import SetContext

_MOST_DUMPS = 3
_WANTED = """
SELECT w.n, w.loc, w.hash, w.length, w.lastmod, w.links, p.n, p.hash, p.length, p.lastmod, d.state, d.changed_before,
  d.changed_after
FROM temp.work w LEFT JOIN temp.seen p ON p.uri = w.uri AND p.snapshot = ? LEFT JOIN temp.doubts d ON d.uri = w.uri
WHERE w.round = 0 ORDER BY w.n"""
_PLAN = "UPDATE temp.work SET round = 1, attempt_json = ? WHERE n = ?"


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

    def is_present(self, *, listed_now: bool) -> bool:
        """Whether `loc` has it still, as far as lists tell; the octets decide. `listed_now`: the present list says so.

        What was changed since, and has no hash to tell that by, is asked for as it was.
        """
        if self.present is None or self.state in (UNKNOWN, EXISTED):
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

    def __init__(self, context: SetContext, evidence: Evidence) -> None:
        super().__init__(context)
        self._evidence = evidence

    def bring(self, counts: PlanCounts) -> None:
        """Fetch by archived dumps what they are worth, then by packages what is as it was, then one by one."""
        self._by_archives(counts)
        with self._run.database.write() as t:
            self._plan_ways(t)
        self._by_packages(counts)
        held, moment = self._set, self._evidence.moment
        transfer = VersionTransfer(self._run, held.row, counts, self.unconfirmed, held.warn, held.scope.objection).at(
            moment
        )
        try:
            transfer.run()
        finally:
            held.report.unverified += transfer.unverified
            held.report.unverified_versions += transfer.unverified_versions

    def _by_archives(self, counts: PlanCounts) -> None:
        """Have the packages of archived dumps bring what they can: whatever does not verify stays to be fetched."""
        moment, documents = self._evidence.moment, self._evidence.documents
        dumps = sorted(documents.resource_dumps, key=lambda one: abs((one.at or 0) - moment))[:_MOST_DUMPS]
        offers = [(CHANGE_DUMP, one.uri) for one in reversed(documents.change_dumps) if (one.from_ or 0) <= moment]
        offers += [(RESOURCE_DUMP, one.uri) for one in dumps]
        present = self._set.offer
        try:
            for capability, uri in offers:
                with self._run.database.write() as t:
                    if t.one("SELECT 1 FROM temp.work WHERE round = 0 AND hash IS NOT NULL LIMIT 1") is None:
                        return
                self._set.offer = _only(present, capability, uri)
                self._by_packages(counts)
        finally:
            self._set.offer = present

    def _plan_ways(self, t: Transaction) -> None:
        """What is no more as it was is asked for by the ways to its earlier state."""
        proof = self._evidence.proof
        listed_now = proof is not None and proof.number == PRESENT
        wanted = [_WantedRow(*row) for row in t.rows(_WANTED, (PRESENT,))]
        gone = [row for row in wanted if not row.is_present(listed_now=listed_now)]
        t.many(_PLAN, ((encode_attempt(self._attempt(row)), row.n) for row in gone))

    def _attempt(self, row: _WantedRow) -> PastAttempt:
        at = format_micros(self._evidence.moment)
        doubt = None
        if row.state == UNKNOWN:
            doubt = f"no list tells whether it was there at {at}"
        elif row.state == EXISTED:
            doubt = f"no list tells in which state it was at {at}"
        known = KnownOfState(row.changed_before, row.changed_after, row.state != UNKNOWN, bool(digests_of(row.hash)))
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
