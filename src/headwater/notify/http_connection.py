"""One connection of the HTTP client: a request and its answer after the other, parsed within bounds."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, cast

import httptools
import msgspec

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


class HttpConnection(asyncio.Protocol):
    """One connection, with one request at a time."""

    def __init__(self, opened: set[HttpConnection]) -> None:
        self._opened = opened
        self._parser = httptools.HttpResponseParser(self)
        self._transport: asyncio.Transport | None = None
        self._answer: asyncio.Future[HttpAnswer | HttpFailure | None] | None = None
        self._bounds = AnswerBounds(seconds=0)
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
        self._has_head = self._is_complete = self._reads_body = False

    async def ask(self, message: tuple[bytes, ...], bounds: AnswerBounds) -> HttpAnswer | HttpFailure | None:
        """Send a request and wait for the answer; None when the connection ended before a single octet came."""
        assert self._transport is not None
        self._clear()
        self._heard = False
        self._came = 0
        self._bounds = bounds
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
        elif self._has_head and not self._reads_body:
            self.is_usable = False  # the rest of the body is not waited for
            self._end(self._whole())
        elif self._came > 2 * (
            _HEAD_OCTETS + self._bounds.max_octets
        ):  # words of 1xx without end, extensions of chunks
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
        self._reads_body = self._has_head and bool(self._bounds.max_octets) and self._bounds.wants_body(self._whole())

    def on_body(self, body: bytes) -> None:
        """Octets of the body."""
        if not self._reads_body:
            return
        self._octets += len(body)
        if self._octets > self._bounds.max_octets:
            raise _AnswerTooLongError(f"the body has more than {self._bounds.max_octets:,} octets")
        if not self._bounds.has_room(len(body)):
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
