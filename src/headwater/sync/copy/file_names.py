"""File names: the relative path of a URI, unique, inside the folder, by a rule that can be reversed.

The rule (docs/decisions/006-names-of-copies.md). A URI below the set's *base* takes the rest of its path,
percent-decoded to octets, so that a served folder comes back under its own names. A URI elsewhere takes a folder named
after its host (and port). What cannot be a file name, or would not be its own, takes the *escaped* name: the whole URI
below `%uri/`.

Pure functions over text and octets. What depends on other URIs (two that decode alike, a file where a folder must be)
is decided in `path_conflicts`, which then takes the escaped name.
"""

import re
from urllib.parse import quote, unquote_to_bytes, urlsplit

from headwater.errors import UsageFault
from headwater.files.folder_marks import is_reserved, leads_inside
from headwater.spec.uris import comparable_host, normalise, split

ESCAPE_FOLDER = b"%uri"
"""The folder of escaped names, at the top of a set's folder. Only what lies below it and begins with `http` is ours."""

_ESCAPED = re.compile(rb"%uri/https?%3A%2F%2F")
_PUBLISHED_AGAIN = b"%uri%"
"""The folder of names that are escaped at a source, as where it publishes a copy: they would grow with each copy."""


_LONGEST_NAME = 255
_LONGEST_PATH = 3_500
"""Octets of a relative path that we still write as it is: PATH_MAX is 4,096, and the copy lies somewhere too."""

_CAPITAL = re.compile("(%[0-9A-F]{2})|[A-Z]")
_CHUNK = 200
_GO_ON = "~"  # ends every folder of an escaped name, and no last part: a shorter URI never needs a longer one's folder
_HAZARD = re.compile(r"[?#\0]|%2f|%00", re.IGNORECASE)
_PLAIN = re.compile(r"(?:[A-Za-z0-9_-][\w.-]{0,200}/)*[A-Za-z0-9_-][\w.-]{0,200}\Z", re.ASCII)
"""What is a path of which nothing has to be looked at more closely, as most are."""


def base_folder(text: str) -> str:
    """The base that a caller names, in the form by which names are made: normalised, and with a slash at its end.

    Raises UsageFault for anything but an absolute http or https URI without query and fragment.
    """
    parts = split(text)
    scheme = (parts.scheme or "").lower()
    if scheme not in ("http", "https") or not parts.authority or parts.query is not None or parts.fragment is not None:
        raise UsageFault(
            "a base must be an absolute http or https URI, without query and fragment",
            where=text,
            advice="Give the URI of the folder above the resources, such as https://example.org/files/.",
        )
    return normalise(text if text.endswith("/") else f"{text}/")


def natural_path(uri: str, base: str) -> bytes | None:
    """The path made of the URI's own names, or None when it has none that is safe and unmistakable.

    Below `base` the rest of the URI; elsewhere a folder named after its host and port, and the rest of its path.
    """
    if base and uri.startswith(base):
        rest, folder = uri[len(base) :], b""
        if _PLAIN.match(rest) and len(rest) <= _LONGEST_PATH:
            return rest.encode("ascii")
    else:
        try:
            parts = urlsplit(uri)
            host, port = parts.hostname or "", parts.port
            folder = (host if host.isascii() else comparable_host(host)).encode("ascii").replace(b":", b".")
        except ValueError:
            return None
        start = uri.find("/", len(parts.scheme) + 3)
        if parts.scheme not in ("http", "https") or not host or "@" in parts.netloc or start < 0:
            return None
        folder += b"/" if port is None else b"_%d/" % port
        rest = uri[start + 1 :]
    if _HAZARD.search(rest):
        return None
    octets = rest.encode("utf-8", "surrogatepass")
    path = folder + (unquote_to_bytes(octets) if b"%" in octets else octets)
    if len(path) > _LONGEST_PATH or b"\0" in path:
        return None
    if _ESCAPED.match(path):
        path = _PUBLISHED_AGAIN + path.removeprefix(ESCAPE_FOLDER)
    return None if not leads_inside(path) or any(len(part) > _LONGEST_NAME for part in path.split(b"/")) else path


def escaped_path(uri: str, *, folds: bool = False) -> bytes:
    """The path that holds the whole URI, reversibly, whatever it contains.

    `folds`: no other URI's escaped name differs from it by case alone.
    """
    text = quote(uri, safe="-._", errors="surrogatepass").replace("~", "%7E")
    if folds:
        text = _CAPITAL.sub(lambda found: found[1] or f"%{ord(found[0]):02X}", text)
    parts = [text[start : start + _CHUNK] for start in range(0, len(text), _CHUNK)] or ["%"]
    # no cut leaves `.`, `..` or a reserved name alone; and NTFS drops, or refuses, a dot at the end
    if parts[-1].endswith(".") or is_reserved(parts[-1].encode("ascii")):
        parts[-1] = parts[-1].replace(".", "%2E")
    if len(parts) > 1:
        parts[:-1] = [part + _GO_ON for part in parts[:-1]]
    return b"/".join([ESCAPE_FOLDER, *(part.encode("ascii") for part in parts)])


def resources_folder(capability_list: str) -> str:
    """Where a Headwater source serves the resources of the set that has this Capability List."""
    return capability_list.partition("?")[0].rpartition("/")[0] + "/resources/"
