"""The octets of changes: of versions that are kept, or of the resource while it is as the change has left it.

Which versions are needed follows from that: those of changes that are in no final package yet, of patches to come, of
histories. The next patch of a resource starts from the version that it has now.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

import msgspec

from headwater.catalog.content import Absence, ContentReader, NoContent, OpenContent, strongest_digest
from headwater.catalog.interface import Catalog, Change
from headwater.publish.publication_state import decode_publication
from headwater.versions.history import History, has_history, sha256_of
from headwater.versions.predecessors import Predecessors
from headwater.versions.retention import DigestSet, needed_digests
from headwater.versions.store import VersionStore

_ROWS = 5_000


class KeptContents:
    """The changes whose versions a store keeps, by the SHA-256 that they state."""

    def __init__(self, versions: VersionStore, catalog: Catalog, contents: ContentReader) -> None:
        self._versions = versions
        self._catalog = catalog
        self._contents = contents

    def open(self, set_name: str, change: Change) -> OpenContent | NoContent:
        """The octets of a created or updated change: of the version, else of the resource as the change has left it."""
        if strongest_digest(change.metadata) is None:
            return NoContent(Absence.CHANGED)
        content: OpenContent | None = None
        if sha256 := sha256_of(change.metadata.hash):
            content = self._version(sha256, change)
        return content or self._present(set_name, change)

    def _version(self, sha256: str, change: Change) -> OpenContent | None:
        content = self._versions.open(sha256)
        if content is not None and change.metadata.length not in (None, content.octets):
            content.close()  # cut off by whatever has damaged the disk
            return None
        return content

    def _present(self, set_name: str, change: Change) -> OpenContent | NoContent:
        held = self._catalog.get(set_name, [change.uri]).get(change.uri)
        if held is None or held.seq != change.seq:
            return NoContent(Absence.CHANGED)
        found = self._contents.open(set_name, held)
        return found if isinstance(found, NoContent) else _Unvouched(found)


class _Unvouched(msgspec.Struct, frozen=True, gc=False):
    """An open content of which only the digest tells what it is: a package is for good."""

    content: OpenContent
    is_vouched: bool = False

    @property
    def octets(self) -> int:
        return self.content.octets

    def read(self, start: int, octets: int) -> bytes:
        return self.content.read(start, octets)

    def is_unchanged(self) -> bool:
        return self.content.is_unchanged()

    def close(self) -> None:
        self.content.close()


def needed_versions(catalog: Catalog) -> DigestSet:
    """The digests of the versions that packages and patches to come and the histories need, of all sets.

    Raises the catalog's StoreFaults.
    """
    return DigestSet(chain(_needed(catalog), _patchable(catalog), _remembered(catalog)))


def _needed(catalog: Catalog) -> Iterator[str]:
    for state in catalog.sets():
        dump = decode_publication(state.notes).change_dump
        if dump is None:
            continue
        after = dump.next_first - 1
        while rows := catalog.changes(state.name, after, _ROWS):
            yield from (digest for row in rows if (digest := sha256_of(row.metadata.hash)))
            after = rows[-1].seq


def _patchable(catalog: Catalog) -> Iterator[str]:
    for state in catalog.sets():
        kinds, after = decode_publication(state.notes).patch, ""
        while kinds and (rows := catalog.resources(state.name, after, _ROWS)):
            keeps = Predecessors(kinds).keeps
            yield from (digest for row in rows if keeps(row.metadata) and (digest := sha256_of(row.metadata.hash)))
            after = rows[-1].uri


def _remembered(catalog: Catalog) -> Iterator[str]:
    for name in has_history(catalog):
        yield from needed_digests(History(catalog, name))
