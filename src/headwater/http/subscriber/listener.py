"""The listener: the server of a subscriber's callbacks and its requests to hubs, in a thread with an event loop."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import Callable, Iterable
from typing import Final

from headwater.errors import HeadwaterError
from headwater.http.server.server import make_server
from headwater.http.server.uvicorn_server import ServerLimits, UvicornServer, event_loop
from headwater.http.subscriber.app import CallbackApplication
from headwater.http.subscriber.hub_access import HubAccess
from headwater.http.subscriber.hub_addresses import HubAddresses
from headwater.notify.http_client import HttpClient
from headwater.notify.subscriber.records import NotificationChannel
from headwater.notify.subscriber.subscribed_copy import SubscribedCopy
from headwater.notify.subscriber.subscriber import USER_AGENT, Subscriber

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

    def renew(self, copy: SubscribedCopy, channel: str) -> None:
        """Ask the hubs of a channel anew."""
        if self._subscriber is not None and self.is_alive:
            self._subscriber.renew(copy, channel)

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
