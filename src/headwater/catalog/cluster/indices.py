"""Requests to the four indices of a catalog on a search cluster: documents by id, by search, by compare-and-set."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Generic, TypeVar

import msgspec
from msgspec.structs import replace

from headwater.catalog.cluster.documents import (
    JournalDocument,
    RowDocument,
    StoredChange,
    StoredResource,
    change_id,
    journal_id,
    removal_operation,
    row_operations,
    short,
)
from headwater.catalog.cluster.head import SetHead, Tail, valid
from headwater.catalog.cluster.schema import CHANGE, RESOURCE, SET, STATE
from headwater.catalog.interface import RowKey, StateRow, UnknownSet
from headwater.catalog.lease import Version
from headwater.catalog.page_filling import is_text
from headwater.storage.cluster import CONFLICT, Cluster, ClusterDamaged, ClusterUnreachable, Reason
from headwater.typed_decoding import from_json, json_decoder

_NOT_FOUND = 404

_Json = dict[str, Any]
T = TypeVar("T")


class VersionedDocument(msgspec.Struct, Generic[T], frozen=True):
    """A document and its version."""

    source: T
    version: Version


class _Document(msgspec.Struct, Generic[T], frozen=True, gc=False):
    """What an engine says of one document, wherever it does; no `source` where there is none, or none was asked for."""

    source: T | None = msgspec.field(name="_source", default=None)
    sort: list[object] | None = None
    seq_no: int = msgspec.field(name="_seq_no", default=-1)
    primary_term: int = msgspec.field(name="_primary_term", default=-1)
    error: Reason | None = None

    @property
    def version(self) -> Version:
        return self.seq_no, self.primary_term


class VersionedDocuments(Generic[T]):
    """The documents of one kind in one index. Every method may raise ClusterFault."""

    def __init__(self, cluster: Cluster, index: str, kind: type[T]) -> None:
        self._cluster = cluster
        self._index = index
        self._decode: Callable[[str], _Document[T]] = json_decoder(_Document[kind])  # type: ignore[valid-type]
        self._encode = msgspec.json.Encoder().encode

    def get(self, id_: str) -> VersionedDocument[T] | None:
        """The document as it is now; None when there is none."""
        answer = self._cluster.ask("GET", f"/{self._index}/_doc/{id_}", accept=(_NOT_FOUND,))
        if answer.status == _NOT_FOUND and '"error"' in answer.body[:20]:
            raise ClusterDamaged(answer.body[:500], where=self._index)
        found = self._decode(answer.body)
        return None if found.source is None else VersionedDocument(found.source, found.version)

    def put(self, id_: str, document: T, over: Version | None) -> Version | None:
        """Write the document over this version, or (None) where there is none; its version.

        None, and nothing is written, when there is another one by now: perhaps this very one, its answer lost.
        """
        if over is None:
            path = f"/{self._index}/_create/{id_}?require_alias=true"
        else:
            path = f"/{self._index}/_doc/{id_}?if_seq_no={over[0]}&if_primary_term={over[1]}&require_alias=true"
        answer = self._cluster.ask("PUT", path, self._encode(document), accept=(CONFLICT,))
        return None if answer.status == CONFLICT else self._decode(answer.body).version


WINDOW = 10_000  # documents of one search: `index.max_result_window` is so many

_GET_SLICE = 5_000
_WHOLE_HEADS = 200  # in one answer: the head of a set of 135 million resources has 160 kB
_PARTS = {"excludes": ["pages", "runs", "tail"]}


class _Hits(msgspec.Struct, Generic[T], frozen=True):
    hits: list[_Document[T]]


class _Found(msgspec.Struct, Generic[T], frozen=True):
    hits: _Hits[T]


class _Docs(msgspec.Struct, Generic[T], frozen=True):
    docs: list[_Document[T]]


class Indices:
    """The indices of one prefix. Every method may raise ClusterFault."""

    def __init__(self, cluster: Cluster, prefix: str) -> None:
        self.cluster = cluster
        names = (f"{prefix}-{kind}" for kind in (SET, RESOURCE, CHANGE, STATE))
        self.set, self.resource, self.change, self.state = names
        self._heads_by_id = VersionedDocuments(cluster, self.set, SetHead)

    def head(self, name: str) -> VersionedDocument[SetHead]:
        """The head of a set as it is now. Raises UnknownSet."""
        found = self._heads_by_id.get(short(name)) if is_text(name) else None
        if found is None or found.source.resource_set != name or found.source.dropped:
            raise UnknownSet("the catalog has no such set", where=name)
        return found

    def heads(self, *, whole: bool = False) -> Iterator[SetHead]:
        """Every set's head in the order of their names, without pages and segments unless it is to be whole."""
        return self._heads(True, _WHOLE_HEADS) if whole else self._heads(_PARTS, 1_000)  # noqa: FBT003 (a value of the query)

    def newest(self) -> dict[str, int]:
        """The number of the newest change of every open set."""
        heads = self._heads(["resource_set", "last_seq", "opened_us"], WINDOW)
        return {head.resource_set: head.last_seq for head in heads if head.opened_us is not None}

    def _heads(self, parts: object, size: int) -> Iterator[SetHead]:
        self.refresh(self.set)
        filters = [{"exists": {"field": "resource_set"}}]
        order = [{"resource_set": "asc"}]
        heads = self._walk(self.set, SetHead, filters, order, size=size, parts=parts)
        return (head for head in heads if not head.dropped)

    def make_head(self, head: SetHead) -> None:
        """Write the head of a new set, over that of a dropped one; nothing happens where the set is there."""
        if self.put_head(head, None) is not None:
            return
        found = self._heads_by_id.get(short(head.resource_set))
        if found is not None and found.source.dropped:
            again = replace(found.source, dropped=False, last_seq=head.last_seq, stamps=head.stamps)
            self.put_head(again, found.version)

    def remove_documents(self, name: str, rev: int) -> None:
        """Remove all documents of a set up to this revision, but for its head."""
        query = {"query": {"term": {"resource_set": name}}, "size": WINDOW, "_source": False}
        for index in (self.state, self.change, self.resource):
            is_left = True
            while is_left:
                self.refresh(index)
                found = from_json(self._asked(index, query), _Json)["hits"]["hits"]
                operations = (removal_operation(one["_id"], rev) for one in found)
                is_left = bool(found) and self.cluster.stream(index, operations, lambda: None)

    def put_head(self, head: SetHead, version: Version | None) -> VersionedDocument[SetHead] | None:
        """Replace the head that has this version (None: is not there yet).

        None, and nothing happens, when there is another one by now, perhaps this very one.
        """
        written = self._heads_by_id.put(short(head.resource_set), head, version)
        return None if written is None else VersionedDocument(head, written)

    def refresh(self, index: str) -> None:
        """Make searches see what was written before."""
        patience = self.cluster.patience()
        while failed := from_json(self.cluster.ask("POST", f"/{index}/_refresh").body, _Json)["_shards"]["failed"]:
            patience.wait(ClusterUnreachable(f"{failed} shards could not be refreshed", where=index))

    def resources_of(self, head: SetHead, uris: Sequence[str]) -> list[StoredResource]:
        """The live resources among these URIs."""
        wanted = [uri for uri in dict.fromkeys(uris) if uri and is_text(uri)]
        found = self._get(self.resource, [short(head.resource_set, uri) for uri in wanted], StoredResource)
        return [
            document
            for uri, document in zip(wanted, found, strict=True)
            if document is not None
            and (document.resource_set, document.uri) == (head.resource_set, uri)
            and document.live
            and valid(head, document.rev)
        ]

    def changes_of(self, name: str, first: int, last: int) -> list[StoredChange | None]:
        """The documents of these changes as they are now; None for one that is not there."""
        return self._get(self.change, [change_id(name, seq) for seq in range(first, last + 1)], StoredChange)

    def changes_in(self, wanted: Mapping[str, int]) -> list[StoredChange]:
        """Of each set the change with this number, where it is there."""
        ids = [change_id(name, seq) for name, seq in wanted.items()]
        return [found for found in self._get(self.change, ids, StoredChange) if found is not None]

    def row_operations(self, name: str, tail: Tail | None) -> Iterator[bytes]:
        """The bulk operations that put the rows of a tail into their places."""
        return iter(()) if tail is None else row_operations(name, tail.rows, tail.row_rev, self.state)

    def rows_by_key(self, head: SetHead, keys: Sequence[RowKey]) -> list[StateRow]:
        """The rows of a set that are in their places now."""
        ids = [short(head.resource_set, *key) for key in keys]
        documents = self._get(self.state, ids, RowDocument)
        return [
            found.row
            for key, found in zip(keys, documents, strict=True)
            if found is not None
            and (found.resource_set, found.kind, found.key) == (head.resource_set, *key)
            and valid(head, found.rev)
        ]

    def rows_in_order(
        self, head: SetHead, kind: str, after: StateRow | None, until: int | None, limit: int, *, descending: bool
    ) -> list[StateRow]:
        """Up to `limit` rows of a kind by rank and key, or in the opposite order."""
        self.refresh(self.state)
        bound, direction = ("gte", "desc") if descending else ("lte", "asc")
        wanted = _valid_rows(head, [{"term": {"kind": kind}}])
        if until is not None:
            wanted.append({"range": {"rank": {bound: until}}})
        order, begin = [{"rank": direction}, {"key": direction}], None if after is None else [after.rank, after.key]
        rows = self._walk(self.state, RowDocument, wanted, order, begin, size=limit)
        return [found.row for found in islice(rows, limit)]

    def row_counts(self, head: SetHead) -> dict[str, int]:
        """How many rows of each kind the set has."""
        self.refresh(self.state)
        return self._counted("kind", _valid_rows(head, []))

    def sets_with_rows(self, kind: str, until: int | None) -> dict[str, int]:
        """How many rows of a kind each set has, of a rank up to `until`, as of the last refresh."""
        wanted: list[dict[str, Any]] = [{"term": {"kind": kind}}]
        if until is not None:
            wanted.append({"range": {"rank": {"lte": until}}})
        return dict(sorted(self._counted("resource_set", wanted).items()))

    def _counted(self, field: str, wanted: list[dict[str, Any]]) -> dict[str, int]:
        groups = {"groups": {"terms": {"field": field, "size": WINDOW}}}
        query = {"query": {"bool": {"filter": wanted}}, "size": 0, "aggs": groups}
        answer = from_json(self._asked(self.state, query), _Json)
        return {one["key"]: one["doc_count"] for one in answer["aggregations"]["groups"]["buckets"]}

    def journal_of(self, name: str, tail: Tail) -> list[JournalDocument | None]:
        """The entries of a journal as they are now; None for one that is not there."""
        return self._get(self.change, [journal_id(name, number) for number in range(tail.count)], JournalDocument)

    def live(
        self,
        head: SetHead,
        wanted: Sequence[dict[str, Any]],
        order: dict[str, str],
        after: Sequence[object] | None = None,
        limit: int | None = None,
    ) -> list[StoredResource]:
        """Up to so many live resources in an order, from behind the place `after`."""
        self.refresh(self.resource)
        filters: list[dict[str, Any]] = [
            {"term": {"resource_set": head.resource_set}},
            {"term": {"live": True}},
            *wanted,
        ]
        size = WINDOW if limit is None else limit
        found = self._walk(self.resource, StoredResource, filters, [order], after, size=size)
        return list(islice((document for document in found if valid(head, document.rev)), limit))

    def _walk(
        self,
        index: str,
        kind: type[T],
        filters: Sequence[dict[str, Any]],
        order: Sequence[dict[str, str]],
        after: Sequence[object] | None = None,
        *,
        size: int,
        parts: object = True,
    ) -> Iterator[T]:
        """Documents in an order, from behind the place `after`, `size` at a time; as of the last refresh."""
        size = min(size, WINDOW)
        query = {"query": {"bool": {"filter": filters}}, "sort": order, "size": size, "track_total_hits": False}
        query["_source"] = parts
        while True:
            asked = query if after is None else {**query, "search_after": after}
            answer: _Found[T] = from_json(self._asked(index, asked), _Found[kind])  # type: ignore[valid-type]
            found = answer.hits.hits
            yield from (hit.source for hit in found if hit.source is not None)
            if len(found) < size:
                return
            after = found[-1].sort

    def _asked(self, index: str, query: dict[str, Any]) -> str:
        path = f"/{index}/_search?allow_partial_search_results=false"
        return self.cluster.ask("POST", path, msgspec.json.encode(query)).body

    def _get(self, index: str, ids: Sequence[str], kind: type[T]) -> list[T | None]:
        found: list[T | None] = []
        for start in range(0, len(ids), _GET_SLICE):
            body = msgspec.json.encode({"ids": ids[start : start + _GET_SLICE]})
            found += [document.source for document in self._get_slice(index, body, kind)]
        return found

    def _get_slice(self, index: str, body: bytes, kind: type[T]) -> list[_Document[T]]:
        """A document of a shard that is on its way to another node comes with an error: asked for again."""
        patience = self.cluster.patience()
        while True:
            answer = self.cluster.ask("POST", f"/{index}/_mget", body).body
            documents: list[_Document[T]] = from_json(answer, _Docs[kind]).docs  # type: ignore[valid-type]
            error = next((document.error for document in documents if document.error is not None), None)
            if error is None:
                return documents
            patience.wait(ClusterUnreachable(f"{error.type}: {error.reason}", where=index))


def _valid_rows(head: SetHead, wanted: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows of a set that were committed: those that a restore has left behind when it failed are none."""
    dead = [{"range": {"rev": {"gt": after, "lt": until}}} for after, until in head.dead]
    mine: list[dict[str, Any]] = [{"term": {"resource_set": head.resource_set}}, {"range": {"rev": {"lte": head.rev}}}]
    return [*wanted, *mine, {"bool": {"must_not": dead}}] if dead else [*wanted, *mine]
