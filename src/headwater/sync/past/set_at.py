"""One set as it was at a moment (`--at`): reads the evidence, lists what was there, and has each state brought.

A state comes by patches, by packages, or by versions: each resource has a list of attempts (`transfer/past_ways`).
"""

from __future__ import annotations

from collections.abc import Iterator
from email.utils import format_datetime
from functools import partial
from typing import cast

import msgspec

from headwater.errors import SourceFault, Undetermined, UsageFault
from headwater.spec.discovery import timemap_links
from headwater.spec.records import Digest
from headwater.spec.times import from_microseconds
from headwater.storage.transaction import Transaction
from headwater.sync.connection import Scope
from headwater.sync.lists.archives import CHANGE_DUMP_ARCHIVE, RESOURCE_DUMP_ARCHIVE
from headwater.sync.lists.entries import links_of
from headwater.sync.past.evidence import Evidence, EvidenceReader
from headwater.sync.past.state_at import CHANGED, EXISTED, UNKNOWN, ListingResult, fill_listed
from headwater.sync.reports import SetReport, UnverifiedVersion
from headwater.sync.run_context import RunContext
from headwater.sync.source_times import format_micros, http_date_micros
from headwater.sync.state import AS_OF, CHANGE_DUMP, RESOURCE_DUMP, Offer, SetRow, fact, keep_fact
from headwater.sync.transfer.past_ways import (
    KnownOfState,
    Way,
    WayKind,
    after_timemap,
    objection,
    read_timemap,
    second_before,
    ways_by_links,
    ways_of,
)
from headwater.sync.transfer.resources import ReceivedContent, ResourceTransfer
from headwater.sync.transfer.verification import Judgement, Verdict, digests_of
from headwater.sync.transfer.work_queue import (
    Attempt,
    PastAttempt,
    Work,
    encode_attempts,
    octet_limit,
    past_attempts,
)
from headwater.sync.update.applier import Applier
from headwater.sync.update.difference import Difference
from headwater.sync.update.set_context import SetContext
from headwater.sync.update.set_sync import report_of
from headwater.transport.transport import FailureKind, Fetch, Fetched, FetchFailure

# the transfer of versions

_LARGEST_TIMEMAP = 32 << 20
"""Octets of a TimeMap: some 200,000 versions. What is larger is not read; there may be a TimeGate."""

_BLOCK = 1 << 16
_NOT_THERE = (404, 406, 410)
_NO_LINKS = 20  # resources in a row without such links, after which no other is asked for them
_MOST_TOLD = 100


class _VersionTransfer(ResourceTransfer):
    """Fetches what is in `temp.work` as it was at `moment`."""

    moment = 0
    without_links = 0

    def at(self, moment: int) -> _VersionTransfer:
        """The same, for this moment."""
        self.moment = moment
        self.unanswered = False
        self.unverified = 0
        self.unverified_versions: list[UnverifiedVersion] = []
        return self

    def _fetches(self) -> Iterator[Fetch | None]:
        for fetch in super()._fetches():
            if fetch is None:
                yield None
                continue
            work, wanted = _of(fetch)
            attempt = work.attempt
            refused = None
            if isinstance(attempt, PastAttempt) and wanted is None and attempt.way.kind is not WayKind.TIMEMAP:
                refused = self._objection(fetch.uri)  # who takes a version at its word takes it from the source
            if isinstance(attempt, PastAttempt) and attempt.way.kind is WayKind.LINKS and self._gave_up:
                refused = refused or "the source names no earlier versions of its resources"
            if refused is None:
                yield fetch
            else:
                self._settle(Fetched(fetch, uri=fetch.uri, failure=FetchFailure(FailureKind.PROTOCOL, refused)))

    @property
    def _gave_up(self) -> bool:
        return self.without_links >= _NO_LINKS

    def _fetch(self, work: Work) -> Fetch:
        fetch, attempt = super()._fetch(work), work.attempt
        if not isinstance(attempt, PastAttempt):
            return fetch
        kind = attempt.way.kind
        if kind is WayKind.LINKS:
            return Fetch(fetch.uri, method="HEAD", key=fetch.key, objection=self._objection)
        if kind is WayKind.TIMEMAP:
            wanted = (("Accept", "application/link-format"),)
            return Fetch(fetch.uri, wanted, into=fetch.into, max_octets=_LARGEST_TIMEMAP, key=fetch.key)
        accept = _accept(self._asked_at(attempt)) if kind is WayKind.TIMEGATE else ()
        encoding = (("Accept-Encoding", work.encoding),) if work.encoding else ()
        _, digest = _of(fetch)
        return Fetch(
            fetch.uri,
            (*encoding, *accept),
            into=fetch.into,
            holds_small=True,
            algorithms=fetch.algorithms,
            max_octets=octet_limit(work.length, self._largest),
            key=fetch.key,
            objection=self._objection if attempt.of_source or digest is None else None,
        )

    def _settle(self, fetched: Fetched) -> None:
        work, wanted = _of(fetched.fetch)
        attempt = work.attempt
        if isinstance(attempt, PastAttempt) and fetched.failure is None:
            if attempt.way.kind is WayKind.LINKS:
                self._follow_links(work, attempt, fetched)
                return
            if attempt.way.kind is WayKind.TIMEMAP and fetched.ok:
                self._choose(work, attempt, fetched, has_hash=wanted is not None)
                return
        super()._settle(fetched)

    def _follow_links(self, work: Work, attempt: PastAttempt, fetched: Fetched) -> None:
        """Go on with the TimeGate and the TimeMap that the resource itself names (RFC 7089)."""
        ways = ways_by_links(fetched.headers, fetched.uri, attempt.known)
        self.without_links = 0 if ways else self.without_links + 1
        self._go_on(work, attempt, ways, "names no earlier versions", fetched)

    def _choose(self, work: Work, attempt: PastAttempt, fetched: Fetched, *, has_hash: bool) -> None:
        """Go on with the versions that a TimeMap has of the moment (DST-S8), or with its next page."""
        ways: tuple[Way, ...] = ()
        moment = self._asked_at(attempt)
        reason = f"has no version of {format_micros(moment)} or before, or several of one second"
        try:
            with open(f"{self._temp}/{work.name}", "rb") as file:
                links = timemap_links(iter(partial(file.read, _BLOCK), b""), fetched.uri)
                page = read_timemap(links, moment, attempt.way.found)
            ways = after_timemap(attempt.way, page, has_hash=has_hash)
        except SourceFault as fault:
            reason = fault.what
        finally:
            self._tree.discard(work.name)
        self._go_on(work, attempt, ways, reason, fetched)

    def _asked_at(self, attempt: PastAttempt) -> int:
        return self.moment if attempt.known.asked_at is None else attempt.known.asked_at

    def _go_on(self, work: Work, attempt: PastAttempt, ways: tuple[Way, ...], reason: str, fetched: Fetched) -> None:
        if ways:
            attempts = (*past_attempts(ways, attempt.known, attempt.doubt), *work.attempts[1:])
            self._results.again(work, attempts, self._round + 1, work.reason or "")
        else:
            self._next(work, reason, fetched, mismatch=False)

    def _reviewed(self, work: Work, wanted: Digest | None, fetched: Fetched, verdict: Verdict) -> Verdict:
        """What is newer is not what it was; without a hash a version must say that it is of the moment."""
        if verdict.judgement is Judgement.NEWER:
            return msgspec.structs.replace(verdict, judgement=Judgement.DIFFERENT)
        if wanted is not None or verdict.judgement is not Judgement.GOOD:
            return verdict
        attempt = work.attempt
        if not isinstance(attempt, PastAttempt):
            modified = http_date_micros(fetched.headers.get("last-modified"))
            if modified is not None and modified > self.moment:
                return Verdict(Judgement.DIFFERENT, verdict.form, "Last-Modified is later than the moment")
            return verdict
        why = objection(attempt.way, fetched.headers, work.loc, self._asked_at(attempt), attempt.known)
        if why is not None:
            return Verdict(Judgement.DIFFERENT, verdict.form, why)
        answers_itself = attempt.way.kind is WayKind.TIMEGATE and fetched.uri == attempt.way.href
        if answers_itself and "accept-datetime" not in fetched.headers.get("vary", "").lower():
            self._note(work, "DST-S7", "a TimeGate answers without `Vary: accept-datetime`")
        self.unverified += 1
        if len(self.unverified_versions) < _MOST_TOLD:
            stated = fetched.headers.get("memento-datetime")
            self.unverified_versions.append(UnverifiedVersion(work.uri, fetched.uri, stated))
        return verdict

    def _place(self, work: Work, fetched: Fetched, content: ReceivedContent, *, newer: bool = False) -> bool:
        """Give it its place; the validators of a version are not those of `loc`."""
        if isinstance(work.attempt, PastAttempt):
            kept = {name: text for name, text in fetched.headers.items() if name == "last-modified"}
            fetched = msgspec.structs.replace(fetched, headers=kept)
        return super()._place(work, fetched, content, newer=newer)

    def _after(self, work: Work, fetched: Fetched, *, mismatch: bool) -> tuple[Attempt, ...]:
        others = self._ways.after(work, fetched, mismatch=mismatch, may_repeat=False)
        if others or isinstance(work.attempt, PastAttempt):
            return others
        known = KnownOfState(has_hash=bool(digests_of(work.hash)))
        return past_attempts(ways_of(work.loc, work.links, known, tried_loc=True), known)

    def _next(self, work: Work, reason: str, fetched: Fetched, *, mismatch: bool) -> None:
        """Try the next way; every way that came to nothing is told."""
        attempt = work.attempt
        way = attempt.way.kind.value if isinstance(attempt, PastAttempt) else "loc"
        is_answer = fetched.failure is None and (fetched.status < 400 or fetched.status in _NOT_THERE)
        if not is_answer and way != WayKind.LINKS:
            self.unanswered = True
        if mismatch and digests_of(work.hash):
            reason = "another state"
        told = f"{work.reason}; {way}: {reason}" if work.reason else f"{way}: {reason}"
        following = self._after(work, fetched, mismatch=mismatch)
        if following:
            self._results.again(work, following, self._round + 1, told)
            return
        doubt = attempt.doubt if isinstance(attempt, PastAttempt) else None
        if doubt is None and is_answer:
            doubt = "the source keeps it no longer as it was then"
        self._fail(work, f"{doubt} ({told})" if doubt else told, fetched)


def _accept(moment: int) -> tuple[tuple[str, str], ...]:
    return (("Accept-Datetime", format_datetime(from_microseconds(moment), usegmt=True)),)


def _of(fetch: Fetch) -> tuple[Work, Digest | None]:
    return cast("tuple[Work, Digest | None]", fetch.key)


_MOST_DUMPS = 3
_WAITS = 99  # a round that never comes: what dumps of earlier states are not fetched for
_SET_APART = (
    f"UPDATE temp.work SET round = {_WAITS} WHERE round = 0"  # noqa: S608  our own number
    " AND uri IN (SELECT uri FROM temp.past WHERE is_present UNION ALL SELECT uri FROM temp.aside)"
)
_BACK = f"UPDATE temp.work SET round = 0 WHERE round = {_WAITS}"  # noqa: S608
_WANTED = """
SELECT w.n, w.loc, w.hash, w.links, coalesce(p.state, 0), p.changed_before, p.changed_after, coalesce(p.has_rested, 0)
FROM temp.work w LEFT JOIN temp.past p ON p.uri = w.uri WHERE w.round = 0 ORDER BY w.n"""
_MADE_AT = """
UPDATE temp.work AS w SET changed_at = (SELECT max(s.low) FROM temp.stated s
  WHERE s.uri = w.uri AND s.change IS NOT NULL AND s.high <= ? AND s.hash IS w.hash)
WHERE round = 0 AND changed_at IS NULL"""
_PLAN = "UPDATE temp.work SET round = 1, attempt_json = ? WHERE n = ?"


class _WantedRow(msgspec.Struct, frozen=True, gc=False):
    """What is wanted of a resource that is no more as it was, and what is known of that state (`JudgedState`)."""

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
    """Applies the list of a moment. Call `at` before anything else."""

    def __init__(self, context: SetContext, reader: EvidenceReader, evidence: Evidence) -> None:
        super().__init__(context)
        self._reader = reader
        self._evidence = evidence
        self.unanswered = False
        """Whether a TimeGate or a TimeMap was not asked, or gave no answer."""

    def bring(self) -> None:
        """Have patches, then packages of then, bring what is no more as it was; then what is; the rest one by one."""
        held = self._set
        transfer = _VersionTransfer(
            self._run, held.row, held.report, self.unconfirmed, held.warn, held.scope.objection
        ).at(self._evidence.moment)
        transfer.take_what_is_here()
        self._set_apart()
        self._by_patches()
        self._by_demand()
        self._by_dumps()
        with self._run.database.write() as t:
            gone = self._wanted(t)
            t.run(_BACK)
            t.many(_PLAN, ((encode_attempts(self._attempts(row)), row.n) for row in gone))
        transfer.take_what_is_here()
        self._by_packages()
        try:
            transfer.run()
        finally:
            self.unanswered = transfer.unanswered
            held.report.unverified += transfer.unverified
            held.report.unverified_versions += transfer.unverified_versions

    def _set_apart(self) -> None:
        """Have what is still as it was, or was made from patches, wait, so that no dump is fetched for it."""
        with self._run.database.write() as t:
            t.run(_SET_APART)

    def _wanted(self, t: Transaction) -> list[_WantedRow]:
        """What is no more as it was, and was not brought yet."""
        return [_WantedRow(*row) for row in t.rows(_WANTED)]

    def _begins_with_patches(self) -> bool:
        """Not before it is known what is no more as it was."""
        return False

    def _by_patches(self) -> None:
        """Make the state of a dataset from its changes up to then (TIM-A6).

        A source of a dataset keeps no earlier states, but all patches. What they make waits aside for the first round.
        """
        with self._run.database.write() as t:
            unversioned = {row.n for row in self._wanted(t) if row.has_no_version and row.hash is not None}
        if unversioned and self._run.options.patches != "off":
            self._bring_dataset(unversioned)
            self._set_apart()

    def _by_demand(self) -> None:
        """Ask for resources as they were, by packages on demand, where the source offers that."""
        offer = self._set.offer.on_demand
        if offer is not None and offer.past and self._is_wanted():
            self._by_package_transfer(self._run, self._set.offer, format_micros(self._evidence.moment))

    def _by_dumps(self) -> None:
        """Have the packages of dumps, archived or present, bring earlier states: what does not verify stays wanted."""
        context, held, archived = self._run, self._set, self._evidence.archived
        moment, present = self._evidence.moment, held.offer.documents.get(CHANGE_DUMP)
        changes = [one.uri for one in reversed(archived[CHANGE_DUMP_ARCHIVE]) if (one.from_ or 0) <= moment]
        nearest = sorted(archived[RESOURCE_DUMP_ARCHIVE], key=lambda one: abs((one.at or 0) - moment))[:_MOST_DUMPS]
        offers = [(CHANGE_DUMP, uri) for uri in (*([present] if present else []), *changes)]
        offers += [(RESOURCE_DUMP, one.uri) for one in nearest]
        if not offers or context.options.prefer == "lists" or not self._is_wanted():
            return
        if offers[0][0] == CHANGE_DUMP:
            self._date_states()
        eager = msgspec.structs.replace(context, options=msgspec.structs.replace(context.options, prefer="dumps"))
        for capability, uri in offers:
            self._by_package_transfer(eager, _only(held.offer, capability, uri))
            if not self._is_wanted():
                return

    def _date_states(self) -> None:
        """Find out when states were made that have no version: packages are chosen by the times of changes."""
        with self._run.database.write() as t:
            if not any(row.has_no_version for row in self._wanted(t)):
                return
        self._reader.read_back()
        with self._run.database.write() as t:
            t.run(_MADE_AT, (self._evidence.moment,))

    def _by_package_transfer(self, context: RunContext, offer: Offer, at: str | None = None) -> None:
        from headwater.sync.packages.package_transfer import PackageTransfer, merged_ways

        held = self._set
        ways = PackageTransfer(context, held.row, offer, held.report, held.scope, held.warn).run(at)
        held.report.ways = merged_ways(held.report.ways, ways)

    def _is_wanted(self) -> bool:
        """Whether anything is left that dumps may bring."""
        with self._run.database.write() as t:
            return t.one("SELECT 1 FROM temp.work WHERE round = 0 LIMIT 1") is not None

    def _attempts(self, row: _WantedRow) -> tuple[Attempt, ...]:
        at = format_micros(self._evidence.moment)
        doubt = None
        if row.state == UNKNOWN:
            doubt = f"no list tells whether it was there at {at}"
        elif row.state == EXISTED:
            doubt = f"no list tells in which state it was at {at}"
        asked_at, moment = None, self._evidence.moment
        if row.has_rested and self._evidence.coverage.tells(second_before(moment), moment):
            asked_at = second_before(moment)
        has_hash = bool(digests_of(row.hash))
        known = KnownOfState(row.changed_before, row.changed_after, row.state != UNKNOWN, has_hash, asked_at)
        return past_attempts(ways_of(row.loc, row.links, known, tried_loc=False), known, doubt)


def _only(offer: Offer, capability: str, uri: str) -> Offer:
    """An offer of one dump, beside lists, so that nothing is taken from the dump but octets that verify."""
    kept = {name: where for name, where in offer.documents.items() if name not in (RESOURCE_DUMP, CHANGE_DUMP)}
    listed = {"resourcelist": offer.identity, "changelist": offer.identity} | kept
    return msgspec.structs.replace(offer, documents=listed | {capability: uri}, on_demand=None)


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
        applier = _VersionApplier(self._set, reader, evidence)
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
