"""A forward proxy of the HTTP client: what is told to it, and the tunnel through it (RFC 9110, 9.3.6)."""

from __future__ import annotations

import asyncio
import os
import ssl
from base64 import b64encode
from collections.abc import Callable
from typing import Final, TypeVar
from urllib.parse import unquote, urlsplit

import msgspec

from headwater.errors import UsageFault
from headwater.notify.http_connection import HttpConnection, HttpFailure

_PORT: Final = 1_080  # as libcurl has it
_HEAD_OCTETS: Final = 64 << 10
_Protocol = TypeVar("_Protocol", bound=asyncio.Protocol)


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
        raise UsageFault(
            "hubs and topics are asked by a proxy that is named as http://HOST:PORT, not by SOCKS or https",
            advice="Name one by http; a destination without --push may have any.",
        )
    head = b""
    if parts.username is not None:
        user = f"{unquote(parts.username)}:{unquote(parts.password or '')}".encode()
        head = b"Proxy-Authorization: Basic %s\r\n" % b64encode(user)
    return HttpProxy(parts.hostname, port, head)


class _Tunnelling(asyncio.Protocol):
    """The beginning of a connection by a proxy, up to the proxy's word on it."""

    def __init__(self) -> None:
        self.said: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._came = b""

    def data_received(self, data: bytes) -> None:
        """Collect the head of the proxy's answer; nothing may follow it unasked."""
        self._came += data
        head, end, rest = self._came.partition(b"\r\n\r\n")
        if (end or len(self._came) > _HEAD_OCTETS) and not self.said.done():
            self.said.set_result(head if end and not rest else b"")

    def connection_lost(self, exc: Exception | None) -> None:
        """It has ended before."""
        if not self.said.done():
            self.said.set_result(b"")


async def open_tunnel(
    proxy: HttpProxy, addresses: list[str], target: tuple[str, int], tls: ssl.SSLContext, opened: set[HttpConnection]
) -> HttpConnection | HttpFailure:
    """A connection with `target` (host and port) by TLS through a proxy at one of these addresses.

    Raises OSError (of TLS, too) where that cannot be.
    """
    loop, (host, port) = asyncio.get_running_loop(), target
    transport, protocol = await connect_first(addresses, proxy.port, _Tunnelling)
    is_made = False
    try:
        at = f"{host}:{port}".encode("latin-1")
        transport.write(b"CONNECT %s HTTP/1.1\r\nHost: %s\r\n%s\r\n" % (at, at, proxy.head))
        said = (await protocol.said).split(b"\r\n", 1)[0].split(b" ", 2)
        if len(said) < 2 or not said[0].startswith(b"HTTP/1.") or not said[1].startswith(b"2"):
            return HttpFailure(_refusal(said))
        connection = HttpConnection(opened)
        secure = await loop.start_tls(transport, connection, tls, server_hostname=host.strip("[]"))
        if secure is None:
            return HttpFailure("the proxy has closed the connection")
        connection.connection_made(secure)
        is_made = True
        return connection
    finally:
        if not is_made:
            transport.abort()


async def connect_first(
    addresses: list[str], port: int, protocol: Callable[[], _Protocol]
) -> tuple[asyncio.Transport, _Protocol]:
    """Connect to the first of some addresses that can be connected to. Raises OSError where none can."""
    loop, failure = asyncio.get_running_loop(), OSError("it has no address")
    for address in addresses:
        try:
            transport, made = await loop.create_connection(protocol, address, port)
        except OSError as error:
            failure = error
        else:
            return transport, made
    raise failure


def connection_fault(error: OSError | ValueError) -> str:
    """Why nothing can be connected to, in the words of the system; asyncio's have numbers and internals in them."""
    number = error.errno if isinstance(error, OSError) else None
    return os.strerror(number) if number else str(error)[:200]


def tls_fault(error: ssl.SSLError) -> str:
    """Why TLS cannot be spoken; of a certificate what is wrong with it."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the certificate is not believed: {error.verify_message.rstrip('.')}"
    return f"TLS: {error.reason or error}"


def _refusal(said: list[bytes]) -> str:
    if len(said) < 2 or not said[1].isdigit():
        return "the proxy does not answer as a proxy does"
    status = said[1].decode()
    advice = ": give it with user and password" if status == "407" else ""
    return f"the proxy refuses to connect, with HTTP status {status[:3]}{advice}"
