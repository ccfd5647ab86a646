"""The version before each change: noted in rows of the set, in the transaction of the change, for who makes patches.

A patch leads from the state after the preceding change to that of its own (AMB-48). The catalog keeps of a resource
its newest state alone: so whoever records an update notes the SHA-256 that goes, and whoever publishes takes the note.
A note is kept by the number of its change: a resource may come to the same state twice before any list says so.
"""

from collections.abc import Iterable, Sequence

import msgspec

from headwater.catalog.interface import Change, Metadata, NumberedChange, RowKey, RowsOfChanges, StateRow, Upsert
from headwater.patches import LARGEST, PatchFormat, format_for
from headwater.spec.records import ChangeKind, sha256_of

KIND = "version before"


class Predecessors(msgspec.Struct, frozen=True):
    """Notes the versions before the changes of one set, of the resources that patches of these kinds are for."""

    kinds: tuple[str, ...]

    def keeps(self, metadata: Metadata) -> bool:
        """Whether the octets of a resource are worth keeping for a patch to come."""
        return format_of(metadata, self.kinds) is not None and bool(sha256_of(metadata.hash))

    def notes(self, stated: Iterable[tuple[Metadata | None, Upsert]]) -> RowsOfChanges | None:
        """The notes of a batch: `stated` is, in order, what is held before each of its events, and the event.

        None where there is nothing to note.
        """
        bases: dict[str, list[bytes]] = {}
        for before, event in stated:
            base = ""  # the SHA-256 of the state that a patch of this event leads from; empty where there is to be none
            if before is not None and self.keeps(before) and self.keeps(event.metadata):
                base = sha256_of(before.hash)
            is_same = base == sha256_of(event.metadata.hash)
            bases.setdefault(event.uri, []).append(b"" if is_same else bytes.fromhex(base))
        if not any(map(any, bases.values())):
            return None

        def rows(changes: Sequence[NumberedChange]) -> list[StateRow]:
            left = {uri: iter(some) for uri, some in bases.items()}
            logged = (one for one in changes if one.change is not ChangeKind.DELETED and one.uri in left)
            found = ((one.seq, next(left[one.uri], b"")) for one in logged)
            return [StateRow(*_key(seq), base) for seq, base in found if base]

        return rows


def row_keys(changes: Iterable[Change]) -> dict[int, RowKey]:
    """The notes of changes, by their numbers."""
    return {one.seq: _key(one.seq) for one in changes}


def format_of(metadata: Metadata, kinds: Sequence[str]) -> PatchFormat | None:
    """The kind of patch that is made of such a resource; None: of its type, or of so large a one, there is none."""
    if metadata.encoding is not None or metadata.length is None or metadata.length > LARGEST:
        return None
    return format_for(metadata.type, kinds)


def _key(seq: int) -> RowKey:
    return KIND, str(seq)
