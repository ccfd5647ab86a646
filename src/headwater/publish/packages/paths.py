"""Under which path of a package a resource or the octets of a change lie: such that any file system can hold them."""

from __future__ import annotations

import re
from urllib.parse import unquote, unquote_to_bytes, urlsplit

from headwater.packages.faults import BadPackage
from headwater.packages.member_paths import MemberNames
from headwater.spec.uris import quote_path

FOLDER = "/resources/"
NUMBERED = "/others/"
"""Below it lie, by number, resources whose own path another one has already, but for case or normalisation."""

_safe = re.compile(r"[0-9A-Za-z_\-][0-9A-Za-z_.\-]*(?:/[0-9A-Za-z_\-][0-9A-Za-z_.\-]*)*").fullmatch
_NAME = re.compile(r"[\w ()+,;=@~.%!'-]{1,80}\Z")
_ASCII_NAME = re.compile(r"[A-Za-z0-9._~%!'()+,;=@-]{1,80}\Z")
_UNSAFE = re.compile(r'[\x00-\x1f\x7f-\x9f"%*:<>?\\|\ufffe\uffff]')
"""What some file system, our readers or XML cannot hold, and the sign of percent-encoding."""


class ResourcePaths:
    """The paths of one package: any file system can hold them side by side (DST-P3)."""

    def __init__(self) -> None:
        self._names = MemberNames()
        self._numbered = 0

    def take(self, uri: str) -> str:
        """The path of one more resource with this relative URI."""
        path = resource_path(uri)
        try:
            self._names.add(path[1:])
        except BadPackage:
            self._numbered += 1
            return f"{NUMBERED}{self._numbered:08d}"
        return path


def resource_path(uri: str) -> str:
    """The path of a resource with this relative URI: decoded where that is a safe name, else as the URI has it.

    Two URIs never have the same path: a decoded one has no percent sign, any other is the URI itself.
    """
    if _safe(uri):
        return FOLDER + uri
    try:
        octets = unquote_to_bytes(uri)
        text = octets.decode()
    except UnicodeDecodeError:
        return FOLDER + uri
    parts = text.split("/")
    if _UNSAFE.search(text) or not {"", ".", ".."}.isdisjoint(parts) or quote_path(octets) != uri:
        return FOLDER + uri
    return FOLDER + text


def file_name(uri: str) -> str:
    """A safe name for the octets of a resource: the last name of its URI, decoded where every system takes that.

    Never empty, no separator, no control character, not only dots, no dot or blank at the end.
    """
    coded = (urlsplit(uri).path if "://" in uri else uri).rpartition("/")[2]
    try:
        plain = unquote(coded, errors="strict")
    except UnicodeDecodeError:
        plain = ""
    for name, pattern in ((plain, _NAME), (coded, _ASCII_NAME)):
        if pattern.match(name) and not name.endswith((".", " ")) and not name.startswith((".", " ")):
            return name
    return "content"
