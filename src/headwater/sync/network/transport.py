"""The one way to the network: many requests in flight over kept-alive connections, bounded, each answered once.

libcurl's multi interface does the waiting; this is the only module that imports pycurl. What may start, be followed or
be tried again is decided in `dispatch`, the bytes are taken in `reception`, and this module carries requests from the
one to the other. A transport belongs to one thread. It speaks HTTP/1.1 only: over loopback HTTP/2 measured slower, and
every bound here is one that we understand.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import pycurl

from headwater.errors import Interrupted, UsageFault
from headwater.sync.network import dispatch
from headwater.sync.network.authorities import Authorities, trusted_authorities
from headwater.sync.network.dispatch import Dispatcher, Job, Run
from headwater.sync.network.fetch import Credentials, Failure, FailureKind, Fetch, Fetched, TransportOptions
from headwater.sync.network.politeness import retry_after_seconds
from headwater.sync.network.reception import Reception
from headwater.sync.network.streaming import StreamBroken, StreamedAnswer, StreamReception

__all__ = [
    "Credentials",
    "Failure",
    "FailureKind",
    "Fetch",
    "Fetched",
    "StreamBroken",
    "StreamedAnswer",
    "Transport",
    "TransportOptions",
]

MAX_CONCURRENCY = 256  # select(2) holds 1,024 descriptors; 256 connections hide 20 ms of latency altogether
SLOWEST_OCTETS_PER_SECOND = 32  # below this for `stall_timeout_seconds` an answer counts as stalled
RECEIVE_OCTETS = 128 * 1024
TURN_SECONDS = 0.25  # how long it may take until a wish to stop is seen

_FIELD_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+\Z")
_SMALL_ESCAPE = re.compile(r"%(?:[a-f]|.[a-f])")
_LOOPBACK = "localhost,127.0.0.0/8,::1"
_PLAIN_HEADERS = [b"Accept-Encoding: identity"]

_FAILURES: dict[int, tuple[FailureKind, bool]] = {
    pycurl.E_COULDNT_RESOLVE_PROXY: (FailureKind.CONNECT, True),
    pycurl.E_COULDNT_RESOLVE_HOST: (FailureKind.CONNECT, True),
    pycurl.E_COULDNT_CONNECT: (FailureKind.CONNECT, True),
    pycurl.E_PARTIAL_FILE: (FailureKind.TRUNCATED, True),
    pycurl.E_GOT_NOTHING: (FailureKind.TRUNCATED, True),
    pycurl.E_SEND_ERROR: (FailureKind.TRUNCATED, True),
    pycurl.E_RECV_ERROR: (FailureKind.TRUNCATED, True),
    pycurl.E_SSL_CONNECT_ERROR: (FailureKind.TLS, True),
    pycurl.E_PEER_FAILED_VERIFICATION: (FailureKind.TLS, False),
    pycurl.E_SSL_CERTPROBLEM: (FailureKind.TLS, False),
    pycurl.E_SSL_CIPHER: (FailureKind.TLS, False),
    pycurl.E_SSL_CACERT_BADFILE: (FailureKind.TLS, False),
    pycurl.E_SSL_ISSUER_ERROR: (FailureKind.TLS, False),
    pycurl.E_SSL_INVALIDCERTSTATUS: (FailureKind.TLS, False),
    pycurl.E_FILESIZE_EXCEEDED: (FailureKind.TOO_LARGE, False),
    100: (FailureKind.TOO_LARGE, False),  # CURLE_TOO_LARGE: a header beyond libcurl's limits
}
"""libcurl's results as our kinds, and whether another try may succeed; any other is a protocol failure for good."""


class _Slot:
    """One easy handle with its reception; options that never change are set once."""

    __slots__ = ("curl", "exact", "job", "method", "plain", "reception")

    def __init__(self, reception: Reception, options: TransportOptions) -> None:
        self.reception = reception
        self.job: Job | None = None
        self.method = "GET"
        self.plain = True
        self.exact = False
        self.curl: Any = pycurl.Curl()
        self.curl.slot = self
        for option, value in _fixed_options(options):
            self.curl.setopt(option, value)
        self.curl.setopt(pycurl.HEADERFUNCTION, reception.line)
        self.curl.setopt(pycurl.WRITEFUNCTION, reception.body)


def _fixed_options(options: TransportOptions) -> Iterator[tuple[int, Any]]:
    yield pycurl.NOSIGNAL, 1
    yield pycurl.PATH_AS_IS, 1
    yield pycurl.FOLLOWLOCATION, 0
    yield pycurl.PROTOCOLS, pycurl.PROTO_HTTP | pycurl.PROTO_HTTPS
    yield pycurl.HTTP_VERSION, pycurl.CURL_HTTP_VERSION_1_1
    yield pycurl.HTTP_CONTENT_DECODING, 0
    yield pycurl.USERAGENT, options.user_agent
    yield pycurl.HTTPHEADER, _PLAIN_HEADERS
    yield pycurl.CONNECTTIMEOUT_MS, int(options.connect_timeout_seconds * 1000)
    yield pycurl.LOW_SPEED_LIMIT, SLOWEST_OCTETS_PER_SECOND
    yield pycurl.LOW_SPEED_TIME, options.stall_timeout_seconds
    yield pycurl.BUFFERSIZE, RECEIVE_OCTETS
    excepted = os.environ.get("no_proxy") or os.environ.get("NO_PROXY") or ""
    yield pycurl.NOPROXY, excepted if excepted.strip() == "*" else f"{excepted},{_LOOPBACK}".lstrip(",")


class Transport:
    """Fetches by HTTP, many at a time; see the module's introduction. Close it, or use it as a context manager."""

    def __init__(self, options: TransportOptions | None = None) -> None:
        self.options = options or TransportOptions()
        self.heard: Callable[[str, StreamedAnswer | Fetched], None] = lambda _uri, _answer: None  # of every document
        self._most = max(1, min(self.options.concurrency, MAX_CONCURRENCY))
        self._multi: Any = pycurl.CurlMulti()
        self._multi.setopt(pycurl.M_MAXCONNECTS, self._most)
        self._idle: list[_Slot] = []
        self._slots = 0
        self._flying: dict[_Slot, None] = {}
        self._streams: dict[Job, _Slot] = {}
        self._queue = Dispatcher(self.options, self._most)
        credentials = self.options.credentials
        self._trusted = dispatch.site_of(credentials.origin) if credentials else None
        self._proxied = any(os.environ.get(name) for name in ("http_proxy", "all_proxy", "ALL_PROXY"))
        self._authorities: Authorities | None = None

    def __enter__(self) -> Transport:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End all connections; what is in flight is given up and leaves no file."""
        for slot in list(self._flying):
            self._ground(slot)
        for slot in self._idle:
            slot.curl.close()
        self._idle.clear()
        self._multi.close()

    def one(self, fetch: Fetch) -> Fetched:
        """Fetch one thing and wait for it."""
        return next(self.many((fetch,)))

    def many(self, fetches: Iterable[Fetch | None]) -> Generator[Fetched, None, None]:
        """Fetch all of `fetches`, many at a time, and yield each outcome as it is there, in any order.

        Pulled lazily: never more than `concurrency` are taken and not yet yielded. A None among them means "nothing at
        the moment": they are asked again after the next outcome has been taken, so that outcomes may lead to further
        fetches; it ends them when nothing is open.
        """
        run = Run()
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
                    self._admit(Job(fetch, run))
                if run.done:
                    self._send()  # so that the source works while the caller looks at what it got
                    while run.done:
                        yield run.done.popleft()
                elif run.open:
                    self._turn()
                else:
                    return
        finally:
            self._abandon(run)

    @contextmanager
    def stream(self, fetch: Fetch) -> Iterator[StreamedAnswer]:
        """Fetch one thing and read its body chunk by chunk in bounded memory; `fetch.into` must be None.

        Entered when the head of the final answer is there, or the fetch has failed for good.
        """
        if fetch.into is not None:
            raise UsageFault("a stream is not written to a file", where=fetch.uri)
        run = Run()
        reception = StreamReception(pycurl.WRITEFUNC_PAUSE)
        slot = _Slot(reception, self.options)
        job = Job(fetch, run, apart=True)
        self._streams[job] = slot
        try:
            self._admit(job)
            while not run.done and not reception.delivering:
                self._turn(reception)
            answer = StreamedAnswer(job, reception, lambda: self._carry_on(slot, reception))
            self.heard(fetch.uri, answer)
            yield answer
        finally:
            self._abandon(run)
            del self._streams[job]
            slot.curl.close()

    def _admit(self, job: Job) -> None:
        job.run.open += 1
        if failure := self._queue.admit(job):
            self._end(job, Fetched(job.fetch, uri=job.uri, failure=failure))

    def _carry_on(self, slot: _Slot, reception: StreamReception) -> None:
        """Let more of a stream come in."""
        if reception.paused:
            reception.paused = False
            try:
                slot.curl.pause(pycurl.PAUSE_CONT)
            except pycurl.error:  # the reception refused what libcurl had kept for it
                self._landed(slot, pycurl.E_WRITE_ERROR, "")
                return
        if not reception.ready:
            self._turn(reception)

    def _send(self) -> None:
        """Start what may start and let libcurl send it, without waiting."""
        self._start(self.options.monotonic())
        self._multi.perform()

    def _turn(self, stream: StreamReception | None = None) -> None:
        """Start what may start, then let libcurl work until something is complete, in `stream` too, or briefly."""
        if self.options.stopped is not None and self.options.stopped():
            raise Interrupted("stopped while transfers were under way")
        now = self.options.monotonic()
        self._start(now)
        self._multi.perform()
        if self._collect() or (stream is not None and stream.ready):
            return
        due = self._queue.next_start(now)
        if not self._flying:
            if due is not None:
                self.options.sleep(min(max(0.0, due - now), TURN_SECONDS if self.options.stopped else due))
            return
        wait = TURN_SECONDS if due is None else min(TURN_SECONDS, max(0.0, due - now))
        own = self._multi.timeout()
        self._multi.select(wait if own < 0 else min(wait, own / 1000))

    def _start(self, now: float) -> None:
        for lost in self._queue.hopeless(now):
            self._end(lost, Fetched(lost.fetch, uri=lost.uri, failure=dispatch.SILENT))
        while job := self._queue.next(now, room=bool(self._idle) or self._slots < self._most):
            self._fly(job)

    def _fly(self, job: Job) -> None:
        slot = self._slot_for(job)
        slot.job = job
        slot.reception.begin(job.fetch)
        self._flying[slot] = None
        try:
            uri = dispatch.wire_uri(job.uri)
            slot.curl.setopt(pycurl.URL, uri)
            if slot.exact or ("%" in uri and _SMALL_ESCAPE.search(uri)):
                self._set_target(slot, uri)
            if job.fetch.method != slot.method:
                _set_method(slot, job.fetch.method)
            if job.fetch.headers or not slot.plain or job.site == self._trusted:
                self._set_headers(slot, job)
            if job.site.startswith("https:"):
                self._trust_authorities(slot)
            self._multi.add_handle(slot.curl)
        except (pycurl.error, ValueError) as error:
            failure = Failure(FailureKind.PROTOCOL, f"the request cannot be made: {error}")
            del self._flying[slot]
            self._release(slot)
            self._queue.landed(job, 0, failure, job.sent_at)
            self._end(job, Fetched(job.fetch, uri=job.uri, failure=failure))

    def _slot_for(self, job: Job) -> _Slot:
        if job.apart:
            return self._streams[job]
        if self._idle:
            return self._idle.pop()
        self._slots += 1
        return _Slot(Reception(), self.options)

    def _set_headers(self, slot: _Slot, job: Job) -> None:
        """Headers of this request: secrets go to the origin they were given for, and nowhere else."""
        own = dispatch.site_of(job.fetch.uri) == job.site
        secret = () if own else dispatch.SECRET_HEADERS
        fields = [(name, value) for name, value in job.fetch.headers if name.lower() not in secret]
        names = {name.lower() for name, _ in fields}
        if not all(map(_FIELD_NAME.match, names)) or any(c in value for _, value in fields for c in "\r\n\0"):
            raise ValueError("a header that cannot be sent")
        lines = [f"{name}: {value}".encode("latin-1") for name, value in fields]
        if "accept-encoding" not in names:
            lines.extend(_PLAIN_HEADERS)
        if self.options.credentials and job.site == self._trusted and "authorization" not in names:
            lines.append(f"Authorization: {self.options.credentials.authorization}".encode("latin-1"))
        slot.plain = lines == _PLAIN_HEADERS
        slot.curl.setopt(pycurl.HTTPHEADER, lines)

    def _set_target(self, slot: _Slot, uri: str) -> None:
        """Send small hexadecimal digits as they are, which libcurl would capitalise; a proxy takes only whole URIs."""
        if not self._proxied:
            slot.exact = True  # for good: pycurl cannot unset the option, so the slot says its target from now on
            slot.curl.setopt(pycurl.REQUEST_TARGET, dispatch.request_target(uri))

    def _trust_authorities(self, slot: _Slot) -> None:
        if self._authorities is None:
            self._authorities = trusted_authorities()
        if self._authorities.file:
            slot.curl.setopt(pycurl.CAINFO, self._authorities.file)
        if self._authorities.folder:
            slot.curl.setopt(pycurl.CAPATH, self._authorities.folder)

    def _collect(self) -> bool:
        """Take what libcurl has finished; whether there was anything."""
        landed, left = False, 1
        while left:
            left, complete, failed = self._multi.info_read()
            for curl in complete:
                self._landed(curl.slot, pycurl.E_OK, "")
            for curl, code, text in failed:
                self._landed(curl.slot, code, text)
            landed = landed or bool(complete or failed)
        return landed

    def _landed(self, slot: _Slot, code: int, text: str) -> None:
        """One transfer is over: judge it, then end it, send it on, or let it rest for another try."""
        job, reception, now = slot.job, slot.reception, self.options.monotonic()
        assert job is not None
        reception.read_head()
        failure = _judge(slot, code, text)
        body, digests = (b"", {}) if failure else reception.complete()
        failure = failure or reception.failure
        status, headers, held = reception.status, reception.headers, reception.held
        answer = Fetched(job.fetch, status, job.uri, headers, reception.octets, digests, body, held, failure)
        self._ground(slot)
        self._queue.landed(job, status, failure, now)
        if reception.raised is not None:
            raised, reception.raised = reception.raised, None
            job.run.open -= 1
            raise raised
        if failure is None and status in dispatch.REDIRECTS and "location" in headers:
            answer.failure = self._queue.redirect(job, status, headers["location"])
            if answer.failure is None:
                return
        if "retry-after" in headers:
            time_of_day = self.options.time_of_day()
            answer.retry_after_seconds = retry_after_seconds(headers["retry-after"], headers.get("date"), time_of_day)
        if reception.delivering or not self._queue.repeat(job, status, failure, answer.retry_after_seconds, now):
            self._end(job, answer)

    def _end(self, job: Job, answer: Fetched) -> None:
        answer.tries = job.tries
        answer.moved_to = job.moved_to
        job.run.open -= 1
        job.run.done.append(answer)

    def _ground(self, slot: _Slot) -> None:
        """Take a transfer off libcurl; what its file holds without having been completed is removed."""
        self._multi.remove_handle(slot.curl)
        del self._flying[slot]
        slot.reception.discard()
        self._release(slot)

    def _release(self, slot: _Slot) -> None:
        job, slot.job = slot.job, None
        if job is None or not job.apart:
            self._idle.append(slot)

    def _abandon(self, run: Run) -> None:
        """Give up whatever of a run is still open (its caller has stopped asking)."""
        if run.open == 0:
            return
        for slot in list(self._flying):
            if slot.job is not None and slot.job.run is run:
                slot.job.host.active -= 1
                self._ground(slot)
        self._queue.withdraw(run)
        run.open = 0


def _judge(slot: _Slot, code: int, text: str) -> Failure | None:
    """What libcurl's result and the reception's own objections make of a transfer; None: it is complete."""
    reception = slot.reception
    if reception.failure is not None:
        return reception.failure
    if code == pycurl.E_OK and reception.status == 0:
        return Failure(FailureKind.PROTOCOL, "the answer is not HTTP")
    if code == pycurl.E_OK or (reception.cut and code == pycurl.E_WRITE_ERROR):
        return None
    if code == pycurl.E_OPERATION_TIMEDOUT:
        connected = slot.curl.getinfo(pycurl.PRETRANSFER_TIME) > 0
        return Failure(FailureKind.STALLED if connected else FailureKind.TIMEOUT, text, passing=True)
    kind, passing = _FAILURES.get(code, (FailureKind.PROTOCOL, False))
    return Failure(kind, text or pycurl.easy_strerror(code), passing)


def _set_method(slot: _Slot, method: str) -> None:
    if method == "HEAD":
        slot.curl.setopt(pycurl.NOBODY, 1)
    elif method == "GET":
        slot.curl.setopt(pycurl.HTTPGET, 1)
    else:
        raise ValueError(f"method {method}")
    slot.method = method
