"""The server process: its socket, its open connections, and uvicorn with the limits that an open network needs.

uvicorn's httptools protocol bounds neither the head of a request nor how long it may take, nor how long a reader may
stall; the subclass here does. How many connections there may be, which of them gives way to another, and which heads
are refused, is decided by values. Signals end the server gracefully and are reported, not raised again.
"""

import asyncio
import errno
import re
import resource
import signal
import socket
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Iterable, MutableMapping
from concurrent.futures import Future
from enum import IntEnum
from functools import partial
from types import FrameType
from typing import Any, ClassVar, Final, Protocol, TypeVar

import msgspec
import uvicorn
from httptools import HttpParserError, HttpParserUpgrade, HttpRequestParser
from uvicorn.loops.auto import auto_loop_factory
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from headwater.errors import HeadwaterError, StoreFault, as_fault
from headwater.http.requests import Receive, Scope
from headwater.http.responses import CLOSE, Head, ReaderGone, Send
from headwater.transport.access import client_network

# open connections: who keeps one open and asks nothing, or sends a request slowly, has it for as long as nobody else
# needs it

_HOST = re.compile(rb"(?:[A-Za-z0-9._~!$&'()*+,;=%-]*|\[[0-9A-Fa-fv.:]+\])(?::[0-9]*)?")


def check_head(headers: Iterable[tuple[bytes, bytes]], version: str) -> None:
    """Raise ValueError for a head that a proxy and we might read differently: it gets 400 (RFC 9112 3.2, 6.1).

    Each request of HTTP/1.1 has one `Host`, and no body is encoded otherwise than in chunks. Names are in lower case.
    HTTP/0.9, and what calls itself HTTP/2 in a head of HTTP/1, is not spoken.
    """
    if version not in ("1.1", "1.0"):
        raise ValueError("this server does not support this version of HTTP")
    count = 0
    for name, value in headers:
        if name == b"host":
            count += 1
            if _HOST.fullmatch(value) is None:
                raise ValueError("the Host header names no host")
        elif name == b"transfer-encoding" and value.strip().lower() != b"chunked":
            raise ValueError("this server does not support this transfer coding")
    if count > 1 or (count == 0 and version == "1.1"):
        raise ValueError("not one Host")


_MOST: Final = 65_536
_OF_CONNECTION: Final = 2


def room_for_connections() -> int:
    """How many connections this process can have open and serve, with as many files as the system lets it have."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    files = _MOST if hard == resource.RLIM_INFINITY else min(hard, _MOST)
    if soft != resource.RLIM_INFINITY and soft < files:
        resource.setrlimit(resource.RLIMIT_NOFILE, (files, hard))
    return max(1, files // _OF_CONNECTION)


class Stage(IntEnum):
    """What a connection waits for; one of a lower stage gives way first."""

    REQUEST = 0  # for a request, or the rest of its head
    BODY = 1  # for the rest of a request's body
    ANSWER = 2  # for what we send: it does not give way


class Connection(Protocol):
    """What is asked of a connection."""

    @property
    def stage(self) -> Stage:
        """What it waits for at this moment."""
        ...

    def give_way(self) -> None:
        """End at once."""
        ...


class OpenConnections:
    """The connections of one process, oldest first, each from its `admit` to its `leave`."""

    def __init__(self, most: int, most_of_client: int) -> None:
        self._most = most
        self._most_of_client = most_of_client
        self._clients: dict[Connection, str] = {}
        self._counts: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._clients)

    def admit(self, connection: Connection, address: str) -> bool:
        """Count a connection of a client in; where there is no room, another has to give way. Whether there is room.

        That is one of the same client where it has its share, else one of the client who has most of those that wait:
        the one that waits for the least, of several the oldest.
        """
        client = client_network(address)
        has_share = self._counts[client] >= self._most_of_client
        if has_share or len(self) >= self._most:
            known = self._clients.items()
            slow = [one for one, of in known if one.stage is not Stage.ANSWER and (of == client or not has_share)]
            if not slow:
                return False
            found = min(slow, key=lambda one: (-self._counts[self._clients[one]], one.stage))
            self.leave(found)
            found.give_way()
        self._clients[connection] = client
        self._counts[client] += 1
        return True

    def leave(self, connection: Connection) -> None:
        """Count a connection out, if it was in."""
        client = self._clients.pop(connection, None)
        if client is not None:
            self._counts[client] -= 1
            if not self._counts[client]:
                del self._counts[client]


# the server

T = TypeVar("T")


class AddressInUse(StoreFault):
    """The address to listen on is in use, or not permitted."""

    code: ClassVar[str] = "HW-SRV-01"


_RIGHTS = "Take a port from 1024 on: the system keeps those below for programs with more rights."

_NOT_OURS = "Give an address of this machine: 127.0.0.1 for local use only, 0.0.0.0 (or ::) for all its addresses."


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens on the address, before anything is published under it. Raises AddressInUse."""
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        is_of_both = family == socket.AF_INET6 and socket.has_dualstack_ipv6()
        return socket.create_server(address, family=family, backlog=1_024, dualstack_ipv6=is_of_both)
    except UnicodeError as cause:
        raise AddressInUse("cannot listen: this is no name of a host", where=f"{host}:{port}") from cause
    except OSError as cause:
        what = "the address is in use" if cause.errno == errno.EADDRINUSE else f"cannot listen: {cause.strerror}"
        advice = {errno.EACCES: _RIGHTS, errno.EADDRNOTAVAIL: _NOT_OURS}.get(cause.errno or 0)
        raise AddressInUse(what, where=f"{host}:{port}", advice=advice) from cause


def address_url(listener: socket.socket) -> str:
    """The URL of a listening socket."""
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


Application = Callable[[Scope, Receive, Send], Awaitable[None]]
"""What is called for each request: as in ASGI, but that a response is sent as a value."""

_NO_ROOM = b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 2\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
_UNREAD_OCTETS = 16 << 10
"""Of answers so much may wait for their reader before nothing more is added: beside a block of each connection."""
_PARSED_OCTETS = 2_048
"""The parser is given so many octets at a time: no more requests than these hold wait for their turn."""
_MOST_FIELDS = 1_000  # of a head: each takes some hundred octets of memory, however short it is


class ServerLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds on what one client can cost us."""

    head_octets: int = 64 << 10
    head_seconds: float = 20.0
    idle_seconds: int = 30
    stall_seconds: float = 60.0
    connections: int = 2_000  # in all …
    client_connections: int = 1_000  # … and of one client: those of a proxy, say
    shutdown_seconds: int = 15
    last_request_seconds: float = 0.2
    """So long a request may still come on a connection that waits for one when the server ends."""


class UvicornServer(uvicorn.Server):
    """A uvicorn server that remembers the signal that ended it instead of raising it again."""

    ended_by: signal.Signals | None = None
    _loop: asyncio.AbstractEventLoop | None = None
    on_ready: Callable[[], None] | None = None  # called when the server accepts requests

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to accept requests."""
        self._loop = asyncio.get_running_loop()
        await super().startup(sockets)
        if self.on_ready is not None:
            self.on_ready()

    def end(self) -> None:
        """End gracefully, asked for from any thread."""
        self.should_exit = True

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """End gracefully; at a second signal do not wait for readers."""
        if self.should_exit:
            self.force_exit = True
        self.ended_by = self.ended_by or signal.Signals(sig)
        self.should_exit = True


def run_in_loop(main: Coroutine[Any, Any, T]) -> T:
    """What `main` returns, run in an event loop of its own: uvloop's where there is uvloop."""
    with asyncio.Runner(loop_factory=auto_loop_factory()) as runner:
        return runner.run(main)


MakeServer = Callable[..., UvicornServer]
"""Makes a server for an application, within limits if they are given: `make_server`, which knows whom to tell."""


class ServerThread:
    """Serves in a thread, with an event loop of its own.

    `serve` is given what makes its server, and returns when that has ended. `on_fault` hears what ends it while it
    serves.
    """

    def __init__(
        self,
        name: str,
        serve: Callable[[MakeServer], Coroutine[Any, Any, object]],
        on_fault: Callable[[HeadwaterError], None],
    ) -> None:
        self._serve = serve
        self._on_fault = on_fault
        self._ready = Future[None]()
        self._server: UvicornServer | None = None
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    @property
    def is_alive(self) -> bool:
        """Whether it still serves."""
        return self._thread.is_alive()

    def start(self) -> None:
        """Serve from now on. Raises what keeps it from that."""
        self._thread.start()
        self._ready.result()

    def stop(self, timeout: float | None = None) -> None:
        """End gracefully, and wait for it, for so long at most."""
        if self._server is not None:
            self._server.end()
        if self._thread.ident is not None:
            self._thread.join(timeout)

    def _make(self, app: Application, limits: ServerLimits | None = None) -> UvicornServer:
        self._server = make_server(app, limits, partial(self._ready.set_result, None))
        return self._server

    def _run(self) -> None:
        try:
            run_in_loop(self._serve(self._make))
        except BaseException as failure:
            if not self._ready.done():
                self._ready.set_exception(failure)  # `start` raises it in the thread that waits
            elif isinstance(failure, Exception):
                self._on_fault(as_fault(failure))
            else:
                raise
        else:
            if not self._ready.done():
                self._ready.set_result(None)


class _ResponseCycle(RequestResponseCycle):
    """One request and its response. Its head comes as octets: uvicorn would judge and write each field by itself."""

    async def run_asgi(self, app: Application) -> None:  # type: ignore[override]
        """Have the request answered; without a whole response the connection ends."""
        try:
            await app(self.scope, self.receive, self.send)  # type: ignore[arg-type]
        except ReaderGone:
            pass
        except Exception as error:
            self.logger.error("a bug met while a response was sent", exc_info=error)
        finally:
            if not self.response_complete:
                self.transport.close()
            self.on_response = lambda: None

    async def send(self, message: MutableMapping[str, Any]) -> None:  # type: ignore[override]
        """Send a block of the body, and the head of the response before the first one; to HEAD the head alone.

        Raises ReaderGone.
        """
        if self.flow.write_paused and not self.disconnected:
            await self.flow.drain()
        if self.disconnected:
            raise ReaderGone
        block, more = message["body"], message["more_body"]
        octets: list[bytes] = []
        if not self.response_started:
            self.response_started, self.waiting_for_100_continue = True, False
            self.chunked_encoding = message["is_chunked"]
            head: Head = message["head"]
            octets += (STATUS_LINE[message["status"]], *(b"%b: %b\r\n" % field for field in self.default_headers))
            if CLOSE in head:
                self.keep_alive = False
            elif not self.keep_alive:
                octets.append(CLOSE)
            if self.chunked_encoding:
                octets.append(b"transfer-encoding: chunked\r\n")
            octets += (head, b"\r\n")
        if block and self.scope["method"] != "HEAD":
            octets += (b"%x\r\n" % len(block), block, b"\r\n") if self.chunked_encoding else (block,)
        if self.chunked_encoding and not more:
            octets.append(b"0\r\n\r\n")
        self.transport.write(octets[0] if len(octets) == 1 else b"".join(octets))
        if more:
            return
        self.response_complete = True
        self.message_event.set()
        if not self.keep_alive:
            self.transport.close()
        self.on_response()


class BoundedProtocol(HttpToolsProtocol):
    """One connection within the limits. While requests wait for the answers to others, no further ones are parsed."""

    limits: ClassVar[ServerLimits]
    opened: ClassVar[OpenConnections]

    rest = memoryview(b"")  # what has been read and is not parsed yet
    in_head = True
    head_octets = 0  # how much of the present head has come, after the octets in which it began
    is_broken = False  # whether something that is no request has come after others: nothing is read any more
    is_last = False  # whether the server ends: the next response is the last one of the connection
    deadline: asyncio.TimerHandle | None = None
    stall: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin, where there is room: a head must come within its time."""
        super().connection_made(transport)
        transport.set_write_buffer_limits(high=_UNREAD_OCTETS)
        if not self.opened.admit(self, self.client[0] if self.client else ""):
            transport.write(_NO_ROOM)
            transport.close()
            return
        self._time_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """End: no timer is left, and nothing more is parsed."""
        self.opened.leave(self)
        self.rest = memoryview(b"")
        for timer in (self.deadline, self.stall):
            if timer is not None:
                timer.cancel()
        super().connection_lost(exc)

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

    def data_received(self, data: bytes) -> None:
        """Parse what has come, as far as no request waits for its turn."""
        if not self.is_broken:
            self.rest = memoryview(bytes(self.rest) + data if self.rest else data)
            self._parse()

    def on_response_complete(self) -> None:
        """Handle the next request."""
        super().on_response_complete()
        self._parse()

    def _parse(self) -> None:
        while self.rest and not self.pipeline and not self.transport.is_closing():
            octets, self.rest = self.rest[:_PARSED_OCTETS], self.rest[_PARSED_OCTETS:]
            self._feed(octets)
        if self.rest:
            self.flow.pause_reading()

    def _feed(self, octets: bytes | memoryview) -> None:
        self._unset_keepalive_if_required()
        self.head_octets += len(octets)
        try:
            self.parser.feed_data(octets)
        except HttpParserUpgrade as offer:
            self._ignore_offer(bytes(octets)[offer.args[0] :])
        except HttpParserError:
            self.send_400_response("Invalid HTTP request received.")
        if not self.in_head or self.transport.is_closing():
            return
        if self.head_octets > self.limits.head_octets:
            self.send_400_response("The head of the request is too long.")
        elif self.deadline is None:
            self._time_head()

    @property
    def _is_offer(self) -> bool:
        return self.parser.should_upgrade() and self.parser.get_method() != b"CONNECT"

    def _ignore_offer(self, following: bytes) -> None:
        """Parse the present head once more without its offer of another protocol (RFC 9110 7.8), then what follows.

        Java's client offers HTTP/2 with every request, and httptools takes an offer for accepted: it gives no body.
        """
        if not self._is_offer:
            return
        lines = [b"%s %s HTTP/%s" % (self.parser.get_method(), self.url, self.parser.get_http_version().encode())]
        lines += [b"%s: %s" % (name, value) for name, value in self.headers if name != b"upgrade"]
        self.parser = HttpRequestParser(self)
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)  # as uvicorn's own
        self._feed(b"\r\n".join(lines) + b"\r\n\r\n" + following)

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
        self._end_head()

    def on_message_begin(self) -> None:
        """A request begins."""
        self.in_head, self.head_octets = True, 0
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """The head is there: hand the request to the application, unless it comes again without an offer."""
        if self._is_offer:
            return
        self.in_head = False
        self._end_head()
        if len(self.headers) > _MOST_FIELDS:
            raise ValueError("the head of the request has too many fields")
        check_head(self.headers, self.parser.get_http_version())
        super().on_headers_complete()
        self.cycle.__class__ = _ResponseCycle  # uvicorn makes one of its own
        if self.is_last:
            self.cycle.keep_alive = False

    def on_message_complete(self) -> None:
        """The request is there to its end."""
        if not self._is_offer:
            super().on_message_complete()

    def _time_head(self) -> None:
        self.deadline = self.loop.call_later(self.limits.head_seconds, self._too_slow)

    def _end_head(self) -> None:
        if self.deadline is not None:
            self.deadline.cancel()
            self.deadline = None

    def _too_slow(self) -> None:
        """Close: the head has not come in time; while we answer others its time does not run."""
        if self.stage is Stage.ANSWER:
            self._time_head()
        elif not self.transport.is_closing():
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


def make_server(
    app: Application, limits: ServerLimits | None = None, on_ready: Callable[[], None] | None = None
) -> UvicornServer:
    """A server for the application, ready to `run(sockets=[…])`; `on_ready` is called when it accepts requests."""
    bounds = limits or ServerLimits()
    most = min(bounds.connections, room_for_connections())
    opened = OpenConnections(most, max(1, bounds.client_connections * most // bounds.connections))
    config = uvicorn.Config(
        app,
        http=type("LimitedProtocol", (BoundedProtocol,), {"limits": bounds, "opened": opened}),
        ws="none",
        lifespan="off",
        interface="asgi3",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        timeout_keep_alive=bounds.idle_seconds,
        timeout_graceful_shutdown=bounds.shutdown_seconds,
    )
    server = UvicornServer(config)
    server.on_ready = on_ready
    return server
