"""Trusted reverse proxies: whose word `X-Forwarded-For` is taken for, and which client it names. Pure."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Sequence
from typing import Final

from headwater.errors import UsageFault

_FIELD: Final = b"x-forwarded-for"
_OCTETS: Final = 8_192
_MOST: Final = 32
"""Of what a field names, so many are looked at from the right: more proxies stand in no row."""


class TrustedProxies:
    """The networks of proxies; with none of them every client is who connects. Raises UsageFault."""

    def __init__(self, networks: Iterable[str] = ()) -> None:
        try:
            self._networks = tuple(ipaddress.ip_network(text, strict=False) for text in networks)
        except ValueError as cause:
            raise UsageFault(f"no address and no network: {cause}", code="HW-HUB-01") from cause

    def client(self, peer: str, headers: Sequence[tuple[bytes, bytes]]) -> str:
        """The address of the client of a request that came from `peer`.

        Each proxy appends whom it was asked by, so that the right-most address that is no trusted proxy is the client;
        what stands left of it is the client's own word, and not looked at. Where a proxy has written no address, it is
        the client itself.
        """
        if not self._networks or not self._is_trusted(peer):
            return peer
        told = b",".join(value for name, value in headers if name.lower() == _FIELD)
        client = peer
        for part in reversed(told[-_OCTETS:].rsplit(b",", _MOST)[-_MOST:]):
            address = _address(part)
            if address is None:
                break
            client = address
            if not self._is_trusted(address):
                break
        return client

    def _is_trusted(self, address: str) -> bool:
        try:
            ip = ipaddress.ip_address(address.partition("%")[0])
        except ValueError:
            return False
        if isinstance(ip, ipaddress.IPv6Address) and ip.ipv4_mapped is not None:
            ip = ip.ipv4_mapped
        return any(ip in network for network in self._networks)


def _address(part: bytes) -> str | None:
    """The address that a part of the field is, with or without a port; None: it is none."""
    text = part.strip(b" \t").decode("latin-1")
    if text.startswith("["):
        text = text[1:].partition("]")[0]
    elif text.count(":") == 1:
        text = text.partition(":")[0]
    try:
        return str(ipaddress.ip_address(text.partition("%")[0]))
    except ValueError:
        return None
