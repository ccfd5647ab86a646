"""The octets of a package, made while they are sent: members in the order of the request, the manifest last.

The manifest comes last because it says what the package holds, and that is known when all has been read. A member is
recorded with the digest that the catalog has, so a reader that knows the lists may take each as soon as it has come.
"""

from __future__ import annotations

import datetime as dt
import zlib
from collections.abc import Iterator

import msgspec

from headwater.catalog.content import Absence, ContentReader, NoContent, OpenContent
from headwater.catalog.interface import Resource
from headwater.deflate import FAST_LEVEL, deflate_whole
from headwater.http.dumps.request import TOO_MUCH, DumpRefused
from headwater.http.dumps.selection import SelectedResources, StatesOf, absolute_uri
from headwater.packages.member_paths import MANIFEST
from headwater.publish.added_links import AddedLinks, EntryPlace, LinkRoom
from headwater.publish.packages.builder import (
    PackageBounds,
    PackageBuilder,
    entry_octets,
    in_blocks,
)
from headwater.publish.packages.paths import ResourcePaths
from headwater.publish.rendering.documents import packed_entry
from headwater.spec.checks import escape
from headwater.spec.kinds import DOCUMENT_OCTETS, Kind
from headwater.spec.records import AbsenceReason, AbsentResource, Document, Entry, Link
from headwater.spec.writer import DocumentWriter

BLOCK_OCTETS = 1 << 18
"""Octets that are handed out at a time, more or less."""
ROWS = 256
"""Resources that the catalog is asked for at a time."""
_HEAD_OCTETS = 1 << 16
"""What the head and the end of a manifest take at most."""
_ABSENT_OCTETS = 120
"""What an `absent` has besides its URI, at most."""


class PackageSource(msgspec.Struct, frozen=True, kw_only=True):
    """Whose resources a package is made of: the set, its URLs, their states, their octets, what links it adds."""

    name: str
    prefix: str
    up: str
    states: StatesOf
    contents: ContentReader
    links: AddedLinks


class Package:
    """One package of the resources of a selection, `octets` of content at most. Iterate once, in any thread.

    `deflate`: whether members are deflated where that pays; else all are stored. Raises DumpRefused when the URIs
    alone could be too many for one manifest: all could come to be named as absent (RS-LIM-01).
    """

    def __init__(self, source: PackageSource, selection: SelectedResources, octets: int, *, deflate: bool) -> None:
        self._source = source
        self._deflates = deflate
        self._selection = selection
        uris = [absolute_uri(uri, source.prefix) for uri in (*selection.uris, *selection.deleted)]
        reserved = sum(map(_absent_octets, uris))
        if reserved > DOCUMENT_OCTETS // 2:
            raise DumpRefused("the URIs that are asked for are too long for one manifest", code=TOO_MUCH)
        bounds = PackageBounds(
            entries=len(uris), octets=octets, manifest_octets=DOCUMENT_OCTETS - _HEAD_OCTETS - reserved
        )
        self._builder = PackageBuilder(bounds, deflates=deflate, is_stream=True)
        self._manifest = _Manifest(selection.at, source.up)
        self._paths = ResourcePaths()

    def __iter__(self) -> Iterator[bytes]:
        """Blocks of octets. Raises the catalog's faults; then what was given is no package."""
        return in_blocks(self._pieces(), BLOCK_OCTETS)

    def _pieces(self) -> Iterator[bytes]:
        source, zip_file = self._source, self._builder.zip
        linked = source.links.to(self._rows(), EntryPlace.RESOURCE_DUMP_MANIFEST, LinkRoom(DOCUMENT_OCTETS))
        for row in linked:
            yield from self._member(row, source.contents.open(source.name, row))
        for uri in self._selection.deleted:
            self._leave_out(uri, AbsenceReason.DELETED)
        yield from zip_file.stream(MANIFEST, self._manifest.blocks(), deflate=self._deflates)
        yield zip_file.end()

    def _rows(self) -> Iterator[Resource]:
        """The resources in the states that are wanted."""
        uris = self._selection.uris
        for start in range(0, len(uris), ROWS):
            for uri, found in self._source.states(uris[start : start + ROWS]).items():
                if isinstance(found, Resource):
                    yield found
                else:
                    self._leave_out(uri, found)

    def _member(self, row: Resource, content: OpenContent | NoContent) -> Iterator[bytes]:
        if isinstance(content, NoContent):
            self._leave_out(row.uri, AbsenceReason(content.why.value))
            return
        path, octets = self._paths.take(row.uri), content.octets
        entry = entry_octets(row, path)
        if not self._builder.has_room(octets, entry):
            content.close()
            self._leave_out(row.uri, AbsenceReason.LIMIT)
            return
        self._builder.count(octets, entry)
        why: Absence | None = yield from self._builder.member(path[1:], content, row.metadata)
        if why is None:
            self._manifest.add(packed_entry(row, self._source.prefix, path, row.metadata.length))
        else:
            self._leave_out(row.uri, AbsenceReason(why.value))

    def _leave_out(self, uri: str, reason: AbsenceReason) -> None:
        self._manifest.absent.append(AbsentResource(absolute_uri(uri, self._source.prefix), reason))


class _Manifest:
    """Entries and `absent` resources, in any order; what is written of it is kept deflated, until it is sent."""

    def __init__(self, at: dt.datetime, up: str) -> None:
        self.absent: list[AbsentResource] = []
        self._head = Document(
            kind=Kind.RESOURCE_DUMP_MANIFEST,
            capability="resourcedump-manifest",
            at=at,
            links=(Link(rel="up", href=up),),
        )
        self._writer = DocumentWriter(self._head)
        self._writer.head()
        self._waiting: list[Entry] = []
        self._deflated: list[bytes] = []

    def add(self, entry: Entry) -> None:
        """A resource that is in the package."""
        self._waiting.append(entry)
        if len(self._waiting) >= ROWS:
            self._deflated.append(deflate_whole(self._writer.entries(self._waiting), FAST_LEVEL))
            self._waiting.clear()

    def blocks(self) -> Iterator[bytes]:
        """The whole document."""
        yield DocumentWriter(msgspec.structs.replace(self._head, absent=tuple(self.absent))).head()
        for deflated in self._deflated:
            yield zlib.decompress(deflated, -15)
        if self._waiting:
            yield self._writer.entries(self._waiting)
        yield self._writer.tail()


def _absent_octets(uri: str) -> int:
    if uri.isascii() and "&" not in uri:
        return len(uri) + _ABSENT_OCTETS
    return len(escape(uri)) * (1 if uri.isascii() else 9) + _ABSENT_OCTETS
