"""How far inside an IP address lies: public, in a private network, or on this machine or link; and whose it is."""

from __future__ import annotations

import ipaddress
import socket
from enum import IntEnum
from functools import lru_cache

_NAT64 = ipaddress.ip_network("64:ff9b::/96")
_LOCAL_NAT64 = ipaddress.ip_network("64:ff9b:1::/48")  # RFC 8215: leads to whatever its network makes of it

_CLIENT_BITS = 64
"""What one customer of a network has of IPv6: one client, however many addresses it uses."""


class Level(IntEnum):
    """The network that an address belongs to: public, private, link-local or this machine."""

    PUBLIC = 0
    PRIVATE = 1
    """Not to be reached from everywhere: private networks, shared address space (RFC 6598), documentation."""

    LOCAL = 2
    """This machine or this link: loopback, link-local, unspecified, and what is no address of a host at all."""


@lru_cache(maxsize=1024)
def level_of(address: str) -> Level:
    """The level of an IP address; of an IPv6 address that stands for an IPv4 one, that of the latter."""
    ip = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(ip, ipaddress.IPv6Address):
        inner = ip.ipv4_mapped or ip.sixtofour or (ip.teredo[1] if ip.teredo else None)
        if inner is None and (ip in _NAT64 or int(ip) >> 32 == 0):  # the latter: IPv4-compatible, ::1 and :: among them
            inner = ipaddress.IPv4Address(int(ip) & 0xFFFFFFFF) if int(ip) > 1 else None
        if inner is not None:
            return level_of(str(inner))
        if ip.is_site_local or ip in _LOCAL_NAT64:
            return Level.PRIVATE
    if ip.is_loopback or ip.is_link_local or ip.is_unspecified or ip.is_multicast or int(ip) >> 24 == 0:
        return Level.LOCAL
    return Level.PUBLIC if ip.is_global and not ip.is_reserved else Level.PRIVATE


def literal_address(host: str) -> str | None:
    """The address that a host is itself, in any of the forms that are connected to, or `localhost`; None: a name."""
    if host.rpartition(".")[2].lower() == "localhost":  # of no other machine, whoever is asked (RFC 6761)
        return "127.0.0.1"
    text = host.strip("[]")
    try:
        address = text.partition("%")[0] if ":" in text else socket.inet_ntoa(socket.inet_aton(text))
        return str(ipaddress.ip_address(address))
    except (OSError, ValueError):
        return None


@lru_cache(maxsize=4_096)
def client_network(address: str) -> str:
    """What counts as one client: an IPv4 address, the network of an IPv6 address; a name as it is."""
    try:
        ip = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(ip, ipaddress.IPv4Address):
        return str(ip)
    if ip.ipv4_mapped is not None:
        return str(ip.ipv4_mapped)
    return str(ipaddress.ip_network((int(ip), _CLIENT_BITS), strict=False))
