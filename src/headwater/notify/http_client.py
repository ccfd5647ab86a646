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
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final
from weakref import WeakValueDictionary

import msgspec

from headwater.address_levels import literal_address
from headwater.errors import UsageFault
from headwater.notify.http_connection import AnswerBounds, HttpAnswer, HttpConnection, HttpFailure
from headwater.notify.http_proxy import HttpProxy, connect_first, connection_fault, open_tunnel, tls_fault
from headwater.spec import uris

_IDLE_SECONDS: Final = 20.0
_IDLE_OF_ORIGIN: Final = 256
_NAME_SECONDS: Final = 5.0
_NAMES: Final = 10_000
_LOOKUPS: Final = 64
_SHARED_LOOKUPS: Final = 8
_EARLY_SECONDS: Final = 1.0
_ADDRESSES: Final = 3
_LARGE_OCTETS: Final = 64 << 10
"""A body from here on is not put into one message with the head: a copy for each of many requests takes memory."""

Place = tuple[str, str, int]
"""Scheme, host and port."""


class OriginCredentials(msgspec.Struct, frozen=True):
    """What is shown to one origin and to no other: header lines, and the files of a client certificate and its key."""

    head: bytes = b""
    certificate: str | None = None
    key: str | None = None

    def __repr__(self) -> str:
        return "OriginCredentials()"


class NameAsker(msgspec.Struct, frozen=True):
    """At whose word names are looked up: each `kind` has threads of its own, each `share` of them some at most."""

    kind: str = "known"
    share: str = ""


KNOWN: Final = NameAsker()


def _directly(_scheme: str, _host: str) -> HttpProxy | None:
    return None


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
        proxy_for: Callable[[str, str], HttpProxy | None] = _directly,
        credentials: Mapping[uris.Origin, OriginCredentials] | None = None,
    ) -> None:
        self._objection = objection
        self._user_agent = user_agent
        self._authorities = authorities
        self._proxy_for = proxy_for
        self._credentials = credentials or {}
        self._tls: dict[uris.Origin | None, ssl.SSLContext] = {}
        self._idle: dict[Place, list[HttpConnection]] = {}
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
        place = origin.scheme, origin.host, origin.port
        if (own := self._credentials.get(origin)) is not None:
            head = own.head + head
        proxy = self._proxy_for(origin.scheme, origin.host) if origin.scheme == "http" else None
        message = _message(method, url, head, body, self._user_agent, proxy)
        try:
            async with asyncio.timeout(bounds.seconds):
                while True:
                    connection = self._idle_connection(place)
                    is_new = connection is None
                    if connection is None:
                        made = await self._connect(place, asker)
                        if isinstance(made, HttpFailure):
                            return made
                        connection = made
                    try:
                        answer = await connection.ask(message, bounds)
                    finally:
                        self._done_with(connection, place)
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

    def _idle_connection(self, place: Place) -> HttpConnection | None:
        held = self._idle.get(place)
        while held:
            connection = held.pop()
            if connection.is_usable:
                return connection
        return None

    def _done_with(self, connection: HttpConnection, place: Place) -> None:
        if not connection.is_usable:
            connection.abort()
            return
        connection.used_at = time.monotonic()
        held = self._idle.setdefault(place, [])
        if len(held) < _IDLE_OF_ORIGIN:
            held.append(connection)
        else:
            connection.abort()

    async def _connect(self, place: Place, asker: NameAsker) -> HttpConnection | HttpFailure:
        scheme, host, port = place
        if (proxy := self._proxy_for(scheme, host)) is not None:
            return await self._connect_by(proxy, place)
        addresses = await self._addresses(host, asker)
        if not addresses:
            return HttpFailure(f"{host} has no address")
        if (objection := self._objected(host, addresses)) is not None:
            return objection
        loop, failure = asyncio.get_running_loop(), "it cannot be connected to"
        for address in addresses[:_ADDRESSES]:
            try:
                _transport, connection = await loop.create_connection(
                    lambda: HttpConnection(self._open),
                    address,
                    port,
                    ssl=self._context(place) if scheme == "https" else None,
                    server_hostname=host.strip("[]") if scheme == "https" else None,
                )
            except ssl.SSLError as error:
                failure = tls_fault(error)
            except (OSError, ValueError) as error:
                failure = f"it cannot be connected to: {connection_fault(error)}"
            else:
                return connection
        return HttpFailure(failure)

    async def _connect_by(self, proxy: HttpProxy, place: Place) -> HttpConnection | HttpFailure:
        scheme, host, port = place
        literal = literal_address(host)
        if literal is not None and (why := self._objection(literal)):
            return HttpFailure(f"{host}: {why}", is_final=True)
        addresses = (await self._addresses(proxy.host))[:_ADDRESSES]
        try:
            if scheme == "https":
                return await open_tunnel(proxy, addresses, (host, port), self._context(place), self._open)
            _, connection = await connect_first(addresses, proxy.port, lambda: HttpConnection(self._open))
        except ssl.SSLError as error:
            return HttpFailure(tls_fault(error))
        except (OSError, ValueError) as error:
            return HttpFailure(f"the proxy cannot be asked: {connection_fault(error)}")
        return connection

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
        looking = asyncio.get_running_loop().run_in_executor(self._lookups[asker.kind], _looked_up, host)
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

    def _context(self, place: Place) -> ssl.SSLContext:
        """TLS for a place; a client certificate is in the context of its origin alone."""
        origin = uris.Origin(*place)
        own = self._credentials.get(origin)
        key = origin if own is not None and own.certificate is not None else None
        if key not in self._tls:
            made = _tls_context(self._authorities)
            if own is not None and own.certificate is not None:
                made.load_cert_chain(own.certificate, own.key)
            self._tls[key] = made
        return self._tls[key]


def check_authorities(file: str | None) -> None:
    """Raise UsageFault where a file of certificate authorities cannot be used: at the start, not at each request."""
    try:
        if file is not None:
            _tls_context(file)
    except ssl.SSLError as cause:
        raise UsageFault("there is no certificate in PEM form", where=file) from cause
    except OSError as cause:
        raise UsageFault(f"the CA certificates cannot be read: {cause.strerror}", where=file) from cause


def _tls_context(authorities: str | None) -> ssl.SSLContext:
    """TLS that believes the authorities of this machine, and those of a file. Raises OSError."""
    made = ssl.create_default_context()
    if authorities is not None:
        made.load_verify_locations(authorities)
    return made


def _looked_up(host: str) -> list[str]:
    """The addresses of a name, each once."""
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return []
    return list(dict.fromkeys(str(one[4][0]) for one in found))


def _message(
    method: str, url: str, head: bytes, body: bytes | None, agent: str, proxy: HttpProxy | None
) -> tuple[bytes, ...]:
    """The parts of a request; `proxy`: by which it is made in the clear, and which gets the whole address."""
    parts = uris.split(url)
    target = parts.path or "/"
    if parts.query is not None:
        target += f"?{parts.query}"
    if proxy is not None:
        target, head = f"{parts.scheme}://{parts.authority}{target}", proxy.head + head
    first = f"{method} {target} HTTP/1.1\r\nHost: {parts.authority}\r\nUser-Agent: {agent}\r\n".encode("latin-1")
    length = b"" if body is None else b"Content-Length: %d\r\n" % len(body)
    whole_head = b"".join((first, head, length, b"Accept: */*\r\n\r\n"))
    if body is None:
        return (whole_head,)
    return (whole_head + body,) if len(body) < _LARGE_OCTETS else (whole_head, body)
