"""Filters: the scope of hosts that are trusted, and the user's choice of resources."""

from __future__ import annotations

import re
from collections.abc import Iterable
from enum import Enum
from functools import lru_cache
from urllib.parse import urlsplit

import msgspec

from headwater.files.patterns import Selection
from headwater.spec.uris import comparable_host

_LONGEST_URI = 32_768
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")  # a space is sent escaped: resync-build writes names as they are (AMB-08)
_NAMED = re.compile(r"(?:\[(.+)\]|([^:]+))(?::\d+)?")
_WITH_PORT = re.compile(r"(\[.+\]|[^:]+)(:\d+)")
_DEFAULT_PORT = {"http": 80, "https": 443}


class Refusal(Enum):
    """Why a URI is not fetched (DST-S12)."""

    SCHEME = "only http and https are fetched"
    USERINFO = "a URI with a user name or password is never fetched"
    HOST = "another host than the source's; --allow-host or --any-host allows it"
    MALFORMED = "not a URI that can be requested"


REFUSALS = tuple(Refusal)
"""By their numbers, from 1 on, as they are staged; 0 is none."""

Origin = tuple[str, int]


def origin_of(uri: str) -> Origin | None:
    """Host and port of an http(s) URI; the default ports of both schemes are one origin (DST-S12, any scheme)."""
    try:
        parts = urlsplit(uri)
        host, port = parts.hostname, parts.port
    except ValueError:
        return None
    if parts.scheme.lower() not in _DEFAULT_PORT or not host:
        return None
    return comparable_host(host).rstrip("."), 0 if port in (None, 80, 443) else port


def host_label(uri: str) -> str | None:
    """The host of an http(s) URI as `--allow-host` takes it, with its port where that is not a default one."""
    origin = origin_of(uri)
    if origin is None:
        return None
    host, port = origin
    if not port:
        return host
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def bare_host(name: str) -> str:
    """The host of what is said as HOST or HOST:PORT."""
    match = _NAMED.fullmatch(name)
    return comparable_host(match[1] or match[2] if match else name).rstrip(".")


def hosts_of(names: Iterable[str]) -> frozenset[str]:
    """Hosts as they are compared."""
    return frozenset(map(_as_compared, names))


def _as_compared(name: str) -> str:
    """What is said as HOST or HOST:PORT; brackets around an IPv6 address stay."""
    match = _WITH_PORT.fullmatch(name)
    return comparable_host(name).rstrip(".") if match is None else comparable_host(match[1]).rstrip(".") + match[2]


def _is_named(origin: Origin, hosts: frozenset[str]) -> bool:
    """Whether one of `hosts` (HOST, or HOST:PORT) names this origin."""
    host, port = origin
    forms = (host, f"[{host}]") if ":" in host else (host,)
    ports = (port,) if port else (80, 443)
    return not hosts.isdisjoint((*forms, *(f"{form}:{number}" for form in forms for number in ports)))


class Scope(msgspec.Struct, frozen=True):
    """The hosts whose resources are fetched: those of the source's documents, and those that the user allows."""

    origins: frozenset[Origin]
    hosts: frozenset[str] = frozenset()
    any_host: bool = False

    def refusal(self, uri: str) -> Refusal | None:
        """Why this URI is refused, or None when it may be fetched."""
        if len(uri) > _LONGEST_URI or _CONTROL.search(uri.strip(" ")):
            return Refusal.MALFORMED
        try:
            parts = urlsplit(uri)
        except ValueError:
            return Refusal.MALFORMED
        if parts.scheme.lower() not in _DEFAULT_PORT:
            return Refusal.SCHEME
        if "@" in parts.netloc:
            return Refusal.USERINFO
        origin = origin_of(uri)
        if origin is None:
            return Refusal.MALFORMED
        if self.any_host or origin in self.origins:
            return None
        return None if _is_named(origin, self.hosts) else Refusal.HOST

    def objection(self, uri: str) -> str | None:
        """Why a redirect to this URI is not followed, for people; None: it is."""
        refusal = self.refusal(uri)
        if refusal is Refusal.HOST:
            return f"another host than the source's: --allow-host {host_label(uri)} allows it"
        return None if refusal is None else refusal.value


class Choice(msgspec.Struct, frozen=True):
    """`--include` and `--exclude`: patterns of relative paths, or of addresses (`patterns`); and `--skip-host`.

    Without includes everything is chosen; an exclude always wins. What `--only-described` and `--with-metadata` make of
    that is decided in `metadata/described_choice`.
    """

    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    skip_hosts: frozenset[str] = frozenset()
    only_described: bool = False
    with_metadata: bool = False

    @property
    def takes_all(self) -> bool:
        """Whether nothing is left out."""
        return not (self.include or self.exclude or self.skip_hosts or self.only_described)

    @property
    def is_by_metadata(self) -> bool:
        """Whether it matters what describes what."""
        return self.only_described or self.with_metadata

    def skips(self, uri: str) -> bool:
        """Whether the resource is on a host that is left out."""
        return bool(self.skip_hosts) and (origin := origin_of(uri)) is not None and _is_named(origin, self.skip_hosts)

    def takes(self, uri: str, path: bytes) -> bool:
        """Whether hosts and patterns let the resource in. Raises BadPattern."""
        if self.skips(uri):
            return False
        return selection(self.include, self.exclude).takes(path, uri)


@lru_cache(maxsize=32)
def selection(include: tuple[str, ...], exclude: tuple[str, ...]) -> Selection:
    """The patterns, read once. Raises BadPattern."""
    return Selection(include, exclude, of_addresses=True)
