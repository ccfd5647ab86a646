"""How the source is reached: its address as a user gives it, credentials (options, netrc) and the proxy."""

from __future__ import annotations

import base64
import contextlib
import os
import re
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from headwater.errors import UsageFault
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
        raise UsageFault("a user name is not part of the address", where=_nameless(url), advice="Give it by --user.")
    if parts is None or not host or parts.scheme.lower() not in ("http", "https") or _NO_HOST.search(parts.netloc):
        raise UsageFault("the source must be an http or https address", where=url, advice=_EXAMPLE)
    text = text.partition("#")[0]
    return text if parts.path else resolve(text, "/")


def _nameless(url: str) -> str:
    """The address as it may be told: without user name and password."""
    return re.sub(r"^((?:[a-zA-Z]+://)?)[^/?#]*@", r"\1", url)


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
        _check_header(name, value)
    authorization = _authorization(options)
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


def _authorization(options: SyncOptions) -> str | None:
    if options.user is None:
        if options.password is not None:
            raise UsageFault("a password needs a user name")
        if options.authorization is not None:
            _check_value("Authorization", options.authorization)
        return options.authorization
    if options.authorization is not None:
        raise UsageFault("a token and a user exclude each other")
    return basic(options.user, options.password or "")


def basic(user: str, password: str) -> str:
    """The value of an `Authorization` header (RFC 7617). Raises UsageFault, which shows nothing of it."""
    if ":" in user or any(ord(char) < 32 or ord(char) == 127 for char in user + password):
        raise UsageFault("a user has no colon, and neither it nor its password has control characters")
    return "Basic " + base64.b64encode(f"{user}:{password}".encode("utf-8", "surrogateescape")).decode()


def netrc_authorization(url: str) -> str | None:
    """The value of an `Authorization` header for the host of a URL, by netrc. Raises UsageFault."""
    return _of_netrc(comparable_host(urlsplit(url).hostname or ""))


def _check_header(name: str, value: str) -> None:
    if not FIELD_NAME.match(name):
        raise UsageFault("a header is `Name: value`, and its name has letters, digits and hyphens")
    if name.lower() in _OURS:
        raise UsageFault(f"the header {name} cannot be set: Headwater sets it for each request")
    _check_value(name, value)


def _check_value(name: str, value: str) -> None:
    if any((ord(char) < 32 and char != "\t") or ord(char) == 127 or ord(char) > 255 for char in value):
        raise UsageFault(f"the value of the header {name} has characters that cannot be sent")


def _of_netrc(name: str) -> str | None:
    """Who we are to a host, by the file that `NETRC` names, or ~/.netrc; its `default` is for nobody.

    A file that cannot be understood matters only where it speaks of the host. What is in it is never shown.
    """
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
