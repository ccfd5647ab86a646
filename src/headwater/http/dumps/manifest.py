"""The manifest of a package that is made while it is sent: it grows with the package and is sent last.

What is written of it beyond a megabyte is kept deflated, so that the manifest of fifty thousand resources takes a few
megabytes.
"""

from __future__ import annotations

import datetime as dt
import zlib
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import msgspec

from headwater.catalog.entry_size import weight
from headwater.catalog.interface import Resource
from headwater.deflate import FAST_LEVEL, deflate_whole
from headwater.http.dumps.faults import TooMuchAsked
from headwater.publish.rendering.resource_paths import FOLDER, NUMBERED
from headwater.spec.kinds import Kind
from headwater.spec.limits import DOCUMENT_OCTETS
from headwater.spec.records import AbsenceReason, AbsentResource, Document, Entry, Link
from headwater.spec.writer import DocumentWriter
from headwater.spec.writing.xml_text import escape

_AT_A_TIME = 512
_WRITTEN_OCTETS = 1 << 20
"""So many octets of entries are kept as they are written."""
_ABSENT_OCTETS = 120
"""What an `absent` has besides its URI, at most."""
_PATH_GROWTH = 6
"""A character of a path becomes so many octets at most when it is escaped."""
_PATH_START = max(map(len, (FOLDER, f"{NUMBERED}00000000")))
"""A path has so many characters at most besides those of its resource's relative URI."""


class EntryRoom(NamedTuple):
    """What entries take in a manifest at most, and what had been reserved for naming their resources as absent."""

    octets: int
    reserved: int


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
        self._written: list[bytes] = []
        self._written_octets = 0
        self._deflated: list[bytes] = []
        self._absent: list[AbsentResource] = []
        self._reserved = sum(map(_absent_octets, uris))
        if self._reserved > DOCUMENT_OCTETS // 2:
            raise TooMuchAsked("the URIs that are asked for are too long for one manifest")

    def room_for(self, resources: Sequence[Resource], uris: Sequence[str]) -> EntryRoom | None:
        """The room that the entries of resources with these absolute `uris` take at most; None when there is none."""
        weights = sum(weight(one.uri, one.metadata) for one in resources)
        octets = weights + _PATH_GROWTH * sum(_PATH_START + len(one.uri) for one in resources)
        reserved = sum(map(_absent_octets, uris))
        used = self._writer.octet_count + self._waiting_octets + self._reserved - reserved
        return EntryRoom(octets, reserved) if used + octets < DOCUMENT_OCTETS else None

    def add(self, resources: Sequence[Resource], uris: Sequence[str], paths: Sequence[str], room: EntryRoom) -> None:
        """Resources that are in the package at these paths; `room` as `room_for` has said."""
        self._waiting += [
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
                extra=stated.extra,
            )
            for uri, path, stated in zip(uris, paths, [one.metadata for one in resources], strict=True)
        ]
        self._waiting_octets += room.octets
        self._reserved -= room.reserved
        if len(self._waiting) >= _AT_A_TIME:
            self._write()

    def leave_out(self, uri: str, reason: AbsenceReason) -> None:
        """A resource that is not in the package."""
        self._absent.append(AbsentResource(uri, reason))

    def blocks(self) -> Iterator[bytes]:
        """The whole document."""
        self._write()
        yield DocumentWriter(msgspec.structs.replace(self._head, absent=tuple(self._absent))).head()
        yield from self._written
        for deflated in self._deflated:
            yield zlib.decompress(deflated, -15)
        yield self._writer.tail()

    def _write(self) -> None:
        """Write what waits; the first of it is kept as it is, which spares most manifests to be deflated twice."""
        written = self._writer.entries(self._waiting)
        self._waiting, self._waiting_octets = [], 0
        if not self._deflated and self._written_octets + len(written) <= _WRITTEN_OCTETS:
            self._written.append(written)
            self._written_octets += len(written)
        else:
            self._deflated.append(deflate_whole(written, FAST_LEVEL))


def _absent_octets(uri: str) -> int:
    if uri.isascii() and "&" not in uri:
        return len(uri) + _ABSENT_OCTETS
    return len(escape(uri)) * (1 if uri.isascii() else 9) + _ABSENT_OCTETS
