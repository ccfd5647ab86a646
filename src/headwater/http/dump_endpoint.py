"""The endpoint of packages made on demand: `POST /S/dump` sends one, `OPTIONS /S/dump` says the limits.

A package is made by a thread while it is sent, one block ahead of the client: a slow one holds two blocks and no
thread, and one that goes away frees all. What goes wrong midway ends the connection, so that no client takes the answer
for whole: the last chunk is missing, and so is the central directory.
"""

import asyncio
import datetime as dt
import functools
import threading
import time
from collections.abc import Callable, Generator, Iterable, Mapping
from concurrent.futures import Executor, ThreadPoolExecutor

import msgspec

from headwater.catalog.content import ContentReader
from headwater.http import responses
from headwater.http.dump_package import (
    BODY_OCTETS,
    BODY_TOO_LATE,
    OLD_PROTOCOL,
    TOO_MANY_DUMPS,
    TOO_MUCH,
    WRONG_MEDIA_TYPE,
    DumpRefused,
    Package,
    StatesOf,
    present_states,
    read_request,
    select,
)
from headwater.http.mementos import PastStates
from headwater.http.requests import Receive, Scope, header, read_body
from headwater.http.responses import CLOSE, Response, line, not_published
from headwater.http.routes import NO_STORE, HttpRequest, Route
from headwater.notify.hub.policy import ClientShares, RequestRefusal, TrustedProxies
from headwater.publish.added_links import AddedLinks
from headwater.publish.site import DUMP, SetSettings
from headwater.source.health import ServableSource
from headwater.spec.extensions import DumpLimits
from headwater.spec.times import to_microseconds
from headwater.transport.access import client_network

END = b""


class DumpTimes(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds on the time that one request may take.

    A body has `first_seconds` and the time of what has come at `body_octets_per_second`, `body_seconds` at most. In the
    same way, its client is waited for: `judged_seconds` and the time of what was sent at `least_octets_per_second`,
    `seconds` at most.
    """

    first_seconds: float = 10.0
    body_octets_per_second: int = 16 << 10
    body_seconds: float = 60.0
    seconds: float = 3_600.0
    least_octets_per_second: int = 32 << 10
    judged_seconds: float = 60.0

    def for_body(self, octets: int) -> float:
        """Seconds from its beginning that a body has of which so many octets have come."""
        return min(self.first_seconds + octets / self.body_octets_per_second, self.body_seconds)

    def for_client(self, octets: int) -> float:
        """Seconds that a client is waited for to which so many octets were sent."""
        return min(self.judged_seconds + octets / self.least_octets_per_second, self.seconds)


class PackageStream:
    """The blocks of a package. `close` frees what it holds, whatever it is doing.

    `on_end` is called once: when nothing is left to be made, before the client can know it, or else by `close`.
    """

    def __init__(self, package: Iterable[bytes], pool: Executor, times: DumpTimes, on_end: Callable[[], None]) -> None:
        self.package = package if isinstance(package, Package) else None
        self._blocks: Generator[bytes, None, None] = (block for block in package)
        self._pool = pool
        self._times = times
        self._on_end = on_end
        self._ready_at: float | None = None
        self._waited = 0.0
        self._octets = 0
        self._lock = threading.Lock()
        self._is_closed = self._is_ended = False

    async def next_block(self) -> bytes:
        """The next octets; END after the last. Raises what making them raises, and TimeoutError for a slow client."""
        self._waited += 0.0 if self._ready_at is None else time.monotonic() - self._ready_at
        if self._waited > self._times.for_client(self._octets):
            raise TimeoutError
        block = await asyncio.get_running_loop().run_in_executor(self._pool, self._next)
        self._octets += len(block)
        self._ready_at = time.monotonic()
        if block == END:
            self._end()
        return block

    async def close(self) -> None:
        """Free what is held, once a block that is being made is done."""
        if self._is_closed:
            return
        self._is_closed = True
        try:
            await asyncio.shield(asyncio.get_running_loop().run_in_executor(self._pool, self._free))
        finally:
            self._end()

    def _end(self) -> None:
        if not self._is_ended:
            self._is_ended = True
            self._on_end()

    def _next(self) -> bytes:
        with self._lock:
            return next(self._blocks, END)

    def _free(self) -> None:
        with self._lock:
            self._blocks.close()


_JSON = b"application/json"
_LEAST_SHARE = 2
"""Of the packages that are made at a time one client has a quarter, and at least these: a destination asks for two."""
_NEAR_PROXIES = TrustedProxies(("127.0.0.0/8", "10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "::1", "fc00::/7"))
"""Who connects from there, and says for whom: a client that invents others from there takes no more than all have."""

BODIES_OCTETS = 4 * BODY_OCTETS  # the bodies that are on their way at a time have so many octets at most, together


class DumpEndpoint:
    """Answers requests for packages. `offers` has the limits of each set that makes them, `past` what they were."""

    def __init__(
        self,
        source: ServableSource,
        contents: ContentReader,
        offers: Mapping[str, DumpLimits],
        past: PastStates | None = None,
    ) -> None:
        self._source = source
        self._contents = contents
        self._offers = offers
        self._past = past
        self._times = DumpTimes()
        self._body_octets = 0
        most = max((one.requests for one in offers.values()), default=1)
        self._share = min(most, max(_LEAST_SHARE, most // 4))
        self._places = ClientShares(most, self._share)
        # Twice as many, because what is given up is closed while others begin.
        self._pool = ThreadPoolExecutor(max_workers=min(2 * most, 64), thread_name_prefix="headwater-dump")

    def routes(self) -> tuple[Route, ...]:
        """The rows of the endpoint: two for each set that makes packages."""
        row = functools.partial(Route, media_type=_JSON, cache=NO_STORE)
        return tuple(
            route
            for pattern in (f"/{name}/{DUMP}" for name in self._offers)
            for route in (
                row(name="dump", method="POST", pattern=pattern, handler=self.answer),
                row(name="dump limits", method="OPTIONS", pattern=pattern, handler=self.describe),
            )
        )

    async def describe(self, request: HttpRequest) -> Response:
        """What may be asked for, and how much of it."""
        limits = self._offers[_set_of(request)]
        options = ["deflate", "at"] if self._has_past(_set_of(request)) else ["deflate"]
        body = msgspec.json.encode({"limits": limits, "asks": ["uris", "since", "page"], "options": options})
        response = request.respond(200, body)
        response.head += line(b"allow", ", ".join(request.match.allowed).encode())
        response.head += line(b"accept-post", _JSON)
        return response

    async def answer(self, request: HttpRequest) -> Response:
        """The package that is asked for, or why there is none."""
        name = _set_of(request)
        limits = self._offers[name]
        if not await request.access.is_published(name):
            response = not_published(name)
            response.head += CLOSE
            return response
        try:
            scope = request.scope
            if scope.get("http_version") == "1.0":
                raise DumpRefused("packages need HTTP/1.1", code=OLD_PROTOCOL)
            kind = (header(scope, b"content-type") or b"").partition(b";")[0].strip().lower()
            if kind != _JSON:
                sent = kind[:100].decode("latin-1") or "?"
                what = f"a request for a package is application/json, not {sent}"
                raise DumpRefused(what, code=WRONG_MEDIA_TYPE)
            if (header(scope, b"content-encoding") or b"identity").strip().lower() != b"identity":
                raise DumpRefused("a request for a package is not compressed", code=WRONG_MEDIA_TYPE)
            peer = (scope.get("client") or ("", 0))[0]  # or, where a proxy near us passes it on, who it says
            client = client_network(_NEAR_PROXIES.client(peer, scope["headers"]))
            self._check_place(client)
            body = await self._body(scope, request.receive)
            self._check_place(client)  # a body that comes slowly keeps no one else from a package
            return await self._made(name, body, limits, client)
        except DumpRefused as refused:
            head = line(b"retry-after", b"2") if refused.code == TOO_MANY_DUMPS else b""
            return responses.error(refused, beside=msgspec.json.encode({"limits": limits}), head=head)

    def close(self) -> None:
        """Give up the threads."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _check_place(self, client: str) -> None:
        """Raises DumpRefused where no package can be made for a client now."""
        has_share = self._places.held(client) >= self._share
        if has_share or not self._places.has_room:
            whose = "for this client" if has_share else "at this moment"
            raise DumpRefused(f"the server already makes as many packages as it may {whose}", code=TOO_MANY_DUMPS)

    async def _made(self, name: str, body: bytes, limits: DumpLimits, client: str) -> Response:
        self._places.take(client, 1)
        done = functools.partial(self._places.give_back, client, 1)
        try:
            work = functools.partial(self._asked_for, name, body, limits)
            package = await asyncio.get_running_loop().run_in_executor(self._pool, work)
        except BaseException:
            done()
            raise
        stream = PackageStream(package, self._pool, self._times, done)
        head = line(b"content-type", b"application/zip") + line(b"cache-control", NO_STORE)
        return Response(200, head + line(b"x-content-type-options", b"nosniff"), stream=stream)

    def _asked_for(self, name: str, body: bytes, limits: DumpLimits) -> Package:
        asked = read_request(body, limits.resources)
        at, since = asked.moment("at"), asked.moment("since")
        if at is not None:
            _check_time("at", at)
        site, catalog = self._source.site, self._source.catalog
        prefix = site.resource_prefix(name)
        selection = select(catalog, name, asked, prefix=prefix, most=limits.resources)
        if since is not None and since > selection.at:
            _check_time("since", since)
        contents, settings = self._contents, site.settings(name)
        states: StatesOf = functools.partial(present_states, catalog, name)
        if at is not None:
            if self._past is None or not self._has_past(name):
                what = "this set keeps no earlier versions, so it cannot answer `at`"
                raise DumpRefused(what, advice="Remove `at`: only a set with versions has past states.")
            states, contents = functools.partial(self._past.at, name, to_microseconds(at)), self._past
            settings = SetSettings(name=name)  # links that are added belong to resources as they are
        links = AddedLinks(site, settings, catalog)
        package = Package(site, name, states, contents, links, selection, limits.octets, deflate=asked.deflate)
        package.asked = f"page {asked.page}" if since is None else f"since {asked.since}"
        if asked.uris is not None:
            package.asked = f"{len(asked.uris)} URIs"
        return package

    def _has_past(self, name: str) -> bool:
        return self._past is not None and name in self._past.histories

    async def _body(self, scope: Scope, receive: Receive) -> bytes:
        taken = 0

        def has_room(octets: int) -> bool:
            nonlocal taken
            taken += octets
            self._body_octets += octets
            return self._body_octets <= BODIES_OCTETS

        try:
            body = await read_body(scope, receive, BODY_OCTETS, has_room, self._times.for_body)
        finally:
            self._body_octets -= taken
        if isinstance(body, RequestRefusal):
            raise DumpRefused(body.text, code={413: TOO_MUCH, 503: TOO_MANY_DUMPS}.get(body.status, BODY_TOO_LATE))
        return body


def _check_time(name: str, moment: dt.datetime) -> None:
    if moment.timestamp() > time.time():
        raise DumpRefused(f"{name} lies in the future", advice="Give a time before now, by the source's clock.")


def _set_of(request: HttpRequest) -> str:
    return request.match.name.partition("/")[0]
