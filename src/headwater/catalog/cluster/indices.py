"""Requests to the four indices of a catalog on a search cluster: documents by id, by search, by compare-and-set."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Generic, TypeVar

import msgspec

from headwater.catalog.cluster.documents import (
    JournalDocument,
    RowDocument,
    StoredChange,
    StoredResource,
    change_id,
    done_operations,
    journal_id,
    row_operations,
    short,
)
from headwater.catalog.cluster.head import CachedHead, KnownHeads, SetHead, Tail, valid
from headwater.catalog.cluster.schema import CHANGE, RESOURCE, SET, STATE
from headwater.catalog.interface import RowKey, StateRow, UnknownSet
from headwater.catalog.lease import Version
from headwater.catalog.page_filling import is_text
from headwater.storage.cluster import CONFLICT, Cluster, ClusterDamaged, ClusterUnreachable, Reason
from headwater.typed_decoding import from_json, json_decoder

_FORBIDDEN, _NOT_FOUND = 403, 404

T = TypeVar("T")


class VersionedDocument(msgspec.Struct, Generic[T], frozen=True):
    """A document and its version."""

    source: T
    version: Version


class _Document(msgspec.Struct, Generic[T], frozen=True, gc=False):
    """What an engine says of one document, wherever it does; no `source` where there is none, or none was asked for."""

    source: T | None = msgspec.field(name="_source", default=None)
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


WINDOW = 10_000
"""Documents of one search: `index.max_result_window` is so many."""

_GET_SLICE = 5_000
_WHOLE_HEADS = 200
"""In one answer: the head of a set of 135 million resources has 160 kB."""
_PARTS = {"excludes": ["pages", "runs", "tail"]}
_NUMBERS = ["resource_set", "last_seq", "opened_us"]


class _Hits(msgspec.Struct, Generic[T], frozen=True):
    hits: list[_Document[T]]


class _Found(msgspec.Struct, Generic[T], frozen=True):
    hits: _Hits[T]


class _Docs(msgspec.Struct, Generic[T], frozen=True):
    docs: list[_Document[T]]


class _Shards(msgspec.Struct, frozen=True):
    failed: int = 0


class _Refreshed(msgspec.Struct, frozen=True):
    shards: _Shards = msgspec.field(name="_shards", default=_Shards())


class _Bucket(msgspec.Struct, frozen=True):
    key: str
    doc_count: int


class _Buckets(msgspec.Struct, frozen=True):
    buckets: list[_Bucket]


class _Groups(msgspec.Struct, frozen=True):
    groups: _Buckets


class _Counted(msgspec.Struct, frozen=True):
    aggregations: _Groups


class Indices:
    """The indices of one prefix. Every method may raise ClusterFault."""

    def __init__(self, cluster: Cluster, prefix: str) -> None:
        self.cluster = cluster
        self.set, self.resource, self.change, self.state = (
            f"{prefix}-{kind}" for kind in (SET, RESOURCE, CHANGE, STATE)
        )
        self._heads_by_id = VersionedDocuments(cluster, self.set, SetHead)
        self.known = KnownHeads()
        """The heads as they were read or written here last."""

    def head(self, name: str) -> CachedHead:
        """The head of a set as it is now. Raises UnknownSet."""
        found = self._heads_by_id.get(short(name)) if is_text(name) else None
        if found is None or found.source.resource_set != name:
            raise UnknownSet("the catalog has no such set", where=name)
        return self.known.keep(found.source, found.version)

    def heads(self, *, whole: bool = False) -> Iterator[SetHead]:
        """Every set's head in the order of their names, without pages and segments unless it is to be whole."""
        return self._heads(True, _WHOLE_HEADS) if whole else self._heads(_PARTS, 1_000)  # noqa: FBT003 (a value of the query)

    def newest(self, since: int = -1) -> dict[str, int]:
        """The number of the newest change of every open set whose head was written by an operation after `since`."""
        heads = self._heads(_NUMBERS, WINDOW, [{"range": {"_seq_no": {"gt": since}}}] if since >= 0 else [])
        return {head.resource_set: head.last_seq for head in heads if head.opened_us is not None}

    def _heads(self, parts: object, size: int, wanted: Sequence[dict[str, Any]] = ()) -> Iterator[SetHead]:
        self.refresh(self.set)
        after: list[object] | None = None
        filters = [{"exists": {"field": "resource_set"}}, *wanted]
        while True:
            query = _query(filters, {"resource_set": "asc"}, after, size)
            found = self._search(self.set, {**query, "_source": parts}, SetHead)
            yield from found
            if len(found) < size:
                return
            after = [found[-1].resource_set]

    def checkpoints(self) -> str:
        """Up to which operation each copy of the heads' index has done everything; nothing where we may not ask.

        The text is another one when a head was written. Numbers can be compared as long as all else in it is the same:
        index, shards and nodes. The highest number that was given out tells less: that operation may be seen later.
        """
        shards = "indices.*.shards.*"
        only = f"indices.*.uuid,{shards}.routing.node,{shards}.seq_no.local_checkpoint"
        answer = self.cluster.ask(
            "GET", f"/{self.set}/_stats/docs?level=shards&filter_path={only}", accept=(_FORBIDDEN,)
        )
        return "" if answer.status == _FORBIDDEN else answer.body

    def create_head(self, head: SetHead) -> None:
        """Write the head of a set that is not there yet; nothing happens to one that is."""
        self._heads_by_id.put(short(head.resource_set), head, None)

    def put_head(self, head: SetHead, version: Version) -> CachedHead | None:
        """Replace the head that has this version; None when there is another one by now (perhaps this very one)."""
        written = self._heads_by_id.put(short(head.resource_set), head, version)
        if written is None:
            self.known.doubt(head.resource_set, version)
            return None
        return self.known.keep(head, written, is_written=True)

    def refresh(self, index: str) -> None:
        """Make searches see what was written before."""
        patience = self.cluster.patience()
        while failed := from_json(self.cluster.ask("POST", f"/{index}/_refresh").body, _Refreshed).shards.failed:
            patience.wait(ClusterUnreachable(f"{failed} shards could not be refreshed", where=index))

    def resources_of(self, name: str, uris: Sequence[str]) -> list[StoredResource]:
        """The documents of these URIs as they are now, deleted and uncommitted ones, too."""
        wanted = [uri for uri in dict.fromkeys(uris) if uri and is_text(uri)]
        ids = [short(name, uri) for uri in wanted]
        found = self._get(self.resource, ids, StoredResource)
        return [
            document
            for uri, document in zip(wanted, found, strict=True)
            if document is not None and document.location.value == uri and document.resource_set == name
        ]

    def changes_of(self, name: str, first: int, last: int) -> list[StoredChange | None]:
        """The documents of these changes as they are now; None for one that is not there."""
        return self._get(self.change, [change_id(name, seq) for seq in range(first, last + 1)], StoredChange)

    def changes_in(self, wanted: Mapping[str, int]) -> list[StoredChange]:
        """Of each set the change with this number, where it is there."""
        ids = [change_id(name, seq) for name, seq in wanted.items()]
        return [found for found in self._get(self.change, ids, StoredChange) if found is not None]

    def apply(self, name: str, tail: Tail) -> None:
        """Put what a tail says into its places: log, resources and rows; what is newer stays as it is."""
        operations = [*done_operations(tail.changes, self.resource), *self.row_operations(name, tail)]
        if operations:
            self.cluster.bulk(self.change, operations)

    def row_operations(self, name: str, tail: Tail) -> Iterator[bytes]:
        """The bulk operations that put the rows of a tail into their places."""
        return row_operations(name, tail.rows, tail.row_rev, self.state)

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
        self, head: SetHead, kind: str, after: StateRow | None, until: int | None, size: int, *, descending: bool
    ) -> list[StateRow]:
        """Up to `size` rows of a kind by rank and key, or in the opposite order, as of the last refresh."""
        bound, order = ("gte", "desc") if descending else ("lte", "asc")
        wanted = _valid_rows(head, [{"term": {"kind": kind}}])
        if until is not None:
            wanted.append({"range": {"rank": {bound: until}}})
        query = _query(wanted, {"rank": order}, None if after is None else [after.rank, after.key], size)
        query["sort"].append({"key": order})
        return [found.row for found in self._search(self.state, query, RowDocument)]

    def row_counts(self, head: SetHead) -> dict[str, int]:
        """How many rows of each kind the set has, as of the last refresh."""
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
        answer = from_json(self._asked(self.state, query), _Counted)
        return {one.key: one.doc_count for one in answer.aggregations.groups.buckets}

    def journal_of(self, name: str, tail: Tail) -> list[JournalDocument | None]:
        """The entries of a journal as they are now; None for one that is not there."""
        return self._get(self.change, [journal_id(name, number) for number in range(tail.count)], JournalDocument)

    def by_uri(self, name: str, after: str, size: int) -> list[StoredResource]:
        """Up to `size` live resources in the order of their URIs, as of the last refresh."""
        query = _query(_live(name), {"location.value": "asc"}, [after] if after else None, size)
        return self._search(self.resource, query, StoredResource)

    def on_page(self, name: str, number: int) -> list[StoredResource]:
        """The live resources of a page in slot order, as of the last refresh."""
        found: list[StoredResource] = []
        after: list[object] | None = None
        while True:
            query = _query([*_live(name), {"term": {"page": number}}], {"slot": "asc"}, after, WINDOW)
            more = self._search(self.resource, query, StoredResource)
            found += more
            if len(more) < WINDOW:
                return found
            after = [found[-1].slot]

    def _search(self, index: str, query: dict[str, Any], kind: type[T]) -> list[T]:
        found: _Found[T] = from_json(self._asked(index, query), _Found[kind])  # type: ignore[valid-type]
        return [hit.source for hit in found.hits.hits if hit.source is not None]

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


def _live(name: str) -> list[dict[str, Any]]:
    return [{"term": {"resource_set": name}}, {"term": {"live": True}}]


def _query(
    filters: list[dict[str, Any]], sort: dict[str, str], after: list[object] | None, size: int
) -> dict[str, Any]:
    query = {"query": {"bool": {"filter": filters}}, "sort": [sort], "size": size, "track_total_hits": False}
    return query if after is None else {**query, "search_after": after}
