"""Where hubs and topics may be: at no address further inside than the sources, or than the user has named (DST-S12)."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterable
from typing import Final

from headwater.address_levels import Level, level_of
from headwater.spec import uris

_AGAIN_SECONDS: Final = 30.0


def addresses_at(host: str) -> list[str]:
    """The addresses of a host; none while it cannot be looked up."""
    try:
        return [str(one[4][0]) for one in socket.getaddrinfo(host.strip("[]"), None, type=socket.SOCK_STREAM)]
    except (OSError, UnicodeError):
        return []


class HubAddresses:
    """Judges addresses by those of the sources (their URLs) and of hosts that the user allows (`--allow-host`)."""

    def __init__(
        self, sources: Iterable[str], named: Iterable[str], look_up: Callable[[str], list[str]] = addresses_at
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
