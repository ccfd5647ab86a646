"""The fast path: small responses for which everything is at hand are written in the parser's callback.

A task, two messages and two writes would cost more than such a response. Nobody can tell it from one that the
application has sent: `tests/http/test_fast_path.py` compares them.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

from headwater.http.access_record import access_record, request_target
from headwater.http.app import Application
from headwater.http.resources.contents import SMALL_OCTETS
from headwater.http.responses import RequestFields, Response
from headwater.http.routes import NoMatch
from headwater.http.server.uvicorn_server import STATUS_LINE, BoundedProtocol

IS_ON = True
"""Whether it is used: tests and measurements do without."""


def response_at_hand(
    app: Application, target: bytes, headers: Sequence[tuple[bytes, bytes]], client: str
) -> Response | None:
    """The response to a GET, whole and small, when everything for it is at hand; None when the application is to do it.

    `target` is as in the request line. The response counts as sent.
    """
    began = time.perf_counter()
    path, _, query = target.partition(b"?")
    if b"#" in target or not target.isascii():
        return None
    try:
        fields = RequestFields.read(headers)
        if fields.has_body:
            return None
        match = app.routes.find(path)
        if isinstance(match, NoMatch) or (route := match.methods.get("GET")) is None or route.at_hand is None:
            return None
        response = route.at_hand(match, fields)
    except Exception:  # noqa: BLE001  the application meets it again, and says so
        return None
    if response is None:
        return None
    if response.file is not None:
        response.file.close()
        return None
    if response.octets > SMALL_OCTETS:
        return None
    if app.on_served is not None:
        app.on_served(access_record(client, "GET", request_target(path, query), response, began, complete=True))
    return response


class FastProtocol(BoundedProtocol):
    """One connection on which what is at hand is answered at once, and all else by the application."""

    app: Application
    answered_at: float | None = None
    """When the last response was written at once, by the loop's clock; None after one by the application."""
    idle: asyncio.TimerHandle | None = None
    has_given_way = False
    """Whether it has given way to what is announced in this turn, of many requests maybe."""

    def take_turn(self) -> None:
        """Answer requests that have come."""
        self.has_given_way = False
        super().take_turn()

    def connection_lost(self, exc: Exception | None) -> None:
        """End: no timer is left."""
        if self.idle is not None:
            self.idle.cancel()
        super().connection_lost(exc)

    def on_message_begin(self) -> None:
        """A request begins; what uvicorn wants to know of it is gathered when the application has to answer it."""
        self.begin_head()
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

    def hand_over(self) -> None:
        """Answer the request at once, or hand it to the application."""
        client = self.client[0] if self.client else "-"
        response = response_at_hand(self.app, self.url, self.headers, client) if self.is_plain() else None
        if response is None:
            self.hand_to_application()
            return
        self.ignored = True
        own = b"".join(map(_line, self.server_state.default_headers))
        self.transport.write(b"".join((STATUS_LINE[response.status], own, response.head, b"\r\n", response.content())))
        self.server_state.total_requests += 1
        self.answered_at = self.loop.time()
        if not self.has_given_way:
            self.has_given_way = True
            self.app.precedence.give_way()
        if self.idle is None:
            self.idle = self.loop.call_later(self.limits.idle_seconds, self.too_idle)

    def hand_to_application(self) -> None:
        """Gather what uvicorn wants to know of the request, and hand it over."""
        self.answered_at = None
        url, headers, expects = self.url, self.headers, self.expect_100_continue
        super(BoundedProtocol, self).on_message_begin()
        self.url, self.expect_100_continue = url, expects
        self.headers.extend(headers)  # the very list that uvicorn has put into the scope
        super().hand_over()

    def is_plain(self) -> bool:
        """Whether the request is a usual GET, on a connection that has room for its response at this moment."""
        parser, cycle, most = self.parser, self.cycle, self.limits.connections
        return (
            parser.get_method() == b"GET"
            and parser.get_http_version() == "1.1"
            and parser.should_keep_alive()
            and not self.expect_100_continue
            and (cycle is None or cycle.response_complete)
            and not self.is_last
            and not self.flow.write_paused
            and not self.transport.is_closing()
            and len(self.connections) < most
            and len(self.tasks) < most
        )

    def too_idle(self) -> None:
        """Close a connection that has asked nothing since it was answered at once; uvicorn sees to the others."""
        self.idle = None
        if self.rest:  # its next answer waits for us, or for its reader, whose time is bounded
            self.idle = self.loop.call_later(self.limits.idle_seconds, self.too_idle)
            return
        if self.answered_at is None or self.in_head or self.transport.is_closing():
            return
        left = self.answered_at + self.limits.idle_seconds - self.loop.time()
        if left > 0:
            self.idle = self.loop.call_later(left, self.too_idle)
        else:
            self.transport.close()


def _line(header: tuple[bytes, bytes]) -> bytes:
    return b"%s: %s\r\n" % header
