"""The version before each change: noted in rows of the set, in the transaction of the change, for who makes patches.

A patch leads from the state after the preceding change to that of its own (AMB-48). The catalog keeps of a resource
its newest state alone: so whoever records an update notes the SHA-256 that goes, and whoever publishes takes the note.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence

import msgspec

from headwater.catalog.interface import Change, Metadata, Upsert
from headwater.catalog.state import RowKey, StateRow
from headwater.patches.faults import LARGEST
from headwater.patches.registry import PatchFormat, format_for
from headwater.spec.hashes import parse_hash

KIND = "version before"


class Predecessors(msgspec.Struct, frozen=True):
    """Notes the versions before the changes of one set, of the resources that patches of these kinds are for."""

    kinds: tuple[str, ...]

    def keeps(self, metadata: Metadata) -> bool:
        """Whether the octets of a resource are worth keeping for a patch to come."""
        return format_of(metadata, self.kinds) is not None and sha256_of(metadata) is not None

    def rows(self, replaced: Iterable[tuple[Metadata, Upsert]]) -> list[StateRow]:
        """The notes of updates that are about to be recorded: what was stated before, and what is stated now."""
        made: list[StateRow] = []
        for before, event in replaced:
            old, new = sha256_of(before), sha256_of(event.metadata)
            if old is None or new is None or old == new or not (self.keeps(before) and self.keeps(event.metadata)):
                continue
            made.append(StateRow(KIND, _key(event.uri, new), bytes.fromhex(old)))
        return made


def row_keys(changes: Sequence[Change]) -> dict[int, RowKey]:
    """The notes of changes, by their numbers."""
    digests = ((one, sha256_of(one.metadata)) for one in changes)
    return {one.seq: (KIND, _key(one.uri, digest)) for one, digest in digests if digest is not None}


def format_of(metadata: Metadata, kinds: Sequence[str]) -> PatchFormat | None:
    """The kind of patch that is made of such a resource; None: of its type, or of so large a one, there is none."""
    if metadata.encoding is not None or metadata.length is None or metadata.length > LARGEST:
        return None
    return format_for(metadata.type, kinds)


def sha256_of(metadata: Metadata) -> str | None:
    """The SHA-256 that is stated of a resource."""
    return next((one.hex for one in parse_hash(metadata.hash or "").digests if one.algorithm == "sha-256"), None)


def _key(uri: str, digest: str) -> str:
    return f"{digest}-{hashlib.sha256(uri.encode()).hexdigest()[:32]}"
