"""The HTTP/1.1 client of hub, publisher and subscriber: thousands of requests at a time, each to a judged address.

Written for the hub: many kept-alive connections in one event loop, the address judged and then connected to (no name is
looked up twice), redirects never followed, what a stranger answers bounded in size and time, and a forward proxy where
one is named (RFC 9110, 9.3.6)."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import os
import ssl
import time
from base64 import b64encode
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final, NoReturn, cast
from urllib.parse import unquote, urlsplit
from weakref import WeakValueDictionary

import httptools
import msgspec

from headwater.errors import UsageFault
from headwater.spec import uris
from headwater.transport.access import SignInCredentials, addresses_of, literal_address, tls_context

_HEAD_OCTETS: Final = 64 << 10


class HttpFailure(msgspec.Struct, frozen=True):
    """There is no answer that can be used: why. `is_final`: another try will not help.

    `host` is one that leads to an address which is not connected to: `text` has the address, `public_text` never.
    """

    text: str
    is_final: bool = False
    is_too_long: bool = False
    host: str = ""

    @property
    def public_text(self) -> str:
        """Why, for strangers."""
        return f"{self.host} leads to an address that is not public" if self.host else self.text


class AnswerBounds(msgspec.Struct, frozen=True, kw_only=True):
    """What an answer may take: seconds, name and connection too, and octets of its body.

    With `max_octets` 0, or where `wants_body` says so of the head, the body is not waited for; else a longer one is a
    failure. `has_room` is told of octets of the body that came; where it says no, the answer is given up.
    """

    seconds: float
    max_octets: int = 0
    has_room: Callable[[int], bool] = lambda _octets: True
    wants_body: Callable[[HttpAnswer], bool] = lambda _head: True


class HttpAnswer(msgspec.Struct, frozen=True):
    """An answer: names of headers are in lower case, several of one name joined by commas."""

    status: int
    headers: dict[str, str]
    body: bytes = b""

    @property
    def ok(self) -> bool:
        """A 2xx."""
        return 200 <= self.status < 300

    @property
    def is_redirect(self) -> bool:
        """Whether it says where else a GET finds what was asked for."""
        return self.status in (301, 302, 303, 307, 308) and "location" in self.headers


class HttpConnection(asyncio.Protocol):
    """One connection, with one request at a time."""

    def __init__(self, opened: set[HttpConnection]) -> None:
        self._opened = opened
        self._parser = httptools.HttpResponseParser(self)
        self._transport: asyncio.Transport | None = None
        self._answer: asyncio.Future[HttpAnswer | HttpFailure | None] | None = None
        self._bounds = AnswerBounds(seconds=0)
        self._came = 0
        self._clear()
        self.used_at = 0.0
        self.is_usable = True

    def _clear(self) -> None:
        self._headers: dict[str, str] = {}
        self._head_octets = 0
        self._body: list[bytes] = []
        self._octets = 0
        self._has_head = self._is_complete = self._reads_body = False
        self._failure: HttpFailure | None = None

    async def ask(self, message: tuple[bytes, bytes], bounds: AnswerBounds) -> HttpAnswer | HttpFailure | None:
        """Send a request and wait for the answer; None when the connection ended before a single octet came."""
        assert self._transport is not None
        self._clear()
        self._came = 0
        self._bounds = bounds
        self._answer = asyncio.get_running_loop().create_future()
        self._transport.writelines(
            filter(None, message)
        )  # a copy of the body for each of many requests would take memory
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
        if not self._came:
            self._end(None)
        elif self._has_head and exc is None and not self._headers.keys() & {"content-length", "transfer-encoding"}:
            self._end(self._whole())
        else:
            self._end(HttpFailure("the answer was cut off"))

    def data_received(self, data: bytes) -> None:
        """Parse what comes."""
        if self._answer is None:  # nobody has asked
            self.abort()
            return
        self._came += len(data)
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self.is_usable = False
            said = str(error.__context__ or error)[:200]
            self._end(self._failure or HttpFailure(f"the answer cannot be read: {said}", is_final=True))
            return
        if self._is_complete:
            self.is_usable = self.is_usable and bool(self._parser.should_keep_alive())
            self._end(self._whole())
        elif self._has_head and not self._reads_body:
            self.is_usable = False  # the rest of the body is not waited for
            self._end(self._whole())
        elif self._came > 2 * (
            _HEAD_OCTETS + self._bounds.max_octets
        ):  # words of 1xx without end, extensions of chunks
            self.is_usable = False
            self._end(HttpFailure("the answer does not end", is_final=True))

    def _end(self, answer: HttpAnswer | HttpFailure | None) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_result(answer)

    def _whole(self) -> HttpAnswer:
        return HttpAnswer(self._parser.get_status_code(), self._headers, b"".join(self._body))

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
        self._reads_body = self._has_head and bool(self._bounds.max_octets) and self._bounds.wants_body(self._whole())

    def on_body(self, body: bytes) -> None:
        """Octets of the body."""
        if not self._reads_body:
            return
        self._octets += len(body)
        if self._octets > self._bounds.max_octets:
            self._give_up(f"the body has more than {self._bounds.max_octets:,} octets")
        if not self._bounds.has_room(len(body)):
            self._failure = HttpFailure("too many answers are arriving")
            raise ValueError
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
            self._give_up(f"the head has more than {_HEAD_OCTETS:,} octets")

    def _give_up(self, why: str) -> NoReturn:
        self._failure = HttpFailure(f"the answer cannot be read: {why}", is_final=True, is_too_long=True)
        raise ValueError(why)


_PORT: Final = 1_080  # as libcurl has it


class HttpProxy(msgspec.Struct, frozen=True):
    """Where a proxy is, and the header line that signs us in there: told to it and to no other."""

    host: str
    port: int
    head: bytes = b""

    def __repr__(self) -> str:
        return f"HttpProxy({self.host!r}, {self.port})"


def read_proxy(text: str) -> HttpProxy:
    """The proxy that a URI names. Raises UsageFault, which does not show it: it may have a password."""
    try:
        parts = urlsplit(text if "://" in text else f"http://{text}")
        port = parts.port or _PORT
    except ValueError:
        parts, port = urlsplit(""), 0
    if parts.scheme.lower() != "http" or not parts.hostname or not text.isprintable():
        what = "hubs and topics are asked by a proxy that is named as http://HOST:PORT, not by SOCKS or https"
        raise UsageFault(what, advice="Name one by http; a destination without --push may have any.")
    head = b""
    if parts.username is not None:
        user = f"{unquote(parts.username)}:{unquote(parts.password or '')}".encode()
        head = b"Proxy-Authorization: Basic %s\r\n" % b64encode(user)
    return HttpProxy(parts.hostname, port, head)


async def _open_tunnel(
    proxy: HttpProxy, addresses: list[str], target: tuple[str, int], tls: ssl.SSLContext, opened: set[HttpConnection]
) -> HttpConnection | HttpFailure:
    """A connection with `target` (host and port) by TLS through a proxy at one of these addresses.

    Raises OSError (of TLS, too) where that cannot be.
    """
    host, port = target
    transport, asking = await _connect_first(addresses, proxy.port, set())
    is_made = False
    try:
        at = f"{host}:{port}".encode("latin-1")
        asked = b"CONNECT %s HTTP/1.1\r\nHost: %s\r\n%s\r\n" % (at, at, proxy.head)
        answer = await asking.ask((asked, b""), AnswerBounds(seconds=0))
        if not isinstance(answer, HttpAnswer):
            return HttpFailure("the proxy does not answer as a proxy does")
        if not answer.ok:
            advice = ": give it with user and password" if answer.status == 407 else ""
            return HttpFailure(f"the proxy refuses to connect, with HTTP status {answer.status}{advice}")
        connection = HttpConnection(opened)
        loop = asyncio.get_running_loop()
        secure = await loop.start_tls(transport, connection, tls, server_hostname=host.strip("[]"))
        if secure is None:
            return HttpFailure("the proxy has closed the connection")
        connection.connection_made(secure)
        is_made = True
        return connection
    finally:
        if not is_made:
            transport.abort()


async def _connect_first(
    addresses: list[str], port: int, opened: set[HttpConnection], host: str = "", tls: ssl.SSLContext | None = None
) -> tuple[asyncio.Transport, HttpConnection]:
    loop, failure = asyncio.get_running_loop(), OSError("it has no address")
    name = None if tls is None else host.strip("[]")
    for address in addresses:
        try:
            return await loop.create_connection(
                lambda: HttpConnection(opened), address, port, ssl=tls, server_hostname=name
            )
        except OSError as error:
            failure = error
    raise failure


_IDLE_SECONDS: Final = 20.0
_IDLE_OF_ORIGIN: Final = 256
_NAME_SECONDS: Final = 5.0
_NAMES: Final = 10_000
_LOOKUPS: Final = 64
_SHARED_LOOKUPS: Final = 8
_EARLY_SECONDS: Final = 1.0
_ADDRESSES: Final = 3


class NameAsker(msgspec.Struct, frozen=True):
    """At whose word names are looked up: each `kind` has threads of its own, each `share` of them some at most."""

    kind: str = "known"
    share: str = ""


KNOWN: Final = NameAsker()


class HttpClient:
    """Makes requests; for one event loop. `objection` says why an address is not connected to.

    `proxy_for` says by which proxy a host is asked, by scheme and host. Then the proxy looks names up and connects, so
    that `objection` is asked only for hosts that are an address themselves, or `localhost` (decision 069).
    """

    def __init__(
        self,
        objection: Callable[[str], str | None],
        *,
        authorities: str | None = None,
        user_agent: str,
        proxy_for: Callable[[str, str], HttpProxy | None] = lambda _scheme, _host: None,
        credentials: Mapping[uris.Origin, SignInCredentials] | None = None,
    ) -> None:
        self._objection = objection
        self._user_agent = user_agent
        self._authorities = authorities
        self._proxy_for = proxy_for
        self._credentials = credentials or {}
        self._idle: dict[uris.Origin, list[HttpConnection]] = {}
        self._names: dict[str, tuple[float, list[str]]] = {}
        self._lookups = defaultdict[str, ThreadPoolExecutor](lambda: ThreadPoolExecutor(_LOOKUPS, "names"))
        self._shares: WeakValueDictionary[NameAsker, asyncio.Semaphore] = WeakValueDictionary()
        self._open: set[HttpConnection] = set()

    async def request(
        self,
        method: str,
        url: str,
        bounds: AnswerBounds,
        head: bytes = b"",
        body: bytes | None = None,
        asker: NameAsker = KNOWN,
    ) -> HttpAnswer | HttpFailure:
        """Make one request for an `asker`; `head` are further header lines. It takes no more than `bounds` say."""
        origin = uris.origin(url)
        if origin.port is None:
            return HttpFailure("no port is known for it", is_final=True)
        if (own := self._credentials.get(origin)) is not None:
            head = b"".join(line + b"\r\n" for line in own.lines(set())) + head
        proxy = self._proxy_for(origin.scheme, origin.host) if origin.scheme == "http" else None
        message = _message(method, url, head, body, self._user_agent, proxy)
        try:
            async with asyncio.timeout(bounds.seconds):
                while True:
                    held = self._idle.get(origin, [])
                    connection = None
                    while held and (connection is None or not connection.is_usable):
                        connection = held.pop()
                    is_new = connection is None or not connection.is_usable
                    if connection is None or is_new:
                        made = await self._connect(origin, asker)
                        if isinstance(made, HttpFailure):
                            return made
                        connection = made
                    try:
                        answer = await connection.ask(message, bounds)
                    finally:
                        held = self._idle.setdefault(origin, [])
                        if connection.is_usable and len(held) < _IDLE_OF_ORIGIN:
                            connection.used_at = time.monotonic()
                            held.append(connection)
                        else:
                            connection.abort()
                    if answer is not None:
                        return answer
                    if is_new:
                        return HttpFailure("the connection was closed before an answer came")
        except TimeoutError:
            return HttpFailure(f"no answer within {bounds.seconds:g} s")

    async def objections_to(self, urls: Iterable[str], asker: NameAsker) -> dict[str, HttpFailure]:
        """Why URLs are not connected to, by what the names of their hosts lead to now; what is not known is left out.

        For all but KNOWN that is what is found out within a second in all: the rest is judged when it is connected to.
        """
        hosts = {url: uris.origin(url).host for url in urls}
        looking = {host: asyncio.ensure_future(self._addresses(host, asker)) for host in set(hosts.values())}
        try:
            await asyncio.wait(looking.values(), timeout=None if asker == KNOWN else _EARLY_SECONDS)
            found = {host: one.result() for host, one in looking.items() if one.done()}
        finally:
            for one in looking.values():
                one.cancel()
        objections = ((url, self._objected(host, found.get(host, []))) for url, host in hosts.items())
        return {url: why for url, why in objections if why is not None}

    def _objected(self, host: str, addresses: Iterable[str]) -> HttpFailure | None:
        why = next((why for address in addresses if (why := self._objection(address))), None)
        return None if why is None else HttpFailure(f"{host}: {why}", is_final=True, host=host)

    def close(self) -> None:
        """Give up all connections."""
        for connection in list(self._open):
            connection.abort()
        self._idle.clear()
        for lookups in self._lookups.values():
            lookups.shutdown(wait=False, cancel_futures=True)

    def drop_idle(self, now: float) -> None:
        """Close what was not used for a while, and forget names."""
        idle: dict[uris.Origin, list[HttpConnection]] = {}
        for origin, held in self._idle.items():
            for one in held:
                if now - one.used_at < _IDLE_SECONDS and one.is_usable:
                    idle.setdefault(origin, []).append(one)
                else:
                    one.abort()
        self._idle = idle
        self._names = {name: found for name, found in self._names.items() if found[0] > now}

    async def _connect(self, origin: uris.Origin, asker: NameAsker) -> HttpConnection | HttpFailure:
        """A new connection with an origin, by the proxy for it if there is one: that judges addresses itself."""
        scheme, host, port = origin.scheme, origin.host, origin.port or 0
        proxy = self._proxy_for(scheme, host)
        if proxy is None:
            addresses, failing = await self._addresses(host, asker), "it cannot be connected to"
            if not addresses:
                return HttpFailure(f"{host} has no address")
            judged = addresses
        else:
            addresses, failing = await self._addresses(proxy.host), "the proxy cannot be asked"
            literal = literal_address(host)
            judged = [] if literal is None else [literal]
        if (objection := self._objected(host, judged)) is not None:
            return objection
        addresses = addresses[:_ADDRESSES]
        try:
            tls = None
            if scheme == "https":
                own = self._credentials.get(origin)
                tls = tls_context(self._authorities, *(() if own is None else (own.certificate, own.key)))
            if proxy is not None and tls is not None:
                return await _open_tunnel(proxy, addresses, (host, port), tls, self._open)
            at = port if proxy is None else proxy.port
            return (await _connect_first(addresses, at, self._open, host, tls))[1]
        except ssl.SSLError as error:
            if isinstance(error, ssl.SSLCertVerificationError):
                return HttpFailure(f"the certificate is not believed: {error.verify_message.rstrip('.')}")
            return HttpFailure(f"TLS: {error.reason or error}")
        except (OSError, ValueError) as error:  # asyncio's words have numbers and internals in them
            number = error.errno if isinstance(error, OSError) else None
            return HttpFailure(f"{failing}: {os.strerror(number) if number else str(error)[:200]}")

    async def _addresses(self, host: str, asker: NameAsker = KNOWN) -> list[str]:
        with contextlib.suppress(ValueError):
            return [str(ipaddress.ip_address(host.strip("[]")))]
        if (known := self._known_addresses(host)) is not None:
            return known
        share = self._shares.get(asker)
        if share is None:
            share = self._shares[asker] = asyncio.Semaphore(_SHARED_LOOKUPS if asker.share else _LOOKUPS)
        await share.acquire()
        if (known := self._known_addresses(host)) is not None:  # looked up meanwhile
            share.release()
            return known
        looking = asyncio.get_running_loop().run_in_executor(self._lookups[asker.kind], addresses_of, host)
        looking.add_done_callback(partial(self._looked, host, share))
        return await asyncio.shield(looking)  # a thread is not given back before it ends, whoever still waits

    def _known_addresses(self, host: str) -> list[str] | None:
        known = self._names.get(host)
        return known[1] if known is not None and known[0] > time.monotonic() else None

    def _looked(self, host: str, share: asyncio.Semaphore, looking: asyncio.Future[list[str]]) -> None:
        share.release()
        if looking.cancelled() or looking.exception() is not None:
            return
        if len(self._names) >= _NAMES:
            self._names.clear()
        self._names[host] = time.monotonic() + _NAME_SECONDS, looking.result()


def _message(
    method: str, url: str, head: bytes, body: bytes | None, agent: str, proxy: HttpProxy | None
) -> tuple[bytes, bytes]:
    """Head and body of a request; `proxy`: by which it is made in the clear, and which gets the whole address."""
    parts = uris.split(url)
    target = parts.path or "/"
    if parts.query is not None:
        target += f"?{parts.query}"
    if proxy is not None:
        target, head = f"{parts.scheme}://{parts.authority}{target}", proxy.head + head
    first = f"{method} {target} HTTP/1.1\r\nHost: {parts.authority}\r\nUser-Agent: {agent}\r\n".encode("latin-1")
    length = b"" if body is None else b"Content-Length: %d\r\n" % len(body)
    return b"".join((first, head, length, b"Accept: */*\r\n\r\n")), body or b""
