"""The callbacks of a subscriber: the server that takes deliveries, in a thread with an event loop of its own."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import Callable, Iterable
from typing import Final

from headwater.errors import HeadwaterError, bug
from headwater.http import responses
from headwater.http.hub_access import HubAccess, HubAddresses
from headwater.http.requests import Receive, Scope, header, read_body
from headwater.http.responses import CLOSE, Response, Send, line
from headwater.http.server import ServerLimits, UvicornServer, event_loop, make_server
from headwater.notify.http_client import HttpClient
from headwater.notify.hub.requests import RequestRefusal
from headwater.notify.subscriber.answers import PAYLOAD_OCTETS, TOO_LONG, read_intent
from headwater.notify.subscriber.store import NotificationChannel
from headwater.notify.subscriber.subscriber import USER_AGENT, SubscribedCopy, Subscriber

_BODIES_OCTETS: Final = 128 << 20
"""Of deliveries under way, together."""

_HEAD: Final = line(b"cache-control", b"no-store")


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
            response = responses.text(503, f"a fault of the subscriber's own store [{fault.code}]", _HEAD + CLOSE)
        except Exception as error:  # noqa: BLE001 - what is not told here is never heard of
            self._on_fault(bug(error))
            response = responses.bug(_HEAD + CLOSE)
        await send(response.message(response.content()))

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
            return responses.text(early.status, early.fault or "", _HEAD + CLOSE)
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
            return responses.text(body.status, body.text, _HEAD + CLOSE)
        signed = (header(scope, b"x-hub-signature") or b"").decode("latin-1")
        links = (header(scope, b"link") or b"").decode("latin-1")
        judged = await self._subscriber.deliver(token, body, signed=signed, links=links)
        self._is_refusing = False
        if judged.status == 503:
            return responses.text(503, judged.fault or "", _HEAD + line(b"retry-after", b"5"))
        return responses.text(judged.status, "received" if judged.status == 202 else judged.fault or "", _HEAD)


_START_SECONDS: Final = 30.0
_LIMITS: Final = ServerLimits(head_seconds=10.0, connections=500, shutdown_seconds=3)


class CallbackListener:
    """Listens for hubs while it is entered. `callbacks` is what hubs are told that callbacks begin with."""

    def __init__(
        self,
        listening: socket.socket,
        callbacks: str,
        addresses: HubAddresses,
        access: HubAccess,
        on_fault: Callable[[HeadwaterError], None] = lambda _fault: None,
    ) -> None:
        """`addresses` says where hubs and topics may be, `access` how they are asked. `on_fault` hears of bugs that
        requests have met, in the thread of the listener.
        """
        self._listening = listening
        self._callbacks = callbacks
        self._access = access
        self._addresses = addresses
        self._on_fault = on_fault
        self._server: UvicornServer | None = None
        self._subscriber: Subscriber | None = None
        self._ready = threading.Event()
        self._fault: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="callbacks", daemon=True)

    def __enter__(self) -> CallbackListener:
        self._thread.start()
        self._ready.wait(_START_SECONDS)
        if self._fault is not None:
            raise self._fault
        return self

    def __exit__(self, *_: object) -> None:
        if self._server is not None:
            self._server.end()
        self._thread.join(_START_SECONDS)

    @property
    def is_alive(self) -> bool:
        """Whether it still listens."""
        return self._thread.is_alive()

    def add(self, copy: SubscribedCopy) -> None:
        """Take up a copy, before `want`."""
        if self._subscriber is not None:
            self._subscriber.add(copy)

    def all_added(self) -> None:
        """All copies are taken up: other callbacks are nobody's, which ends their subscriptions (WS-S-10, WS-H-13)."""
        if self._subscriber is not None:
            self._subscriber.all_added()

    def want(self, copy: SubscribedCopy, channels: Iterable[NotificationChannel]) -> None:
        """Subscribe to these channels of a copy and to no others."""
        if self._subscriber is not None and self.is_alive:
            self._subscriber.want(copy, channels)

    def _run(self) -> None:
        try:
            with asyncio.Runner(loop_factory=event_loop()) as runner:
                runner.run(self._main())
        except BaseException as fault:  # noqa: BLE001  told to who enters
            self._fault = fault
        finally:
            self._ready.set()

    async def _main(self) -> None:
        await asyncio.to_thread(self._addresses.look)
        client = HttpClient(
            self._addresses.objection,
            authorities=self._access.authorities,
            user_agent=USER_AGENT,
            proxy_for=self._access.proxy_for,
            credentials=self._access.credentials,
        )
        self._subscriber = Subscriber(client, self._callbacks)
        app = CallbackApplication(self._subscriber, self._on_fault)
        self._server = make_server(app, _LIMITS, self._ready.set)
        work = asyncio.ensure_future(self._subscriber.run())
        looking = asyncio.ensure_future(self._addresses.keep_looking())
        try:
            await self._server.serve(sockets=[self._listening])
        finally:
            for task in (work, looking):
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await task
            client.close()
