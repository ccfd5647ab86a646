"""The octets of past states: of the version store, or of the resource while it is in that state (a `ContentReader`)."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from headwater.catalog.content import (
    Absence,
    ContentReader,
    NoContent,
    OpenContent,
    RecordedResource,
    read_whole,
)
from headwater.catalog.interface import Catalog, Metadata, Resource
from headwater.spec.times import from_microseconds
from headwater.versions.history import PastState, sha256_of
from headwater.versions.store import VersionStore


class PastContents:
    """Opens the octets of past states, which are known by their SHA-256."""

    def __init__(self, catalog: Catalog, versions: VersionStore, contents: ContentReader) -> None:
        self._catalog = catalog
        self._versions = versions
        self._contents = contents

    def open(self, set_name: str, resource: RecordedResource) -> OpenContent | NoContent:
        """The octets of a resource in this state; `GONE` when they are no longer kept."""
        digest = sha256_of(resource.metadata.hash)
        content = self._versions.open(digest)
        if content is not None:
            if resource.metadata.length in (None, content.octets):
                return content
            content.close()
        held = self._catalog.get(set_name, [resource.uri]).get(resource.uri)
        if held is None or sha256_of(held.metadata.hash) != digest:
            return NoContent(Absence.GONE)
        found = self._contents.open(set_name, held)
        if isinstance(found, NoContent):
            return NoContent(Absence.GONE)
        if not found.is_vouched:
            found.close()
            return NoContent(Absence.GONE)
        return found

    def read_each(self, set_name: str, resources: Sequence[RecordedResource]) -> list[bytes | NoContent]:
        """For each of these small resources all its octets, which have its digest."""
        return [read_whole(self, set_name, one) for one in resources]


class HashedOctets:
    """Octets that are hashed as they are read from the beginning to the end: only then do they count as unchanged."""

    def __init__(self, content: OpenContent, digest: str) -> None:
        self.octets = content.octets
        self._content = content
        self._digest = digest
        self._hasher = hashlib.sha256()
        self._hashed = 0

    def read(self, start: int, octets: int) -> bytes:
        """Up to so many octets from `start`, which is where the last ones ended."""
        data = self._content.read(start, octets)
        if start == self._hashed:
            self._hasher.update(data)
            self._hashed += len(data)
        return data

    def is_unchanged(self) -> bool:
        """Whether all have been read, and have their SHA-256."""
        return self._hashed == self.octets and self._hasher.hexdigest() == self._digest

    def close(self) -> None:
        """Give the content back."""
        self._content.close()


def past_resource(uri: str, state: PastState) -> Resource:
    """A state as the catalog would have recorded it."""
    lastmod = None if state.lastmod_us is None else from_microseconds(state.lastmod_us)
    stated = Metadata(
        lastmod=lastmod,
        hash=f"sha-256:{state.digest}",
        length=state.length,
        type=state.type,
        encoding=state.encoding,
    )
    return Resource(uri, stated, b"", 0, 0)
