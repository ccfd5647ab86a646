"""Throttling: limits of requests per host and of bandwidth; values, without a clock.

Sources complain of harvesters that hammer them and harvesters of sources that answer slowly; both are met by starting
wide where a host is quick, giving way at the first sign of overload, and waiting as long as the host says (DST-F1).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headwater.transport.curl_handles import EasyHandle

RETRIED_STATUSES = frozenset({408, 425, 429}) | frozenset(range(500, 600))
"""Answers that another try may change (DST-F1); every other 4xx is final."""

OVERLOADED_STATUSES = frozenset({429, 503})
"""Answers by which a host says that it is asked too much."""

FIRST_LIMIT = 8
"""Requests in flight to a new host: no burden for any server, and soon more where it is quick."""

CLOSING_LIMIT = 4
"""Requests in flight to a host that closes each connection: every request is a new one there, and a queue of a few that
wait to be accepted is soon full, which costs each of the others seconds."""

ACCEPT_SECONDS = 0.9
"""A connection that takes so much longer than a whole answer was dropped at first and made once more by the system."""

LONGEST_BACKOFF_SECONDS = 30.0
"""The pauses before a request is made again grow up to this one, by the host's leave."""

QUICK_SECONDS = 0.05
"""An answer within this time never argues against one more request in flight."""

SLOW_SECONDS = 0.25
"""A host that takes longer than this for an answer is asked no more at a time than at first, however steady it is."""

LONGEST_PACE_SECONDS = 1.0
"""Between two requests to one host there is no longer pause than this, whatever it asks for: `Crawl-delay`, or by the
number of answers that came before it asked for patience. Of 100,000 resources each second is a day."""

_RECOVERY = 0.99  # a pause that a refusal has led to: after 70 answers it is half as long


@dataclass(slots=True)
class HostLimit:
    """How many requests may be in flight to one host: more while it answers quickly, half when it is overloaded.

    Until the first sign of overload each answer allows one more, later each full round does (as TCP does). The limit
    stops growing while answers take more than twice the host's best: it is queueing, and asking more gains nothing. A
    host that is slow by itself is not asked more at a time than at first.
    """

    most: int
    limit: float = 0.0
    best_seconds: float = field(default=float("inf"))
    usual_seconds: float = 0.0
    cut_at: float = float("-inf")
    cautious: bool = False
    is_closing: bool = False
    """Whether it has closed the connection of its last answer."""

    def __post_init__(self) -> None:
        self.limit = float(min(FIRST_LIMIT, self.most))

    @property
    def allowed(self) -> int:
        """How many requests may be in flight now."""
        return int(min(self.limit, CLOSING_LIMIT) if self.is_closing else self.limit)

    def answered(self, seconds: float) -> None:
        """A request was answered `seconds` after it was sent."""
        self.best_seconds = min(self.best_seconds, seconds)
        self.usual_seconds += (seconds - self.usual_seconds) / 8 if self.usual_seconds else seconds
        bound = max(QUICK_SECONDS, min(SLOW_SECONDS, 2 * self.best_seconds))
        if self.limit < self.most and self.usual_seconds <= bound:
            self.limit = min(self.most, self.limit + (1 / self.limit if self.cautious else 1))

    def overloaded(self, sent_at: float, now: float) -> None:
        """A request sent at `sent_at` was refused or lost; what was sent before the last cut says nothing new."""
        if sent_at > self.cut_at:
            self.limit = max(1.0, self.limit // 2)
            self.cut_at = now
            self.cautious = True


@dataclass(slots=True)
class HostPace:
    """The pause between the beginnings of two requests to one host: none, until it asks for one.

    By `Crawl-delay` (`least`), or by refusals with `Retry-After` of more than one request: then as many answers are
    asked for in a time as came before the refusal in the time that ended with its wait, and slowly more again.
    """

    least: float = 0.0
    seconds: float = 0.0
    since: float = 0.0
    answers: int = 0
    wanted: float = 0.0
    """The pause by the last refusal, …"""

    refused_last: object = None
    """… and the request that was refused: of one alone it is no pause for the host."""

    def answered(self, sent_at: float) -> None:
        """The host has answered a request as it should."""
        if not self.answers:
            self.since = max(self.since, sent_at)
        self.answers += 1
        self.seconds = max(self.least, self.seconds * _RECOVERY)

    def refused(self, request: object, sent_at: float, now: float, asked: float) -> None:
        """It asks for `asked` seconds of patience; what was sent before the last time says nothing new of the rate."""
        if sent_at >= self.since:
            self.wanted = (max(0.0, now - self.since) + asked) / self.answers if self.answers else 0.0
            self.since, self.answers = now + asked, 0
        if self.wanted and self.refused_last is not None and self.refused_last is not request:
            self.seconds, self.wanted = max(self.least, min(LONGEST_PACE_SECONDS, self.wanted)), 0.0
        self.refused_last = request


@dataclass(slots=True)
class TokenBucket:
    """At most `rate` requests a second, with a burst of one tenth of a second's worth (one at least)."""

    rate: float
    tokens: float = 1.0
    filled_at: float = 0.0

    def take(self, now: float) -> float:
        """Take a token and return 0, or take none and return the seconds until there is one."""
        self.tokens = min(max(1.0, self.rate / 10), self.tokens + max(0.0, now - self.filled_at) * self.rate)
        self.filled_at = now
        if self.tokens >= 1.0 - 1e-9:
            self.tokens -= 1.0
            return 0.0
        return (1.0 - self.tokens) / self.rate


LEAST_OCTETS_PER_CONNECTION = 4096
"""Octets a second that are worth a connection: with more of them each would look as if it stood still."""

_BURST_SECONDS = 0.1


class BandwidthLimit:
    """A bucket of octets that fills by `rate` each second; it may be overdrawn by what comes at once."""

    def __init__(self, rate: int) -> None:
        self.rate = rate
        self.paused: dict[EasyHandle, None] = {}
        self._octets = self._most = rate * _BURST_SECONDS
        self._filled_at: float | None = None

    def fill(self, now: float) -> bool:
        """Let time fill the bucket; whether there is anything in it."""
        if self._filled_at is not None:
            self._octets = min(self._most, self._octets + max(0.0, now - self._filled_at) * self.rate)
        self._filled_at = now
        return self._octets > 0

    def take(self, octets: int) -> bool:
        """Take so many octets; False: it is too early."""
        if self._octets <= 0:
            return False
        self._octets -= octets
        return True

    def give_back(self, octets: int) -> None:
        """What was taken has not been used."""
        self._octets += octets

    def wait_seconds(self) -> float:
        """How long it takes until there is something in the bucket."""
        return max(0.0, (1 - self._octets) / self.rate)
