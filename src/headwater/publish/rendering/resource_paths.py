"""Under which path of a package a resource lies: its own relative path, where that is safe."""

from __future__ import annotations

import re
from collections.abc import Sequence
from urllib.parse import unquote_to_bytes

from headwater.packages.faults import BadPackage
from headwater.packages.member_paths import MemberNames
from headwater.spec.uris import quote_path

FOLDER = "/resources/"
_FOLDER_NAME = FOLDER.removeprefix("/")
NUMBERED = "/others/"
"""Below it lie, by number, resources whose own path another one has already, but for case or normalisation."""

_safe = re.compile(r"[0-9A-Za-z_\-][0-9A-Za-z_.\-]*(?:/[0-9A-Za-z_\-][0-9A-Za-z_.\-]*)*").fullmatch
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

    def take_all(self, uris: Sequence[str]) -> list[str]:
        """The paths of more resources with these relative URIs, as `take` has them one after another."""
        if all(map(_safe, uris)) and self._names.add_all([_FOLDER_NAME + uri for uri in uris]):
            return [FOLDER + uri for uri in uris]
        return [self.take(uri) for uri in uris]


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
