"""Runs a hub behind its server: as the whole work of a process, or in a thread beside other work."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable
from pathlib import Path

import msgspec

from headwater.errors import HeadwaterError
from headwater.http.access_record import AccessRecord
from headwater.http.hub.app import HubApplication
from headwater.http.hub.endpoint import HubEndpoint
from headwater.http.server.server import make_server
from headwater.http.server.uvicorn_server import UvicornServer, event_loop
from headwater.notify.hub.context import HubOptions
from headwater.notify.hub.hub import Hub
from headwater.notify.hub.policy import AddressPolicy
from headwater.notify.hub.trusted_proxies import TrustedProxies
from headwater.source.tokens import AccessTokens


def _ignore(*_about: object) -> None:
    pass


class HubSetup(msgspec.Struct, frozen=True, kw_only=True):
    """A hub before it works: its state folder, what it is told and allows, whom it believes, and who hears of it."""

    folder: Path
    options: HubOptions
    addresses: AddressPolicy
    tokens: AccessTokens
    proxies: TrustedProxies = TrustedProxies()
    on_fault: Callable[[HeadwaterError], None] = _ignore
    on_topic_fault: Callable[[str, str], None] = _ignore
    on_served: Callable[[AccessRecord], None] | None = None


class HubServer:
    """Serves one hub on a listening socket."""

    def __init__(self, setup: HubSetup, listener: socket.socket) -> None:
        self._setup = setup
        self._listener = listener
        self._server: UvicornServer | None = None
        self._thread: threading.Thread | None = None
        self._is_ready = threading.Event()
        self._failure: BaseException | None = None

    def run(self, on_ready: Callable[[], None] = _ignore) -> UvicornServer:
        """Serve until a signal, or until `stop`; returns the server that has ended. Raises the hub's faults."""
        with asyncio.Runner(loop_factory=event_loop()) as runner:
            return runner.run(self._serve(on_ready))

    def start(self) -> None:
        """Serve in a thread from now on. Raises the hub's faults when it cannot begin."""
        self._thread = threading.Thread(target=self._run, name="headwater-hub", daemon=True)
        self._thread.start()
        self._is_ready.wait()
        if self._failure is not None:
            raise self._failure

    def stop(self) -> None:
        """End gracefully, and wait for it; what the hub has promised goes on when it is started again."""
        if self._server is not None:
            self._server.end()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        try:
            self.run(self._is_ready.set)
        except BaseException as failure:
            self._failure = failure  # `start` raises it in the thread that waits
            if not self._is_ready.is_set():
                return
            if not isinstance(failure, HeadwaterError):
                raise
            self._setup.on_fault(failure)
        finally:
            self._is_ready.set()

    async def _serve(self, on_ready: Callable[[], None]) -> UvicornServer:
        setup = self._setup
        hub = Hub(
            setup.folder,
            setup.options,
            setup.addresses,
            on_fault=setup.on_fault,
            on_topic_fault=setup.on_topic_fault,
        )
        try:
            hub.start()
            endpoint = HubEndpoint(hub, setup.tokens, on_fault=setup.on_fault)
            app = HubApplication(hub, endpoint, setup.on_served, setup.proxies, setup.on_fault)
            self._server = make_server(app, on_ready=on_ready)
            await self._server.serve(sockets=[self._listener])
        finally:
            await hub.close()
        return self._server
