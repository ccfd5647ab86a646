"""The endpoint of packages made on demand: `POST /S/dump` sends one, `OPTIONS /S/dump` says the limits.

A package is made by a thread while it is sent, one block ahead of the client: a slow one holds two blocks and no
thread, and one that goes away frees all. What goes wrong midway ends the connection, so that no client takes the answer
for whole: the last chunk is missing, and so is the central directory.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import functools
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor

import msgspec

from headwater.catalog.content import ContentReader
from headwater.http import responses
from headwater.http.dumps.faults import (
    BodyTooLate,
    DumpRefused,
    OldProtocol,
    TooManyDumps,
    TooMuchAsked,
    WrongMediaType,
)
from headwater.http.dumps.package import Package, PackageSource
from headwater.http.dumps.package_stream import PackageStream
from headwater.http.dumps.request import BODY_OCTETS, Wanted, WantedSince, WantedUris, read_request
from headwater.http.dumps.resource_states import PastStates, present_states
from headwater.http.dumps.selection import select
from headwater.http.responses import Response, line
from headwater.http.routes import NO_STORE, HttpRequest, Receive, Route, Scope
from headwater.http.source_access import not_published
from headwater.publish.links.added_links import AddedLinks
from headwater.publish.site import DUMP, SetSettings, capability_list_name
from headwater.source.protocol import ServableSource
from headwater.spec.extensions import DumpLimits
from headwater.spec.timestamps import to_microseconds

_JSON = b"application/json"
_CLOSE = line(b"connection", b"close")


BODIES_OCTETS = 4 * BODY_OCTETS
"""The bodies that are on their way at a time have so many octets at most, together."""


class DumpTimes(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds on the time that one request may take.

    A body has `first_seconds` and the time of what has come at `body_octets_per_second`, `body_seconds` at most;
    `seconds` are those of the whole answer.
    """

    first_seconds: float = 10.0
    body_octets_per_second: int = 16 << 10
    body_seconds: float = 60.0
    seconds: float = 3_600.0

    def for_body(self, octets: int) -> float:
        """Seconds from its beginning that a body has of which so many octets have come."""
        return min(self.first_seconds + octets / self.body_octets_per_second, self.body_seconds)


class DumpEndpoint:
    """Answers requests for packages. `offers` has the limits of each set that makes them, `past` what they were."""

    def __init__(
        self,
        source: ServableSource,
        contents: ContentReader,
        offers: Mapping[str, DumpLimits],
        past: PastStates | None = None,
        times: DumpTimes | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._source = source
        self._contents = contents
        self._offers = offers
        self._past = past
        self._times = times or DumpTimes()
        self._clock = clock
        self._under_way = 0
        self._body_octets = 0
        most = max((one.requests for one in offers.values()), default=1)
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
            response.head += _CLOSE
            return response
        try:
            _check_head(request.scope)
            self._check_room(limits)
            body = await self._body(request.scope, request.receive)
            self._check_room(limits)  # a body that comes slowly keeps no one else from a package
            return await self._made(name, body, limits)
        except DumpRefused as refused:
            return _refused(refused, limits)

    def close(self) -> None:
        """Give up the threads."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _done(self) -> None:
        self._under_way -= 1

    def _check_room(self, limits: DumpLimits) -> None:
        if self._under_way >= limits.requests:
            raise TooManyDumps(f"{limits.requests} packages are being made at this moment")

    async def _made(self, name: str, body: bytes, limits: DumpLimits) -> Response:
        """The package that a body asks for. Raises DumpRefused and the catalog's faults."""
        self._under_way += 1
        is_sent = False
        try:
            work = functools.partial(self._asked_for, name, body, limits)
            package = await asyncio.get_running_loop().run_in_executor(self._pool, work)
            deadline = self._clock() + self._times.seconds
            stream = PackageStream(package, self._pool, lambda: self._clock() > deadline, self._done)
            is_sent = True
        finally:
            if not is_sent:
                self._done()
        head = line(b"content-type", b"application/zip") + line(b"cache-control", NO_STORE)
        return Response(200, head + line(b"x-content-type-options", b"nosniff"), stream=stream)

    def _asked_for(self, name: str, body: bytes, limits: DumpLimits) -> Package:
        asked = read_request(body, limits.resources)
        wanted = asked.wanted
        if isinstance(wanted, WantedUris) and wanted.at is not None:
            _check_time("at", wanted.at)
        catalog, prefix = self._source.catalog, self._source.site.resource_prefix(name)
        selection = select(catalog, name, wanted, prefix=prefix, most=limits.resources)
        if isinstance(wanted, WantedSince) and wanted.moment > selection.at:
            _check_time("since", wanted.moment)
        return Package(self._package_source(name, wanted), selection, limits.octets, deflate=asked.is_deflated)

    def _package_source(self, name: str, wanted: Wanted) -> PackageSource:
        """What a package is made from. Raises DumpRefused where a set does not keep the past that is asked for."""
        site, catalog = self._source.site, self._source.catalog
        states, contents, settings = present_states(catalog, name), self._contents, site.settings(name)
        if isinstance(wanted, WantedUris) and wanted.at is not None:
            if self._past is None or not self._has_past(name):
                what = "at is asked for, and the set does not keep what its resources were"
                raise DumpRefused(what, advice="Leave at out: only a set with versions can tell of the past.")
            states, contents = self._past.at(name, to_microseconds(wanted.at)), self._past.contents
            settings = SetSettings(name=name)  # links that are added belong to resources as they are
        return PackageSource(
            name=name,
            prefix=site.resource_prefix(name),
            up=site.url(capability_list_name(name)),
            states=states,
            contents=contents,
            links=AddedLinks(site, settings, catalog),
        )

    def _has_past(self, name: str) -> bool:
        return self._past is not None and name in self._past.histories

    async def _body(self, scope: Scope, receive: Receive) -> bytes:
        """The whole body. Raises TooMuchAsked, TooManyDumps, BodyTooLate."""
        parts: list[bytes] = []
        octets, more = 0, True
        began = asyncio.get_running_loop().time()
        try:
            async with asyncio.timeout_at(began + self._times.for_body(0)) as timeout:
                while more:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise BodyTooLate("the body was cut off")
                    more = bool(message.get("more_body"))
                    parts.append(message.get("body", b""))
                    octets += len(parts[-1])
                    self._body_octets += len(parts[-1])
                    if octets > BODY_OCTETS:
                        raise _too_long()
                    if self._body_octets > BODIES_OCTETS:
                        raise TooManyDumps("too many requests are on their way at this moment")
                    timeout.reschedule(began + self._times.for_body(octets))
        except TimeoutError:
            raise BodyTooLate("the body has not come in time") from None
        finally:
            self._body_octets -= octets
        stated = _header(scope, b"content-length")
        if stated is not None and int(stated) != octets:
            raise BodyTooLate(f"a body of {octets:,} octets, and Content-Length says {int(stated):,}")
        return b"".join(parts)


def _check_head(scope: Scope) -> None:
    """Raises DumpRefused for what is not even read."""
    if scope.get("http_version") == "1.0":
        raise OldProtocol("a package is sent by HTTP/1.1 alone")
    kind = (_header(scope, b"content-type") or b"").partition(b";")[0].strip().lower()
    if kind != _JSON:
        raise WrongMediaType(f"a request for a package is application/json, not {kind[:100].decode('latin-1') or '?'}")
    if (_header(scope, b"content-encoding") or b"identity").strip().lower() != b"identity":
        raise WrongMediaType("a request for a package is not compressed")
    stated = _header(scope, b"content-length")
    if stated is not None and (not stated.isdigit() or len(stated) > 18 or int(stated) > BODY_OCTETS):
        raise _too_long()


def _check_time(name: str, moment: dt.datetime) -> None:
    if moment.timestamp() > time.time():
        raise DumpRefused(f"{name} lies in the future", advice="Give a moment that is over by the clock of the source.")


def _too_long() -> TooMuchAsked:
    return TooMuchAsked(f"a request for a package has {BODY_OCTETS:,} octets at most")


def _header(scope: Scope, name: bytes) -> bytes | None:
    return next((value for field, value in scope["headers"] if field == name), None)


def _set_of(request: HttpRequest) -> str:
    return request.match.name.partition("/")[0]


def _refused(refused: DumpRefused, limits: DumpLimits) -> Response:
    """Why there is no package, with the limits."""
    error = {"code": refused.code, "what": refused.what, "advice": refused.todo}
    body = msgspec.json.encode({"error": error, "limits": limits})
    head = line(b"cache-control", NO_STORE) + _CLOSE
    if isinstance(refused, TooManyDumps):
        head += line(b"retry-after", b"2")
    return responses.data(refused.status, body, _JSON, head)
