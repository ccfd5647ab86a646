"""The octets of a package, made while they are sent: members in the order of the request, the manifest last.

The manifest comes last because it says what the package holds, and that is known when all has been read. A member is
recorded with the digest that the catalog has, so a reader that knows the lists may take each as soon as it has come.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from headwater.catalog.content import (
    ContentChanged,
    ContentReader,
    NoContent,
    OpenContent,
    recorded_blocks,
    recorded_octets,
)
from headwater.catalog.interface import Catalog, Metadata, Resource
from headwater.http.dumps.manifest import Manifest
from headwater.http.dumps.selection import SelectedResources, absolute_uri
from headwater.packages.compression import pays
from headwater.packages.zip_writer import ZipWriter
from headwater.publish.rendering.resource_paths import ResourcePaths
from headwater.spec.records import AbsenceReason

BLOCK_OCTETS = 1 << 18
"""Octets that are handed out at a time, more or less."""
SMALL_OCTETS = 1 << 20
"""A resource up to this size is read whole before its member begins; a larger one while it is sent."""
ROWS = 256
"""Resources that the catalog is asked for at a time."""
MANIFEST = "manifest.xml"


class PackageSource(msgspec.Struct, frozen=True, kw_only=True):
    """Whose resources a package is made of: the set, its URLs, its catalog, who has its octets."""

    name: str
    prefix: str
    up: str
    catalog: Catalog
    contents: ContentReader


class Package:
    """One package of the resources of a selection, `octets` of content at most. Iterate once, in any thread."""

    def __init__(self, source: PackageSource, selection: SelectedResources, octets: int) -> None:
        self._source = source
        self._selection = selection
        self._room = octets
        uris = itertools.chain(selection.uris, selection.deleted)
        self._manifest = Manifest(selection.at, source.up, (absolute_uri(uri, source.prefix) for uri in uris))
        self._paths = ResourcePaths()
        self._zip = ZipWriter()

    @property
    def resource_count(self) -> int:
        """Resources that are in the package so far."""
        return self._manifest.count

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
            found = source.catalog.get(source.name, batch)
            for uri in batch:
                resource = found.get(uri)
                if resource is None:
                    self._leave_out(uri, AbsenceReason.UNKNOWN if "://" not in uri else AbsenceReason.ELSEWHERE)
                    continue
                content = source.contents.open(source.name, resource)
                if isinstance(content, NoContent):
                    self._leave_out(uri, AbsenceReason(content.why.value))
                elif content.octets > SMALL_OCTETS:
                    yield from self._large(resource, content)
                elif (member := self._small(resource, content)) is not None:
                    yield member
        for uri in self._selection.deleted:
            self._leave_out(uri, AbsenceReason.DELETED)
        yield from self._zip.stream(MANIFEST, self._manifest.blocks(), deflate=True)
        yield self._zip.end()

    def _leave_out(self, uri: str, reason: AbsenceReason) -> None:
        self._manifest.leave_out(absolute_uri(uri, self._source.prefix), reason)

    def _small(self, resource: Resource, content: OpenContent) -> bytes | None:
        """The member of a resource that is read whole; None when it cannot be given."""
        try:
            octets = recorded_octets(content, resource.metadata)
        except ContentChanged:
            self._leave_out(resource.uri, AbsenceReason.CHANGED)
            return None
        except OSError:
            self._leave_out(resource.uri, AbsenceReason.UNREADABLE)
            return None
        finally:
            content.close()
        place = self._place(resource, len(octets))
        if place is None:
            return None
        member = self._zip.member(place.path[1:], octets, deflate=pays(resource.metadata.type, len(octets)))
        self._manifest.add(resource, *place)
        return member

    def _large(self, resource: Resource, content: OpenContent) -> Iterator[bytes]:
        """The member of a resource that is read while it is sent."""
        try:
            place = self._place(resource, content.octets)
            if place is None:
                return
            reading = _Reading(content, resource.metadata)
            deflate = pays(resource.metadata.type, content.octets)
            yield from self._zip.stream(place.path[1:], reading, deflate=deflate)
            if reading.fault is None:
                self._manifest.add(resource, *place)
            else:
                self._leave_out(resource.uri, reading.fault)
        finally:
            content.close()

    def _place(self, resource: Resource, octets: int) -> _Place | None:
        """The place of a resource in the package; None, and it is left out, when the limits have no room for it."""
        uri = absolute_uri(resource.uri, self._source.prefix)
        if octets <= self._room:
            path = self._paths.take(resource.uri)
            if entry_octets := self._manifest.room_for(resource, uri, path):
                self._room -= octets
                return _Place(uri, path, entry_octets)
        self._manifest.leave_out(uri, AbsenceReason.LIMIT)
        return None


class _Place(NamedTuple):
    """A resource in the package: its absolute URI, its path, and what its entry in the manifest takes at most."""

    uri: str
    path: str
    entry_octets: int


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
