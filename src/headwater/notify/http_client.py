"""The HTTP/1.1 client of hub, publisher and subscriber: thousands of requests at a time, each to a judged address.

Written for the hub: many kept-alive connections in one event loop, the address judged and then connected to (no name is
looked up twice), redirects never followed, and what a stranger answers bounded in size and time.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import socket
import ssl
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, cast

import httptools
import msgspec

from headwater.spec import uris

_HEAD_OCTETS: Final = 64 << 10
_IDLE_SECONDS: Final = 20.0
_IDLE_OF_ORIGIN: Final = 256
_NAME_SECONDS: Final = 5.0
_NAMES: Final = 10_000
_LOOKUPS: Final = 32
_ADDRESSES: Final = 3
_LARGE_OCTETS: Final = 64 << 10
"""A body from here on is not put into one message with the head: a copy for each of many requests takes memory."""

Place = tuple[str, str, int]
"""Scheme, host and port."""


class HttpFailure(msgspec.Struct, frozen=True):
    """There is no answer that can be used: why. `is_final`: another try will not help."""

    text: str
    is_final: bool = False
    is_too_long: bool = False


class HttpAnswer(msgspec.Struct, frozen=True):
    """An answer: names of headers are in lower case, several of one name joined by commas."""

    status: int
    headers: dict[str, str]
    body: bytes = b""

    @property
    def ok(self) -> bool:
        """A 2xx."""
        return 200 <= self.status < 300


class HttpClient:
    """Makes requests; for one event loop. `objection` says why an address is not connected to."""

    def __init__(
        self, objection: Callable[[str], str | None], *, authorities: str | None = None, user_agent: str
    ) -> None:
        self._objection = objection
        self._user_agent = user_agent
        self._authorities = authorities
        self._tls: ssl.SSLContext | None = None
        self._idle: dict[Place, list[_Connection]] = {}
        self._names: dict[str, tuple[float, list[str]]] = {}
        self._lookups = ThreadPoolExecutor(_LOOKUPS, "names")
        self._open: set[_Connection] = set()

    async def request(  # noqa: PLR0913  what is sent, and what may come of it
        self,
        method: str,
        url: str,
        head: bytes = b"",
        body: bytes | None = None,
        *,
        seconds: float,
        max_octets: int = 0,
        has_room: Callable[[int], bool] = lambda _octets: True,
    ) -> HttpAnswer | HttpFailure:
        """Make one request; `head` are further header lines. All of it, name and connection too, takes `seconds`.

        With `max_octets` 0 the body of the answer is not waited for; else a longer one is a failure. `has_room` is told
        of octets of the body that came; where it says no, the answer is given up.
        """
        origin = uris.origin(url)
        if origin.port is None:
            return HttpFailure("no port is known for it", is_final=True)
        place = origin.scheme, origin.host, origin.port
        message = _message(method, url, head, body, self._user_agent)
        try:
            async with asyncio.timeout(seconds):
                while True:
                    connection = self._idle_connection(place)
                    is_new = connection is None
                    if connection is None:
                        made = await self._connect(place)
                        if isinstance(made, HttpFailure):
                            return made
                        connection = made
                    try:
                        answer = await connection.ask(message, max_octets, has_room)
                    finally:
                        self._done_with(connection, place)
                    if answer is not None:
                        return answer
                    if is_new:
                        return HttpFailure("the connection was closed before an answer came")
        except TimeoutError:
            return HttpFailure(f"no answer within {seconds:g} s")

    async def objection_to(self, url: str) -> str | None:
        """Why the host of a URL is not connected to, by what its name leads to now; None: it is, or is not known."""
        host = uris.origin(url).host
        found = (self._objection(address) for address in await self._addresses(host))
        return next((f"{host}: {why}" for why in found if why), None)

    def close(self) -> None:
        """Give up all connections."""
        for connection in list(self._open):
            connection.abort()
        self._idle.clear()
        self._lookups.shutdown(wait=False, cancel_futures=True)

    def drop_idle(self, now: float) -> None:
        """Close what was not used for a while, and forget names."""
        for place, held in list(self._idle.items()):
            kept = [one for one in held if now - one.used_at < _IDLE_SECONDS and one.is_usable]
            for one in held:
                if one not in kept:
                    one.abort()
            if kept:
                self._idle[place] = kept
            else:
                del self._idle[place]
        self._names = {name: found for name, found in self._names.items() if found[0] > now}

    def _idle_connection(self, place: Place) -> _Connection | None:
        held = self._idle.get(place)
        while held:
            connection = held.pop()
            if connection.is_usable:
                return connection
        return None

    def _done_with(self, connection: _Connection, place: Place) -> None:
        if not connection.is_usable:
            connection.abort()
            return
        connection.used_at = time.monotonic()
        held = self._idle.setdefault(place, [])
        if len(held) < _IDLE_OF_ORIGIN:
            held.append(connection)
        else:
            connection.abort()

    async def _connect(self, place: Place) -> _Connection | HttpFailure:
        scheme, host, port = place
        addresses = await self._addresses(host)
        if not addresses:
            return HttpFailure(f"{host} has no address")
        for address in addresses:
            if why := self._objection(address):
                return HttpFailure(f"{host}: {why}", is_final=True)
        loop, failure = asyncio.get_running_loop(), "it cannot be connected to"
        for address in addresses[:_ADDRESSES]:
            try:
                _transport, connection = await loop.create_connection(
                    lambda: _Connection(self._open),
                    address,
                    port,
                    ssl=self._context() if scheme == "https" else None,
                    server_hostname=host if scheme == "https" else None,
                )
            except ssl.SSLError as error:
                failure = f"TLS: {error.reason or error}"
            except (OSError, ValueError) as error:
                failure = str(error)[:200]
            else:
                return connection
        return HttpFailure(failure)

    async def _addresses(self, host: str) -> list[str]:
        with contextlib.suppress(ValueError):
            return [str(ipaddress.ip_address(host.strip("[]")))]
        now = time.monotonic()
        known = self._names.get(host)
        if known is not None and known[0] > now:
            return known[1]
        if len(self._names) >= _NAMES:
            self._names.clear()
        found = await asyncio.get_running_loop().run_in_executor(self._lookups, _looked_up, host)
        self._names[host] = now + _NAME_SECONDS, found
        return found

    def _context(self) -> ssl.SSLContext:
        if self._tls is None:
            self._tls = ssl.create_default_context()
            if self._authorities is not None:
                self._tls.load_verify_locations(self._authorities)
        return self._tls


def _looked_up(host: str) -> list[str]:
    """The addresses of a name, each once."""
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return []
    return list(dict.fromkeys(str(one[4][0]) for one in found))


def _message(method: str, url: str, head: bytes, body: bytes | None, agent: str) -> tuple[bytes, ...]:
    parts = uris.split(url)
    target = parts.path or "/"
    if parts.query is not None:
        target += f"?{parts.query}"
    first = f"{method} {target} HTTP/1.1\r\nHost: {parts.authority}\r\nUser-Agent: {agent}\r\n".encode("latin-1")
    length = b"" if body is None else b"Content-Length: %d\r\n" % len(body)
    whole_head = b"".join((first, head, length, b"Accept: */*\r\n\r\n"))
    if body is None:
        return (whole_head,)
    return (whole_head + body,) if len(body) < _LARGE_OCTETS else (whole_head, body)


class _Connection(asyncio.Protocol):
    """One connection, with one request at a time."""

    def __init__(self, opened: set[_Connection]) -> None:
        self._opened = opened
        self._parser = httptools.HttpResponseParser(self)
        self._transport: asyncio.Transport | None = None
        self._answer: asyncio.Future[HttpAnswer | HttpFailure | None] | None = None
        self._max_octets = 0
        self._has_room: Callable[[int], bool] = lambda _octets: True
        self._heard = False
        self._came = 0
        self._clear()
        self.used_at = 0.0
        self.is_usable = True

    def _clear(self) -> None:
        self._headers: dict[str, str] = {}
        self._head_octets = 0
        self._body: list[bytes] = []
        self._octets = 0
        self._has_head = self._is_complete = False

    async def ask(
        self, message: tuple[bytes, ...], max_octets: int, has_room: Callable[[int], bool]
    ) -> HttpAnswer | HttpFailure | None:
        """Send a request and wait for the answer; None when the connection ended before a single octet came."""
        assert self._transport is not None
        self._clear()
        self._heard = False
        self._came = 0
        self._max_octets, self._has_room = max_octets, has_room
        self._answer = asyncio.get_running_loop().create_future()
        for block in message:
            self._transport.write(block)
        try:
            return await self._answer
        except BaseException:
            self.is_usable = False  # what it is at is not known
            raise
        finally:
            self._answer = None
            self._body.clear()

    def abort(self) -> None:
        """Close it at once."""
        self.is_usable = False
        if self._transport is not None:
            self._transport.abort()

    # -- what the event loop calls ------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """It is there."""
        self._transport = cast(asyncio.Transport, transport)  # uvloop's own class is none of asyncio's
        self._opened.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """It has ended; so has an answer whose length is that of the connection."""
        self.is_usable = False
        self._opened.discard(self)
        if not self._heard:
            self._end(None)
        elif self._has_head and exc is None and self._ends_by_closing():
            self._end(self._whole())
        else:
            self._end(HttpFailure("the answer was cut off"))

    def data_received(self, data: bytes) -> None:
        """Parse what comes."""
        if self._answer is None:  # nobody has asked
            self.abort()
            return
        self._heard = True
        self._came += len(data)
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade, _AnswerTooLongError) as error:
            self.is_usable = False
            if isinstance(error.__context__, _NoRoomError):
                self._end(HttpFailure(str(error.__context__)))
                return
            cause = error.__context__ or error if isinstance(error, httptools.HttpParserError) else error
            said, is_too_long = str(cause)[:200], isinstance(cause, _AnswerTooLongError)
            self._end(HttpFailure(f"the answer cannot be read: {said}", is_final=True, is_too_long=is_too_long))
            return
        if self._is_complete:
            self.is_usable = self.is_usable and bool(self._parser.should_keep_alive())
            self._end(self._whole())
        elif self._has_head and not self._max_octets:
            self.is_usable = False  # the rest of the body is not waited for
            self._end(self._whole())
        elif self._came > 2 * (_HEAD_OCTETS + self._max_octets):  # words of 1xx without end, extensions of chunks
            self.is_usable = False
            self._end(HttpFailure("the answer has no end", is_final=True))

    def _end(self, answer: HttpAnswer | HttpFailure | None) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_result(answer)

    def _whole(self) -> HttpAnswer:
        return HttpAnswer(self._parser.get_status_code(), self._headers, b"".join(self._body))

    def _ends_by_closing(self) -> bool:
        return "content-length" not in self._headers and "transfer-encoding" not in self._headers

    # -- what the parser calls ----------------------------------------------------------------------------------------

    def on_status(self, status: bytes) -> None:
        """The reason phrase."""
        self._grow(len(status))

    def on_header(self, name: bytes, value: bytes) -> None:
        """One header."""
        self._grow(len(name) + len(value) + 32)
        key, text = name.decode("latin-1").lower(), value.decode("latin-1")
        held = self._headers.get(key)
        self._headers[key] = text if held is None else f"{held}, {text}"

    def on_headers_complete(self) -> None:
        """The head is there; one of a 1xx is only word that the answer comes."""
        self._has_head = self._parser.get_status_code() >= 200

    def on_body(self, body: bytes) -> None:
        """Octets of the body."""
        if not self._max_octets:
            return
        self._octets += len(body)
        if self._octets > self._max_octets:
            raise _AnswerTooLongError(f"the body has more than {self._max_octets:,} octets")
        if not self._has_room(len(body)):
            raise _NoRoomError("too many answers come at this moment")
        self._body.append(body)

    def on_message_complete(self) -> None:
        """The answer is there to its end."""
        if self._has_head:
            self._is_complete = True
        else:
            self._clear()

    def _grow(self, octets: int) -> None:
        self._head_octets += octets
        if self._head_octets > _HEAD_OCTETS:
            raise _AnswerTooLongError(f"the head has more than {_HEAD_OCTETS:,} octets")


class _AnswerTooLongError(Exception):
    """The answer is longer than it may be."""


class _NoRoomError(Exception):
    """There is no room for the answer now."""
