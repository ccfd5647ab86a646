"""The hub of `headwater serve` (`[hub]`, `--hub`): in a thread of its process, at an address of its own."""

from __future__ import annotations

import ipaddress
import secrets
import socket
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from headwater.errors import UsageFault
from headwater.http.hub import HubServer, HubSetup
from headwater.http.server import AddressInUse, address_url, listen
from headwater.source.hub_config import LOOPBACK, HubConfig, NotifyConfig

if TYPE_CHECKING:
    from types import TracebackType

    from headwater.cli.server_log import ServerLog
    from headwater.source.config import SourceConfig

_NEXT_PORT = "--hub takes the port after that of the source: stop the other program, or choose another --port."
_FOLDER = "hub"
"""Below the source's state folder."""


class OwnHub:
    """A context manager: the hub works within it. Without a `[notify]` table, the source tells this hub alone."""

    def __init__(self, table: HubConfig, config: SourceConfig, log: ServerLog, *, quiet: bool) -> None:
        self._listener = _listener_of(table, None if config.hub is not None else _NEXT_PORT)
        options = table.options(address_url(self._listener))
        self.url = options.url
        self._log = log
        self._table = table
        self._token = None if config.notify is not None else secrets.token_hex(32)
        given = table.tokens()
        self._believed = _believed(is_own=self._token is not None, has_tokens=not given.is_empty)
        setup = HubSetup(
            folder=Path(table.state or Path(config.state) / _FOLDER).absolute(),
            options=options,
            addresses=table.addresses,
            tokens=table.tokens([self._token]) if self._token is not None else given,
            proxies=table.proxies,
            on_fault=log.fault,
            on_topic_fault=lambda topic, text: log.event("topic", f"{topic}: {text}", topic=topic),
            on_served=None if quiet else log.served,
        )
        self._server = HubServer(setup, self._listener)

    def configured(self, config: SourceConfig) -> SourceConfig:
        """The configuration of a source that tells this hub, unless it says whom it tells."""
        if self._token is None or config.notify is not None:
            return config
        notify = NotifyConfig(hubs=(self.url,), token=self._token, authorities=self._table.authorities)
        return msgspec.structs.replace(config, notify=notify)

    def __enter__(self) -> OwnHub:
        try:
            self._server.start()
        except BaseException:
            self._listener.close()
            raise
        text = f"Hub at {self.url}: it believes {self._believed}, and delivers to {self._table.receivers}"
        self._log.event("hub", text, url=self.url)
        return self

    def __exit__(self, *_error: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._server.stop()
        self._listener.close()


def _believed(*, is_own: bool, has_tokens: bool) -> str:
    """Which publishers the hub believes, in words; `is_own`: the source tells it alone."""
    if is_own:
        return "this source, and publishers with its token" if has_tokens else "this source alone"
    return "publishers with its token, or whose topics name it" if has_tokens else "publishers whose topics name it"


def _listener_of(table: HubConfig, advice: str | None) -> socket.socket:
    """The socket of the hub. Raises AddressInUse, which says that it is the hub's."""
    try:
        return listen(*table.address)
    except AddressInUse as fault:
        raise AddressInUse(f"the hub: {fault.what}", where=fault.where, advice=advice or fault.todo) from fault


def one_machine(config: SourceConfig, listener: socket.socket) -> HubConfig:
    """The hub of `--hub`: at the port after the source's, for subscribers on this machine. Raises UsageFault."""
    if not _is_loopback(config.host):
        raise UsageFault(
            f"--hub is for one machine, and others reach {config.host or 'every address'}",
            advice="Write a [hub] table into a CONFIG file, with the addresses that it may deliver to.",
        )
    port = listener.getsockname()[1] + 1 if config.port else 0
    host = f"[{config.host}]" if ":" in config.host else config.host
    return HubConfig(listen=f"{host}:{port}", allow_private=LOOPBACK)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
