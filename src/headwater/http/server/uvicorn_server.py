"""Runs the application on uvicorn, with the bounds that a server on the open network needs.

uvicorn's httptools protocol bounds neither the head of a request nor how long it may take, nor how long a reader may
stall; the subclass here does. It also answers at once what the application has at hand: a task, two messages and two
writes would cost more than the answer. Signals end the server gracefully and are reported, not raised again.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import signal
import socket
import threading
from collections.abc import Callable, Generator
from types import FrameType
from typing import ClassVar

import msgspec
import uvicorn
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from headwater.errors import StoreFault
from headwater.http.app import Application
from headwater.http.server.upgrade_parser import UpgradeIgnoringParser

_UNPARSED = 8
"""What of a head that has not ended may be waiting, in heads: more than one read of the socket brings at once."""


class AddressInUse(StoreFault):
    """The address to listen on is taken, or is not ours to take."""

    code: ClassVar[str] = "HW-SRV-01"
    advice: ClassVar[str] = "Stop the other program, or choose another --host or --port (0 takes any free one)."


class ServerLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds on what one client can cost us."""

    head_octets: int = 64 << 10
    head_seconds: float = 20.0
    idle_seconds: int = 30
    stall_seconds: float = 60.0
    connections: int = 1_000
    shutdown_seconds: int = 15


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens on the address, before anything is published under it. Raises AddressInUse."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind, protocol)
    except OSError as cause:
        raise AddressInUse(f"cannot listen: {cause.strerror or cause}", where=f"{host}:{port}") from cause
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(1_024)
    except OSError as cause:
        listener.close()
        what = "the address is in use" if cause.errno == errno.EADDRINUSE else f"cannot listen: {cause.strerror}"
        raise AddressInUse(what, where=f"{host}:{port}") from cause
    return listener


def address_url(listener: socket.socket) -> str:
    """The URL of a listening socket."""
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


class UvicornServer(uvicorn.Server):
    """A uvicorn server that remembers the signal that ended it instead of raising it again."""

    ended_by: signal.Signals | None = None

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """Handle SIGTERM and SIGINT while serving, when this is the main thread."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        handled = (signal.SIGTERM, signal.SIGINT)
        before = {number: signal.signal(number, self.handle_exit) for number in handled}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def end(self) -> None:
        """End gracefully, asked for from any thread."""
        self.should_exit = True

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """End gracefully; at a second signal do not wait for readers."""
        if self.should_exit:
            self.force_exit = True
        self.ended_by = self.ended_by or signal.Signals(sig)
        self.should_exit = True


def make_server(
    app: Application, limits: ServerLimits | None = None, on_ready: Callable[[], None] | None = None
) -> UvicornServer:
    """A server for the application, ready to `run(sockets=[…])`; `on_ready` is called when it accepts requests."""
    bounds = limits or ServerLimits()
    config = uvicorn.Config(
        app,
        loop="uvloop" if _has_uvloop() else "asyncio",
        http=type("Limited", (BoundedProtocol,), {"limits": bounds}),
        ws="none",
        lifespan="off",
        interface="asgi3",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        timeout_keep_alive=bounds.idle_seconds,
        timeout_graceful_shutdown=bounds.shutdown_seconds,
        limit_concurrency=bounds.connections,
    )
    return UvicornServer(config) if on_ready is None else _announcing(config, on_ready)


def _announcing(config: uvicorn.Config, on_ready: Callable[[], None]) -> UvicornServer:
    class Announcing(UvicornServer):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            on_ready()

    return Announcing(config)


def _has_uvloop() -> bool:
    try:
        import uvloop  # noqa: F401
    except ImportError:
        return False
    return True


class BoundedProtocol(HttpToolsProtocol):
    """One connection within the limits."""

    limits: ClassVar[ServerLimits]
    app: Application
    parser: UpgradeIgnoringParser

    head_octets = 0
    unparsed_octets = 0
    messages = 0
    in_head = True
    answered = False
    """Whether the present request has been answered at once, or is to be ignored: it comes again."""
    answered_at: float | None = None
    """When the last one was, by the loop's clock; None after one that took the long way."""
    deadline: asyncio.TimerHandle | None = None
    stall: asyncio.TimerHandle | None = None
    idle: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin: a head must come within its time."""
        super().connection_made(transport)
        self.parser = UpgradeIgnoringParser(self)
        self.deadline = self.loop.call_later(self.limits.head_seconds, self.too_slow)

    def connection_lost(self, exc: Exception | None) -> None:
        """End: no timer is left."""
        self.relax()
        for timer in (self.stall, self.idle):
            if timer is not None:
                timer.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse, and bound what of a head has come when it has not come to an end."""
        before = self.messages
        super().data_received(data)
        if not self.in_head:
            self.unparsed_octets = 0
            return
        if self.deadline is None:  # most heads come whole, and need no timer
            self.deadline = self.loop.call_later(self.limits.head_seconds, self.too_slow)
        # The parser hands a header over when it is whole: what has not come to an end is counted here.
        self.unparsed_octets = len(data) + (self.unparsed_octets if before == self.messages else 0)
        if self.unparsed_octets > _UNPARSED * self.limits.head_octets and not self.transport.is_closing():
            self.send_400_response("The head of the request is too long.")

    def on_message_begin(self) -> None:
        """A request begins; what uvicorn wants to know of it is gathered when it goes the long way."""
        self.head_octets = 0
        self.messages += 1
        self.in_head = True
        self.answered = False
        self.url = b""
        self.headers = []
        self.expect_100_continue = False

    def on_url(self, url: bytes) -> None:
        """Part of the target."""
        self.grow(len(url))
        self.url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header of the request."""
        self.grow(len(name) + len(value) + 32)
        name = name.lower()
        self.headers.append((name, value))
        if name == b"expect" and value.lower() == b"100-continue":
            self.expect_100_continue = True

    def on_headers_complete(self) -> None:
        """The head is there: answer it at once, or hand it to the application the long way."""
        if self.parser.is_offer:
            self.answered = True
            return
        self.in_head = False
        self.relax()
        client = self.client[0] if self.client else "-"
        reply = self.app.at_once(self.url, self.headers, client) if self.is_plain() else None
        if reply is None:
            self.go_the_long_way()
            return
        self.answered = True
        own = b"".join(map(_line, self.server_state.default_headers))
        self.transport.write(b"".join((STATUS_LINE[reply.status], own, reply.head, b"\r\n", reply.content())))
        self.server_state.total_requests += 1
        self.answered_at = self.loop.time()
        if self.idle is None:
            self.idle = self.loop.call_later(self.limits.idle_seconds, self.too_idle)

    def go_the_long_way(self) -> None:
        """Hand the request to the application as uvicorn does."""
        self.answered_at = None
        url, headers, expects = self.url, self.headers, self.expect_100_continue
        super().on_message_begin()
        self.url, self.expect_100_continue = url, expects
        self.headers.extend(headers)  # the very list that uvicorn has put into the scope
        super().on_headers_complete()

    def is_plain(self) -> bool:
        """Whether the request is a usual GET, on a connection that has room for its answer at this moment."""
        parser, cycle, most = self.parser, self.cycle, self.limits.connections
        return (
            parser.get_method() == b"GET"
            and parser.get_http_version() == "1.1"
            and parser.should_keep_alive()
            and not self.expect_100_continue
            and (cycle is None or cycle.response_complete)
            and not self.flow.write_paused
            and not self.transport.is_closing()
            and len(self.connections) < most
            and len(self.tasks) < most
        )

    def on_body(self, body: bytes) -> None:
        """Part of a request's body."""
        if not self.answered:
            super().on_body(body)

    def on_message_complete(self) -> None:
        """The request is there to its end."""
        if not self.answered:
            super().on_message_complete()

    def grow(self, octets: int) -> None:
        """Count octets of the head."""
        self.head_octets += octets
        if self.head_octets > self.limits.head_octets:
            raise ValueError("the head of the request is too long")

    def relax(self) -> None:
        """The head has come in time."""
        if self.deadline is not None:
            self.deadline.cancel()
            self.deadline = None

    def too_slow(self) -> None:
        """The head has not come in time."""
        self.deadline = None
        if not self.transport.is_closing():
            self.transport.close()

    def too_idle(self) -> None:
        """Close a connection that has asked nothing since it was answered at once; uvicorn sees to the long way."""
        self.idle = None
        if self.answered_at is None or self.in_head or self.transport.is_closing():
            return
        left = self.answered_at + self.limits.idle_seconds - self.loop.time()
        if left > 0:
            self.idle = self.loop.call_later(left, self.too_idle)
        else:
            self.transport.close()

    def pause_writing(self) -> None:
        """The reader is behind: it has a while to go on."""
        super().pause_writing()
        self.stall = self.loop.call_later(self.limits.stall_seconds, self.transport.abort)

    def resume_writing(self) -> None:
        """The reader goes on."""
        if self.stall is not None:
            self.stall.cancel()
            self.stall = None
        super().resume_writing()


def _line(header: tuple[bytes, bytes]) -> bytes:
    return b"%s: %s\r\n" % header
