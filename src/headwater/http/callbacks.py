"""The callbacks of a subscriber: the server that takes deliveries, in a thread with an event loop of its own.

Hubs and topics are reached by the proxies, with the credentials and at the addresses that the options of copies say.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from typing import Final

from headwater.errors import HeadwaterError, StoreFault
from headwater.http import responses
from headwater.http.requests import Receive, Scope, header, read_body
from headwater.http.responses import CLOSE, Response, Send, line
from headwater.http.server import MakeServer, ServerLimits, ServerThread
from headwater.notify.http_client import HttpClient, HttpProxy, read_proxy
from headwater.notify.hub.policy import ClientShares, RequestRefusal
from headwater.notify.subscriber import USER_AGENT, Subscriber
from headwater.notify.subscriber_hubs import GONE, PAYLOAD_OCTETS, read_intent
from headwater.spec import uris
from headwater.sync.connection import bare_host, credentials_of, proxy_for
from headwater.sync.run import SyncTask
from headwater.transport.access import Level, addresses_of, check_authorities, level_of

_BODIES: Final = ClientShares(256 << 20, 128 << 20)  # octets of deliveries under way: in a process, to a subscriber

_HEAD: Final = line(b"cache-control", b"no-store")


class CallbackApplication:
    """Answers for one subscriber; `on_fault` hears of bugs, and once of a store that takes no delivery until one is."""

    def __init__(self, subscriber: Subscriber, on_fault: Callable[[HeadwaterError], None]) -> None:
        self._subscriber = subscriber
        self._on_fault = on_fault
        self._is_refusing = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        try:
            response = await self._respond(scope, receive)
        except Exception as error:  # noqa: BLE001 - what is not told here is never heard of
            response = responses.failed(error, self._told, _HEAD)
        await send(response.message(response.content()))

    def _told(self, fault: HeadwaterError) -> None:
        if not (self._is_refusing and isinstance(fault, StoreFault)):
            self._on_fault(fault)
        self._is_refusing = self._is_refusing or isinstance(fault, StoreFault)

    async def _respond(self, scope: Scope, receive: Receive) -> Response:
        if (
            not self._subscriber.has_all_copies.is_set()
        ):  # 410 would end subscriptions of copies that are not taken up yet
            return responses.text(503, "the process is starting: try again", _HEAD + line(b"retry-after", b"1"))
        token = scope["raw_path"].rpartition(b"/")[2].decode("latin-1")
        if scope["method"] == "GET":
            told = await self._subscriber.verify(token, read_intent(scope.get("query_string", b"")))
            return responses.data(told.status, told.body, b"text/plain; charset=utf-8", _HEAD)
        if scope["method"] == "POST":
            return await self._delivered(token, scope, receive)
        return responses.text(405, "this address accepts only GET and POST", line(b"allow", b"GET, POST") + _HEAD)

    async def _delivered(self, token: str, scope: Scope, receive: Receive) -> Response:
        if self._subscriber.is_gone(token):
            return responses.text(GONE.status, GONE.fault or "", _HEAD + CLOSE)
        with _BODIES.growing(str(id(self))) as has_room:
            body = await read_body(scope, receive, PAYLOAD_OCTETS, has_room)
        if isinstance(body, RequestRefusal):
            self._subscriber.not_taken(token, body)
            return responses.text(body.status, body.text, _HEAD + CLOSE)
        signed = (header(scope, b"x-hub-signature") or b"").decode("latin-1")
        links = (header(scope, b"link") or b"").decode("latin-1")
        judged = await self._subscriber.deliver(token, body, signed=signed, links=links)
        self._is_refusing = False
        if judged.status == 503:
            return responses.text(503, judged.fault or "", _HEAD + line(b"retry-after", b"5"))
        return responses.text(judged.status, "received" if judged.status == 202 else judged.fault or "", _HEAD)


def _client(tasks: Sequence[SyncTask], addresses: HubAddresses) -> HttpClient:
    """The client that asks hubs and topics as the options of these copies say, and each source with its credentials.

    Of several copies of one origin those of the first. Raises UsageFault, also for a proxy that cannot be used.
    """
    options = tasks[0].options

    def proxy(scheme: str, host: str) -> HttpProxy | None:
        named = proxy_for(scheme, host, options.proxy)
        return None if named is None else read_proxy(named)

    for scheme in ("http", "https"):
        proxy(scheme, "hub.invalid")  # one that cannot be used is told at the start, not at each request
    check_authorities(options.ca)
    known = (credentials_of(task.url, task.options) for task in reversed(tasks))
    return HttpClient(
        addresses.objection,
        authorities=options.ca,
        user_agent=USER_AGENT,
        proxy_for=proxy,
        credentials={uris.origin(one.origin): one for one in known if one is not None},
    )


_AGAIN_SECONDS: Final = 30.0


class HubAddresses:
    """Judges addresses by those of the sources (their URLs) and of hosts that the user allows (`--allow-host`)."""

    def __init__(
        self, sources: Iterable[str], named: Iterable[str], look_up: Callable[[str], list[str]] = addresses_of
    ) -> None:
        self._unknown = dict.fromkeys(named, True) | {uris.origin(url).host: False for url in sources}
        self._look_up = look_up
        self._bound = Level.PUBLIC
        self._allowed: set[str] = set()

    def objection(self, address: str) -> str | None:
        """Why an address is not connected to; None: it is."""
        if level_of(address) <= self._bound or address in self._allowed:
            return None
        return f"{address} is a private address, and the source's is not: --allow-host with the hub's host allows it"

    def look(self) -> bool:
        """Look up what is not known yet; whether everything is by now."""
        for host, is_named in list(self._unknown.items()):
            if found := self._look_up(host):
                del self._unknown[host]
                if is_named:
                    self._allowed.update(found)
                else:
                    self._bound = max([self._bound, *map(level_of, found)])
        return not self._unknown

    async def keep_looking(self) -> None:
        """Look up again and again what could not be found."""
        while not await asyncio.to_thread(self.look):
            await asyncio.sleep(_AGAIN_SECONDS)


_END_SECONDS: Final = 30.0
_LIMITS: Final = ServerLimits(head_seconds=10.0, connections=500, shutdown_seconds=3)


class CallbackListener:
    """Listens for the hubs of these copies while it is entered."""

    def __init__(
        self,
        tasks: Sequence[SyncTask],
        listening: list[socket.socket],
        callbacks: str,
        on_fault: Callable[[HeadwaterError], None],
    ) -> None:
        """`callbacks` is what hubs are told that callbacks begin with. `on_fault` hears of bugs that requests have met,
        in the thread of the listener. Raises UsageFault for options by which no hub can be asked.
        """
        self._listening = listening
        self._callbacks = callbacks
        named = [bare_host(host) for task in tasks for host in task.options.allow_hosts]
        self._addresses = HubAddresses([task.url for task in tasks], named)
        self._client = _client(tasks, self._addresses)
        self._on_fault = on_fault
        self.subscriber: Subscriber  # once it is entered
        self._thread = ServerThread("callbacks", self._serve, on_fault)

    def __enter__(self) -> CallbackListener:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.stop(_END_SECONDS)

    @property
    def is_alive(self) -> bool:
        """Whether it still listens."""
        return self._thread.is_alive

    async def _serve(self, make_server: MakeServer) -> None:
        async with self.at_work() as app:
            await make_server(app, _LIMITS).serve(sockets=self._listening)

    @contextlib.asynccontextmanager
    async def at_work(self) -> AsyncIterator[CallbackApplication]:
        """What answers hubs in this event loop, whoever listens there, while the subscriber is at work."""
        await asyncio.to_thread(self._addresses.look)
        self.subscriber = Subscriber(self._client, self._callbacks)
        work = asyncio.ensure_future(self.subscriber.run())
        looking = asyncio.ensure_future(self._addresses.keep_looking())
        try:
            yield CallbackApplication(self.subscriber, self._on_fault)
        finally:
            for task in (work, looking):
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await task
            self._client.close()
