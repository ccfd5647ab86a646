"""The HTTP client: many requests at a time over kept-alive connections, bounded, each answered once.

libcurl (`curl_handles`) does the waiting. `scheduler` decides what may start, be followed or be tried again, `response`
takes the octets, and this module carries requests from the one to the other. A transport belongs to one thread.
It speaks HTTP/1.1 only: over loopback HTTP/2 measured slower, and every bound here is one that we understand.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial

import msgspec

from headwater.errors import Interrupted, SourceFault
from headwater.files.file_copies import Room
from headwater.files.hashing import HASHERS
from headwater.quantities import human_seconds
from headwater.retry import retry_after_seconds
from headwater.transport import scheduler as dispatch
from headwater.transport.access import FIELD_NAME, AddressGuard, CaBundle, SignInCredentials, ca_bundle, proxy_places
from headwater.transport.curl_handles import (
    NOT_TAKEN,
    PAUSE,
    SLOWEST_DOCUMENT,
    SLOWEST_OCTETS_PER_SECOND,
    CurlError,
    EasyHandle,
    MultiHandle,
)
from headwater.transport.fetch import DeadlineMet, FailureKind, Fetch, Fetched, FetchFailure, TransportOptions
from headwater.transport.response import LEAST_PROGRESS_OCTETS, MISFIT, MOST_ROUNDS, ResponseReceiver, kept_part
from headwater.transport.scheduler import (
    LEAST_OCTETS_PER_CONNECTION,
    FetchBatch,
    RateLimit,
    RequestScheduler,
    ScheduledFetch,
    site_of,
)

PAUSE_OCTETS = 256 * 1024
"""A stream whose reader is this far behind is paused."""


class StreamBroken(SourceFault):
    """A streamed answer ended before its body was complete."""

    code = "HW-NET-01"
    passing = True  # whether another try may succeed


class StreamReceiver(ResponseReceiver):
    """Hands a 2xx body on chunk by chunk, and asks libcurl to pause while its reader is behind."""

    def __init__(self) -> None:
        super().__init__()
        self.ready: deque[bytes] = deque()
        self.paused = False

    def body(self, chunk: bytes) -> int | None:
        if not self.delivering:
            self.read_head()
            if self.failure is not None:
                return 0
            if not 200 <= self.status < 300:
                return super().body(chunk)
            self.delivering = True
            self.hashers = [(name, HASHERS[name]()) for name in self.fetch.algorithms]
        if sum(map(len, self.ready)) >= PAUSE_OCTETS:
            self.paused = True
            return PAUSE
        self.octets += len(chunk)
        if not self.goes_on():
            return 0
        for _, hasher in self.hashers or ():
            hasher.update(chunk)
        self.ready.append(chunk)
        return None

    def complete(self) -> tuple[bytes, dict[str, str]]:
        if not 200 <= self.status < 300:
            return super().complete()
        hashers = self.hashers or [(name, HASHERS[name]()) for name in self.fetch.algorithms]
        return b"", {name: hasher.hexdigest() for name, hasher in hashers}

    def take(self) -> bytes:
        """What has come in, in one piece."""
        octets = self.ready[0] if len(self.ready) == 1 else b"".join(self.ready)
        self.ready.clear()
        return octets


SECRET_HEADERS = frozenset({"authorization", "cookie", "proxy-authorization"})

_USUAL_LINES = [b"Accept-Encoding: identity"]


def header_lines(job: ScheduledFetch, own: SignInCredentials | None) -> list[bytes]:
    """The header lines of a request, with the credentials of whom it asks. A header of the fetch that is a secret does
    not follow a redirect to another origin. Raises ValueError for a header that cannot be sent.
    """
    if not job.fetch.headers and job.part is None and job.fetch.body is None and own is None:
        return _USUAL_LINES
    secret = () if site_of(job.fetch.uri) == job.site else SECRET_HEADERS
    fields = [(name, value) for name, value in job.fetch.headers if name.lower() not in secret]
    fields += job.part.headers() if job.part is not None else ()
    names = {name.lower() for name, _ in fields}
    if not all(map(FIELD_NAME.match, names)) or any(c in value for _, value in fields for c in "\r\n\0"):
        raise ValueError("a header that cannot be sent")
    lines = [f"{name}: {value}".encode("latin-1") for name, value in fields]
    if "accept-encoding" not in names:
        lines += _USUAL_LINES
    if job.fetch.body is not None:
        lines.append(b"Expect:")  # none: libcurl would wait for a "100 Continue" before a long body
    return lines if own is None else lines + own.lines(names)


MAX_CONCURRENCY = 256  # select(2) holds 1,024 descriptors; 256 connections hide 20 ms of latency altogether
TURN_SECONDS = 0.25  # how long it may take until a wish to stop is seen


class Transport(AbstractContextManager["Transport"]):
    """Fetches by HTTP, many at a time; see the module's introduction. Close it, or use it as a context manager."""

    def __init__(self, options: TransportOptions | None = None) -> None:
        self.options = options or TransportOptions()
        self.room: Room | None = None
        """What files may take, where a copy has bounds."""

        self.heard: Callable[[str, Fetched], None] = lambda _uri, _answer: None  # of every document
        self._most = max(1, min(self.options.concurrency, MAX_CONCURRENCY))
        self._throttle: RateLimit | None = None
        if limit := self.options.octets_per_second:
            self._throttle = RateLimit(limit)
            self._most = max(1, min(self._most, limit // LEAST_OCTETS_PER_CONNECTION))
        self._slowest_document = max(
            SLOWEST_OCTETS_PER_SECOND, min(SLOWEST_DOCUMENT, (limit or SLOWEST_DOCUMENT * 8) // 8)
        )
        self._multi = MultiHandle(self._most)
        self._idle: list[EasyHandle] = []
        self._made = 0
        self._flying: dict[EasyHandle, None] = {}
        self._streams: dict[ScheduledFetch, EasyHandle] = {}
        self._postponed: deque[Callable[[], None]] = deque()
        self._paused: dict[EasyHandle, None] = {}
        self.queue = RequestScheduler(self.options, self._most)
        """What is asked of which host, and when: who hears of a wish of a host tells it."""

        self._credentials = self.options.credentials
        self._trusted = site_of(self._credentials.origin) if self._credentials else None
        self._proxied = self.options.proxy is not None or any(
            os.environ.get(name) for name in ("http_proxy", "all_proxy", "ALL_PROXY")
        )
        more = self.options.authorities
        self._authorities: CaBundle | None = ca_bundle(more) if more else None
        site = site_of(self.options.source) if self.options.source else None
        self.guard = AddressGuard(
            site and dispatch.host_of(site),
            self.options.named_hosts,
            level=self.options.level_of,
            proxies=lambda: proxy_places(self.options.proxy),
        )
        self._began = self.options.monotonic()

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End all connections; what is in flight is given up and leaves no file but what is to be kept."""
        for handle in list(self._flying):
            self._ground(handle, lasting=True)
        for handle in self._idle:
            handle.curl.close()
        self._idle.clear()
        self._multi.curl.close()

    def share(self, uri: str, shares: int) -> TransportOptions | None:
        """The options for each of `shares` transports that ask the host of a URI in the place of this one.

        None where they would not ask as this one does: with credentials, a proxy, a rate, at the host's own pace, or
        more at a time.
        """
        options = self.options
        is_plain = options.credentials is None and options.authorities is None and options.rate_per_second is None
        is_plain = (
            is_plain
            and options.permission is None
            and not self._proxied
            and self._throttle is None
            and not self.queue.keeps_pace(uri)
        )
        if not is_plain or min(options.concurrency, options.per_host) < shares:
            return None
        each = {name: max(1, getattr(options, name) // shares) for name in ("concurrency", "per_host")}
        return msgspec.structs.replace(options, **each, shares=options.shares * shares, retries=0)

    def one(self, fetch: Fetch) -> Fetched:
        """Fetch one thing and wait for it."""
        return next(self.many((fetch,)))

    def many(self, fetches: Iterable[Fetch | None]) -> Generator[Fetched, None, None]:
        """Fetch all of `fetches`, many at a time, and yield each outcome as it is there, in any order.

        Pulled lazily: never more than `concurrency` are taken and not yet yielded. A None among them means "nothing at
        the moment": they are asked again after the next outcome has been taken, so that outcomes may lead to further
        fetches; it ends them when nothing is open.
        """
        run = FetchBatch()
        source, ended = iter(fetches), False
        try:
            while True:
                while not ended and run.open + len(run.done) < self._most:
                    try:
                        fetch = next(source)
                    except StopIteration:
                        ended = True
                        break
                    if fetch is None:
                        break
                    self._admit(ScheduledFetch(fetch, run))
                if run.done:
                    self._start(self.options.monotonic())
                    self._perform()  # so that the source works while the caller looks at what it got
                    while run.done:
                        yield run.done.popleft()
                elif run.open:
                    self._turn()
                else:
                    return
        finally:
            self._abandon(run)

    @contextmanager
    def stream(self, fetch: Fetch) -> Iterator[tuple[Fetched, Iterator[bytes]]]:
        """Fetch one thing and read its body in bounded memory: the answer, and the chunks of a 2xx body as received.

        Entered when the head of the final answer is there, or the fetch has failed for good. When the chunks are read
        the answer has its octets and digests; they raise `StreamBroken` where the body ends before it is complete.
        """
        reception = StreamReceiver()
        job = ScheduledFetch(fetch, FetchBatch(), apart=True)
        handle = self._streams[job] = EasyHandle(reception, self.options, self.guard, self._paces)
        try:
            self._admit(job)
            while not job.run.done and not reception.delivering:
                self._turn(reception)
            answer = Fetched(fetch, reception.status, job.uri, reception.headers, moved_to=job.moved_to)
            if job.run.done and not reception.delivering:
                answer = job.run.done[0]
            self.heard(fetch.uri, answer)
            yield answer, self._chunks(job.run, handle, reception, answer)
        finally:
            self._end_stream(job)

    def _chunks(
        self, run: FetchBatch, handle: EasyHandle, reception: StreamReceiver, answer: Fetched
    ) -> Iterator[bytes]:
        while reception.ready or not run.done:
            if reception.ready:
                yield reception.take()
            elif reception.paused:
                reception.paused = False
                if not handle.carry_on():
                    self._landed(handle, NOT_TAKEN, "")
            else:
                self._turn(reception)
        done = run.done[0]
        answer.failure, answer.digests, answer.octets = done.failure, done.digests, done.octets
        if done.failure is not None:
            broken = StreamBroken(done.failure.text, where=done.uri, rule=f"transport {done.failure.kind}")
            broken.passing = done.failure.passing
            raise broken

    def _end_stream(self, job: ScheduledFetch) -> None:
        if self._multi.at_work:
            self._postponed.append(partial(self._end_stream, job))
            return
        self._abandon(job.run)
        if (handle := self._streams.pop(job, None)) is not None:
            handle.curl.close()

    def _admit(self, job: ScheduledFetch) -> None:
        job.run.open += 1
        job.part = None if job.fetch.keep is None else kept_part(job.fetch)
        if failure := self.queue.admit(job):
            self._end(job, Fetched(job.fetch, uri=job.uri, failure=failure))

    def _perform(self) -> None:
        """Let libcurl send and receive, then give up what was given up meanwhile.

        While libcurl calls back, the garbage collector may close a generator that was reading a stream; libcurl lets
        no transfer go at that moment.
        """
        self._multi.perform()
        while self._postponed:
            self._postponed.popleft()()

    def _turn(self, stream: StreamReceiver | None = None) -> None:
        """Start what may start, then let libcurl work until something is complete, in `stream` too, or briefly."""
        self.check()
        now, deadline = self.options.monotonic(), self.options.deadline_seconds
        self._start(now)
        if self._throttle is not None:
            waiting = list(self._paused)
            while waiting and now >= self._throttle.ready_at:  # they go on in turns
                handle = waiting.pop(0)
                del self._paused[handle]
                if not handle.carry_on():
                    self._landed(handle, NOT_TAKEN, "")
        self._perform()
        ended = self._multi.finished()
        for handle, code, text in ended:
            self._landed(handle, code, text)
        if ended or (stream is not None and stream.ready):
            return
        due = self.queue.next_start(now)
        if not self._flying:
            if due is not None:
                is_awaited = self.options.stopped is not None or deadline is not None
                self.options.sleep(min(max(0.0, due - now), TURN_SECONDS if is_awaited else due))
            return
        wait = TURN_SECONDS if due is None else min(TURN_SECONDS, max(0.0, due - now))
        if self._throttle is not None and self._paused:
            wait = min(wait, max(0.0, self._throttle.ready_at - self.options.monotonic()))
            if len(self._paused) == len(self._flying):
                self.options.sleep(wait)
                return
        own = self._multi.curl.timeout()  # as long as libcurl allows, where it says that
        self._multi.curl.select(wait if own < 0 else min(wait, own / 1000))

    def check(self) -> None:
        """Raise Interrupted where the user has stopped the transfers, DeadlineMet where their time is over."""
        if self.options.stopped is not None and self.options.stopped():
            raise Interrupted("stopped while transfers were under way")
        deadline = self.options.deadline_seconds
        if deadline is not None and self.options.monotonic() - self._began >= deadline:
            raise DeadlineMet(f"the deadline of {human_seconds(deadline)} has passed while transfers were under way")

    def _paces(self, handle: EasyHandle, octets: int) -> bool:
        """Whether a transfer may take so many octets now; else it is paused."""
        if self._throttle is None or self._throttle.take(self.options.monotonic(), octets):
            return True
        self._paused[handle] = None
        return False

    def _start(self, now: float) -> None:
        for lost in self.queue.hopeless(now):
            self._end(lost, Fetched(lost.fetch, uri=lost.uri, failure=dispatch.SILENT))
        while job := self.queue.next(now, room=bool(self._idle) or self._made < self._most):
            if barred := self.guard.literal_objection(dispatch.host_of(job.site)):
                self._fail(job, FetchFailure(FailureKind.ADDRESS_REFUSED, barred))
                continue
            if job.apart:
                handle = self._streams[job]
            elif self._idle:
                handle = self._idle.pop()
            else:
                self._made += 1
                handle = EasyHandle(ResponseReceiver(), self.options, self.guard, self._paces)
            handle.job = job
            handle.reception.begin(job.fetch, job.part, job.site)
            handle.reception.room = self.room
            self._flying[handle] = None
            try:
                own = self._credentials if job.site == self._trusted else None
                if handle.certified or (own is not None and own.certificate is not None):
                    handle.identify(own, self.options)
                handle.prepare(
                    dispatch.wire_uri(job.uri), job.fetch.method, job.fetch.body, header_lines(job, own),
                    SLOWEST_OCTETS_PER_SECOND if job.fetch.into is not None else self._slowest_document,
                    proxied=self._proxied,
                )  # fmt: skip
                if job.site.startswith("https:"):
                    self._authorities = self._authorities or ca_bundle()
                    handle.trust(self._authorities)
                self._multi.curl.add_handle(handle.curl)
            except (CurlError, ValueError) as error:
                del self._flying[handle]
                self._release(handle)
                self._fail(job, FetchFailure(FailureKind.PROTOCOL, f"the request cannot be made: {error}"))

    def _fail(self, job: ScheduledFetch, failure: FetchFailure) -> None:
        self.queue.landed(job, 0, failure, job.sent_at)
        self._end(job, Fetched(job.fetch, uri=job.uri, failure=failure))

    def _landed(self, handle: EasyHandle, code: int, text: str) -> None:
        """One transfer is over: judge it, then end it, send it on, or let it rest for another try."""
        job, reception, now = handle.job, handle.reception, self.options.monotonic()
        assert job is not None
        reception.read_head()
        failure = handle.judge(code, text)
        body, digests = (b"", {}) if failure else reception.complete()
        failure = failure or reception.failure
        status, headers, held = reception.status, reception.headers, reception.held
        brought = job.part.brought if job.part is not None and reception.resumed_at else 0
        answer = Fetched(
            job.fetch, status, job.uri, headers, reception.octets, reception.resumed_at, brought, digests, body, held
        )
        answer.failure = failure
        left = reception.what_is_left(failure)
        if left is not None and (failure is MISFIT or status == 416):  # all of it is asked for then
            answer.failure = failure = MISFIT
            left.remove()
            left = None
        job.part = left
        # so much that the next try counts as the first
        progressed = left is not None and left.gained >= max(LEAST_PROGRESS_OCTETS, (left.total or 0) // MOST_ROUNDS)
        if progressed:
            job.tries = 1
        self._ground(handle, lasting=reception.raised is not None)
        if status:
            job.host.is_closing = reception.is_closing
        self.queue.landed(job, status, failure, now, progressed=progressed)
        if reception.raised is not None:
            raised, reception.raised = reception.raised, None
            job.run.open -= 1
            raise raised
        if failure is None and status in dispatch.REDIRECTS and "location" in headers:
            answer.failure = self.queue.redirect(job, status, headers["location"])
            if answer.failure is None:
                return
        if "retry-after" in headers:
            time_of_day = self.options.time_of_day()
            answer.retry_after_seconds = retry_after_seconds(headers["retry-after"], headers.get("date"), time_of_day)
        if reception.delivering and failure is not None and self.queue.is_silent(job.host, now):
            answer.failure = FetchFailure(failure.kind, failure.text, passing=False)
        if reception.delivering or not self.queue.repeat(job, status, failure, answer.retry_after_seconds, now):
            self._end(job, answer)

    def _end(self, job: ScheduledFetch, answer: Fetched) -> None:
        if job.part is not None:
            job.part.drop()
            job.part = None
        if self._credentials is not None:
            answer.signed_in = job.site == self._trusted
        answer.tries = job.tries
        answer.moved_to = job.moved_to
        job.run.open -= 1
        job.run.done.append(answer)

    def _ground(self, handle: EasyHandle, *, lasting: bool = False) -> None:
        """Take a transfer off libcurl; what its file holds without having been completed is removed, or kept."""
        self._multi.curl.remove_handle(handle.curl)
        del self._flying[handle]
        self._paused.pop(handle, None)
        handle.reception.discard(lasting=lasting)
        self._release(handle)

    def _release(self, handle: EasyHandle) -> None:
        job, handle.job = handle.job, None
        if job is None or not job.apart:
            self._idle.append(handle)

    def _abandon(self, run: FetchBatch) -> None:
        if run.open == 0:
            return
        if self._multi.at_work:
            self._postponed.append(partial(self._abandon, run))
            return
        for handle in list(self._flying):
            if handle.job is not None and handle.job.run is run:
                self.queue.ended(handle.job)
                self._ground(handle, lasting=True)
        gone = self.queue.withdraw(run)
        for job in gone:
            if job.part is not None:
                job.part.drop()
        run.open = 0
