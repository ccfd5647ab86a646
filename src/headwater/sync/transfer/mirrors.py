"""Mirrors (`rel="duplicate"`): which may be asked now, by what came of asking them in this run (DST-S2, DST-F11).

Decisions over values; the clock is the caller's. A host that has not answered yet gets few requests at a time, so that
one that hangs costs the run a time-out and not one for each resource. What has been given up is not asked again in the
run, and told once.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from functools import lru_cache

import msgspec

from headwater.sync.network.fetch import FailureKind, FetchFailure
from headwater.sync.network.scheduler import site_of

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
