"""The transfer of earlier states: by mementos, TimeGates and TimeMaps, each verified as any other octets are.

Where a hash is known it decides (DST-V). Where none is, a version is taken at its word (`past_ways.objection`), only
from hosts within the scope (DST-S12), and told to be not verified.
"""

from __future__ import annotations

from collections.abc import Iterator
from email.utils import format_datetime
from functools import partial
from typing import cast

import msgspec

from headwater.errors import SourceFault
from headwater.spec.discovery import timemap_links
from headwater.spec.hashes import Digest
from headwater.spec.times import from_microseconds
from headwater.sync.network.transport import FailureKind, Fetch, Fetched, FetchFailure
from headwater.sync.reports import UnverifiedVersion
from headwater.sync.source_times import format_micros, http_date_micros
from headwater.sync.transfer.past_ways import (
    KnownOfState,
    Way,
    WayKind,
    after_timemap,
    objection,
    read_timemap,
    ways_by_links,
    ways_of,
)
from headwater.sync.transfer.resources import ReceivedContent, ResourceTransfer
from headwater.sync.transfer.verification import Judgement, Verdict, digests_of
from headwater.sync.transfer.work_queue import Attempt, PastAttempt, Work, octet_limit

LARGEST_TIMEMAP = 32 << 20
"""Octets of a TimeMap: some 200,000 versions. What is larger is not read; there may be a TimeGate."""

_BLOCK = 1 << 16
_NOT_THERE = (404, 406, 410)
_NO_LINKS = 20  # resources in a row without such links, after which no other is asked for them
_MOST_TOLD = 100


class VersionTransfer(ResourceTransfer):
    """Fetches what is in `temp.work` as it was at `moment`."""

    moment = 0
    without_links = 0

    def at(self, moment: int) -> VersionTransfer:
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
            return Fetch(fetch.uri, wanted, into=fetch.into, max_octets=LARGEST_TIMEMAP, key=fetch.key)
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
        following = attempt.then(ways) if ways else None
        if following is None:
            self._next(work, reason, fetched, mismatch=False)
        else:
            self._results.again(work, following, self._round + 1, work.reason or "")

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

    def _after(self, work: Work, fetched: Fetched, *, mismatch: bool) -> Attempt | None:
        attempt = work.attempt
        if isinstance(attempt, PastAttempt):
            return attempt.then()
        other = self._ways.after(work, fetched, mismatch=mismatch, may_repeat=False)
        if other is not None:
            return other
        known = KnownOfState(has_hash=bool(digests_of(work.hash)))
        ways = ways_of(work.loc, work.links, known, tried_loc=True)
        return PastAttempt(ways, known=known) if ways else None

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
        if following is not None:
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
