"""Runs the application on uvicorn, with the bounds that a server on the open network needs.

uvicorn's httptools protocol bounds neither the head of a request nor how long it may take, nor how long a reader may
stall; the subclass here does. Signals end the server gracefully and are reported, not raised again.
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
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from headwater.errors import StoreFault
from headwater.server.app import Application

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


class Server(uvicorn.Server):
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

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """End gracefully; at a second signal do not wait for readers."""
        if self.should_exit:
            self.force_exit = True
        self.ended_by = self.ended_by or signal.Signals(sig)
        self.should_exit = True


def make_server(
    app: Application, limits: ServerLimits | None = None, on_ready: Callable[[], None] | None = None
) -> Server:
    """A server for the application, ready to `run(sockets=[…])`; `on_ready` is called when it accepts requests."""
    bounds = limits or ServerLimits()
    config = uvicorn.Config(
        app,
        loop="uvloop" if _has_uvloop() else "asyncio",
        http=_bounded(bounds),
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
    return Server(config) if on_ready is None else _announcing(config, on_ready)


def _announcing(config: uvicorn.Config, on_ready: Callable[[], None]) -> Server:
    class Announcing(Server):
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


def _bounded(limits: ServerLimits) -> type[asyncio.Protocol]:
    class Bounded(HttpToolsProtocol):
        """One connection within the limits."""

        head_octets = 0
        unparsed_octets = 0
        messages = 0
        deadline: asyncio.TimerHandle | None = None
        stall: asyncio.TimerHandle | None = None

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            self.deadline = self.loop.call_later(limits.head_seconds, self.too_slow)

        def connection_lost(self, exc: Exception | None) -> None:
            self.relax()
            if self.stall is not None:
                self.stall.cancel()
            super().connection_lost(exc)

        def on_message_begin(self) -> None:
            self.head_octets = 0
            self.messages += 1
            if self.deadline is None:
                self.deadline = self.loop.call_later(limits.head_seconds, self.too_slow)
            super().on_message_begin()

        def on_url(self, url: bytes) -> None:
            self.grow(len(url))
            super().on_url(url)

        def on_header(self, name: bytes, value: bytes) -> None:
            self.grow(len(name) + len(value) + 32)
            super().on_header(name, value)

        def on_headers_complete(self) -> None:
            self.relax()
            super().on_headers_complete()

        def data_received(self, data: bytes) -> None:
            before = self.messages
            super().data_received(data)
            # The parser hands a header over when it is whole: what has not come to an end is counted here.
            ongoing = self.deadline is not None
            self.unparsed_octets = (
                len(data) + (self.unparsed_octets if before == self.messages else 0) if ongoing else 0
            )
            if self.unparsed_octets > _UNPARSED * limits.head_octets and not self.transport.is_closing():
                self.send_400_response("The head of the request is too long.")

        def grow(self, octets: int) -> None:
            self.head_octets += octets
            if self.head_octets > limits.head_octets:
                raise ValueError("the head of the request is too long")

        def relax(self) -> None:
            if self.deadline is not None:
                self.deadline.cancel()
                self.deadline = None

        def too_slow(self) -> None:
            self.deadline = None
            if not self.transport.is_closing():
                self.transport.close()

        def pause_writing(self) -> None:
            super().pause_writing()
            self.stall = self.loop.call_later(limits.stall_seconds, self.transport.abort)

        def resume_writing(self) -> None:
            if self.stall is not None:
                self.stall.cancel()
                self.stall = None
            super().resume_writing()

    return Bounded
