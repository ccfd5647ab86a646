"""The choice among the attempts at a resource: mirrors by their health (DST-S2, DST-F11), then its address."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from functools import lru_cache

import msgspec

from headwater.sync.options import SyncOptions
from headwater.sync.transfer.work_queue import (
    FIRST,
    PAST_CACHES,
    Attempt,
    MirrorAttempt,
    Work,
    attempts_after,
    attempts_with_mirrors,
    encode_attempts,
    may_use_mirrors,
)
from headwater.transport.fetch import FailureKind, FetchFailure
from headwater.transport.scheduler import site_of
from headwater.transport.transport import Fetched

UNPROVEN_AT_ONCE = 4
"""Requests at a time to a host that has not answered yet."""

PATIENCE_SECONDS = 3.0
"""So long its first answer is waited for before resources go another way."""

MOST_FAULTS = 16
"""A mirror or a host with so many faults in a row is given up. An answer without content (404, 503 …) is one."""

_FAULTS_OF_A_LOSS = 6
"""Of a host that had answered before, when nothing comes of a request."""

_FAULTS_OF_A_LIE = 2
"""Of a host, when one of its mirrors sends something else: with the eighth the host is given up as well."""

MOST_HOSTS = 64
"""A list may name a mirror of its own for each resource: so many hosts are asked in a run, and no more."""

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
    is_proven: bool = False


Tell = Callable[[str, str, str | None], None]


class MirrorHealth:
    """What one run has learnt of mirrors. Memory is bounded by `MOST_HOSTS` and `_MOST_COUNTED`."""

    def __init__(self) -> None:
        self._hosts: dict[str, _Host] = {}
        self._faults: dict[str, int] = {}
        self._given_up: set[str] = set()

    def turn(self, mirror: Mirror | None, now: float) -> Turn:
        """Whether a mirror is asked now, waited for, or passed over."""
        if mirror is None or not self._given_up.isdisjoint((mirror.base, mirror.site)):
            return Turn.PASS
        host = self._hosts.get(mirror.site)
        if host is None:
            return Turn.ASK if len(self._hosts) < MOST_HOSTS else Turn.PASS
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
        self._over(mirror).is_proven = True
        self._faults.pop(mirror.base, None)
        self._faults.pop(mirror.site, None)

    def differed(self, mirror: Mirror, href: str, tell: Tell) -> None:
        """It has sent something else (DST-F11)."""
        self._over(mirror).is_proven = True
        told = "sends something else than listed"
        self._blame(mirror, (MOST_FAULTS, _FAULTS_OF_A_LIE), lambda who: tell("DST-F11", _out(who, told), href))

    def failed(self, mirror: Mirror, failure: FetchFailure | None, status: int, href: str, tell: Tell) -> None:
        """Nothing came that could be compared: no answer, or one without the content."""
        host = self._over(mirror)
        if failure is not None and (not host.is_proven or failure.kind in _FORBIDDEN):
            faults, told = (0, MOST_FAULTS), f"is out: {failure.text}"
        elif failure is not None and failure.kind in _UNANSWERED:
            faults, told = (0, _FAULTS_OF_A_LOSS), f"is out: {failure.text}"
        else:
            why = failure.text if failure is not None else f"HTTP status {status}"
            faults, told = (1, 1), f"has not sent {MOST_FAULTS} resources in a row ({why})"
        host.is_proven = host.is_proven or failure is None
        self._blame(mirror, faults, lambda who: tell("DST-S2", _out(who, told), href))

    def _over(self, mirror: Mirror) -> _Host:
        host = self._hosts[mirror.site]
        host.open -= 1
        return host

    def _blame(self, mirror: Mirror, faults: tuple[int, int], tell: Callable[[str], None]) -> None:
        """Count faults of a mirror and of its host, and give up the one that has too many."""
        if len(self._faults) > _MOST_COUNTED:
            self._faults.clear()
        names = (mirror.base, mirror.site)
        if not self._given_up.isdisjoint(names):
            return
        for name, more in zip(names, faults, strict=True):
            self._faults[name] = self._faults.get(name, 0) + more
        bad = [name for name in names if self._faults[name] >= MOST_FAULTS]
        if bad and len(self._given_up) < _MOST_COUNTED:
            self._given_up.update(bad)
            tell(bad[0])


def _out(name: str, told: str) -> str:
    return f"the mirror {name} {told}; it is not asked again in this run"


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


class WayChoice:
    """Chooses among the attempts at each resource for one transfer; what is learnt of mirrors is that of the run."""

    def __init__(self, options: SyncOptions, health: MirrorHealth, monotonic: Callable[[], float], tell: Tell) -> None:
        self._is_on = options.mirrors == "on"
        self._trusted = options.trust_mirrors
        self._health = health
        self._clock = monotonic
        self._tell = tell

    def ready(self, work: Work) -> Work | None:
        """A resource with the attempt that is made now, which counts as begun; None: it waits for a mirror."""
        if work.links is None:
            return work
        attempts = work.attempts
        if work.is_first and self._is_on and may_use_mirrors(work, trusted=self._trusted):
            attempts = attempts_with_mirrors(work)
        while isinstance(attempts[0], MirrorAttempt):
            mirror = mirror_of(work.loc, attempts[0].href)
            turn = self._health.turn(mirror, self._clock())
            if turn is Turn.WAIT:
                return None
            if turn is Turn.ASK and mirror is not None:
                self._health.asked(mirror, self._clock())
                break
            attempts = attempts[1:] or (FIRST,)
        return (
            work if attempts == work.attempts else msgspec.structs.replace(work, attempt_json=encode_attempts(attempts))
        )

    def came(self, work: Work) -> bool:
        """Note that the attempt has brought what is listed; whether a mirror has sent it."""
        mirror = _mirror_asked(work)
        if mirror is not None:
            self._health.sent(mirror)
        return mirror is not None

    def after(self, work: Work, fetched: Fetched, *, mismatch: bool, may_repeat: bool = True) -> tuple[Attempt, ...]:
        """The attempts after one that has brought nothing, or something else.

        `may_repeat`: whether `loc` is asked again past all caches.
        """
        if (mirror := _mirror_asked(work)) is not None:
            if mismatch:
                self._health.differed(mirror, work.target, self._tell)
            else:
                self._health.failed(mirror, fetched.failure, fetched.status, work.target, self._tell)
        return attempts_after(work, mismatch=mismatch and may_repeat)


def _mirror_asked(work: Work) -> Mirror | None:
    return mirror_of(work.loc, work.target) if isinstance(work.attempt, MirrorAttempt) else None


def request_headers(work: Work) -> tuple[tuple[str, str], ...]:
    """Request headers of the present attempt: as listed, conditional for what is held, or past all caches."""
    if work.is_first and not (work.etag or work.last_modified or work.encoding):
        return ()  # as most are
    wanted = [("Accept-Encoding", work.encoding)]
    if work.attempt == FIRST:
        wanted += [("If-None-Match", work.etag), ("If-Modified-Since", work.last_modified)]
    elif work.attempt == PAST_CACHES:
        wanted += _PAST_CACHES
    return tuple((name, value) for name, value in wanted if value)


def is_conditional(work: Work) -> bool:
    """Whether the present attempt is answered with 304 where what is held is what is listed."""
    return work.attempt == FIRST and bool(work.etag or work.last_modified) and work.held is not None
