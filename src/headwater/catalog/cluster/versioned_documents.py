"""Documents that are replaced by compare-and-set: read with their version, written over that version only."""

from __future__ import annotations

from typing import Generic, TypeVar

import msgspec

from headwater.catalog.lease import Version
from headwater.storage.cluster import CONFLICT, Cluster
from headwater.storage.cluster_faults import ClusterDamaged
from headwater.typed_decoding import json_decoder

_NOT_FOUND = 404

T = TypeVar("T")


class VersionedDocument(msgspec.Struct, Generic[T], frozen=True):
    """A document and its version."""

    source: T
    version: Version


class _Found(msgspec.Struct, Generic[T], frozen=True, gc=False):
    source: T | None = msgspec.field(name="_source", default=None)
    seq_no: int = msgspec.field(name="_seq_no", default=-1)
    primary_term: int = msgspec.field(name="_primary_term", default=-1)


class _Written(msgspec.Struct, frozen=True):
    seq_no: int = msgspec.field(name="_seq_no")
    primary_term: int = msgspec.field(name="_primary_term")


_written = json_decoder(_Written)


class VersionedDocuments(Generic[T]):
    """The documents of one kind in one index. Every method may raise ClusterFault."""

    def __init__(self, cluster: Cluster, index: str, kind: type[T]) -> None:
        self._cluster = cluster
        self._index = index
        self._decode = json_decoder(_Found[kind])  # type: ignore[valid-type]
        self._encode = msgspec.json.Encoder().encode

    def get(self, id_: str) -> VersionedDocument[T] | None:
        """The document as it is now; None when there is none."""
        answer = self._cluster.ask("GET", f"/{self._index}/_doc/{id_}", accept=(_NOT_FOUND,))
        if answer.status == _NOT_FOUND and '"error"' in answer.body[:20]:
            raise ClusterDamaged(answer.body[:500], where=self._index)
        found = self._decode(answer.body)
        return None if found.source is None else VersionedDocument(found.source, (found.seq_no, found.primary_term))

    def put(self, id_: str, document: T, over: Version | None) -> Version | None:
        """Write the document over this version, or (None) where there is none; its version.

        None, and nothing is written, when there is another one by now: perhaps this very one, its answer lost.
        """
        if over is None:
            path = f"/{self._index}/_create/{id_}?require_alias=true"
        else:
            path = f"/{self._index}/_doc/{id_}?if_seq_no={over[0]}&if_primary_term={over[1]}&require_alias=true"
        answer = self._cluster.ask("PUT", path, self._encode(document), accept=(CONFLICT,))
        if answer.status == CONFLICT:
            return None
        written = _written(answer.body)
        return written.seq_no, written.primary_term
