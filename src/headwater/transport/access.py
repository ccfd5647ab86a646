"""Who may be asked, and as whom: internal addresses (SSRF), credentials of one origin, authorities, proxies (DST-S12).

What a source lists, links to or redirects to must not make a destination ask services that only the destination can
reach. Names are no protection, because whoever owns one says where it leads; so it is the address that counts, asked
before each connection. Hosts that the user has named may be anywhere, but none that was seen in public may be found
inside later (DNS rebinding), be it in a later run. Whatever is secret goes to the origin it was given for, and to no
other: not where that redirects, not to mirrors (RFC 9110, 11; RFC 7617; RFC 6750)."""

from __future__ import annotations

import ipaddress
import os
import re
import socket
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from enum import IntEnum
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlsplit

import msgspec

from headwater.errors import UsageFault

if TYPE_CHECKING:
    import ssl

# how far inside an address lies, and whose it is

_NAT64 = ipaddress.ip_network("64:ff9b::/96")
_LOCAL_NAT64 = ipaddress.ip_network("64:ff9b:1::/48")  # RFC 8215: leads to whatever its network makes of it

_CLIENT_BITS = 64
"""What one customer of a network has of IPv6: one client, however many addresses it uses."""


class Level(IntEnum):
    """The network that an address belongs to: public, private, link-local or this machine."""

    PUBLIC = 0
    PRIVATE = 1  # not to be reached from everywhere: private networks, shared address space (RFC 6598), documentation
    LOCAL = 2  # this machine or this link: loopback, link-local, unspecified, and what is no address of a host at all


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


# addresses that may be connected to

Place = tuple[str, int]
"""A host or an address, and a port."""

_PROXIES = ("http_proxy", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY")


def addresses_of(host: str) -> list[str]:
    """The addresses of a host by name, each once; empty where there are none."""
    try:
        found = socket.getaddrinfo(host.strip("[]"), None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return []
    return list(dict.fromkeys(str(one[4][0]) for one in found))


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
        level, is_named = self._level(address), host == self._source or host in self._allowed
        if is_named:
            bound = self._outermost[host] = min(level, self._outermost.get(host, level))
            bound = Level.PUBLIC if bound is Level.PUBLIC else Level.LOCAL
        elif level is Level.PUBLIC:
            return None
        else:
            assert self._source is not None
            if self._source not in self._outermost and (found := self._resolve(self._source)):
                self._outermost[self._source] = min(map(self._level, found))
            bound = self._outermost.get(self._source, Level.PUBLIC)  # nobody knows: the narrower bound
        if level <= bound:
            return None
        told = "an address of this machine or link" if level is Level.LOCAL else "a private address"
        why = "had a public address before" if is_named else "the source is not"
        return f"{host} is at {address}, {told}, and {why}: --allow-host {host} allows it"

    def literal_objection(self, host: str) -> str | None:
        """The same of a host that is an address itself, or `localhost`: where a proxy connects, nothing else can be."""
        if self._source is None or not self._of_proxies():
            return None
        address = literal_address(host)
        return self._judged(host, address) if address is not None else None

    def _of_proxies(self) -> set[Place]:
        if self._proxy_addresses is None:
            found = ((address, port) for host, port in self._proxies() for address in self._resolve(host))
            self._proxy_addresses = set(found)
        return self._proxy_addresses


# credentials

FIELD_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+\Z")

REFUSED = (401, 403)
"""Answers to who is not let in (DST-F2)."""

_SCHEME = r"(?:^|,)\s*([A-Za-z][A-Za-z0-9._~+/-]*)(?=\s|,|\Z)(?!\s*=)"


class SignInCredentials(msgspec.Struct, frozen=True):
    """What is sent to the origin of the URI `origin`: an `Authorization` header's value, further headers, and the files
    of a client certificate and its key (PEM). Nothing of it is shown by `repr`.
    """

    origin: str
    authorization: str | None = None
    headers: tuple[tuple[str, str], ...] = ()
    certificate: str | None = None
    key: str | None = None

    def __repr__(self) -> str:
        return f"SignInCredentials({self.origin!r})"

    def lines(self, names: set[str]) -> list[bytes]:
        """The header lines of a request that has these headers (names in lower case) of its own."""
        fields = [("Authorization", self.authorization)] if self.authorization else []
        fields += [(name, value) for name, value in self.headers]
        return [f"{name}: {value}".encode("latin-1") for name, value in fields if name.lower() not in names]


def challenged(value: str | None) -> tuple[str, ...]:
    """The authentication schemes that a `WWW-Authenticate` header names, in lower case."""
    return tuple(dict.fromkeys(name.lower() for name in re.findall(_SCHEME, value or "")))


# certificate authorities

_RED_HAT = "/etc/pki/tls/certs/ca-bundle.crt"


class CaBundle(NamedTuple):
    """A file and a folder of certificates; None where there is none (libcurl's own default then holds).

    `octets` is the content of a file, in its place.
    """

    file: str | None
    folder: str | None
    octets: bytes | None = None


def ca_bundle(more: str | None = None) -> CaBundle:
    """The authorities of the environment (`CURL_CA_BUNDLE`, `SSL_CERT_FILE`, `SSL_CERT_DIR`) or of the machine.

    Those of the file `more` are believed beside them. Raises UsageFault when it cannot be used.
    """
    import ssl  # imported here: only https needs it

    check_authorities(more)
    paths = ssl.get_default_verify_paths()
    file = os.environ.get("CURL_CA_BUNDLE") or paths.cafile or _RED_HAT
    known = file if os.path.isfile(file) else None
    folder = paths.capath if paths.capath and os.path.isdir(paths.capath) else None
    octets = None if more is None else b"\n".join(Path(one).read_bytes() for one in (more, known) if one is not None)
    return CaBundle(known, folder, octets)


def check_authorities(file: str | None) -> None:
    """Raise UsageFault where a file of certificate authorities cannot be used: at the start, not at each request."""
    import ssl

    try:
        if file is not None:
            tls_context(file)
    except ssl.SSLError as cause:
        raise UsageFault("there is no certificate in PEM form", where=file) from cause
    except OSError as cause:
        raise UsageFault(f"the CA certificates cannot be read: {cause.strerror}", where=file) from cause


def tls_context(authorities: str | None, certificate: str | None = None, key: str | None = None) -> ssl.SSLContext:
    """TLS that believes the authorities of this machine, and those of a file; `certificate` is ours. Raises OSError."""
    files = (authorities, certificate, key)
    return _tls_context(*files, tuple(None if file is None else os.stat(file).st_mtime_ns for file in files))


@lru_cache  # each takes a megabyte
def _tls_context(
    authorities: str | None, certificate: str | None, key: str | None, _changed_at: tuple[int | None, ...]
) -> ssl.SSLContext:
    """The same, of these states of the files: one that is renewed is read again."""
    import ssl

    made = ssl.create_default_context()
    if authorities is not None:
        made.load_verify_locations(authorities)
    if certificate is not None:
        made.load_cert_chain(certificate, key)
    return made
