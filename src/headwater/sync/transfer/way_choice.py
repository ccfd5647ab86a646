"""The choice of ways in a transfer: mirrors by their health, then `loc`; and what waits for a mirror's first answer."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator

import msgspec

from headwater.sync.network.transport import Fetch, Fetched
from headwater.sync.run_context import RunContext
from headwater.sync.transfer.mirrors import Tell, Turn, mirror_of
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

_PAST_CACHES = (("Cache-Control", "no-cache"), ("Pragma", "no-cache"))
_MOST_WAITING = 256
"""Resources that wait for the first answer of a mirror; others are not taken before."""


class WayChoice:
    """Chooses among the ways to each resource for one transfer; what is learnt of mirrors is that of the run."""

    def __init__(self, context: RunContext, tell: Tell) -> None:
        options = context.options
        self._is_on = options.mirrors == "on"
        self._trusted = options.trust_mirrors
        self._health = context.mirrors
        self._clock = context.transport.options.monotonic
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
