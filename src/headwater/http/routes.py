"""What a request target means: a document, a resource, the health report, the home page, or nothing that we have.

Pure and total: any octets have an answer. Only names that a source can have reach the store, and only the canonical
form of a relative URI reaches the catalog, so that no spelling of a path leads anywhere else.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from urllib.parse import unquote_to_bytes

import msgspec

from headwater.publish.site import DESCRIPTION_PARTS, ROBOTS, SOURCE_DESCRIPTION
from headwater.spec.uris import quote_path

LONGEST_TARGET = 16_384
"""A path of 4,096 octets (the kernel's limit) takes three times as many characters when all are percent-encoded."""

_BAD_PERCENT = re.compile(rb"%(?![0-9A-Fa-f]{2})")
_ENCODED_SLASH = re.compile(rb"%2[fF]")
_PARTS = re.compile(r"(?:capabilitylist|resourcelist|changelist)\.xml\Z|(?:resourcelist|changelist)/[0-9]{5,9}\.xml\Z")
_PLAIN = re.compile(rb"[A-Za-z0-9_~-][A-Za-z0-9_~.-]*+(?:/[A-Za-z0-9_~-][A-Za-z0-9_~.-]*+)*+").fullmatch
"""Relative URIs that are in canonical form as they stand: nothing encoded, no segment that begins with a dot."""
_OPEN = "changelist/open.xml"
_DESCRIPTION_PART = re.compile(rf"{DESCRIPTION_PARTS}[0-9]{{5,9}}\.xml\Z")
_SITE_DOCUMENTS = frozenset({SOURCE_DESCRIPTION, ROBOTS})


class DocumentRoute(msgspec.Struct, frozen=True, gc=False):
    """A document of the set, or of the site when `set_name` is None."""

    name: str
    set_name: str | None


class ResourceRoute(msgspec.Struct, frozen=True, gc=False):
    """A resource of the set: its relative URI in canonical form and the octets that it stands for."""

    set_name: str
    relative: str
    path: bytes


class HealthRoute(msgspec.Struct, frozen=True):
    """The health report."""


class MetricsRoute(msgspec.Struct, frozen=True):
    """The figures for Prometheus."""


class HomeRoute(msgspec.Struct, frozen=True):
    """The page for people."""


class NoRoute(msgspec.Struct, frozen=True):
    """Nothing that we have: the status and one line that helps."""

    status: int
    text: str


Route = DocumentRoute | ResourceRoute | HealthRoute | MetricsRoute | HomeRoute | NoRoute

_HEALTH = HealthRoute()
_METRICS = MetricsRoute()
_HOME = HomeRoute()


def route(target: bytes, base_path: bytes, sets: Collection[str]) -> Route:
    """What the path `target` (undecoded, without query) means on a site with these sets.

    The base URL's path may be there, or a proxy may have taken it away. Well-known and robots.txt are found at the
    origin's root as well, where RFC 8615 and RFC 9309 look for them.
    """
    if len(target) > LONGEST_TARGET:
        return NoRoute(414, f"the target has more than {LONGEST_TARGET} characters")
    if base_path and target.startswith(base_path) and target[len(base_path) : len(base_path) + 1] in (b"/", b""):
        target = target[len(base_path) :] or b"/"
    if target == b"/":
        return _HOME
    if target == b"/metrics":
        return _METRICS
    if not target.startswith(b"/") or _BAD_PERCENT.search(target):
        return NoRoute(400, "not a path that can be decoded")
    first, _, rest = target[1:].partition(b"/")
    set_name = first.decode("latin-1")
    if set_name in sets:
        return _in_set(set_name, rest)
    text = unquote_to_bytes(target[1:]).decode("utf-8", "replace")
    if text in _SITE_DOCUMENTS or _DESCRIPTION_PART.match(text):
        return DocumentRoute(text, None)
    if text == "health":
        return _HEALTH
    return NoRoute(404, "nothing is here; start at /.well-known/resourcesync")


def _in_set(set_name: str, rest: bytes) -> Route:
    if rest.startswith(b"resources/"):
        return _resource(set_name, rest[10:])
    text = unquote_to_bytes(rest).decode("utf-8", "replace")
    if _PARTS.match(text) or text == _OPEN:
        return DocumentRoute(f"{set_name}/{text}", set_name)
    return NoRoute(404, f"the set has no such document; start at /{set_name}/capabilitylist.xml")


def _resource(set_name: str, relative: bytes) -> Route:
    if _PLAIN(relative):
        return ResourceRoute(set_name, relative.decode("ascii"), relative)
    # A slash is never part of a name, so an encoded one is another URI than ours (RFC 3986 2.2), and so are empty
    # segments and dot segments, which no folder gives to a file.
    path = unquote_to_bytes(relative)
    if not path or _ENCODED_SLASH.search(relative) or b"\0" in path:
        return NoRoute(404, "no such resource")
    if any(segment in (b"", b".", b"..") for segment in path.split(b"/")):
        return NoRoute(404, "no such resource")
    return ResourceRoute(set_name, quote_path(path), path)
