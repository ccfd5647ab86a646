"""The connection to a source: its address, credentials and proxy, the scope of hosts that are asked, and its errors."""

from __future__ import annotations

import base64
import contextlib
import os
import re
from collections.abc import Iterable
from enum import Enum
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import msgspec

from headwater.errors import SourceFault, UsageFault, message
from headwater.spec.uris import comparable_host, resolve
from headwater.transport.access import FIELD_NAME, SignInCredentials

if TYPE_CHECKING:
    from headwater.sync.options import SyncOptions


CUSTOMARY_NAMES = ("resourcesync.xml", "capabilitylist.xml", "resourcelist.xml", "sitemap.xml", "sitemap_index.xml")
"""Names by which tools write such documents; no rule of the standard leads to them."""

_NO_HOST = re.compile(r"[@\s\x00-\x1f\x7f\"<>\\^`{|}]")
_EXAMPLE = "Give an address such as https://example.org/, with a port up to 65535 if there is one."


def starting_uri(url: str) -> str:
    """The URI to begin with; a bare host is taken as `http://` (it may redirect). Raises UsageFault."""
    if not isinstance(url, str):
        raise UsageFault(f"the address of a source is text, not {url!r:.100}", advice=_EXAMPLE)
    text = url.strip()
    if "://" not in text:
        if re.match(r"https?(?::(?!\d)|//)", text, re.IGNORECASE):
            raise UsageFault("an http or https address begins with http:// or https://", where=url, advice=_EXAMPLE)
        text = f"http://{text}"
    try:
        parts = urlsplit(text)
        host = parts.hostname
        _ = parts.port
    except ValueError:
        parts, host = None, None
    if parts is not None and "@" in parts.netloc:
        nameless = re.sub(r"^((?:[a-zA-Z]+://)?)[^/?#]*@", r"\1", url)
        raise UsageFault("a user name is not part of the address", where=nameless, advice="Give it by --user.")
    if parts is None or not host or parts.scheme.lower() not in ("http", "https") or _NO_HOST.search(parts.netloc):
        raise UsageFault("the source must be an http or https address", where=url, advice=_EXAMPLE)
    text = text.partition("#")[0]
    return text if parts.path else resolve(text, "/")


def is_host(url: str) -> bool:
    """Whether the address names a host and nothing on it."""
    parts = urlsplit(url)
    return parts.path in ("", "/") and not parts.query


_OURS = frozenset({
    "accept-encoding", "connection", "content-length", "expect", "host", "if-match", "if-modified-since",
    "if-none-match", "if-range", "if-unmodified-since", "proxy-authorization", "range", "te", "trailer",
    "transfer-encoding", "upgrade",
})  # fmt: skip
"""Headers that transfers live by: what the user says of them would make answers that are not what was asked for."""

_PROXIES = frozenset({"http", "https", "socks4", "socks4a", "socks5", "socks5h"})


_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1", "[::1]"})


def credentials_of(url: str, options: SyncOptions) -> SignInCredentials | None:
    """What is sent to the origin of `url` and to no other; None: nothing. Raises UsageFault."""
    for name, value in options.headers:
        if not FIELD_NAME.match(name):
            raise UsageFault("a header is `Name: value`, and its name has letters, digits and hyphens")
        if name.lower() in _OURS:
            raise UsageFault(f"the header {name} cannot be set: Headwater sets it for each request")
        _check_value(name, value)
    authorization = options.authorization
    if options.user is not None:
        if authorization is not None:
            raise UsageFault("a token and a user exclude each other")
        authorization = basic(options.user, options.password or "")
    elif options.password is not None:
        raise UsageFault("a password needs a user name")
    elif authorization is not None:
        _check_value("Authorization", authorization)
    own = authorization or any(name.lower() == "authorization" for name, _ in options.headers)
    if not own and options.netrc:
        authorization = netrc_authorization(url)
    if options.key is not None and options.cert is None:
        raise UsageFault("a key needs a certificate", where=options.key)
    for path in (options.cert, options.key):
        if path is not None and not os.access(path, os.R_OK):
            raise UsageFault("the client certificate or its key cannot be read", where=path)
    if authorization is None and not options.headers and options.cert is None:
        return None
    return SignInCredentials(url, authorization, options.headers, options.cert, options.key)


def _check_value(name: str, value: str) -> None:
    if any((ord(char) < 32 and char != "\t") or ord(char) == 127 or ord(char) > 255 for char in value):
        raise UsageFault(f"the value of the header {name} has characters that cannot be sent")


def checked_proxy(proxy: str | None) -> str | None:
    """The proxy as it is given. Raises UsageFault, which does not show it: it may have a password."""
    if proxy is None:
        return None
    try:
        parts = urlsplit(proxy if "://" in proxy else f"http://{proxy}")
        known = parts.scheme.lower() in _PROXIES and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        known = False
    if not known or not proxy.isprintable():
        raise UsageFault("a proxy is named as http://HOST:PORT, or with https, socks4, socks5 or socks5h")
    return proxy


def proxy_for(scheme: str, host: str, given: str | None) -> str | None:
    """The proxy by which a host is asked: the one given, or that of the environment, save for this machine itself.

    None: it is asked directly; so is what `no_proxy` names. Raises UsageFault.
    """
    from urllib.request import getproxies_environment, proxy_bypass

    proxy = given or getproxies_environment().get(scheme)
    if not proxy or proxy_bypass(host) or (given is None and host in _LOOPBACK):
        return None
    return checked_proxy(proxy)


def basic(user: str, password: str) -> str:
    """The value of an `Authorization` header (RFC 7617). Raises UsageFault, which shows nothing of it."""
    if ":" in user or any(ord(char) < 32 or ord(char) == 127 for char in user + password):
        raise UsageFault("a user has no colon, and neither it nor its password has control characters")
    return "Basic " + base64.b64encode(f"{user}:{password}".encode("utf-8", "surrogateescape")).decode()


def netrc_authorization(url: str) -> str | None:
    """The value of an `Authorization` header for the host of a URL, by the file that `NETRC` names, or ~/.netrc.

    Its `default` is for nobody. A file that cannot be parsed matters only where it speaks of the host: UsageFault. What
    is in it is never shown.
    """
    name = comparable_host(urlsplit(url).hostname or "")
    path = os.environ.get("NETRC") or os.path.join(os.path.expanduser("~"), ".netrc")
    if not name or not os.path.isfile(path):
        return None
    from netrc import NetrcParseError, netrc  # imported here: few have such a file

    try:
        found = netrc(path).hosts
    except OSError:
        return None
    except (NetrcParseError, UnicodeError) as cause:
        text = ""
        with contextlib.suppress(OSError), open(path, encoding="utf-8", errors="replace") as file:
            text = file.read(1 << 20)
        if name in text.lower():
            raise UsageFault(
                "the netrc file cannot be parsed", where=path, advice="Correct the file, or give --user."
            ) from cause
        return None
    for machine, (login, _, password) in found.items():
        if machine != "default" and comparable_host(machine) == name and login:
            return basic(login, password or "")
    return None


# the scope: hosts that are trusted (DST-S12)

_LONGEST_URI = 32_768
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")  # a space is sent escaped: resync-build writes names as they are (AMB-08)
_NAMED = re.compile(r"(?:\[(.+)\]|([^:]+))(?::\d+)?")
_WITH_PORT = re.compile(r"(\[.+\]|[^:]+)(:\d+)")
_DEFAULT_PORT = {"http": 80, "https": 443}


class Refusal(Enum):
    """Why a URI is not fetched (DST-S12)."""

    SCHEME = "Headwater fetches only http and https"
    USERINFO = "Headwater never fetches a URI with a user name or password"
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
    """Hosts, said as HOST or HOST:PORT, as they are compared; brackets around an IPv6 address stay."""
    parted = (_WITH_PORT.fullmatch(name) or (name, name, "") for name in names)
    return frozenset(comparable_host(one[1]).rstrip(".") + one[2] for one in parted)


def is_named(origin: Origin, hosts: frozenset[str]) -> bool:
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
        return None if is_named(origin, self.hosts) else Refusal.HOST

    def objection(self, uri: str) -> str | None:
        """Why a redirect to this URI is not followed, for people; None: it is."""
        refusal = self.refusal(uri)
        if refusal is Refusal.HOST:
            return f"another host than the source's: --allow-host {host_label(uri)} allows it"
        return None if refusal is None else refusal.value


# what goes wrong with a source, each for the person who must act

_CERTIFICATE = "Check the files of --cert and --key: they belong together, in PEM form, without a passphrase."
_SPECIAL = {
    "client certificate": _CERTIFICATE,
    "private key": _CERTIFICATE,
    "certificate has expired": "The source's operator must renew it; check the clock of this machine, too.",
    "certificate is not yet valid": "Check the clock of this machine; if it is right, the source's operator must help.",
    "certificate": "Use the host name of the source's certificate; give the file of a private CA by --ca.",
    "does not speak TLS": "Begin the address with http://, or name the port at which the server speaks TLS.",
    "HTTP status 503": "The source asks to come back later: run the same command again in a while; nothing was lost.",
    "HTTP status 407": "Give the proxy with user and password, by HTTPS_PROXY or --proxy.",
}
"""What to do in cases that the network's answer tells apart."""


_OF_A_HOST = frozenset({429, 502, 503, 504})
"""Answers by which a host, or who answers in its place, speaks of itself and not of one document."""


def cause_of(status: int) -> str | None:
    """What ails a host that answers so; None where that may be of one document."""
    return f"HTTP status {status}" if status in _OF_A_HOST else None


_TLS_PERHAPS = ("Connection reset", "Empty reply", "HTTP status 400", "the answer is not HTTP")
"""How servers that speak TLS alone answer to plain HTTP."""


def advice_for(code: str, what: str, where: str | None) -> str:
    """What to do where the network's answer is `what`: that of the code, unless this is a special case."""
    usual = message(code).advice
    if where is not None and where.startswith("http://") and any(sign in what for sign in _TLS_PERHAPS):
        return f"If the server needs TLS, begin the address with https://. {usual}"
    return next((todo for sign, todo in _SPECIAL.items() if sign in what), usual)


class Unreachable(SourceFault):
    """A document of the source could not be fetched; `cause` is why, where that holds for all documents of its host."""

    code = "HW-SYN-01"

    def __init__(self, what: str, *, where: str | None = None, cause: str | None = None, **more: str | None):
        advice = more.pop("advice", None) or advice_for(more.get("code") or self.code, what, where)
        super().__init__(what, where=where, advice=advice, **more)
        self.cause = cause


class IncompleteList(Unreachable):
    """Documents of a Resource List could not be read: what was read of it was done, and nothing deleted (DST-C11)."""


class RedirectRefused(Unreachable):
    """A document is redirected to a host outside the scope (DST-S12)."""


class WrongDocument(SourceFault):
    """A document is ResourceSync, but of the wrong kind for its place."""

    code = "HW-SYN-04"


class MovedElsewhere(SourceFault):
    """The list at a set's new address does not match the copy (DST-F10)."""

    code = "HW-SYN-14"


class AnotherSet(MovedElsewhere):
    """A set at a new address was taken for one of the copy by its name, and is another: it is begun as a new one."""
