"""Rows of sets as documents of the index `PREFIX-state`, and as the head says them until they are there."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from headwater.catalog.cluster.document_names import short
from headwater.catalog.state import RowKey, StateRow

_to_json = msgspec.json.Encoder().encode


class RowWrite(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What becomes of one row: `value` None, it is deleted."""

    kind: str
    key: str
    value: bytes | None = None
    rank: int = 0


class RowDocument(msgspec.Struct, frozen=True, gc=False):
    """One row; `rev` is the revision of the batch that wrote it."""

    resource_set: str
    kind: str
    key: str
    rev: int
    rank: int
    value: bytes = b""

    @property
    def row(self) -> StateRow:
        """The row as the catalog gives it."""
        return StateRow(self.kind, self.key, self.value, self.rank)


def writes_in_order(writes: dict[RowKey, StateRow | None]) -> tuple[RowWrite, ...]:
    """The writes of a batch as a head says them."""
    return tuple(
        RowWrite(*key) if row is None else RowWrite(row.kind, row.key, row.value, row.rank)
        for key, row in writes.items()
    )


def row_id(name: str, kind: str, key: str) -> str:
    """The id of a row's document."""
    return short(name, kind, key)


def row_operations(name: str, writes: Iterable[RowWrite], rev: int, index: str) -> Iterator[bytes]:
    """The bulk operations that write rows: over older revisions only, and over their own."""
    for write in writes:
        id_ = row_id(name, write.kind, write.key)
        where = {"_index": index, "_id": id_, "version": rev, "version_type": "external_gte"}
        if write.value is None:
            yield _to_json({"delete": where}) + b"\n"
        else:
            document = RowDocument(name, write.kind, write.key, rev, write.rank, write.value)
            yield _to_json({"index": where}) + b"\n" + _to_json(document) + b"\n"
