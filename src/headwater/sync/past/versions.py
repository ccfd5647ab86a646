"""Versions: the ways to the octets that a resource had at a moment, and the transfer that goes them.

The first part are plain rules over values: which ways there are, in which order, and when one is believed. One way is
tried after the other until one brings what is wanted. Where the hash is known, it decides; where it is not, a version
is taken at its word, by the rules of RFC 7089, and told to be not verified.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from email.utils import format_datetime
from functools import partial
from typing import cast

import msgspec

from headwater.errors import SourceFault
from headwater.spec.discovery import HeaderLink, parse_link_header, timemap_links
from headwater.spec.extensions import EMPTY_DATASET
from headwater.spec.records import Digest
from headwater.spec.times import from_microseconds
from headwater.spec.uris import normalise
from headwater.sync.lists.entries import canonical_hash_of, links_of
from headwater.sync.lists.position import IndexedList
from headwater.sync.reports import UnverifiedVersion
from headwater.sync.source_times import SECOND, format_micros, http_date_micros
from headwater.sync.transfer.resources import ReceivedContent, ResourceTransfer
from headwater.sync.transfer.verification import Judgement, Verdict, digests_of
from headwater.sync.transfer.work_queue import (
    PAST_CACHES,
    Attempt,
    KnownOfState,
    PastAttempt,
    Way,
    WayKind,
    Work,
    octet_limit,
    past_attempts,
)
from headwater.transport.fetch import FailureKind, Fetch, Fetched, FetchFailure

MOST_PAGES = 20
"""Documents of one TimeMap that are read for one resource."""

MOST_VERSIONS = 8
"""Versions within one second that are tried for one resource."""


def dumps_around(archived: Iterable[IndexedList], moment: int) -> list[IndexedList]:
    """The archived Resource Dumps that may have what a set had at the moment, in microseconds: the best first.

    The one before the moment has every resource that no list between tells of, however far it is from it.
    """
    dumps = sorted(archived, key=lambda one: one.at or 0)
    later = bisect_right(dumps, moment, key=lambda one: one.at or 0)
    return [*reversed(dumps[max(0, later - 2) : later]), *dumps[later : later + 1]]


def second_before(moment: int) -> int:
    """The end of the second before the one of the moment.

    TimeGates and TimeMaps know whole seconds, and of several versions within one the last is meant (RFC 7089, 2.1.1.1).
    What has not changed within that second up to the moment is asked for as it was at the end of the one before:
    what it became later within the second does not count.
    """
    return moment // SECOND * SECOND - 1


def ways_of(loc: str, links: str | None, known: KnownOfState, *, tried_loc: bool) -> tuple[Way, ...]:
    """The ways to a state of a resource, by the links that lists give it (RS-REL-08…10), the shortest first.

    A TimeMap tells of no deletion: whether there was anything only a TimeGate can say.

    `tried_loc`: what `loc` has by now was asked for already; without a hash it is not asked for, for it proves nothing.
    """
    ways = [Way(WayKind.MEMENTO, link.href) for link in links_of(links, "memento")]
    ways += [Way(WayKind.TIMEGATE, link.href) for link in links_of(links, "timegate")]
    ways += [Way(WayKind.TIMEMAP, link.href) for link in links_of(links, "timemap") if known.existed]
    if not any(way.kind in (WayKind.TIMEGATE, WayKind.TIMEMAP) for way in ways):
        ways.append(Way(WayKind.LINKS, loc))
    if known.has_hash and not tried_loc:
        ways.append(Way(WayKind.LOC, loc))
    return tuple(ways)


Versions = tuple[tuple[str, int], ...]
"""The latest versions until a moment, with their times: all of the same second, in their order; before those within the
second of the moment, the latest earlier ones."""


def read_timemap(links: Iterable[HeaderLink], moment: int, best: Versions = ()) -> tuple[Versions, tuple[str, ...]]:
    """The versions with the greatest `datetime` that is not after the moment (DST-S8), of this page and those before.

    The other tuple has further pages of the TimeMap.
    A `datetime` has whole seconds: what stands at the second of the moment may still be later than it. So those with
    the greatest `datetime` before that second are kept as well, before them.
    """
    start = moment - moment % SECOND
    within = [one for one in best if one[1] >= start]
    found = [one for one in best if one[1] < start]
    pages: list[str] = []
    for link in links:
        named = dict(reversed(link.params))
        if "memento" in link.rel:
            at = http_date_micros(named.get("datetime"))
            if at is None or at > moment:
                continue
            same = within if at >= start else found
            if same and at > same[0][1]:
                same.clear()
            if (not same or at == same[0][1]) and len(same) < MOST_VERSIONS:
                same.append((link.href, at))
        elif "timemap" in link.rel and "self" not in link.rel and len(pages) < MOST_PAGES:
            begins = http_date_micros(named.get("from"))
            if begins is None or begins <= moment:
                pages.append(link.href)
    return (*found, *within), tuple(pages)


def after_timemap(way: Way, best: Versions, pages: Iterable[str], *, has_hash: bool) -> tuple[Way, ...]:
    """The ways after a page of a TimeMap: the next page that was not read, else the versions found.

    Of several versions within one second only a hash can tell which one it was.
    """
    read = (*way.read, way.href)
    queue = [uri for uri in dict.fromkeys((*way.queue, *pages)) if uri not in read]
    if queue and len(read) < MOST_PAGES:
        return (Way(WayKind.TIMEMAP, queue[0], None, best, read, tuple(queue[1:MOST_PAGES])),)
    latest = [one for one in best if one[1] == best[-1][1]]
    if len(latest) > 1 and not has_hash:
        return ()
    return tuple(Way(WayKind.MEMENTO, href, at) for href, at in reversed(best if has_hash else latest))


def objection(way: Way, headers: Mapping[str, str], loc: str, moment: int, known: KnownOfState) -> str | None:
    """Why a version that no hash verifies is not believed; None: it is what the resource was at the moment."""
    stated = headers.get("memento-datetime")
    at = http_date_micros(stated)
    if at is None and way.kind is WayKind.MEMENTO and stated is None:
        at = way.stated_at  # "check when sent" (DST-S6): the TimeMap, or the link of the change, has said of when it is
        if at is None:
            return None
    if at is None:
        return f"the {way.kind} answers without Memento-Datetime"
    if at > moment:
        return f"the {way.kind} answers with a version of {stated}, which is later"
    if not known.existed and at + SECOND > moment + 1:
        return f"the {way.kind} answers with a version of {stated}, which may be later within that second"
    if known.changed_before is not None and at + SECOND <= known.changed_before:
        return f"the {way.kind} answers with a version of {stated}, after which the resource has changed"
    if known.changed_after is not None and at <= known.changed_after < at + SECOND:
        return f"the {way.kind} answers with a version of {stated}, and there were several in that second"
    originals = [link for link in parse_link_header(headers.get("link", ""), loc) if "original" in link.rel]
    if originals and normalise(originals[0].href) != normalise(loc):
        return f"the {way.kind} answers with a version of another resource: {originals[0].href[:200]}"
    return None


# the transfer

_LARGEST_TIMEMAP = 32 << 20
"""Octets of a TimeMap: some 200,000 versions. What is larger is not read; there may be a TimeGate."""

_BLOCK = 1 << 16
_NOT_THERE = (404, 406, 410)
_MOST_TOLD = 100


class VersionTransfer(ResourceTransfer):
    """Fetches what is in `temp.work` as it was at `moment`."""

    moment = 0
    unanswered = False  # whether a TimeGate or a TimeMap was not asked, or gave no answer

    def _fetches(self) -> Iterator[Fetch | None]:
        for fetch in super()._fetches():
            refused = None
            if fetch is not None:
                work, wanted = _of(fetch)
                attempt = work.attempt
                if isinstance(attempt, PastAttempt) and wanted is None and attempt.way.kind is not WayKind.TIMEMAP:
                    refused = self._objection(fetch.uri)  # who takes a version at its word takes it from the source
            if fetch is None or refused is None:
                yield fetch
            else:
                self._settle(Fetched(fetch, uri=fetch.uri, failure=FetchFailure(FailureKind.PROTOCOL, refused)))

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
        at = format_datetime(from_microseconds(attempt.known.asked_at), usegmt=True)
        accept = (("Accept-Datetime", at),) if kind is WayKind.TIMEGATE else ()
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
            if attempt.way.kind is WayKind.LINKS:  # what the resource itself names (RFC 7089)
                links = parse_link_header(fetched.headers.get("link", ""), fetched.uri)
                gates = [Way(WayKind.TIMEGATE, link.href) for link in links if "timegate" in link.rel]
                maps = [Way(WayKind.TIMEMAP, link.href) for link in links if "timemap" in link.rel]
                ways = (*gates[:1], *(maps[:1] if attempt.known.existed else ()))
                self._go_on(work, attempt, ways, "names no earlier versions", fetched)
                return
            if attempt.way.kind is WayKind.TIMEMAP and fetched.ok:
                self._choose(work, attempt, fetched, has_hash=wanted is not None)
                return
        super()._settle(fetched)

    def _choose(self, work: Work, attempt: PastAttempt, fetched: Fetched, *, has_hash: bool) -> None:
        """Go on with the versions that a TimeMap has of the moment (DST-S8), or with its next page."""
        ways: tuple[Way, ...] = ()
        moment = attempt.known.asked_at
        reason = f"has no version of {format_micros(moment)} or before, or several of one second"
        try:
            with open(f"{self._temp}/{work.name}", "rb") as file:
                links = timemap_links(iter(partial(file.read, _BLOCK), b""), fetched.uri)
                best, pages = read_timemap(links, moment, attempt.way.found)
            ways = after_timemap(attempt.way, best, pages, has_hash=has_hash)
        except SourceFault as fault:
            reason = fault.what
        finally:
            self._tree.discard(work.name)
        self._go_on(work, attempt, ways, reason, fetched)

    def _go_on(self, work: Work, attempt: PastAttempt, ways: tuple[Way, ...], reason: str, fetched: Fetched) -> None:
        if ways:
            attempts = (*past_attempts(ways, attempt.known, attempt.doubt), *work.attempts[1:])
            self._results.again(work, attempts, self._round + 1, work.reason or "")
        else:
            self._next(work, reason, fetched, mismatch=False)

    def _reviewed(
        self, work: Work, wanted: Digest | None, fetched: Fetched, verdict: Verdict, content: ReceivedContent
    ) -> Verdict:
        """What is newer is not what it was; without a hash a version must say that it is of the moment."""
        attempt, headers = work.attempt, fetched.headers
        if verdict.judgement is Judgement.NEWER:
            verdict = msgspec.structs.replace(verdict, judgement=Judgement.DIFFERENT)
        elif wanted is None and verdict.judgement is Judgement.GOOD and isinstance(attempt, PastAttempt):
            way, known = attempt.way, attempt.known
            answers_itself = way.kind is WayKind.TIMEGATE and fetched.uri == way.href
            if (why := objection(way, headers, work.loc, known.asked_at, known)) is not None:
                verdict = Verdict(Judgement.DIFFERENT, why)
            elif answers_itself and "accept-datetime" not in headers.get("vary", "").lower():
                self._note(work, "DST-S7", "a TimeGate answers without `Vary: accept-datetime`")
        elif wanted is None and verdict.judgement is Judgement.GOOD:
            modified = http_date_micros(headers.get("last-modified"))
            if modified is not None and modified > self.moment:
                verdict = Verdict(Judgement.DIFFERENT, "Last-Modified is later than the moment")
        return super()._reviewed(work, wanted, fetched, verdict, content)

    def _place(self, work: Work, fetched: Fetched, content: ReceivedContent, *, newer: bool = False) -> bool:
        """Give it its place; the validators of a version are not those of `loc`. Without a hash it is not verified."""
        if not isinstance(work.attempt, PastAttempt):
            return super()._place(work, fetched, content, newer=newer)
        kept = {name: text for name, text in fetched.headers.items() if name == "last-modified"}
        is_placed = super()._place(work, msgspec.structs.replace(fetched, headers=kept), content, newer=newer)
        is_verified = digests_of(work.hash) or canonical_hash_of(work.extra) not in (None, EMPTY_DATASET)
        if is_placed and not is_verified:
            self._counts.unverified += 1
            if len(self._counts.unverified_versions) < _MOST_TOLD:
                stated = fetched.headers.get("memento-datetime")
                self._counts.unverified_versions.append(UnverifiedVersion(work.uri, fetched.uri, stated))
        return is_placed

    def _after(self, work: Work, fetched: Fetched, *, mismatch: bool) -> tuple[Attempt, ...]:
        others = tuple(one for one in super()._after(work, fetched, mismatch=mismatch) if one != PAST_CACHES)
        if others or isinstance(work.attempt, PastAttempt):
            return others
        known = KnownOfState(has_hash=bool(digests_of(work.hash)), asked_at=self.moment)
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


def _of(fetch: Fetch) -> tuple[Work, Digest | None]:
    return cast("tuple[Work, Digest | None]", fetch.key)
