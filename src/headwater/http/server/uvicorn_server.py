"""The server process: uvicorn with the limits that a server on the open network needs.

uvicorn's httptools protocol bounds neither the head of a request nor how long it may take, nor how long a reader may
stall; the subclass here does. Signals end the server gracefully and are reported, not raised again.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import threading
from collections.abc import Awaitable, Callable, Generator
from types import FrameType
from typing import ClassVar

import msgspec
import uvicorn
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT, FlowControl
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from headwater.http.server.connections import OpenConnections, Stage
from headwater.http.server.request_head import check_head
from headwater.http.server.turns import TurnTaking
from headwater.http.server.upgrade_parser import UpgradeIgnoringParser

AsgiApplication = Callable[..., Awaitable[None]]
"""What uvicorn calls for each request."""

_NO_ROOM = b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 2\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
_TICK_SECONDS = 0.1
"""uvicorn's own: so often it looks what there is to do, and sets the time of `Date`."""
_LAST_SECONDS = 0.02
"""What a server that ends lets its loop do, before it looks whether anybody is left to be answered."""
_WAITING = 1_024
"""Connections that wait to be accepted: so many are taken at the end, as many as may wait (`sockets.listen`)."""
_UNREAD_OCTETS = 16 << 10
"""Of answers so much may wait for their reader before nothing more is added: beside a block of each connection."""
_UNPARSED = 8
"""What of a head that has not ended may be waiting, in heads: more than one read of the socket brings at once."""


class ServerLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds on what one client can cost us."""

    head_octets: int = 64 << 10
    head_seconds: float = 20.0
    idle_seconds: int = 30
    stall_seconds: float = 60.0
    connections: int = 2_000
    """In all …"""
    client_connections: int = 1_000
    """… and of one client: those of a proxy, say."""
    shutdown_seconds: int = 15
    last_request_seconds: float = 0.2
    """So long a request may still come on a connection that waits for one when the server ends."""


__all__ = ["STATUS_LINE", "BoundedProtocol", "ServerLimits", "UvicornServer", "uvicorn_server"]


class UvicornServer(uvicorn.Server):
    """A uvicorn server that remembers the signal that ended it instead of raising it again."""

    ended_by: signal.Signals | None = None
    _is_ending = False
    _loop: asyncio.AbstractEventLoop | None = None
    _ending: asyncio.Event

    @property
    def should_exit(self) -> bool:
        """Whether the server is to end; who sets it, in any thread, wakes the server."""
        return self._is_ending

    @should_exit.setter
    def should_exit(self, wanted: bool) -> None:
        self._is_ending = wanted
        if wanted and self._loop is not None:
            with contextlib.suppress(RuntimeError):  # it has ended
                self._loop.call_soon_threadsafe(self._ending.set)

    async def main_loop(self) -> None:
        """Tick as uvicorn does, and end when it is wanted, not at the tick after it."""
        self._ending, self._loop = asyncio.Event(), asyncio.get_running_loop()
        ticks = 0
        while not await self.on_tick(ticks):
            ticks += 1
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_TICK_SECONDS):
                    await self._ending.wait()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End as uvicorn does, without its pauses of a tenth of a second where nobody has to be waited for."""
        waited_at: list[socket.socket] = []
        with contextlib.suppress(OSError):  # as many files are open as may be: those who wait are reset
            waited_at.extend(listener.dup() for listener in sockets or ())
        for listener in (*self.servers, *(sockets or ())):
            listener.close()
        await asyncio.sleep(0)  # from here on nobody else has them open
        for listener in waited_at:
            await self._take_waiting(listener)
        state = self.server_state
        for connection in list(state.connections):
            connection.shutdown()
        await asyncio.sleep(_LAST_SECONDS)
        try:
            async with asyncio.timeout(self.config.timeout_graceful_shutdown):
                while (state.connections or state.tasks) and not self.force_exit:
                    await asyncio.sleep(_LAST_SECONDS)
                for server in self.servers:
                    await server.wait_closed()
        except TimeoutError:
            for task in state.tasks:
                task.cancel()

    async def _take_waiting(self, listener: socket.socket) -> None:
        """Take the connections that wait to be accepted, and close: with the socket they would be reset."""
        found: list[socket.socket] = []
        listener.settimeout(0)
        with listener, contextlib.suppress(OSError):  # there are no more
            while len(found) < _WAITING:
                found.append(listener.accept()[0])
        loop = asyncio.get_running_loop()
        for connection in found:
            connection.settimeout(0)
            with contextlib.suppress(OSError):  # it has gone meanwhile
                await loop.connect_accepted_socket(self._protocol, connection)

    def _protocol(self) -> asyncio.Protocol:
        """The protocol of a connection, as uvicorn makes it."""
        make: Callable[..., asyncio.Protocol] = self.config.http_protocol_class
        return make(config=self.config, server_state=self.server_state, app_state=self.lifespan.state)

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


def uvicorn_server(
    app: AsgiApplication, protocol: type[BoundedProtocol], limits: ServerLimits, on_ready: Callable[[], None] | None
) -> UvicornServer:
    """A uvicorn server with this protocol, ready to `run(sockets=[…])`."""
    config = uvicorn.Config(
        app,
        loop="uvloop" if _has_uvloop() else "asyncio",
        http=protocol,
        ws="none",
        lifespan="off",
        interface="asgi3",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        timeout_keep_alive=limits.idle_seconds,
        timeout_graceful_shutdown=limits.shutdown_seconds,
        limit_concurrency=limits.connections + 1,
    )
    return UvicornServer(config) if on_ready is None else _announcing(config, on_ready)


def _announcing(config: uvicorn.Config, on_ready: Callable[[], None]) -> UvicornServer:
    class Announcing(UvicornServer):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            on_ready()

    return Announcing(config)


def event_loop() -> Callable[[], asyncio.AbstractEventLoop]:
    """What makes an event loop: uvloop's where there is uvloop."""
    if _has_uvloop():
        import uvloop

        return uvloop.new_event_loop
    return asyncio.new_event_loop


def _has_uvloop() -> bool:
    try:
        import uvloop  # noqa: F401
    except ImportError:
        return False
    return True


class HeldFlow(FlowControl):
    """The flow of a connection; while it `is_held` nobody has more read from it."""

    is_held = False

    def resume_reading(self) -> None:
        """Read on, where it is not held."""
        if not self.is_held:
            super().resume_reading()


class BoundedProtocol(TurnTaking, HttpToolsProtocol):
    """One connection within the limits."""

    limits: ClassVar[ServerLimits]
    opened: ClassVar[OpenConnections]
    parser: UpgradeIgnoringParser
    flow: HeldFlow

    head_octets = 0
    unparsed_octets = 0
    in_head = True
    ignored = False
    """Whether the present request is to be ignored: it comes again, or has been answered."""
    is_broken = False
    """Whether something that is no request has come after others: nothing is read any more."""
    deadline: asyncio.TimerHandle | None = None
    stall: asyncio.TimerHandle | None = None
    is_last = False
    """Whether the server ends: the next response is the last one of the connection."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin, where there is room: a head must come within its time."""
        super().connection_made(transport)
        self.parser, self.flow = UpgradeIgnoringParser(self), HeldFlow(transport)
        transport.set_write_buffer_limits(high=_UNREAD_OCTETS)
        if not self.opened.admit(self, self.address):
            transport.write(_NO_ROOM)
            transport.close()
            return
        self.deadline = self.loop.call_later(self.limits.head_seconds, self.too_slow)

    def connection_lost(self, exc: Exception | None) -> None:
        """End: no timer is left."""
        self.opened.leave(self, self.address)
        self.relax()
        if self.stall is not None:
            self.stall.cancel()
        super().connection_lost(exc)

    @property
    def address(self) -> str:
        """Of whom it is."""
        return self.client[0] if self.client else ""

    @property
    def stage(self) -> Stage:
        """What it waits for: a request, the rest of its body, or our answer."""
        cycle = self.cycle
        if cycle is None or cycle.response_complete:
            return Stage.BODY if self.flow.write_paused else Stage.REQUEST
        return Stage.BODY if cycle.more_body else Stage.ANSWER

    def give_way(self) -> None:
        """End at once, for another one."""
        self.connections.discard(self)
        self.transport.abort()

    def shutdown(self) -> None:
        """End with the server: after the response under way, or a request that comes in a moment.

        Closed at once, a connection whose request has come and was not read yet would be reset.
        """
        if self.stage is Stage.REQUEST and not self.transport.is_closing():
            self.is_last = True
            self.loop.call_later(self.limits.last_request_seconds, super().shutdown)
        else:
            super().shutdown()

    def take_turn(self) -> None:
        """Handle what waits; the time of a head that waits for us to read it does not run."""
        super().take_turn()
        if self.rest:
            self.relax()
        elif self.in_head and self.deadline is None and not self.transport.is_closing():
            self.deadline = self.loop.call_later(self.limits.head_seconds, self.too_slow)  # most heads come whole

    def feed(self, octets: memoryview) -> None:
        """Parse, and bound what of a head has come when it has not come to an end."""
        if self.is_broken:
            return
        before = self.messages
        super().feed(octets)
        if not self.in_head:
            self.unparsed_octets = 0
            return
        # The parser hands a header over when it is whole: what has not come to an end is counted here.
        self.unparsed_octets = len(octets) + (self.unparsed_octets if before == self.messages else 0)
        if self.unparsed_octets > _UNPARSED * self.limits.head_octets and not self.transport.is_closing():
            self.send_400_response("The head of the request is too long.")

    def send_400_response(self, msg: str) -> None:
        """Refuse what is no request. Where others before it are not answered yet the last answer ends the connection.

        A 400 in front of it would be taken for the answer to one of these (RFC 9112 9.3.2).
        """
        cycle = self.cycle
        if cycle is None or cycle.response_complete or cycle.more_body:
            super().send_400_response(msg)
            return
        cycle.keep_alive = False
        self.is_broken, self.in_head, self.rest = True, False, memoryview(b"")
        self.relax()

    def is_behind(self) -> bool:
        """Whether requests wait for others to be answered, or answers for their reader; a body never waits."""
        has_body_to_come = self.cycle is not None and self.cycle.more_body and not self.cycle.response_complete
        return bool(self.pipeline) or (self.flow.write_paused and not has_body_to_come)

    def hold(self, *, holds: bool) -> None:
        """Read no more, or read on where there is room for what comes."""
        was_held, self.flow.is_held = self.flow.is_held, holds
        if holds:
            self.flow.pause_reading()
        elif was_held and not self.transport.is_closing():
            has_room = self.cycle is None or len(self.cycle.body) <= HIGH_WATER_LIMIT
            if has_room and not self.pipeline:
                self.flow.resume_reading()

    def on_response_complete(self) -> None:
        """The next request may be handled."""
        super().on_response_complete()
        self.go_on()

    def begin_head(self) -> None:
        """Count a new head from nothing."""
        self.head_octets = 0
        self.messages += 1
        self.in_head = True
        self.ignored = False

    def on_message_begin(self) -> None:
        """A request begins."""
        self.begin_head()
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        """Part of the target."""
        self.grow(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header of the request."""
        self.grow(len(name) + len(value) + 32)
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """The head is there: hand the request to the application, unless it comes again without an offer."""
        if self.parser.is_offer:
            self.ignored = True
            return
        self.in_head = False
        self.relax()
        check_head(self.headers, self.parser.get_http_version())
        self.hand_over()

    def hand_over(self) -> None:
        """Hand the request to the application as uvicorn does."""
        super().on_headers_complete()
        if self.is_last and self.cycle is not None:
            self.cycle.keep_alive = False

    def on_body(self, body: bytes) -> None:
        """Part of a request's body."""
        if not self.ignored:
            super().on_body(body)

    def on_message_complete(self) -> None:
        """The request is there to its end."""
        if not self.ignored:
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
