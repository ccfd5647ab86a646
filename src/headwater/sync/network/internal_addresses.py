"""Protection against requests to internal addresses (SSRF): none further inside than the source itself (DST-S12).

What a source lists, links to or redirects to must not make a destination ask services that only the destination can
reach. Names are no protection, because whoever owns one says where it leads; so it is the address that counts, asked
before each connection. Hosts that the user has named may be anywhere, but none that was seen in public may be found
inside later (DNS rebinding), be it in a later run.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from urllib.parse import urlsplit

from headwater.address_levels import Level, level_of, literal_address

Place = tuple[str, int]
"""A host or an address, and a port."""

_PROXIES = ("http_proxy", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY")


def addresses_of(host: str) -> list[str]:
    """The addresses of a host by name; empty where there are none."""
    try:
        return [str(found[4][0]) for found in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)]
    except (OSError, UnicodeError):
        return []


def proxy_places(given: str | None = None) -> Iterator[Place]:
    """The proxy that was given and those of the environment, by which whatever they reach is reached."""
    for said in (given, *map(os.environ.get, _PROXIES)):
        with suppress(ValueError):  # what is no address libcurl will refuse
            parts = urlsplit(said if said and "://" in said else f"http://{said or ''}")
            if parts.hostname:
                yield parts.hostname, parts.port or (443 if parts.scheme.lower() == "https" else 1080)


class AddressGuard:
    """Judges every address before it is connected to. `source` is the host whose level is the bound, None: no bound."""

    def __init__(
        self,
        source: str | None,
        named: Iterable[str] = (),
        *,
        level: Callable[[str], Level] = level_of,
        resolve: Callable[[str], list[str]] = addresses_of,
        proxies: Callable[[], Iterable[Place]] = proxy_places,
    ) -> None:
        self._source = source
        self._allowed = frozenset(named)
        self._level = level
        self._resolve = resolve
        self._proxies = proxies
        self._proxy_addresses: set[Place] | None = None
        self._outermost: dict[str, Level] = {}

    def was_public(self, host: str | None) -> None:
        """This host was seen in public by an earlier run; only where the user names it anew it may be inside now."""
        if host is not None and host == self._source and host not in self._allowed:
            self._outermost[host] = Level.PUBLIC

    @property
    def source_in_public(self) -> str | None:
        """The source's host, if it was seen in public."""
        return self._source if self._outermost.get(self._source or "") is Level.PUBLIC else None

    @property
    def source_is_near(self) -> bool:
        """Whether the source's host was seen, and on this machine or in its private networks alone."""
        return self._outermost.get(self._source or "", Level.PUBLIC) is not Level.PUBLIC

    def objection(self, host: str, address: str, port: int) -> str | None:
        """Why this host is not connected to at this address and port; None: it is.

        A proxy's own place is none of the host's; other ports of its address are.
        """
        if self._source is None or (address, port) in self._of_proxies():
            return None
        return self._judged(host, address)

    def _judged(self, host: str, address: str) -> str | None:
        level = self._level(address)
        if self._is_named(host):
            self._outermost[host] = min(level, self._outermost.get(host, level))
        if level is Level.PUBLIC or level <= self._bound(host):
            return None
        told = "an address of this machine or link" if level is Level.LOCAL else "a private address"
        why = "had a public address before" if self._is_named(host) else "the source is not"
        return f"{host} is at {address}, {told}, and {why}: --allow-host {host} allows it"

    def _is_named(self, host: str) -> bool:
        return host == self._source or host in self._allowed

    def literal_objection(self, host: str) -> str | None:
        """The same of a host that is an address itself, or `localhost`: where a proxy connects, nothing else can be."""
        if self._source is None or not self._of_proxies():
            return None
        address = literal_address(host)
        return self._judged(host, address) if address is not None else None

    def _bound(self, host: str) -> Level:
        if self._is_named(host):
            return Level.PUBLIC if self._outermost.get(host) is Level.PUBLIC else Level.LOCAL
        assert self._source is not None
        if self._source not in self._outermost:
            levels = [self._level(address) for address in self._resolve(self._source)]
            if not levels:
                return Level.PUBLIC  # nobody knows: the narrower bound
            self._outermost[self._source] = min(levels)
        return self._outermost[self._source]

    def _of_proxies(self) -> set[Place]:
        if self._proxy_addresses is None:
            found = ((address, port) for host, port in self._proxies() for address in self._resolve(host))
            self._proxy_addresses = set(found)
        return self._proxy_addresses
