"""The index of what fed sets in a search cluster are remembered by: its documents, and what is asked of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec

from headwater.catalog.cluster.names import short
from headwater.storage.cluster import CONFLICT, Cluster
from headwater.storage.cluster_faults import ClusterDamaged, ClusterUnreachable, Reason

_NOT_FOUND: Final = 404
_GET_SLICE: Final = 5_000

Version = tuple[int, int]


class Kept(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One thing that is remembered; `body` is MessagePack. `noted` and `due` are microseconds."""

    set: str
    kind: str
    noted: int = 0
    due: int | None = None
    body: bytes = b""


class Operation(msgspec.Struct, frozen=True):
    """One document to be written, or (None) removed."""

    id: str
    document: Kept | None


class Book(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is under way in a set. `done` are the last batches that were remembered, so that none is twice."""

    set: str
    kind: str
    rev: int = 0
    pending: bool = False
    noted: int = 0
    intent: bytes = b""
    stamp: str = ""
    tail: bytes = b""
    done: tuple[str, ...] = ()


class _BookFound(msgspec.Struct, frozen=True):
    source: Book | None = msgspec.field(name="_source", default=None)
    seq_no: int = msgspec.field(name="_seq_no", default=-1)
    primary_term: int = msgspec.field(name="_primary_term", default=-1)


class Found(msgspec.Struct, frozen=True):
    id: str = msgspec.field(name="_id")
    source: Kept | None = msgspec.field(name="_source", default=None)
    error: Reason | None = None


class _Docs(msgspec.Struct, frozen=True):
    docs: list[Found]


class _Hits(msgspec.Struct, frozen=True):
    hits: list[Found]


class _Searched(msgspec.Struct, frozen=True):
    hits: _Hits


_book = msgspec.json.Decoder(_BookFound).decode
_docs = msgspec.json.Decoder(_Docs).decode
_searched = msgspec.json.Decoder(_Searched).decode


class _Count(msgspec.Struct, frozen=True):
    count: int


class MemoryIndex:
    """The index behind an alias. Methods raise ClusterFault."""

    def __init__(self, cluster: Cluster, index: str) -> None:
        self._cluster = cluster
        self._index = index

    def get(self, ids: Sequence[str]) -> dict[str, Kept]:
        """The documents that are there, by id, as they are now."""
        found: dict[str, Kept] = {}
        for start in range(0, len(ids), _GET_SLICE):
            body = msgspec.json.encode({"ids": ids[start : start + _GET_SLICE]})
            found.update((one.id, one.source) for one in self._get_slice(body) if one.source is not None)
        return found

    def _get_slice(self, body: bytes) -> list[Found]:
        """A document of a shard that nobody has at this moment comes with an error: that is not to be not there."""
        patience = self._cluster.patience()
        while True:
            documents = _docs(self._cluster.ask("POST", f"/{self._index}/_mget", body).body).docs
            error = next((one.error for one in documents if one.error is not None), None)
            if error is None:
                return documents
            patience.wait(ClusterUnreachable(f"{error.type}: {error.reason}", where=self._index))

    def search(self, query: dict[str, Any]) -> list[Found]:
        """What a search finds, as of the last refresh."""
        path = f"/{self._index}/_search?allow_partial_search_results=false"
        return _searched(self._cluster.ask("POST", path, msgspec.json.encode(query)).body).hits.hits

    def look(self, name: str) -> tuple[Book, Version | None]:
        """The book of a set as it is now, and its version."""
        answer = self._cluster.ask("GET", f"/{self._index}/_doc/{place_of(name, 'book')}", accept=(_NOT_FOUND,))
        if answer.status == _NOT_FOUND and '"error"' in answer.body[:20]:
            raise ClusterDamaged(answer.body[:500], where=self._index)
        found = _book(answer.body)
        if found.source is None:
            return Book(set=name, kind="book"), None
        return found.source, (found.seq_no, found.primary_term)

    def put(self, name: str, book: Book, version: Version | None) -> Version | None:
        """Replace the book that has this version; None when there is another one by now (perhaps this very one)."""
        if version is None:
            path = f"/{self._index}/_create/{place_of(name, 'book')}?require_alias=true"
        else:
            where = f"if_seq_no={version[0]}&if_primary_term={version[1]}&require_alias=true"
            path = f"/{self._index}/_doc/{place_of(name, 'book')}?{where}"
        answer = self._cluster.ask("PUT", path, msgspec.json.encode(book), accept=(CONFLICT,))
        if answer.status == CONFLICT:
            return None
        found = _book(answer.body)
        return found.seq_no, found.primary_term

    def apply(self, operations: Iterator[bytes]) -> None:
        """Send operations; what is newer stays as it is."""
        self._cluster.stream(self._index, operations, lambda: None)

    def refresh(self) -> None:
        """Make searches see what was written before."""
        self._cluster.ask("POST", f"/{self._index}/_refresh")

    def count(self, wanted: list[dict[str, Any]]) -> int:
        """How many documents there are, as of a second ago."""
        body = msgspec.json.encode(selecting(wanted))
        return msgspec.json.decode(self._cluster.ask("POST", f"/{self._index}/_count", body).body, type=_Count).count


def place_of(name: str, kind: str, *key: str) -> str:
    """The id of a document."""
    return short(kind, name, *key)


def kept(
    name: str,
    kind: str,
    key: str,
    body: bytes = b"",
    *,
    noted: int = 0,
    due: int | None = None,
    more: str | None = None,
) -> Operation:
    """A document to be written."""
    place = place_of(name, kind, key) if more is None else place_of(name, kind, key, more)
    return Operation(place, Kept(set=name, kind=kind, noted=noted, due=due, body=body))


def line_of(operation: Operation, rev: int) -> bytes:
    """The operation as the engine takes it: nothing newer than `rev` is written over."""
    where = {"_id": operation.id, "version": rev, "version_type": "external_gte"}
    if operation.document is None:
        return msgspec.json.encode({"delete": where}) + b"\n"
    return msgspec.json.encode({"index": where}) + b"\n" + msgspec.json.encode(operation.document) + b"\n"


def selecting(wanted: list[dict[str, Any]]) -> dict[str, Any]:
    """A query for documents that are all of this."""
    return {"query": {"bool": {"filter": wanted}}}
