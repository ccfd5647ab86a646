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
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING
from urllib.parse import quote

from headwater.retry import Backoff
from headwater.spec.uris import comparable_host, is_wire_host, resolve
from headwater.transport.fetch import FailureKind, Fetch, Fetched, FetchFailure, TransportOptions

if TYPE_CHECKING:
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

SLOW_SECONDS = 0.25
"""A host that takes longer than this for an answer is asked no more at a time than now: it is slow, or is queueing."""

LONGEST_PACE_SECONDS = 1.0
"""Between two requests to one host there is no longer pause than this, whatever it asks for: `Crawl-delay`, or
refusals. Of 100,000 resources each second is a day."""

_FIRST_PAUSE = 0.05  # that the second overload leads to; the next one doubles it
_RECOVERY = 0.99  # after 70 answers a pause is half as long

LEAST_OCTETS_PER_CONNECTION = 4096
"""Octets a second that are worth a connection: with more of them each would look as if it stood still."""

_BURST_SECONDS = 0.1


@dataclass(slots=True)
class RateLimit:
    """At most so many a second, of requests or of octets; of those that were not taken a tenth of a second's worth may
    follow at once. What is taken at once may be more: then the next one waits."""

    per_second: float
    ready_at: float = 0.0

    def take(self, now: float, count: int = 1) -> bool:
        """Take so many; False: it is too early, and `ready_at` says when it will not be."""
        if now < self.ready_at - 1e-9:
            return False
        unused = max(0.0, _BURST_SECONDS - 1 / self.per_second)
        self.ready_at = max(self.ready_at, now - unused) + count / self.per_second
        return True


# the queues

_MAX_REDIRECTS = 10
REDIRECTS = frozenset({301, 302, 303, 307, 308})
_OVERLOAD_FAILURES = frozenset({FailureKind.TIMEOUT, FailureKind.STALLED})
_SILENT_SECONDS = 20.0
_PATIENCE = 5  # so many times the longest wait that is waited for at once a host may ask for in all, of one request
_REFUSALS = 10  # so often at most, however short the waits are
_MOST_REFUSALS = 200  # of a host that answers nothing else: then nothing more is asked of it for a while
_OWN_REFUSALS = 3  # of one request beside others that are answered: from then on they are no wish of the host
SILENT = FetchFailure(FailureKind.STALLED, "not requested: the host is silent, or refuses everything", passing=True)
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


@dataclass(slots=True, eq=False)
class FetchBatch:
    """The fetches of one caller: how many are open, and the results that it has not taken yet."""

    done: deque[Fetched] = field(default_factory=deque)
    open: int = 0


@dataclass(slots=True, eq=False)
class Host:
    """One origin: how many requests may be in flight to it and with what pause between them, and what waits.

    Until the first sign of overload each answer allows one request more, later each full round does (as TCP does), as
    long as answers come quickly; overload halves. A pause comes by `Crawl-delay` (`least_pause`), or by overload that
    comes again: each time doubles it, and answers shorten it slowly.
    """

    most: int
    limit: float = FIRST_LIMIT
    usual_seconds: float = 0.0
    cut_at: float = float("-inf")
    cautious: bool = False
    is_closing: bool = False  # whether it has closed the connection of its last answer
    least_pause: float = 0.0
    pause: float = 0.0
    refusals: int = 0  # since its last other answer
    losses: int = 0  # requests in a row that nothing came of
    silent_since: float = 0.0
    lost_at: float = 0.0  # when the first of them was sent, and the last was given up
    active: int = 0
    resume_at: float = 0.0
    waiting: deque[ScheduledFetch] = field(default_factory=deque)

    def __post_init__(self) -> None:
        self.limit = min(self.limit, self.most)

    @property
    def allowed(self) -> int:
        """How many requests may be in flight now."""
        return int(min(self.limit, CLOSING_LIMIT) if self.is_closing else self.limit)

    def answered(self, seconds: float) -> None:
        """A request was answered `seconds` after it was sent."""
        self.usual_seconds += (seconds - self.usual_seconds) / 8 if self.usual_seconds else seconds
        if self.limit < self.most and self.usual_seconds <= SLOW_SECONDS:
            self.limit = min(self.most, self.limit + (1 / self.limit if self.cautious else 1))
        self.pause = max(self.least_pause, self.pause * _RECOVERY)
        self.refusals = 0

    def overloaded(self, sent_at: float, now: float) -> None:
        """A request sent at `sent_at` was refused or lost; what was sent before the last cut says nothing new."""
        if sent_at > self.cut_at:
            if self.cautious:
                self.pause = min(LONGEST_PACE_SECONDS, 2 * self.pause or _FIRST_PAUSE)
            self.limit = max(1.0, self.limit // 2)
            self.cut_at = now
            self.cautious = True


@dataclass(slots=True, eq=False)
class ScheduledFetch:
    """A fetch in the scheduler: its present URI, and its redirects and tries so far."""

    fetch: Fetch
    run: FetchBatch
    apart: bool = False  # whether it is a stream: it has a handle of its own and need not wait for a free one
    uri: str = field(init=False)
    host: Host = field(init=False)
    site: str = ""
    tries: int = 1
    waited: float = 0.0
    refusals: int = 0  # for how long, and how often, by the wish of its host, which uses up no try
    hops: int = 0
    moved_to: str | None = None
    sent_at: float = 0.0
    part: PartialBody | None = None  # what has come of the body; the next try asks for the rest

    def __post_init__(self) -> None:
        self.uri = self.fetch.uri


class RequestScheduler:
    """Holds all jobs that are not in flight and decides which one starts next."""

    def __init__(self, options: TransportOptions, most: int) -> None:
        self._options = options
        self._per_host = max(1, min(options.per_host, most))
        self._first = max(1, FIRST_LIMIT // options.shares)
        self._hosts: dict[str, Host] = {}
        self._eager: dict[str, Host] = {}
        self._resting: list[tuple[float, int, ScheduledFetch]] = []
        self._tickets = itertools.count()
        self._permission = options.permission
        self._rate = RateLimit(options.rate_per_second) if options.rate_per_second else None

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

    def _host(self, site: str) -> Host:
        host = self._hosts.get(site)
        if host is None:
            if len(self._hosts) >= _MANY_HOSTS:
                self._hosts = {name: one for name, one in self._hosts.items() if one.active or one.waiting}
            host = self._hosts[site] = Host(self._per_host, self._first)
        return host

    def keep_pace(self, uri: str, seconds: float) -> None:
        """Let so much time pass between the beginnings of two requests to the host of a URI, up to a bound."""
        if (site := site_of(uri)) is not None:
            host = self._host(site)
            host.pause = host.least_pause = min(seconds, LONGEST_PACE_SECONDS)

    def rest(self, uri: str, seconds: float) -> None:
        """Start nothing at the host of a URI for so long, up to a bound, and ask it less at a time then."""
        now, seconds = self._options.monotonic(), min(seconds, self._options.longest_wait_seconds)
        if seconds and (site := site_of(uri)) is not None:
            host = self._host(site)
            host.resume_at = max(host.resume_at, now + seconds)
            host.overloaded(now, now)

    def keeps_pace(self, uri: str) -> bool:
        """Whether the host of a URI has asked for pauses, refuses some requests, or closes its connections."""
        host = self._hosts.get(site_of(uri) or "")
        return host is not None and bool(host.pause or host.cautious or host.is_closing)

    def next(self, now: float, *, room: bool) -> ScheduledFetch | None:
        """The next job that may start at `now`, counted as in flight from here; hosts take turns.

        `room` says that a handle is free; a job that brings its own starts without.
        """
        while self._resting and self._resting[0][0] <= now:
            self.admit(heapq.heappop(self._resting)[2])
        for site, host in self._eager.items():
            first = host.waiting[0]
            if host.active >= host.allowed or now < host.resume_at or not (room or first.apart):
                continue
            if self._rate is not None and now < self._rate.ready_at:
                return None
            if self._permission is not None and (wait := self._permission.take(host_of(site))):
                host.resume_at = now + wait
                continue
            if self._rate is not None:
                self._rate.take(now)
            job = host.waiting.popleft()
            host.active += 1
            job.sent_at = now
            if host.pause:
                host.resume_at = max(host.resume_at, now + host.pause)
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
        if self._eager and self._rate is not None and self._rate.ready_at > now:
            times.append(self._rate.ready_at)
        return min(times, default=None)

    def ended(self, job: ScheduledFetch, status: int = 0) -> None:
        """A job is no longer in flight, whatever came of it."""
        job.host.active -= 1
        if self._permission is not None:
            self._permission.give(host_of(job.site), status)

    def landed(
        self, job: ScheduledFetch, status: int, failure: FetchFailure | None, now: float, *, progressed: bool = False
    ) -> None:
        """A job is no longer in flight; learn from its end how much its host bears. `progressed`: though it broke off,
        so much of a body has come that the host cannot be called silent.
        """
        host = job.host
        self.ended(job, status)
        if failure is None or not failure.passing or progressed:
            host.losses = 0
        else:
            if not host.losses:
                host.silent_since = job.sent_at
            host.losses += 1
            host.lost_at = now
        if status in _OVERLOADED_STATUSES or (failure and failure.kind in _OVERLOAD_FAILURES):
            host.overloaded(job.sent_at, now)
        elif failure is None:
            host.answered(now - job.sent_at)

    def is_silent(self, host: Host, now: float) -> bool:
        """Whether a host has not answered at all for so long, or has refused so much and answered nothing else, that
        nothing more is asked of it for a while (DST-F1).

        Else a host that hangs would be waited for once for every resource and try, one after the other.
        """
        longest = max(_SILENT_SECONDS, 2 * self._options.stall_timeout_seconds)
        if host.refusals >= _MOST_REFUSALS:
            return now - host.cut_at < longest
        silent = host.losses > self._options.retries + 1 and host.lost_at - host.silent_since >= longest
        return silent and now - host.lost_at < longest

    def hopeless(self, now: float) -> list[ScheduledFetch]:
        """Take out what waits for hosts that do not answer; streams are sent all the same, and may find them awake."""
        silent = [host for host in self._eager.values() if self.is_silent(host, now)]
        return self._taken_out(lambda job: job.host in silent and not job.apart) if silent else []

    def _taken_out(self, is_meant: Callable[[ScheduledFetch], bool]) -> list[ScheduledFetch]:
        found: list[ScheduledFetch] = []
        for site, host in list(self._eager.items()):
            found.extend(filter(is_meant, host.waiting))
            host.waiting = deque(job for job in host.waiting if not is_meant(job))
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
        is_asked = failure is None and asked is not None and status in _OVERLOADED_STATUSES and most > 0
        is_own = is_asked and job.refusals >= _OWN_REFUSALS and not job.host.refusals
        if asked is not None and is_asked and not is_own and self._permission is not None:
            self._permission.rest(host_of(job.site), asked)
        if not passing or (asked or 0.0) > longest:
            return False
        has_patience = job.refusals < _REFUSALS and job.waited + (asked or 0.0) <= _PATIENCE * longest
        is_patient = is_asked and has_patience and not is_own
        if job.tries > most and not is_patient:
            return False
        if self.is_silent(job.host, now):
            return False
        first = self._options.first_backoff_seconds
        wait = Backoff(first, LONGEST_BACKOFF_SECONDS).seconds(job.tries, self._options.chance())
        if asked is not None:
            wait = max(wait, asked)
            if status in _OVERLOADED_STATUSES and not is_own:  # the host speaks for itself, not for one resource
                job.host.resume_at = max(job.host.resume_at, now + asked)
                job.host.refusals += 1
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
        if status == 303 and job.fetch.body is not None:  # it asks for a GET, whatever was asked (RFC 9110, 15.4.4)
            return FetchFailure(FailureKind.REDIRECT_REFUSED, f"a POST redirected to be a GET: {target[:200]}")
        if job.fetch.objection is not None and (objection := job.fetch.objection(target)):
            return FetchFailure(FailureKind.REDIRECT_REFUSED, f"redirected to {target[:200]}: {objection}")
        if status in (301, 308) and (job.hops == 0 or job.moved_to == job.uri):
            job.moved_to = target
        job.uri = target
        job.hops += 1
        return self.admit(job)

    def withdraw(self, run: FetchBatch) -> list[ScheduledFetch]:
        """Forget what waits for one who has stopped asking; returns that."""
        gone = [rest[2] for rest in self._resting if rest[2].run is run]
        self._resting = [rest for rest in self._resting if rest[2].run is not run]
        heapq.heapify(self._resting)
        return gone + self._taken_out(lambda job: job.run is run)
