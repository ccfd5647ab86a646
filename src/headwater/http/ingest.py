"""The ingest endpoints: `POST /S/changes` takes events, `POST /ingest/dit` takes DIT-ES documents.

Bodies are read as they come and recorded in batches, in threads of their own, so that no announcement holds up a reader
and none needs more memory than a batch. Whatever ends a request early, what was recorded is said.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TypeVar
from urllib.parse import parse_qs

import msgspec

from headwater.catalog.interface import WrongPhase
from headwater.errors import HeadwaterError, StoreFault, UsageFault
from headwater.http import responses
from headwater.http.requests import Receive, Scope, header
from headwater.http.responses import Head, Response, line
from headwater.http.routes import HttpRequest, Route
from headwater.http.source_access import Precedence
from headwater.ingest.dit.intake import DocumentRecords
from headwater.ingest.push.feed import Feed
from headwater.ingest.push.submission import Account, BadKey, KeyUnderWay, Submission, SubmissionLimits
from headwater.source.health import PushTarget
from headwater.source.hubs_and_tokens import LONGEST

_SOON = line(b"retry-after", b"5")
_AGAIN = (
    "Send it again after the seconds that Retry-After names; the same Idempotency-Key makes sure that it is taken once."
)


def _refusal(status: int, what: str, advice: str, head: Head = b"") -> Callable[[], Response]:
    """Makes the response for one reason, with the header fields that go with it."""
    return lambda: responses.error(UsageFault(what, advice=advice, code="HW-SRV-14"), status, head=head)


_BUSY = _refusal(503, "too many records are arriving now", _AGAIN, _SOON)
_SET_IS_BUSY = _refusal(429, "too many requests for this set are running", _AGAIN, _SOON)
_NO_TARGET = _refusal(
    404,
    "there is no such set, or it accepts no records of this kind",
    'Announce events to /SET/changes of a set with `feed = "events"` or `feed = "dit"` in the configuration, DIT-ES'
    ' documents to /ingest/dit where a set has `feed = "dit"`.',
)
_NO_TOKEN_CONFIGURED = _refusal(
    403,
    "this set accepts no records: it has no token",
    "Give the set a `token`, `token_file` or `token_env` in the configuration, and start the server again.",
)
_NO_TOKEN = _refusal(
    401,
    "sending records needs a bearer token",
    "Send the header `Authorization: Bearer TOKEN`, once, with the token that the configuration has for the set.",
    line(b"www-authenticate", b'Bearer realm="headwater"'),
)
_UNKNOWN_TOKEN = _refusal(
    401,
    "unknown token",
    "Send one of the tokens that the configuration has for the set; a server reads them when it starts.",
    line(b"www-authenticate", b'Bearer realm="headwater", error="invalid_token"'),
)
_OTHER_TOKEN = _refusal(403, "this token is for another set", "Send the token that the configuration has for this set.")
_OTHER_CODING = _refusal(
    415,
    "a body is plain or gzip",
    "Send it as it is, or compressed by gzip with `Content-Encoding: gzip`.",
    line(b"accept-encoding", b"gzip"),
)


T = TypeVar("T")

_DIT_PATH = "/ingest/dit"


class IngestLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds on what one request may cost, besides those of a submission.

    Of `at_once` requests one set has `of_one` at most: a provider that dawdles keeps no other one waiting (DIT-21).
    """

    submission: SubmissionLimits = SubmissionLimits()
    idle_seconds: float = 30.0
    seconds: float = 900.0
    at_once: int = 16
    of_one: int = 6


class IngestEndpoint:
    """Answers POST requests. `targets` by set.

    `on_account` hears what became of the lines of each request, by set.
    """

    def __init__(
        self,
        targets: Mapping[str, PushTarget],
        limits: IngestLimits | None = None,
        on_fault: Callable[[HeadwaterError | OSError], None] = lambda _fault: None,
        on_account: Callable[[str, Account], None] = lambda _name, _account: None,
    ) -> None:
        self._targets = targets
        self._limits = limits or IngestLimits()
        self._on_fault = on_fault
        self._on_account = on_account
        self.precedence = Precedence()
        self._under_way = 0
        self._seats: Counter[str] = Counter()
        # One each: a request may wait for the turn of its set for as long as a killed process is waited for.
        self._pool = ThreadPoolExecutor(max_workers=self._limits.at_once, thread_name_prefix="headwater-intake")

    def close(self) -> None:
        """Give up the threads, once what is under way is written."""
        self._pool.shutdown(wait=True)

    def routes(self) -> tuple[Route, Route]:
        """The rows of the endpoints."""
        return (
            Route(name="changes", method="POST", pattern="/{name}/changes", handler=self.answer),
            Route(name="documents", method="POST", pattern=_DIT_PATH, handler=self.answer),
        )

    async def answer(self, request: HttpRequest) -> Response:
        """The response to a POST request."""
        if self._under_way >= self._limits.at_once:
            return _BUSY()
        self._under_way += 1
        try:
            return await self._answer(request)
        finally:
            self._under_way -= 1

    async def _answer(self, request: HttpRequest) -> Response:
        scope, is_dit = request.scope, request.route.pattern == _DIT_PATH
        if is_dit:
            targets = [target for target in self._targets.values() if target.resource_sets]
        else:
            found = self._targets.get(request.match.name.partition("/")[0])
            targets = [] if found is None else [found]
        if not targets:
            return _NO_TARGET()
        if all(target.tokens.is_empty for target in targets):
            return _NO_TOKEN_CONFIGURED()
        if (refused := self._refused(scope, targets)) is not None:
            return refused
        wishes = parse_qs(scope.get("query_string", b"").decode("latin-1"), keep_blank_values=True)
        known = ("load",) if is_dit else ("load", "open")
        if unknown := wishes.keys() - set(known):
            told = f"unknown parameter {min(unknown)[:80]!a}"  # whoever mistypes one must not have something else done
            return _refusal(400, told, f"This address knows {' and '.join(known)}; nothing was taken.")()
        token = bearer_token(scope["headers"]) or b""
        mine = [target for target in targets if target.tokens.accepts(token)]
        name, key = mine[0].feed.name, None if is_dit else header(scope, b"idempotency-key")
        if self._seats[name] >= self._limits.of_one:
            return _SET_IS_BUSY()
        is_load = "load" in wishes
        self._seats[name] += 1
        try:
            submission = await self._in_thread(
                lambda: (
                    self._documents(targets, mine, is_load=is_load)
                    if is_dit
                    else self._events(mine[0].feed, key, is_load=is_load)
                )
            )
            response = await self._take(submission, scope, request.receive)
            for of, account in submission.accounts.items():
                self._on_account(of or name, account)
            if response.status < 300 and "open" in wishes:  # a body that has come in part does not end the load
                try:
                    await self._in_thread(mine[0].feed.open)
                except HeadwaterError as fault:
                    return self._failed(fault, submission.body)
        except HeadwaterError as fault:
            return self._failed(fault, b"{}")
        finally:
            self._seats[name] -= 1
        for target in mine:
            if not is_dit or target.feed.name in submission.accounts:
                target.news()
        return response

    def _events(self, feed: Feed, key: bytes | None, *, is_load: bool) -> Submission:
        """What takes the lines of a request; a set that is loading is opened by the first that are no load."""
        if not is_load:
            _open(feed)
        submission = Submission(feed, None if key is None else key.decode("latin-1"), self._limits.submission)
        if is_load and not submission.is_answered and feed.is_open:
            raise _load_is_over(feed)
        return submission

    def _documents(self, targets: list[PushTarget], mine: list[PushTarget], *, is_load: bool) -> Submission:
        ready: set[str] = set()

        def route(resource_set: str | None) -> Feed:
            if resource_set is None and len(mine) > 1:
                what = "the document has no resource_set, and several sets could be meant"
                raise UsageFault(what, code="HW-ING-48")
            takers = mine if resource_set is None else [one for one in targets if resource_set in one.resource_sets]
            if not takers:
                raise UsageFault(f"no set takes the resource_set {str(resource_set)[:80]!a}", code="HW-ING-48")
            feed = takers[0].feed
            if takers[0] not in mine:
                raise UsageFault(f"this token does not open the set {feed.name!r}", code="HW-SRV-04")
            if feed.name not in ready:
                if not is_load:
                    _open(feed)
                elif feed.is_open:
                    raise _load_is_over(feed)
                ready.add(feed.name)
            return feed

        return Submission(DocumentRecords(route), limits=self._limits.submission)

    def _refused(self, scope: Scope, targets: list[PushTarget]) -> Response | None:
        token = bearer_token(scope["headers"])
        if token is None:
            return _NO_TOKEN()
        if not any(target.tokens.accepts(token) for target in targets):
            is_known = any(target.tokens.accepts(token) for target in self._targets.values())
            return _OTHER_TOKEN() if is_known else _UNKNOWN_TOKEN()
        if (header(scope, b"content-encoding") or b"identity").lower() not in (b"identity", b"gzip", b"x-gzip"):
            return _OTHER_CODING()
        length, most = header(scope, b"content-length") or b"0", self._limits.submission.octets
        if not length.isdigit() or len(length) > 18 or int(length) > most:
            return _refusal(413, f"a body has {most:,} octets at most", "Divide the lines among several requests.")()
        return None

    async def _take(self, submission: Submission, scope: Scope, receive: Receive) -> Response:
        is_in_chunks = header(scope, b"transfer-encoding") is not None
        stated = None if is_in_chunks else int(header(scope, b"content-length") or b"0")
        more, octets = True, 0
        try:
            async with asyncio.timeout(self._limits.seconds):
                while more:
                    async with asyncio.timeout(self._limits.idle_seconds):
                        message = await receive()
                    if message["type"] == "http.disconnect":
                        raise UsageFault("the body was cut off", code="HW-SRV-05")
                    more = bool(message.get("more_body"))
                    if data := message.get("body", b""):
                        octets += len(data)
                        await self._in_thread(partial(submission.push, data))
                if stated is not None and octets != stated:  # nothing is taken for whole that is not
                    what = f"a body of {octets:,} octets, and Content-Length says {stated:,}"
                    raise UsageFault(what, code="HW-SRV-05")
                await self._in_thread(submission.finish)
                body = await self._in_thread(lambda: submission.body)
        except HeadwaterError as fault:
            return self._failed(fault, await self._in_thread(lambda: submission.body))
        except TimeoutError:
            return self._failed(UsageFault("the body did not arrive in time", code="HW-SRV-05"), submission.body)
        status = 207 if submission.counts.rejected else 200
        return responses.data(status, body, b"application/json", line(b"cache-control", b"no-store"))

    async def _in_thread(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._pool, self.precedence.during, work)

    def _failed(self, fault: HeadwaterError, body: bytes) -> Response:
        """The answer when a fault has ended the request; `body` says what was taken before."""
        if isinstance(fault, StoreFault):
            self._on_fault(fault)
            return responses.error(fault, 503, body, line(b"retry-after", b"10"))
        if isinstance(fault, BadKey):  # what it was used for was another request, and nothing of this one was taken
            body = b"{}"
        return responses.error(fault, beside=body, head=_SOON if isinstance(fault, KeyUnderWay) else b"")


def bearer_token(headers: Iterable[tuple[bytes, bytes]]) -> bytes | None:
    """The token of a request (RFC 6750); None when there is none, or more than one."""
    values = [value for name, value in headers if name == b"authorization"]
    if len(values) != 1:
        return None
    scheme, _, token = values[0].partition(b" ")
    token = token.strip()
    return token if scheme.lower() == b"bearer" and 0 < len(token) <= LONGEST else None


def _load_is_over(feed: Feed) -> WrongPhase:
    return WrongPhase("the set is open: its first load has ended", where=feed.name)


def _open(feed: Feed) -> None:
    """What comes without `load` is logged as changes: the first of it ends the load."""
    if not feed.is_open:
        feed.open()
