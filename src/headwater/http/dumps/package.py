"""The octets of a package, made while they are sent: members in the order of the request, the manifest last.

The manifest comes last because it says what the package holds, and that is known when all has been read. A member is
recorded with the digest that the catalog has, so a reader that knows the lists may take each as soon as it has come.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import msgspec

from headwater.catalog.content import (
    ContentChanged,
    ContentReader,
    NoContent,
    OpenContent,
    read_and_close,
    recorded_blocks,
)
from headwater.catalog.interface import Metadata, Resource
from headwater.http.dumps.manifest import EntryRoom, Manifest
from headwater.http.dumps.resource_states import StatesOf
from headwater.http.dumps.selection import SelectedResources, absolute_uri
from headwater.packages.compression import pays
from headwater.packages.zip_writer import ZipWriter
from headwater.publish.links.added_links import AddedLinks, LinkRoom
from headwater.publish.links.link_sources import EntryPlace
from headwater.publish.rendering.resource_paths import ResourcePaths
from headwater.spec.limits import DOCUMENT_OCTETS
from headwater.spec.records import AbsenceReason

BLOCK_OCTETS = 1 << 18
"""Octets that are handed out at a time, more or less."""
SMALL_OCTETS = 1 << 20
"""A resource up to this size is read whole before its member begins; a larger one while it is sent."""
ROWS = 256
"""Resources that the catalog is asked for at a time."""
MANIFEST = "manifest.xml"


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

    `deflate`: whether members are deflated where that pays; else all are stored.
    """

    def __init__(self, source: PackageSource, selection: SelectedResources, octets: int, *, deflate: bool) -> None:
        self._source = source
        self._deflates = deflate
        self._selection = selection
        self._room = octets
        uris = itertools.chain(selection.uris, selection.deleted)
        self._manifest = Manifest(selection.at, source.up, (absolute_uri(uri, source.prefix) for uri in uris))
        self._paths = ResourcePaths()
        self._zip = ZipWriter()

    def __iter__(self) -> Iterator[bytes]:
        """Blocks of octets. Raises the catalog's faults; then what was given is no package."""
        waiting: list[bytes] = []
        octets = 0
        for piece in self._pieces():
            waiting.append(piece)
            octets += len(piece)
            if octets >= BLOCK_OCTETS:
                yield b"".join(waiting)
                waiting, octets = [], 0
        yield b"".join(waiting)

    def _pieces(self) -> Iterator[bytes]:
        source, uris = self._source, self._selection.uris
        for start in range(0, len(uris), ROWS):
            batch = uris[start : start + ROWS]
            rows: list[Resource] = []
            for uri, found in source.states(batch).items():
                if isinstance(found, Resource):
                    rows.append(found)
                else:
                    self._leave_out(uri, found)
            linked = source.links.to(rows, EntryPlace.RESOURCE_DUMP_MANIFEST, LinkRoom(DOCUMENT_OCTETS))
            for group in _groups(linked):
                yield from self._group(group)
        for uri in self._selection.deleted:
            self._leave_out(uri, AbsenceReason.DELETED)
        yield from self._zip.stream(MANIFEST, self._manifest.blocks(), deflate=self._deflates)
        yield self._zip.end()

    def _leave_out(self, uri: str, reason: AbsenceReason) -> None:
        self._manifest.leave_out(absolute_uri(uri, self._source.prefix), reason)

    def _group(self, group: list[Resource]) -> Iterator[bytes]:
        """The members of resources that may be held together, or of one of which nobody knows as much."""
        source, first = self._source, group[0]
        if _is_small(first):
            yield from self._whole(group, source.contents.read_each(source.name, group))
            return
        content = source.contents.open(source.name, first)
        if isinstance(content, NoContent):
            self._leave_out(first.uri, AbsenceReason(content.why.value))
        elif content.octets > SMALL_OCTETS:
            yield from self._large(first, content)
        else:
            yield from self._whole(group, [read_and_close(content, first.metadata)])

    def _whole(self, group: Sequence[Resource], contents: Sequence[bytes | NoContent]) -> Sequence[bytes]:
        """The members of resources that have been read whole, of those that can be given."""
        there: list[Resource] = []
        read: list[bytes] = []
        for resource, content in zip(group, contents, strict=True):
            if isinstance(content, NoContent):
                self._leave_out(resource.uri, AbsenceReason(content.why.value))
            else:
                there.append(resource)
                read.append(content)
        if (place := self._place(there, sum(map(len, read)))) is None:
            return [part for one, octets in zip(there, read, strict=True) for part in self._whole_one(one, octets)]
        return self._members(there, read, place)

    def _whole_one(self, resource: Resource, octets: bytes) -> Sequence[bytes]:
        """The member of one of several resources for all of which there was no room."""
        place = self._place([resource], len(octets))
        if place is None:
            self._leave_out(resource.uri, AbsenceReason.LIMIT)
            return ()
        return self._members([resource], [octets], place)

    def _members(self, resources: Sequence[Resource], contents: Sequence[bytes], place: _Place) -> Sequence[bytes]:
        deflate = [self._pays(one, len(octets)) for one, octets in zip(resources, contents, strict=True)]
        parts = self._zip.whole_members([path[1:] for path in place.paths], contents, deflate)
        self._manifest.add(resources, *place)
        return parts

    def _pays(self, resource: Resource, octets: int) -> bool:
        return self._deflates and pays(resource.metadata.type, octets)

    def _large(self, resource: Resource, content: OpenContent) -> Iterator[bytes]:
        """The member of a resource that is read while it is sent."""
        try:
            place = self._place([resource], content.octets)
            if place is None:
                self._leave_out(resource.uri, AbsenceReason.LIMIT)
                return
            reading = _Reading(content, resource.metadata)
            deflate = self._pays(resource, content.octets)
            yield from self._zip.stream(place.paths[0][1:], reading, deflate=deflate)
            if reading.fault is None:
                self._manifest.add([resource], *place)
            else:
                self._leave_out(resource.uri, reading.fault)
        finally:
            content.close()

    def _place(self, resources: Sequence[Resource], octets: int) -> _Place | None:
        """The place of resources in the package; None when the limits have no room for all of them."""
        if octets > self._room:
            return None
        uris = [absolute_uri(one.uri, self._source.prefix) for one in resources]
        room = self._manifest.room_for(resources, uris)
        if room is None:
            return None
        self._room -= octets
        return _Place(uris, self._paths.take_all([one.uri for one in resources]), room)


class _Place(NamedTuple):
    """Resources in the package: absolute URIs, paths, and the room of their entries in the manifest."""

    uris: Sequence[str]
    paths: Sequence[str]
    room: EntryRoom


def _groups(resources: Iterable[Resource]) -> Iterator[list[Resource]]:
    """The resources in their order, those together that are small and together hardly more than a block."""
    group: list[Resource] = []
    octets = 0
    for resource in resources:
        length = resource.metadata.length
        if group and (octets + (length or 0) > BLOCK_OCTETS or not (_is_small(resource) and _is_small(group[0]))):
            yield group
            group, octets = [], 0
        group.append(resource)
        octets += length or 0
    if group:
        yield group


def _is_small(resource: Resource) -> bool:
    """Whether it is known to be read whole."""
    length = resource.metadata.length
    return length is not None and length <= SMALL_OCTETS


class _Reading:
    """The octets of a resource in blocks; ends early, and `fault` says why, when they are no longer the recorded ones.

    A member that has begun then ends with what came, and the manifest does not name it.
    """

    fault: AbsenceReason | None = None

    def __init__(self, content: OpenContent, metadata: Metadata) -> None:
        self._content = content
        self._metadata = metadata

    def __iter__(self) -> Iterator[bytes]:
        try:
            yield from recorded_blocks(self._content, self._metadata)
        except ContentChanged:
            self.fault = AbsenceReason.CHANGED
        except OSError:
            self.fault = AbsenceReason.UNREADABLE
