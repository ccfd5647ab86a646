"""Where announced resources are: addresses and paths become the one URI by which the catalog knows a resource.

A URI below the set's prefix is kept relative to it, in the form that `quote_path` gives, so that a resource has one
name however it was announced (DIT-A9); any other is kept absolute.
"""

import posixpath
import re
from typing import Final
from urllib.parse import unquote, unquote_to_bytes

import msgspec

from headwater.errors import UsageFault
from headwater.files.folder_marks import is_reserved
from headwater.spec.uris import is_absolute, is_connectable, quote_path, split, to_ascii

URL: Final = "url"
ABS_PATH: Final = "abs_path"
REL_PATH: Final = "rel_path"

_LONGEST: Final = 16_384
"""Characters of a location before it is looked at; what a catalog takes is less (`catalog.page_filling`)."""
_CONTROL = re.compile("[\x00-\x1f\x7f]")


class BadLocation(UsageFault):
    """A location is invalid: no absolute http(s) URL, a path outside the root, or one with `..` (DIT-A10)."""

    code = "HW-ING-49"


class Location(msgspec.Struct, frozen=True, gc=False):
    """One `location` or `href` of a document: a value and how it is meant (DIT-07)."""

    value: str
    type: str = URL


class Locations:
    """Resolves the locations of one set. `prefix` precedes its relative URIs, `root` is the folder of abs_path.

    Without a prefix there are only addresses. Raises BadLocation for a prefix that nothing can be appended to.
    """

    def __init__(self, prefix: str | None, root: str | None = None) -> None:
        if prefix and (not is_absolute(prefix) or "?" in prefix or "#" in prefix or _has_user(prefix)):
            raise BadLocation(f"not a URL prefix: {prefix[:200]!a}", rule="DIT-A10")
        self.prefix = prefix.rstrip("/") + "/" if prefix else ""
        self._root = None if root is None else _segments(posixpath.normpath(root))

    def resolve(self, location: Location, *, is_link: bool = False) -> str:
        """The catalog's URI of a location (DIT-07, DIT-A10), or of what a link leads to. Raises BadLocation."""
        if location.type == URL:
            return self.link(location.value) if is_link else self.url(location.value)
        if location.type == ABS_PATH:
            return self.absolute_path(location.value)
        if location.type == REL_PATH:
            return self.relative_path(location.value)
        raise BadLocation(f"a location of the type {location.type[:40]!r}", rule="DIT-07")

    def url(self, text: str) -> str:
        """The catalog's URI of a resource's address: one that a destination can fetch (DST-S12)."""
        uri = self.link(text)
        parts = split(text.strip())
        if (parts.scheme or "").lower() not in ("http", "https"):
            what = "is neither http nor https, so nobody can fetch it"
        elif not is_connectable(parts.scheme or "", parts.authority or ""):
            what = "has an impossible host or port"
        else:
            return uri
        raise BadLocation(f"an address that {what}: {text[:200]!a}", rule="DST-S12")

    def link(self, text: str) -> str:
        """The catalog's URI of what a link leads to: any absolute URL (RS-REL-01) but that of a file of one machine."""
        text = text.strip()
        _check(text)
        if text[:5].lower() == "file:":
            raise BadLocation(f"a file of one machine, which nobody else can reach: {text[:200]!a}")
        if "://" not in text or not is_absolute(text):
            raise BadLocation(f"not an absolute URL: {text[:200]!a}", rule="DIT-07")
        if _has_user(text):  # everybody would read the password
            raise BadLocation("an address with a user or a password, which would be published")
        try:
            text.encode("utf-8")
        except UnicodeEncodeError as cause:
            raise BadLocation(f"an address that is no text: {text[:200]!a}") from cause
        whole = to_ascii(text)
        if self.prefix and whole.startswith(self.prefix) and _is_canonical(relative := whole[len(self.prefix) :]):
            _refuse_names(unquote(relative).split("/"), text)
            return relative
        return whole

    def absolute_path(self, text: str) -> str:
        """The catalog's URI of a file below the root."""
        _check(text)
        if self._root is None:
            raise BadLocation("an absolute path needs the set's resource_root", rule="DIT-A10")
        segments, count = _segments(text), len(self._root)
        _refuse_names(segments, text)
        if not text.startswith("/") or segments[:count] != self._root or len(segments) <= count:
            raise BadLocation(f"a path that is not below the resource_root: {text[:200]!a}", rule="DIT-A10")
        return self.relative_path("/".join(segments[count:]))

    def relative_path(self, text: str) -> str:
        """The catalog's URI of a path below the prefix; leading slashes mean nothing: one parts the two."""
        _check(text)
        segments = [one for one in text.lstrip("/").split("/") if one != "."]
        _refuse_names(segments, text)
        try:
            relative = quote_path("/".join(segments).encode("utf-8"))
        except UnicodeEncodeError as cause:
            raise BadLocation(f"a path that is no text: {text[:200]!a}", rule="DIT-A10") from cause
        if not self.prefix:
            raise BadLocation("a path needs a URL prefix", rule="DIT-07")
        if not relative.strip("/"):
            raise BadLocation("a path that names nothing", rule="DIT-A10")
        return relative if _is_canonical(relative) else self.prefix + relative

    def absolute(self, uri: str) -> str:
        """The address of what the catalog knows by `uri`."""
        return uri if "://" in uri else self.prefix + uri


def _check(text: str) -> None:
    if not text or len(text) > _LONGEST:
        raise BadLocation("an empty location" if not text else f"a location of more than {_LONGEST:,} characters")
    if _CONTROL.search(text):
        raise BadLocation(f"a control character in a location: {text[:200]!a}")


def _has_user(url: str) -> bool:
    return "@" in (split(url).authority or "")


def _segments(path: str) -> list[str]:
    return [one for one in path.split("/") if one not in ("", ".")]


def _refuse_names(segments: list[str], text: str) -> None:
    if any(is_reserved(one.encode("utf-8", "surrogatepass")) for one in segments):
        raise BadLocation(f"a name that is for the state of Headwater commands: {text[:200]!a}")
    if any(".." in one.split("\\") for one in segments):  # a backslash parts them on some servers and destinations
        raise BadLocation(f"a path with '..': {text[:200]!a}", rule="DIT-A10")


def _is_canonical(relative: str) -> bool:
    """Whether `quote_path` would give exactly this text for the path that it stands for."""
    if not relative or any(one in ("", ".", "..") for one in relative.split("/")):
        return False
    return quote_path(unquote_to_bytes(relative)) == relative
