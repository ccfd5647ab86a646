"""URIs as texts: resolved, compared and quoted, never rewritten in what is requested (AMB-07, AMB-08, RFC 3986).

Every function takes any text whatever, in time linear to its length, and never raises.
"""

import ipaddress
import re
from contextlib import suppress
from functools import lru_cache
from typing import Final, NamedTuple
from urllib.parse import quote, quote_from_bytes, unquote_to_bytes

_SPLIT = re.compile(r"(?:([A-Za-z][A-Za-z0-9+.\-]*):)?(?://([^/?#]*))?([^?#]*)(?:\?([^#]*))?(?:#(.*))?", re.DOTALL)
_ABSOLUTE = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]*:")
_ESCAPE = re.compile("%([0-9A-Fa-f]{2})")
_STRAY_PERCENT = re.compile("%(?![0-9A-Fa-f]{2})")
_PLAIN_HOST = re.compile(r"[A-Za-z0-9.-]+\Z")
_DELIMITER = re.compile(r"[\x00-\x20\x7f\"#%/:<>?@\[\\\]^`{|}]")
_NO_NAME = re.compile(r"[:\[\]]")
"""What is left of a host and port where the port is no number, or where a bracket is missing."""

_UNRESERVED = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")
_LEGAL: Final = "!$&'()*+,;=:@/?#[]%~"
_PORTS: Final = {"http": "80", "https": "443", "ws": "80", "wss": "443", "ftp": "21"}
_HOST_LENGTH: Final = 253  # of a DNS name


class Parts(NamedTuple):
    """The five components of RFC 3986; None where a component is absent, which differs from empty."""

    scheme: str | None
    authority: str | None
    path: str
    query: str | None
    fragment: str | None


class Origin(NamedTuple):
    """What a credential belongs to (RFC 6454): the port is None when the scheme has no default and none is given."""

    scheme: str
    host: str
    port: int | None


def split(uri: str) -> Parts:
    """The components of a URI or a relative reference (RFC 3986 appendix B)."""
    match = _SPLIT.match(uri)
    if match is None:  # cannot be: every part of the expression may be empty
        return Parts(None, None, uri, None, None)
    return Parts(match[1], match[2], match[3], match[4], match[5])


def unsplit(parts: Parts) -> str:
    """The text of the components (RFC 3986, 5.3)."""
    text = f"{parts.scheme}:" if parts.scheme is not None else ""
    if parts.authority is not None:
        text += f"//{parts.authority}"
    text += parts.path
    if parts.query is not None:
        text += f"?{parts.query}"
    return text if parts.fragment is None else f"{text}#{parts.fragment}"


def is_absolute(uri: str) -> bool:
    """Whether the text begins with a scheme; an http(s) URI must also name a host."""
    if _ABSOLUTE.match(uri) is None:
        return False
    parts = split(uri)
    return bool(parts.authority) if (parts.scheme or "").lower() in ("http", "https") else True


def resolve(base: str, ref: str) -> str:
    """The target of a reference found in the document at `base` (RFC 3986, 5.2). An absolute `ref` comes back as is."""
    if _ABSOLUTE.match(ref):
        return ref
    given, based = split(ref), split(base)
    if given.authority is not None:
        return unsplit(given._replace(scheme=based.scheme, path=remove_dot_segments(given.path)))
    if not given.path:
        query = based.query if given.query is None else given.query
        return unsplit(based._replace(query=query, fragment=given.fragment))
    if given.path.startswith("/"):
        path = given.path
    elif based.authority is not None and not based.path:
        path = f"/{given.path}"
    else:
        path = based.path[: based.path.rfind("/") + 1] + given.path
    return unsplit(Parts(based.scheme, based.authority, remove_dot_segments(path), given.query, given.fragment))


def remove_dot_segments(path: str) -> str:
    """The path without `.` and `..` (RFC 3986, 5.2.4); it never climbs above the root."""
    if "." not in path:
        return path
    rooted = path.startswith("/")
    kept: list[str] = []
    segments = path.split("/")
    for segment in segments[1:] if rooted else segments:
        if segment == "..":
            if kept:
                kept.pop()
        elif segment != ".":
            kept.append(segment)
    if segments[-1] in (".", "..") and kept:
        kept.append("")
    return ("/" if rooted else "") + "/".join(kept)


def normalise(uri: str) -> str:
    """The form in which URIs are compared (AMB-08): case of scheme and host, default port, escapes, dot segments.

    The query is kept, a trailing slash is kept, only the path of a host without one becomes `/`. Idempotent.
    """
    parts = split(uri)
    scheme = parts.scheme.lower() if parts.scheme is not None else None
    authority = None if parts.authority is None else _authority(parts.authority, scheme)
    path = _escapes(parts.path)
    if authority is not None or path.startswith("/"):
        path = remove_dot_segments(path)
    if authority is not None and not path:
        path = "/"
    query = None if parts.query is None else _escapes(parts.query)
    fragment = None if parts.fragment is None else _escapes(parts.fragment)
    return unsplit(Parts(scheme, authority, path, query, fragment))


def _authority(text: str, scheme: str | None) -> str:
    user, at, rest = text.rpartition("@")
    name, port = _host_and_port(rest)
    if port is not None and (not port or port == _PORTS.get(scheme or "")):
        port = None
    return _escapes(user) + at + comparable_host(name) + ("" if port is None else f":{port}")


def _host_and_port(text: str) -> tuple[str, str | None]:
    host, colon, port = text.rpartition(":")
    if not colon or "]" in port or (port and not (port.isascii() and port.isdigit())):
        return text, None
    return host, port


def comparable_host(text: str) -> str:
    """A host in the one form by which hosts are compared and looked up.

    Lower case; escapes undone; a name that is not ASCII as IDNA has it (UTS 46, nontransitional: `straße` is not
    `strasse`). What is no name of the DNS is escaped text, and is_wire_host says so.
    """
    if _PLAIN_HOST.match(text):
        return text.lower()
    if "%" in text and not text.startswith("["):
        with suppress(UnicodeDecodeError):
            plain = unquote_to_bytes(text).decode("utf-8")
            text = text if _DELIMITER.search(plain) else plain
    if not text.isascii() and len(text) <= _HOST_LENGTH:
        import idna  # imported here: few names need it

        with suppress(UnicodeError):
            return idna.encode(text, uts46=True).decode("ascii")
    return _escapes(_escapes(text).lower())


def is_wire_host(text: str) -> bool:
    """Whether what `comparable_host` has made can be looked up."""
    return "%" not in text or text.startswith("[")


@lru_cache(maxsize=1_024)
def is_connectable(scheme: str, authority: str) -> bool:
    """Whether the host and the port of an http or https URI are such that a connection can be tried.

    A host is a name, an IPv4 address, or an IPv6 address in brackets (RFC 3986, 3.2.2).
    """
    _, host, port = origin(f"{scheme}://{authority}")
    if port is None or not 0 < port < 65_536 or not host or not is_wire_host(host):
        return False
    if not host.startswith("["):
        return _NO_NAME.search(host) is None
    with suppress(ValueError):
        return host.endswith("]") and bool(ipaddress.IPv6Address(host[1:-1]))
    return False


def _escapes(text: str) -> str:
    """Escapes of unreserved characters undone, all others in capitals; what may not stand in a URI escaped."""
    if "%" in text:
        text = _ESCAPE.sub(_escape, _STRAY_PERCENT.sub("%25", text))
    return quote(text, safe=_LEGAL, errors="surrogatepass")


def _escape(match: re.Match[str]) -> str:
    char = chr(int(match[1], 16))
    return char if char in _UNRESERVED else f"%{match[1].upper()}"


def to_ascii(uri: str) -> str:
    """The URI with everything that may not stand in one percent-encoded (RFC 3987, 3.1); a legal one stays as it is."""
    return quote(uri, safe=_LEGAL, errors="surrogatepass")


def origin(uri: str) -> Origin:
    """The origin to which a URI belongs; host and scheme in lower case."""
    parts = split(uri)
    scheme = (parts.scheme or "").lower()
    name, port = _host_and_port((parts.authority or "").rpartition("@")[2])
    if not port:
        port = _PORTS.get(scheme)
    return Origin(scheme, comparable_host(name), int(port[:6]) if port else None)


def quote_path(path: bytes) -> str:
    """The relative URI of a file whose name is any octets: all but unreserved characters escaped, `/` kept."""
    return quote_from_bytes(path, safe="/")
