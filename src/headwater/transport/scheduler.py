"""The scheduler of requests: a queue for each host, throttling, waits before retries, redirects. Limits are values.

Sources complain of harvesters that hammer them and harvesters of sources that answer slowly; both are met by starting
wide where a host is quick, giving way at the first sign of overload, and waiting as long as the host says (DST-F1).

Decisions only; the transport asks it what may start and tells it what came of it. A job goes through here once for
every try and every redirect:

1. it is admitted to the queue of its host;
2. it starts when its host's limit and the rate allow;
3. it is answered for good, or is redirected (back to 1), or failed in passing (rests, then back to 1).
"""

from __future__ import annotations

import heapq
import itertools
import re
from collections import deque
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING
from urllib.parse import quote

from headwater.retry import Backoff
from headwater.spec.uris import comparable_host, is_wire_host, resolve
from headwater.transport.fetch import FailureKind, Fetch, Fetched, FetchFailure, TransportOptions

if TYPE_CHECKING:
    from headwater.transport.curl_handles import EasyHandle
    from headwater.transport.response import PartialBody


# limits of hosts, of the rate and of bandwidth: values, without a clock

RETRIED_STATUSES = frozenset({408, 425, 429}) | frozenset(range(500, 600))
"""Answers that another try may change (DST-F1); every other 4xx is final."""

_OVERLOADED_STATUSES = frozenset({429, 503})
"""Answers by which a host says that it is asked too much."""

FIRST_LIMIT = 8
"""Requests in flight to a new host: no burden for any server, and soon more where it is quick."""

CLOSING_LIMIT = 4
"""Requests in flight to a host that closes each connection: every request is a new one there, and a queue of a few that
wait to be accepted is soon full, which costs each of the others seconds."""

LONGEST_BACKOFF_SECONDS = 30.0
"""The pauses before a request is made again grow up to this one, by the host's leave."""

_QUICK_SECONDS = 0.05
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
    first: int = FIRST_LIMIT
    limit: float = 0.0
    best_seconds: float = field(default=float("inf"))
    usual_seconds: float = 0.0
    cut_at: float = float("-inf")
    cautious: bool = False
    is_closing: bool = False
    """Whether it has closed the connection of its last answer."""

    def __post_init__(self) -> None:
        self.limit = float(min(self.first, self.most))

    @property
    def allowed(self) -> int:
        """How many requests may be in flight now."""
        return int(min(self.limit, CLOSING_LIMIT) if self.is_closing else self.limit)

    def answered(self, seconds: float) -> None:
        """A request was answered `seconds` after it was sent."""
        self.best_seconds = min(self.best_seconds, seconds)
        self.usual_seconds += (seconds - self.usual_seconds) / 8 if self.usual_seconds else seconds
        bound = max(_QUICK_SECONDS, min(SLOW_SECONDS, 2 * self.best_seconds))
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


# the queues

_MAX_REDIRECTS = 10
REDIRECTS = frozenset({301, 302, 303, 307, 308})
_SEE_OTHER = 303
"""A redirect that asks for a GET, whatever was asked before (RFC 9110, 15.4.4)."""

_PERMANENT_REDIRECTS = frozenset({301, 308})

_OVERLOAD_FAILURES = frozenset({FailureKind.TIMEOUT, FailureKind.STALLED})
_SILENT_LOSSES = 8
_SILENT_SECONDS = 20.0
_PATIENCE = 5  # so many times the longest wait that is waited for at once a host may ask for in all, of one request
_REFUSALS = 10  # so often at most, however short the waits are
_OWN_REFUSALS = 3  # of one request beside others that are answered: from then on they are no wish of the host
SILENT = FetchFailure(FailureKind.STALLED, "not requested: the host no longer answers", passing=True)
_MANY_HOSTS = 1024  # beyond this, what is known of hosts that are not in use is forgotten
_SITE = re.compile(r"(https?)://(\[[^\]/?#]*\]|[^/?#:@]+)(?::(\d{1,5})?)?(?=[/?#]|\Z)", re.IGNORECASE)
_PRINTABLE = "".join(map(chr, range(0x21, 0x7F)))


def site_of(uri: str) -> str | None:
    """Scheme, host and port of a http or https URI in one comparable form; None when it is none.

    A URI with a name or password in it is none: credentials come from the user, never from a document. Stricter than
    `spec.uris.origin` and four times as quick, because every request asks.
    """
    match = _SITE.match(uri)
    return None if match is None else _comparable(match[0])


@lru_cache(maxsize=256)
def _comparable(beginning: str) -> str:
    match = _SITE.match(beginning)
    assert match is not None
    scheme = match[1].lower()
    return f"{scheme}://{comparable_host(match[2])}:{int(match[3]) if match[3] else 443 if scheme == 'https' else 80}"


def host_of(site: str) -> str:
    """The host of what `site_of` has made."""
    return site.partition("://")[2].rpartition(":")[0].strip("[]").rstrip(".")


def wire_uri(uri: str) -> str:
    """`uri` as it can be sent: untouched when it is printable ASCII, else what is not is percent-encoded as UTF-8.

    A host that is not ASCII is sent as IDNA has it. Raises ValueError for one that is no name.
    """
    if uri.isascii() and uri.isprintable() and " " not in uri:
        return uri
    site = _SITE.match(uri)
    if site is None:
        return quote(uri, safe=_PRINTABLE, errors="surrogateescape")
    name = site[2] if site[2].isascii() else comparable_host(site[2])
    if not site[2].isascii() and not is_wire_host(name):
        raise ValueError(f"{site[2][:100]} is no name of a host")
    beginning = uri[: site.start(2)] + name + uri[site.end(2) : site.end()]
    return beginning + quote(uri[site.end() :], safe=_PRINTABLE, errors="surrogateescape")


def request_target(uri: str) -> str:
    """The path and query of a http or https URI as they stand in it, for the request line."""
    site = _SITE.match(uri)
    target = uri[site.end() if site else 0 :].partition("#")[0]
    return target if target.startswith("/") else f"/{target}"


def redirect_target(base: str, location: str, hops: int) -> str | FetchFailure:
    """Where a redirect leads, or why it is not followed (DST-F10): bounded, http or https, never from https to http."""
    location = quote(location.encode("latin-1", "replace"), safe=_PRINTABLE)
    target = resolve(base, location)
    if hops >= _MAX_REDIRECTS:
        return FetchFailure(FailureKind.REDIRECT_REFUSED, f"more than {_MAX_REDIRECTS} redirects")
    if site_of(target) is None:
        return FetchFailure(FailureKind.REDIRECT_REFUSED, f"redirected to what is not http or https: {location[:200]}")
    if base[:6].lower() == "https:" and target[:6].lower() != "https:":
        return FetchFailure(FailureKind.REDIRECT_REFUSED, f"redirected from https to http: {target[:200]}")
    return target


class FetchBatch:
    """The fetches of one caller: how many are open, and the results that it has not taken yet."""

    __slots__ = ("done", "open")

    def __init__(self) -> None:
        self.done: deque[Fetched] = deque()
        self.open = 0


class HostQueue:
    """One origin: its limit, what is in flight to it, and what waits for its turn."""

    __slots__ = (
        "active",
        "limit",
        "losses",
        "lost_at",
        "pace",
        "resume_at",
        "silent_since",
        "waiting",
    )

    def __init__(self, most: int, first: int) -> None:
        self.limit = HostLimit(most, first)
        self.pace = HostPace()
        self.losses = 0  # requests in a row that nothing came of
        self.silent_since = 0.0  # when the first of them was sent
        self.lost_at = 0.0  # when the last of them was given up
        self.active = 0
        self.resume_at = 0.0
        self.waiting: deque[ScheduledFetch] = deque()


class ScheduledFetch:
    """A fetch in the scheduler: its present URI, and its redirects and tries so far."""

    __slots__ = (
        "apart",
        "fetch",
        "hops",
        "host",
        "moved_to",
        "part",
        "refusals",
        "run",
        "sent_at",
        "site",
        "tries",
        "uri",
        "waited",
        "whole",
    )

    host: HostQueue

    def __init__(self, fetch: Fetch, run: FetchBatch, *, apart: bool = False) -> None:
        self.fetch = fetch
        self.run = run
        self.apart = apart  # a stream: it has a handle of its own and need not wait for a free one
        self.uri = fetch.uri
        self.site = ""
        self.tries = 1
        self.waited = 0.0  # by the wish of its host, which uses up no try
        self.refusals = 0
        self.hops = 0
        self.moved_to: str | None = None
        self.sent_at = 0.0
        self.part: PartialBody | None = None  # what has come of the body; the next try asks for the rest
        self.whole = False  # its server did not send the rest that was asked for: it is asked for all of it


class RequestScheduler:
    """Holds all jobs that are not in flight and decides which one starts next."""

    def __init__(self, options: TransportOptions, most: int) -> None:
        self._options = options
        self._per_host = max(1, min(options.per_host, most))
        self._first = max(1, FIRST_LIMIT // options.shares)
        self._hosts: dict[str, HostQueue] = {}
        self._eager: dict[str, HostQueue] = {}
        self._resting: list[tuple[float, int, ScheduledFetch]] = []
        self._tickets = itertools.count()
        self._bucket = TokenBucket(options.rate_per_second) if options.rate_per_second else None
        self._bucket_ready_at = 0.0

    def admit(self, job: ScheduledFetch) -> FetchFailure | None:
        """Put a job into the queue of its host; a failure when its URI is none that is fetched."""
        site = site_of(job.uri)
        if site is None:
            return FetchFailure(FailureKind.PROTOCOL, f"not a http or https URI: {job.uri[:200]}")
        job.site = site
        job.host = host = self._host(site)
        host.waiting.append(job)
        self._eager[site] = host
        return None

    def _host(self, site: str) -> HostQueue:
        host = self._hosts.get(site)
        if host is None:
            if len(self._hosts) >= _MANY_HOSTS:
                self._hosts = {name: one for name, one in self._hosts.items() if one.active or one.waiting}
            host = self._hosts[site] = HostQueue(self._per_host, self._first)
        return host

    def keep_pace(self, uri: str, seconds: float) -> None:
        """Let so much time pass between the beginnings of two requests to the host of a URI, up to a bound."""
        if (site := site_of(uri)) is not None:
            pace = self._host(site).pace
            pace.least = min(seconds, LONGEST_PACE_SECONDS)
            pace.seconds = max(pace.seconds, pace.least)

    def rest(self, uri: str, now: float, seconds: float) -> None:
        """Start nothing at the host of a URI for so long, and ask it less at a time then."""
        if seconds and (site := site_of(uri)) is not None:
            host = self._host(site)
            host.resume_at = max(host.resume_at, now + seconds)
            host.limit.overloaded(now, now)

    def keeps_pace(self, uri: str) -> bool:
        """Whether the host of a URI has asked for pauses, or for connections that are few."""
        host = self._hosts.get(site_of(uri) or "")
        return host is not None and bool(host.pace.seconds or host.limit.cautious or host.limit.is_closing)

    def next(self, now: float, *, room: bool) -> ScheduledFetch | None:
        """The next job that may start at `now`, counted as in flight from here; hosts take turns.

        `room` says that a handle is free; a job that brings its own starts without.
        """
        while self._resting and self._resting[0][0] <= now:
            self.admit(heapq.heappop(self._resting)[2])
        for site, host in self._eager.items():
            first = host.waiting[0]
            if host.active >= host.limit.allowed or now < host.resume_at or not (room or first.apart):
                continue
            if self._bucket is not None and (wait := self._bucket.take(now)) > 0:
                self._bucket_ready_at = now + wait
                return None
            job = host.waiting.popleft()
            host.active += 1
            job.sent_at = now
            if host.pace.seconds:
                host.resume_at = max(host.resume_at, now + host.pace.seconds)
            if not host.waiting:
                del self._eager[site]
            elif len(self._eager) > 1:
                self._eager[site] = self._eager.pop(site)
            return job
        return None

    def next_start(self, now: float) -> float | None:
        """When time alone lets something start that may not start now; None: nothing waits for time."""
        times = [self._resting[0][0]] if self._resting else []
        times.extend(host.resume_at for host in self._eager.values() if host.resume_at > now)
        if self._eager and self._bucket_ready_at > now:
            times.append(self._bucket_ready_at)
        return min(times, default=None)

    def landed(
        self, job: ScheduledFetch, status: int, failure: FetchFailure | None, now: float, *, progressed: bool = False
    ) -> None:
        """A job is no longer in flight; learn from its end how much its host bears. `progressed`: though it broke off,
        so much of a body has come that the host cannot be called silent.
        """
        host = job.host
        host.active -= 1
        if failure is None or not failure.passing or progressed:
            host.losses = 0
        else:
            if not host.losses:
                host.silent_since = job.sent_at
            host.losses += 1
            host.lost_at = now
        if status in _OVERLOADED_STATUSES or (failure and failure.kind in _OVERLOAD_FAILURES):
            host.limit.overloaded(job.sent_at, now)
        elif failure is None:
            host.limit.answered(now - job.sent_at)
            host.pace.answered(job.sent_at)

    def _is_silent(self, host: HostQueue, now: float) -> bool:
        """Whether a host has not answered at all for so long that nothing more is asked of it for a while (DST-F1).

        Else a host that hangs would be waited for once for every resource and try, one after the other.
        """
        longest = max(_SILENT_SECONDS, 2 * self._options.stall_timeout_seconds)
        silent = host.losses >= _SILENT_LOSSES and host.lost_at - host.silent_since >= longest
        return silent and now - host.lost_at < longest

    def is_hanging(self, job: ScheduledFetch, failure: FetchFailure | None) -> bool:
        """Whether another document has had all its tries at the host of this one, by which it would be found awake."""
        return (
            failure is not None and failure.kind in _OVERLOAD_FAILURES and job.host.losses > self._options.retries + 1
        )

    def hopeless(self, now: float) -> list[ScheduledFetch]:
        """Take out what waits for hosts that do not answer; streams are sent all the same, and may find them awake."""
        found: list[ScheduledFetch] = []
        for site, host in list(self._eager.items()):
            if self._is_silent(host, now):
                found.extend(job for job in host.waiting if not job.apart)
                host.waiting = deque(job for job in host.waiting if job.apart)
                if not host.waiting:
                    del self._eager[site]
        return found

    def repeat(
        self, job: ScheduledFetch, status: int, failure: FetchFailure | None, asked: float | None, now: float
    ) -> bool:
        """Put a job to rest for another try (DST-F1); False when its end is final, its tries are used up, or the wait
        that the source asks for is longer than we wait.
        """
        passing = failure.passing if failure else status in RETRIED_STATUSES
        most = self._options.retries if job.fetch.retries is None or job.part is not None else job.fetch.retries
        longest = self._options.longest_wait_seconds
        if not passing or (asked or 0.0) > longest:
            return False
        is_asked = failure is None and asked is not None and status in _OVERLOADED_STATUSES and most > 0
        is_own = is_asked and job.refusals >= _OWN_REFUSALS and job.host.pace.answers > 0
        has_patience = job.refusals < _REFUSALS and job.waited + (asked or 0.0) <= _PATIENCE * longest
        is_patient = is_asked and has_patience and not is_own
        if job.tries > most and not is_patient:
            return False
        if not job.apart and self._is_silent(job.host, now):
            return False
        if job.apart and self.is_hanging(job, failure):
            return False
        first = self._options.first_backoff_seconds
        wait = Backoff(first, LONGEST_BACKOFF_SECONDS).seconds(job.tries, self._options.chance())
        if asked is not None:
            wait = max(wait, asked)
            if status in _OVERLOADED_STATUSES and not is_own:  # the host speaks for itself, not for one resource
                job.host.resume_at = max(job.host.resume_at, now + asked)
                job.host.pace.refused(job, job.sent_at, now, asked)
        job.refusals += is_asked
        if is_patient:
            job.waited += max(asked or 0.0, 1.0)
        else:
            job.tries += 1
        heapq.heappush(self._resting, (now + wait, next(self._tickets), job))
        return True

    def redirect(self, job: ScheduledFetch, status: int, location: str) -> FetchFailure | None:
        """Queue a job again for where it is redirected to; a failure when that is not followed."""
        target = redirect_target(job.uri, location, job.hops)
        if isinstance(target, FetchFailure):
            return target
        if status == _SEE_OTHER and job.fetch.body is not None:
            return FetchFailure(FailureKind.REDIRECT_REFUSED, f"a POST redirected to be a GET: {target[:200]}")
        if job.fetch.objection is not None and (objection := job.fetch.objection(target)):
            return FetchFailure(FailureKind.REDIRECT_REFUSED, f"redirected to {target[:200]}: {objection}")
        if status in _PERMANENT_REDIRECTS and (job.hops == 0 or job.moved_to == job.uri):
            job.moved_to = target
        job.uri = target
        job.hops += 1
        return self.admit(job)

    def withdraw(self, run: FetchBatch) -> list[ScheduledFetch]:
        """Forget what waits for one who has stopped asking; returns that."""
        gone = [rest[2] for rest in self._resting if rest[2].run is run]
        self._resting = [rest for rest in self._resting if rest[2].run is not run]
        heapq.heapify(self._resting)
        for site, host in list(self._eager.items()):
            gone.extend(job for job in host.waiting if job.run is run)
            host.waiting = deque(job for job in host.waiting if job.run is not run)
            if not host.waiting:
                del self._eager[site]
        return gone
