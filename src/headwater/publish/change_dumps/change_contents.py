"""The octets of changes: of versions that are kept, or of the resource while it is as the change has left it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import msgspec

from headwater.catalog.content import (
    ContentReader,
    NoContent,
    OpenContent,
    recorded_blocks,
    strongest_digest,
)
from headwater.catalog.interface import Catalog, Change
from headwater.versions.store import VersionStore


class ChangeContents(Protocol):
    """Opens the octets that a change has left. Safe for several threads."""

    def blocks(self, set_name: str, change: Change) -> Iterator[bytes] | None:
        """The octets of a created or updated change, in blocks; None when they cannot be had.

        Raises ContentChanged after the last block when they are not the recorded ones, OSError, and the faults of
        stores.
        """
        ...


class KeptContents:
    """The changes whose versions a store keeps, by the SHA-256 that they state."""

    def __init__(self, versions: VersionStore, catalog: Catalog, contents: ContentReader) -> None:
        self._versions = versions
        self._catalog = catalog
        self._contents = contents

    def blocks(self, set_name: str, change: Change) -> Iterator[bytes] | None:
        """The octets of the version; else those of the resource, when no later change has touched it."""
        digest = strongest_digest(change.metadata)
        if digest is None:
            return None
        content: OpenContent | None = None
        if sha256 := sha256_of(change.metadata.hash):
            content = self._version(sha256, change)
        content = content or self._present(set_name, change)
        return None if content is None else _closing(content, change)

    def _version(self, sha256: str, change: Change) -> OpenContent | None:
        content = self._versions.open(sha256)
        if content is not None and change.metadata.length not in (None, content.octets):
            content.close()  # cut off by whatever has damaged the disk
            return None
        return content

    def _present(self, set_name: str, change: Change) -> OpenContent | None:
        held = self._catalog.get(set_name, [change.uri]).get(change.uri)
        if held is None or held.seq != change.seq:
            return None
        found = self._contents.open(set_name, held)
        return None if isinstance(found, NoContent) else _Unvouched(found)


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


def sha256_of(hash_text: str | None) -> str | None:
    """The hex digits of the SHA-256 that a `hash` states; None when it states none."""
    for one in (hash_text or "").split():
        name, _, digits = one.partition(":")
        if name == "sha-256" and len(digits) == 64:
            return digits
    return None


def _closing(content: OpenContent, change: Change) -> Iterator[bytes]:
    try:
        yield from recorded_blocks(content, change.metadata)
    finally:
        content.close()
