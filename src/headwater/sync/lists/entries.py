"""Staged rows from entries: the normalised URI, the metadata listed, and whether the scope lets it in."""

from __future__ import annotations

import re

import msgspec

from headwater.spec.records import Entry
from headwater.spec.uris import normalise
from headwater.sync.filters import REFUSALS, Origin, Scope, origin_of
from headwater.sync.source_times import micros

_PLAIN = re.compile(r"[A-Za-z0-9\-._~!$&'()*+,;=:@/?]*\Z")
_DUPLICATE = "duplicate"
_MOST_MIRRORS = 20

Staged = tuple[str, str | None, int | None, int | None, str | None, str | None, str | None, str | None, int]
"""uri, loc (None: as uri), lastmod, length, hash, type, encoding, mirrors (JSON), refused (0: it is not)."""


class EntryFilter:
    """Turns entries into rows. Remembers the origins it has judged, so that the usual entry costs a look-up."""

    def __init__(self, scope: Scope) -> None:
        self._scope = scope
        self._prefix = "\0"

    def uri(self, loc: str) -> str:
        """The form in which URIs are compared (AMB-08)."""
        if loc.startswith(self._prefix) and _PLAIN.match(loc) and "/." not in loc:
            return loc
        return normalise(loc)

    def row(self, entry: Entry) -> Staged:
        """The staged row of one entry."""
        loc = entry.loc
        if loc.startswith(self._prefix) and _PLAIN.match(loc) and "/." not in loc:
            uri, refused = loc, 0
        else:
            uri = normalise(loc)
            refused = self._judge(loc, uri)
        lastmod = entry.lastmod
        return (
            uri,
            None if loc == uri else loc,
            None if lastmod is None else micros(lastmod),
            entry.length,
            entry.hash,
            entry.type,
            entry.encoding,
            mirrors_of(entry) if entry.links else None,
            refused,
        )

    def _judge(self, loc: str, uri: str) -> int:
        refusal = self._scope.refusal(loc)
        if refusal is None:
            self._learn(uri)
            return 0
        return 1 + REFUSALS.index(refusal)

    def _learn(self, uri: str) -> None:
        """The prefix of the usual entry: a normalised origin, up to and with the slash."""
        end = uri.find("/", uri.find("://") + 3)
        if end > 0:
            self._prefix = uri[: end + 1]


def mirrors_of(entry: Entry) -> str | None:
    """The `duplicate` links of http(s), best first (RS-LN-03, DST-S2), as JSON."""
    found = [link for link in entry.links if link.rel == _DUPLICATE and origin_of(link.href) is not None]
    if not found:
        return None
    found.sort(key=lambda link: link.pri if link.pri is not None else 999_999)
    return msgspec.json.encode([link.href for link in found[:_MOST_MIRRORS]]).decode()


def scope_origins(*uris: str | None) -> frozenset[Origin]:
    """The origins of the source's documents (DST-S12)."""
    return frozenset(origin for uri in uris if uri and (origin := origin_of(uri)) is not None)
