"""The manifest of a package that is made while it is sent: it grows with the package and is sent last.

What is written of it is kept deflated, so that the manifest of fifty thousand resources takes a few megabytes.
"""

from __future__ import annotations

import datetime as dt
import zlib
from collections.abc import Iterable, Iterator

import msgspec

from headwater.catalog.entry_size import weight
from headwater.catalog.interface import Resource
from headwater.deflate import FAST_LEVEL, deflate_whole
from headwater.http.dumps.faults import TooMuchAsked
from headwater.spec.kinds import Kind
from headwater.spec.limits import DOCUMENT_OCTETS
from headwater.spec.records import AbsenceReason, AbsentResource, Document, Entry, Link
from headwater.spec.writer import DocumentWriter
from headwater.spec.writing.xml_text import escape

_AT_A_TIME = 512
_ABSENT_OCTETS = 120
"""What an `absent` has besides its URI, at most."""
_PATH_GROWTH = 6
"""A character of a path becomes so many octets at most when it is escaped."""


class Manifest:
    """Entries and absent resources, in any order. Raises TooMuchAsked when the `uris` alone could be too many for it.

    `uris` (absolute) are all that could come to be named as absent: room is kept for them, so that the manifest of
    any request can be written (RS-LIM-01).
    """

    def __init__(self, at: dt.datetime, up: str, uris: Iterable[str]) -> None:
        self._head = Document(
            kind=Kind.RESOURCE_DUMP_MANIFEST,
            capability="resourcedump-manifest",
            at=at,
            links=(Link(rel="up", href=up),),
        )
        self._writer = DocumentWriter(self._head)
        self._waiting: list[Entry] = []
        self._waiting_octets = len(self._writer.head())
        self._deflated: list[bytes] = []
        self._absent: list[AbsentResource] = []
        self._reserved = sum(map(_absent_octets, uris))
        if self._reserved > DOCUMENT_OCTETS // 2:
            raise TooMuchAsked("the URIs that are asked for are too long for one manifest")

    @property
    def count(self) -> int:
        """Entries so far."""
        return self._writer.entry_count + len(self._waiting)

    def room_for(self, resource: Resource, uri: str, path: str) -> int:
        """Octets that the entry of a resource with this absolute `uri` takes at most; 0 when there is no room."""
        octets = weight(resource.uri, resource.metadata) + _PATH_GROWTH * len(path)
        used = self._writer.octet_count + self._waiting_octets + self._reserved - _absent_octets(uri)
        return octets if used + octets < DOCUMENT_OCTETS else 0

    def add(self, resource: Resource, uri: str, path: str, octets: int) -> None:
        """A resource that is in the package at `path`; `octets` as `room_for` has said."""
        stated = resource.metadata
        self._waiting.append(
            Entry(
                loc=uri,
                lastmod=stated.lastmod,
                changefreq=stated.changefreq,
                encoding=stated.encoding,
                hash=stated.hash,
                length=stated.length,
                path=path,
                type=stated.type,
                links=stated.links,
            )
        )
        self._waiting_octets += octets
        self._reserved -= _absent_octets(uri)
        if len(self._waiting) >= _AT_A_TIME:
            self._write()

    def leave_out(self, uri: str, reason: AbsenceReason) -> None:
        """A resource that is not in the package."""
        self._absent.append(AbsentResource(uri, reason))

    def blocks(self) -> Iterator[bytes]:
        """The whole document."""
        self._write()
        self._deflated.append(deflate_whole(self._writer.tail(), FAST_LEVEL))
        yield DocumentWriter(msgspec.structs.replace(self._head, absent=tuple(self._absent))).head()
        for deflated in self._deflated:
            yield zlib.decompress(deflated, -15)

    def _write(self) -> None:
        if self._waiting:
            self._deflated.append(deflate_whole(self._writer.entries(self._waiting), FAST_LEVEL))
        self._waiting, self._waiting_octets = [], 0


def _absent_octets(uri: str) -> int:
    if uri.isascii() and "&" not in uri:
        return len(uri) + _ABSENT_OCTETS
    return len(escape(uri)) * (1 if uri.isascii() else 9) + _ABSENT_OCTETS
