"""The callbacks of a subscriber as a bare ASGI application: a path that ends with a subscription's token, GET and POST.

GET verifies intent, POST delivers. The prefix of the path is not looked at: a reverse proxy may have taken it away.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Final

from headwater.errors import HeadwaterError, bug
from headwater.http import responses
from headwater.http.request_body import header, read_body
from headwater.http.responses import Response, line
from headwater.http.routes import Receive, Scope
from headwater.notify.hub.requests import RequestRefusal
from headwater.notify.subscriber.deliveries import PAYLOAD_OCTETS, TOO_LONG
from headwater.notify.subscriber.intents import read_intent
from headwater.notify.subscriber.subscriber import Subscriber

Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

_BODIES_OCTETS: Final = 128 << 20
"""Of deliveries under way, together."""

_HEAD: Final = line(b"cache-control", b"no-store")
_CLOSE: Final = line(b"connection", b"close")


class CallbackApplication:
    """Answers for one subscriber; `on_fault` hears of bugs, and once of a store that takes no delivery until one is."""

    def __init__(self, subscriber: Subscriber, on_fault: Callable[[HeadwaterError], None]) -> None:
        self._subscriber = subscriber
        self._on_fault = on_fault
        self._octets = 0
        self._is_refusing = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            raise RuntimeError(f"only http is spoken here, not {scope['type']}")
        try:
            response = await self._respond(scope, receive)
        except HeadwaterError as fault:
            if not self._is_refusing:
                self._is_refusing = True
                self._on_fault(fault)
            response = responses.text(503, f"a fault of the subscriber's own store [{fault.code}]", _HEAD + _CLOSE)
        except Exception as error:  # noqa: BLE001 - what is not told here is never heard of
            self._on_fault(bug(error))
            response = responses.bug(_HEAD + _CLOSE)
        await send({"type": "http.response.start", "status": response.status, "headers": response.head})
        body = b"" if scope["method"] == "HEAD" else response.content()
        await send({"type": "http.response.body", "body": body})

    async def _respond(self, scope: Scope, receive: Receive) -> Response:
        if not self._subscriber.has_all_copies:  # 410 would end subscriptions of copies that are not taken up yet
            return responses.text(503, "the process starts: come again", _HEAD + line(b"retry-after", b"1"))
        token = scope["raw_path"].rpartition(b"/")[2].decode("latin-1")
        if scope["method"] == "GET":
            told = await self._subscriber.verify(token, read_intent(scope.get("query_string", b"")))
            return responses.data(told.status, told.body, b"text/plain; charset=utf-8", _HEAD)
        if scope["method"] == "POST":
            return await self._delivered(token, scope, receive)
        return responses.text(405, "only GET and POST are understood here", line(b"allow", b"GET, POST") + _HEAD)

    async def _delivered(self, token: str, scope: Scope, receive: Receive) -> Response:
        stated = header(scope, b"content-length")
        length = int(stated) if stated is not None and stated.isdigit() and len(stated) < 19 else None
        early = self._subscriber.early(token, length)
        if early is not None:
            return responses.text(early.status, early.fault or "", _HEAD + _CLOSE)
        taken = 0

        def has_room(octets: int) -> bool:
            nonlocal taken
            taken += octets
            self._octets += octets
            return self._octets <= _BODIES_OCTETS

        try:
            body = await read_body(scope, receive, PAYLOAD_OCTETS, has_room)
        finally:
            self._octets -= taken
        if isinstance(body, RequestRefusal):
            if body.status == TOO_LONG.status:
                self._subscriber.early(token, PAYLOAD_OCTETS + 1)
            return responses.text(body.status, body.text, _HEAD + _CLOSE)
        signed = (header(scope, b"x-hub-signature") or b"").decode("latin-1")
        links = (header(scope, b"link") or b"").decode("latin-1")
        judged = await self._subscriber.deliver(token, body, signed=signed, links=links)
        self._is_refusing = False
        if judged.status == 503:
            return responses.text(503, judged.fault or "", _HEAD + line(b"retry-after", b"5"))
        return responses.text(judged.status, "received" if judged.status == 202 else judged.fault or "", _HEAD)
