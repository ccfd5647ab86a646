"""The choice among the ways to a resource: mirrors by their health (DST-S2, DST-F11), then its address."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from enum import Enum
from functools import lru_cache

import msgspec

from headwater.sync.options import SyncOptions
from headwater.sync.transfer.work_queue import (
    FIRST,
    Attempt,
    LocAttempt,
    LocPastCachesAttempt,
    MirrorAttempt,
    Work,
    encode_attempt,
    may_use_mirrors,
    mirrors_of,
    next_attempt,
    next_mirror,
)
from headwater.transport.fetch import FailureKind, FetchFailure
from headwater.transport.scheduler import site_of
from headwater.transport.transport import Fetch, Fetched

UNPROVEN_AT_ONCE = 4
"""Requests at a time to a host that has not answered yet."""

PATIENCE_SECONDS = 3.0
"""So long its first answer is waited for before other resources go another way."""

MOST_MISSES = 16
"""Answers in a row without content (404, 503 …) after which a mirror is given up."""

MOST_LOSSES = 3
"""Requests in a row that nothing came of after which a host is given up that had answered before."""

MOST_HOSTS = 64
"""A list may name a mirror of its own for each resource: so many hosts are asked in a run, and no more."""

MOST_LYING = 8
"""Mirrors of one host that send something else, after which the host is given up."""

_MOST_COUNTED = 1024
_UNANSWERED = frozenset({FailureKind.CONNECT, FailureKind.TIMEOUT, FailureKind.STALLED, FailureKind.TLS})
_FORBIDDEN = frozenset({FailureKind.ADDRESS_REFUSED, FailureKind.PROTOCOL})


class Turn(Enum):
    """What is to be done with a mirror now."""

    ASK = "ask"
    WAIT = "wait"
    PASS = "pass"  # noqa: S105  no secret


class Mirror(msgspec.Struct, frozen=True):
    """A mirror: scheme, host and port, and which of those that lie there (one host may hold several)."""

    site: str
    base: str


class _Host(msgspec.Struct):
    first_asked_at: float
    open: int = 0
    losses: int = 0
    misses: int = 0
    lying: int = 0
    is_proven: bool = False
    is_given_up: bool = False


Tell = Callable[[str, str, str | None], None]


class MirrorHealth:
    """What one run has learnt of mirrors. Memory is bounded by `MOST_HOSTS`."""

    def __init__(self) -> None:
        self._hosts: dict[str, _Host] = {}
        self._misses: dict[str, int] = {}
        self._given_up: set[str] = set()

    def turn(self, mirror: Mirror | None, now: float) -> Turn:
        """Whether a mirror is asked now, waited for, or passed over."""
        if mirror is None or mirror.base in self._given_up:
            return Turn.PASS
        host = self._hosts.get(mirror.site)
        if host is None:
            return Turn.ASK if len(self._hosts) < MOST_HOSTS else Turn.PASS
        if host.is_given_up:
            return Turn.PASS
        if host.is_proven or host.open < UNPROVEN_AT_ONCE:
            return Turn.ASK
        return Turn.WAIT if now - host.first_asked_at < PATIENCE_SECONDS else Turn.PASS

    def asked(self, mirror: Mirror, now: float) -> None:
        """A request to it begins."""
        host = self._hosts.setdefault(mirror.site, _Host(now))
        if not host.open:
            host.first_asked_at = now
        host.open += 1

    def sent(self, mirror: Mirror) -> None:
        """It has sent what is listed."""
        host = self._over(mirror)
        host.is_proven, host.losses, host.misses = True, 0, 0
        self._misses.pop(mirror.base, None)

    def differed(self, mirror: Mirror, href: str, tell: Tell) -> None:
        """It has sent something else (DST-F11)."""
        host = self._over(mirror)
        host.is_proven = True
        self._give_up(mirror.base, "DST-F11", f"the mirror {mirror.base} sends something else than listed", href, tell)
        host.lying += 1
        if host.lying >= MOST_LYING:
            host.is_given_up = True

    def failed(self, mirror: Mirror, failure: FetchFailure | None, status: int, href: str, tell: Tell) -> None:
        """Nothing came that could be compared: no answer, or one without the content."""
        host = self._over(mirror)
        if failure is not None and (not host.is_proven or failure.kind in _UNANSWERED | _FORBIDDEN):
            host.losses += 1
            is_lost = not host.is_proven or host.losses >= MOST_LOSSES or failure.kind in _FORBIDDEN
            if is_lost and not host.is_given_up:
                host.is_given_up = True
                self._give_up(mirror.site, "DST-S2", f"the mirror {mirror.site} is out: {failure.text}", href, tell)
            return
        if failure is None:
            host.is_proven, host.losses = True, 0
        why = failure.text if failure is not None else f"HTTP status {status}"
        told = f"the mirror {{}} has not sent {MOST_MISSES} resources in a row ({why})"
        host.misses += 1
        if self._missed(mirror) >= MOST_MISSES:
            self._give_up(mirror.base, "DST-S2", told.format(mirror.base), href, tell)
        elif host.misses >= MOST_MISSES and not host.is_given_up:
            host.is_given_up = True
            self._give_up(mirror.site, "DST-S2", told.format(mirror.site), href, tell)

    def _missed(self, mirror: Mirror) -> int:
        if len(self._misses) >= _MOST_COUNTED:
            self._misses.clear()
        misses = self._misses[mirror.base] = self._misses.get(mirror.base, 0) + 1
        return misses

    def _over(self, mirror: Mirror) -> _Host:
        host = self._hosts[mirror.site]
        host.open -= 1
        return host

    def _give_up(self, name: str, rule: str, told: str, href: str, tell: Tell) -> None:
        if name not in self._given_up and len(self._given_up) < MOST_HOSTS * (MOST_LYING + 1):
            self._given_up.add(name)
            tell(rule, f"{told}; it is not asked again in this run", href)


@lru_cache(maxsize=1024)
def mirror_of(loc: str, href: str) -> Mirror | None:
    """Which mirror a link leads to; None for what is no http or https URI that is fetched."""
    site = site_of(href)
    return None if site is None else Mirror(site, mirror_base(loc, href))


def mirror_base(loc: str, href: str) -> str:
    """The URI of a link without the names at the end that it has in common with `loc`: of a mirror as a whole the same.

    One host may hold several mirrors, and only the one that sent something else is distrusted (DST-F11).
    """
    own, theirs = loc.split("/"), href.split("/")
    while len(theirs) > 3 and own and theirs[-1] == own[-1]:
        own.pop()
        theirs.pop()
    return "/".join(theirs)


_PAST_CACHES = (("Cache-Control", "no-cache"), ("Pragma", "no-cache"))
_MOST_WAITING = 256
"""Resources that wait for the first answer of a mirror; others are not taken before."""


class WayChoice:
    """Chooses among the ways to each resource for one transfer; what is learnt of mirrors is that of the run."""

    def __init__(self, options: SyncOptions, health: MirrorHealth, monotonic: Callable[[], float], tell: Tell) -> None:
        self._is_on = options.mirrors == "on"
        self._trusted = options.trust_mirrors
        self._health = health
        self._clock = monotonic
        self._tell = tell
        self._waiting: deque[Work] = deque()

    def in_turn(self, works: Iterator[Work], fetch: Callable[[Work], Fetch]) -> Iterator[Fetch | None]:
        """The fetch of each resource by the way that is its turn; None while all that is left waits for a mirror."""
        for work in works:
            if work.links is None or not self._counts(work):
                yield fetch(work)
                continue
            yield from self._released(fetch)
            while len(self._waiting) >= _MOST_WAITING:
                yield None
                yield from self._released(fetch)
            if (chosen := self._chosen(work)) is None:
                self._waiting.append(work)
            else:
                yield fetch(chosen)
        while self._waiting:
            yield from self._released(fetch)
            if self._waiting:
                yield None

    def _counts(self, work: Work) -> bool:
        return self._is_on and may_use_mirrors(work, trusted=self._trusted)

    def _released(self, fetch: Callable[[Work], Fetch]) -> Iterator[Fetch]:
        while self._waiting and (chosen := self._chosen(self._waiting[0])) is not None:
            self._waiting.popleft()
            yield fetch(chosen)

    def _chosen(self, work: Work) -> Work | None:
        """A resource with the attempt that is made now, which counts as begun; None: it waits for a mirror."""
        attempt: Attempt = work.attempt
        if attempt == FIRST and not (work.etag or work.last_modified):
            first = next_mirror(work, 0, 0, mirrors=True)
            attempt = FIRST if first is None else MirrorAttempt(first)
        hrefs = mirrors_of(work)
        while isinstance(attempt, MirrorAttempt):
            mirror = mirror_of(work.loc, hrefs[attempt.number])
            turn = self._health.turn(mirror, self._clock())
            if turn is Turn.WAIT:
                return None
            if turn is Turn.ASK and mirror is not None:
                self._health.asked(mirror, self._clock())
                break
            attempt = self._passed_over(work, attempt)
        return msgspec.structs.replace(work, attempt_json=encode_attempt(attempt))

    def _passed_over(self, work: Work, attempt: MirrorAttempt) -> Attempt:
        """What comes after a mirror that is not asked; after `loc` there may be none, then `loc` has the last word."""
        later = next_mirror(work, attempt.asked, attempt.number + 1, mirrors=True)
        if later is not None:
            return MirrorAttempt(later, attempt.asked, attempt.is_after_loc)
        return LocAttempt(attempt.asked)

    def came(self, work: Work) -> bool:
        """What came is taken; whether a mirror has sent it."""
        if not isinstance(work.attempt, MirrorAttempt) or (mirror := mirror_of(work.loc, work.target)) is None:
            return False
        self._health.sent(mirror)
        return True

    def after(self, work: Work, fetched: Fetched, *, mismatch: bool, may_repeat: bool = True) -> Attempt | None:
        """The attempt after one that has brought nothing, or something else; None: there is none left.

        `may_repeat`: whether `loc` is asked again past all caches.
        """
        counts = self._counts(work)
        if isinstance(work.attempt, MirrorAttempt) and (mirror := mirror_of(work.loc, work.target)) is not None:
            if mismatch:
                self._health.differed(mirror, work.target, self._tell)
            else:
                self._health.failed(mirror, fetched.failure, fetched.status, work.target, self._tell)
        attempt = next_attempt(work, mismatch=mismatch and may_repeat, mirrors=counts)
        while isinstance(attempt, MirrorAttempt) and attempt.is_after_loc and self._is_out(work, attempt):
            later = next_mirror(work, attempt.asked, attempt.number + 1, mirrors=counts)
            attempt = None if later is None else MirrorAttempt(later, attempt.asked, is_after_loc=True)
        return attempt

    def _is_out(self, work: Work, attempt: MirrorAttempt) -> bool:
        mirror = mirror_of(work.loc, mirrors_of(work)[attempt.number])
        return self._health.turn(mirror, self._clock()) is Turn.PASS


def request_headers(work: Work) -> tuple[tuple[str, str], ...]:
    """Request headers of the present attempt: as listed, conditional for what is held, or past all caches."""
    if work.is_first and not (work.etag or work.last_modified or work.encoding):
        return ()  # as most are
    wanted = [("Accept-Encoding", work.encoding)]
    if isinstance(work.attempt, LocAttempt):
        wanted += [("If-None-Match", work.etag), ("If-Modified-Since", work.last_modified)]
    elif isinstance(work.attempt, LocPastCachesAttempt):
        wanted += _PAST_CACHES
    return tuple((name, value) for name, value in wanted if value)


def is_conditional(work: Work) -> bool:
    """Whether the present attempt is answered with 304 where what is held is what is listed."""
    conditional = isinstance(work.attempt, LocAttempt) and bool(work.etag or work.last_modified)
    return conditional and work.held is not None
