"""How hubs and topics are reached by a subscriber: by which proxy, with which credentials, and at which addresses."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterable, Sequence
from typing import Final

import msgspec

from headwater.address_levels import Level, level_of
from headwater.notify.http_client import HttpProxy, OriginCredentials, check_authorities, read_proxy
from headwater.spec import uris
from headwater.sync.connection import credentials_of, proxy_for
from headwater.sync.run import SyncTask


class HubAccess(msgspec.Struct, frozen=True):
    """Authorities to trust besides, the proxy by scheme and host, and credentials by origin."""

    authorities: str | None
    proxy_for: Callable[[str, str], HttpProxy | None]
    credentials: dict[uris.Origin, OriginCredentials]


def hub_access(tasks: Sequence[SyncTask]) -> HubAccess:
    """What the options of these copies come to. Raises UsageFault, also for a proxy that cannot be used."""
    options = tasks[0].options

    def proxy(scheme: str, host: str) -> HttpProxy | None:
        named = proxy_for(scheme, host, options.proxy)
        return None if named is None else read_proxy(named)

    for scheme in ("http", "https"):
        proxy(scheme, "hub.invalid")  # one that cannot be used is told at the start, not at each request
    check_authorities(options.ca)
    return HubAccess(options.ca, proxy, _credentials(tasks))


def _credentials(tasks: Sequence[SyncTask]) -> dict[uris.Origin, OriginCredentials]:
    """The credentials of each copy's source, for its origin; of several copies of one origin those of the first."""
    found: dict[uris.Origin, OriginCredentials] = {}
    for task in tasks:
        known = credentials_of(task.url, task.options)
        if known is not None:
            head = b"".join(line + b"\r\n" for line in known.lines(set()))
            own = OriginCredentials(head, known.certificate, known.key)
            found.setdefault(uris.origin(known.origin), own)
    return found


_AGAIN_SECONDS: Final = 30.0


def _addresses_at(host: str) -> list[str]:
    """The addresses of a host; none while it cannot be looked up."""
    try:
        return [str(one[4][0]) for one in socket.getaddrinfo(host.strip("[]"), None, type=socket.SOCK_STREAM)]
    except (OSError, UnicodeError):
        return []


class HubAddresses:
    """Judges addresses by those of the sources (their URLs) and of hosts that the user allows (`--allow-host`)."""

    def __init__(
        self, sources: Iterable[str], named: Iterable[str], look_up: Callable[[str], list[str]] = _addresses_at
    ) -> None:
        self._unknown = dict.fromkeys(named, True) | {uris.origin(url).host: False for url in sources}
        self._look_up = look_up
        self._bound = Level.PUBLIC
        self._allowed: set[str] = set()

    def objection(self, address: str) -> str | None:
        """Why an address is not connected to; None: it is."""
        if level_of(address) <= self._bound or address in self._allowed:
            return None
        return f"{address} is further inside than the source is: --allow-host with the hub's host allows it"

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
