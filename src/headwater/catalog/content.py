"""The content of resources: opens their octets in the state that the catalog records, or says why that cannot be.

Whoever packs, hashes or sends octets that the catalog has described asks a `ContentReader` for them. What it opens may
change while it is read: `recorded_blocks` gives the octets, and tells at the end whether they were the recorded ones.
"""

from collections.abc import Iterator
from enum import Enum
from typing import Protocol

import msgspec

from headwater.catalog.interface import Metadata, Resource, Upsert
from headwater.files.hashing import HASHERS
from headwater.spec.records import STRONGEST, Digest, parse_hash
from headwater.storage.object_store import OpenOctets, octets_of

RecordedResource = Resource | Upsert  # what was recorded of a resource, or is about to be


class OpenContent(OpenOctets, Protocol):
    """The octets of one resource. Reading raises OSError."""

    @property
    def octets(self) -> int:
        """How many there are."""

    @property
    def is_vouched(self) -> bool:
        """Whether these are known to be the recorded octets; if not, only their digest can tell."""


class Absence(Enum):
    """Why there are no octets in the recorded state."""

    GONE = "gone"  # there is no such resource any more; its deletion is about to be recorded
    CHANGED = "changed"
    """It is in another state, or in one that is not known to be the recorded one; the next scan tells."""
    ELSEWHERE = "elsewhere"  # it has an address that another server answers
    UNREADABLE = "unreadable"  # it is there and cannot be read at present


class NoContent(msgspec.Struct, frozen=True):
    """No octets: why, and where they are (an address) or what was in the way."""

    why: Absence
    detail: str = ""


class ContentReader(Protocol):
    """Opens the content of a source's resources. Safe for several threads."""

    def open(self, set_name: str, resource: RecordedResource) -> OpenContent | NoContent:
        """The octets of a resource as it was recorded; whoever opens them closes them."""


class ContentChanged(Exception):
    """What was read is not what was recorded: the resource has changed meanwhile."""


def recorded_blocks(content: OpenContent, metadata: Metadata, *, by_digest: bool = False) -> Iterator[bytes]:
    """The octets of an open content in blocks. Raises ContentChanged if they are not the recorded ones.

    It is raised after the last block; before the first one where the number of octets tells as much, so that whoever
    holds a small resource in memory never reads a large one. That they are is told by their number and, where nothing
    vouches for what was opened or with `by_digest`, by the strongest digest that is stated; else by the state that was
    opened, which counts as another one once the file has been replaced. Raises OSError.
    """
    expected = content.octets if metadata.length is None else metadata.length
    if content.octets != expected:
        raise ContentChanged("the resource has another length")
    digest = None if content.is_vouched and not by_digest else strongest_digest(metadata)
    hasher = None if digest is None else HASHERS[digest.algorithm]()
    octets = 0
    for block in octets_of(content, 0, expected):
        octets += len(block)
        if hasher is not None:
            hasher.update(block)
        yield block
    if octets != expected:
        raise ContentChanged("the resource has another length")
    if hasher is not None and digest is not None:
        if hasher.hexdigest() != digest.hex:
            raise ContentChanged(f"the resource has another {digest.algorithm}")
    elif not content.is_unchanged():
        raise ContentChanged("the resource has changed while it was read")


def read_and_close(content: OpenContent, metadata: Metadata, *, by_digest: bool = False) -> bytes | NoContent:
    """All the octets of a small content that has been opened, or why they are not the recorded ones."""
    try:
        return b"".join(recorded_blocks(content, metadata, by_digest=by_digest))
    except ContentChanged:
        return NoContent(Absence.CHANGED)
    except OSError as cause:
        return NoContent(Absence.UNREADABLE, cause.strerror or "")
    finally:
        content.close()


def strongest_digest(metadata: Metadata) -> Digest | None:
    """The strongest digest that is stated and can be computed (DST-V1)."""
    stated = {one.algorithm: one for one in parse_hash(metadata.hash or "").digests}
    return next((stated[name] for name in STRONGEST if name in stated), None)
