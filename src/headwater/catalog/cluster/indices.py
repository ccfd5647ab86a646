"""Requests to the four indices of a catalog on a search cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Generic, TypeVar

import msgspec

from headwater.catalog.accepted_text import is_text
from headwater.catalog.cluster.document_names import short
from headwater.catalog.cluster.documents import (
    JournalDocument,
    StoredChange,
    StoredResource,
    change_id,
    done_operations,
    journal_id,
    resource_id,
    to_json,
)
from headwater.catalog.cluster.head import SetHead, Tail, valid
from headwater.catalog.cluster.read.head_cache import KnownHeads, Version
from headwater.catalog.cluster.rows import RowDocument, row_id, row_operations
from headwater.catalog.cluster.schema import CHANGE, RESOURCE, SET, STATE
from headwater.catalog.interface import UnknownSet
from headwater.catalog.state import RowKey, StateRow
from headwater.storage.cluster import CONFLICT, Cluster
from headwater.storage.cluster_faults import ClusterDamaged, ClusterUnreachable, Reason

WINDOW = 10_000
"""Documents of one search: `index.max_result_window` is so many."""

_GET_SLICE = 5_000
_WHOLE_HEADS = 200
"""In one answer: the head of a set of 135 million resources has 160 kB."""
_NOT_FOUND = 404
_FORBIDDEN = 403
_PARTS = {"excludes": ["pages", "runs", "tail"]}
_NUMBERS = ["resource_set", "last_seq", "opened_us", "hidden"]

T = TypeVar("T")


class _Hit(msgspec.Struct, Generic[T], frozen=True, gc=False):
    source: T = msgspec.field(name="_source")


class _Hits(msgspec.Struct, Generic[T], frozen=True):
    hits: list[_Hit[T]]


class _Found(msgspec.Struct, Generic[T], frozen=True):
    hits: _Hits[T]


class _Doc(msgspec.Struct, Generic[T], frozen=True, gc=False):
    source: T | None = msgspec.field(name="_source", default=None)
    seq_no: int = msgspec.field(name="_seq_no", default=-1)
    primary_term: int = msgspec.field(name="_primary_term", default=-1)
    error: Reason | None = None


class _Docs(msgspec.Struct, Generic[T], frozen=True):
    docs: list[_Doc[T]]


class _Routing(msgspec.Struct, frozen=True):
    node: str = ""


class _SeqNo(msgspec.Struct, frozen=True):
    local_checkpoint: int


class _Copy(msgspec.Struct, frozen=True):
    seq_no: _SeqNo
    routing: _Routing = _Routing()


class _IndexStats(msgspec.Struct, frozen=True):
    shards: dict[str, list[_Copy]]
    uuid: str = ""


class _Stats(msgspec.Struct, frozen=True):
    indices: dict[str, _IndexStats] = {}


class Mark(msgspec.Struct, frozen=True):
    """Up to which operation the copies of the heads' index have done everything, without holes: `copies` by node.

    The highest number that was given out is no such mark: the operation that has it may be seen later.
    """

    index: str
    copies: tuple[tuple[str, int], ...]

    @property
    def nodes(self) -> tuple[str, tuple[str, ...]]:
        """Where the copies lie: numbers of operations can be compared as long as this is the same."""
        return self.index, tuple(node for node, _ in self.copies)

    @property
    def done(self) -> int:
        """Every copy has done all operations up to this one."""
        return min(number for _, number in self.copies)


class _Written(msgspec.Struct, frozen=True):
    seq_no: int = msgspec.field(name="_seq_no")
    primary_term: int = msgspec.field(name="_primary_term")


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


_head_doc = msgspec.json.Decoder(_Doc[SetHead]).decode
_heads = msgspec.json.Decoder(_Found[SetHead]).decode
_resources = msgspec.json.Decoder(_Found[StoredResource]).decode
_changes = msgspec.json.Decoder(_Found[StoredChange]).decode
_resource_docs = msgspec.json.Decoder(_Docs[StoredResource]).decode
_change_docs = msgspec.json.Decoder(_Docs[StoredChange]).decode
_journal_docs = msgspec.json.Decoder(_Docs[JournalDocument]).decode
_rows = msgspec.json.Decoder(_Found[RowDocument]).decode
_row_docs = msgspec.json.Decoder(_Docs[RowDocument]).decode
_counts = msgspec.json.Decoder(_Counted).decode
_written = msgspec.json.Decoder(_Written).decode
_refreshed = msgspec.json.Decoder(_Refreshed).decode
_stats = msgspec.json.Decoder(_Stats).decode


class Indices:
    """The indices of one prefix. Every method may raise ClusterFault."""

    def __init__(self, cluster: Cluster, prefix: str) -> None:
        self.cluster = cluster
        self.set, self.resource, self.change, self.state = (
            f"{prefix}-{kind}" for kind in (SET, RESOURCE, CHANGE, STATE)
        )
        self.known = KnownHeads()
        """The heads as they were read or written here last."""

    def head(self, name: str, *, hidden: bool = False) -> tuple[SetHead, Version]:
        """The head of a set as it is now, and its version; `hidden`: also one that is not shown. Raises UnknownSet."""
        found = None
        if is_text(name):
            answer = self.cluster.ask("GET", self._head_path("_doc", name), accept=(_NOT_FOUND,))
            if answer.status == _NOT_FOUND and '"error"' in answer.body[:20]:
                raise ClusterDamaged(answer.body[:500], where=self.set)
            found = _head_doc(answer.body)
        if found is None or found.source is None or found.source.resource_set != name or found.source.hidden > hidden:
            raise UnknownSet("the catalog has no such set", where=name)
        version = (found.seq_no, found.primary_term)
        self.known.keep(found.source, version)
        return found.source, version

    def heads(self, *, whole: bool = False) -> Iterator[SetHead]:
        """Every set's head in the order of their names, without pages and segments unless it is to be whole."""
        return self._heads(True, _WHOLE_HEADS) if whole else self._heads(_PARTS, 1_000)  # noqa: FBT003 (a value of the query)

    def newest(self, since: int = -1) -> dict[str, int]:
        """The number of the newest change of every open set whose head was written by an operation after `since`."""
        heads = self._heads(_NUMBERS, WINDOW, [{"range": {"_seq_no": {"gt": since}}}] if since >= 0 else [])
        return {head.resource_set: head.last_seq for head in heads if head.opened_us is not None}

    def heads_mark(self) -> Mark | None:
        """How far the index of the heads is: another mark when a head was written. None where we may not ask for it."""
        shards = "indices.*.shards.*"
        only = f"indices.*.uuid,{shards}.routing.node,{shards}.seq_no.local_checkpoint"
        path = f"/{self.set}/_stats/docs?level=shards&filter_path={only}"
        answer = self.cluster.ask("GET", path, accept=(_FORBIDDEN,))
        found = _Stats() if answer.status == _FORBIDDEN else _stats(answer.body)
        copies = [
            (one.uuid, copy) for one in found.indices.values() for copies in one.shards.values() for copy in copies
        ]
        if not copies or len(found.indices) != 1:
            return None
        return Mark(
            copies[0][0], tuple(sorted((copy.routing.node, copy.seq_no.local_checkpoint) for _, copy in copies))
        )

    def _heads(self, parts: object, size: int, wanted: Sequence[dict[str, Any]] = ()) -> Iterator[SetHead]:
        self.refresh(self.set)
        after: list[object] | None = None
        filters = [{"exists": {"field": "resource_set"}}, *wanted]
        while True:
            query = _query(filters, {"resource_set": "asc"}, after, size)
            found = _heads(self._search(self.set, {**query, "_source": parts})).hits.hits
            yield from (hit.source for hit in found if not hit.source.hidden)
            if len(found) < size:
                return
            after = [found[-1].source.resource_set]

    def create_head(self, head: SetHead) -> None:
        """Write the head of a set that is not there yet; nothing happens to one that is."""
        path = f"{self._head_path('_create', head.resource_set)}?require_alias=true"
        self.cluster.ask("PUT", path, to_json(head), accept=(CONFLICT,))

    def put_head(self, head: SetHead, version: Version) -> Version | None:
        """Replace the head that has this version; None when there is another one by now (perhaps this very one)."""
        condition = f"if_seq_no={version[0]}&if_primary_term={version[1]}&require_alias=true"
        path = f"{self._head_path('_doc', head.resource_set)}?{condition}"
        answer = self.cluster.ask("PUT", path, to_json(head), accept=(CONFLICT,))
        if answer.status == CONFLICT:
            self.known.doubt(head.resource_set, version)
            return None
        written = _written(answer.body)
        at = (written.seq_no, written.primary_term)
        self.known.keep(head, at, is_written=True)
        return at

    def refresh(self, index: str) -> None:
        """Make searches see what was written before."""
        patience = self.cluster.patience()
        while failed := _refreshed(self.cluster.ask("POST", f"/{index}/_refresh").body).shards.failed:
            patience.wait(ClusterUnreachable(f"{failed} shards could not be refreshed", where=index))

    def resources_of(self, name: str, uris: Sequence[str]) -> list[StoredResource]:
        """The documents of these URIs as they are now, deleted and uncommitted ones, too."""
        wanted = [uri for uri in dict.fromkeys(uris) if uri and is_text(uri)]
        ids = [resource_id(name, uri) for uri in wanted]
        found = self._get(self.resource, ids, _resource_docs)
        return [
            document
            for uri, document in zip(wanted, found, strict=True)
            if document is not None and document.location.value == uri and document.resource_set == name
        ]

    def changes_of(self, name: str, first: int, last: int) -> list[StoredChange | None]:
        """The documents of these changes as they are now; None for one that is not there."""
        base = short(name)
        return self._get(self.change, [change_id(base, seq) for seq in range(first, last + 1)], _change_docs)

    def changes_in(self, wanted: Mapping[str, int]) -> list[StoredChange]:
        """Of each set the change with this number, where it is there."""
        ids = [change_id(short(name), seq) for name, seq in wanted.items()]
        return [found for found in self._get(self.change, ids, _change_docs) if found is not None]

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
        ids = [row_id(head.resource_set, *key) for key in keys]
        documents = self._get(self.state, ids, _row_docs)
        return [
            found.row
            for key, found in zip(keys, documents, strict=True)
            if found is not None
            and (found.resource_set, found.kind, found.key) == (head.resource_set, *key)
            and valid(head, found.rev)
        ]

    def rows_in_order(
        self, head: SetHead, kind: str, after: StateRow | None, until: int | None, size: int
    ) -> list[StateRow]:
        """Up to `size` rows of a kind by rank and key, as of the last refresh."""
        wanted = _valid_rows(head, [{"term": {"kind": kind}}])
        if until is not None:
            wanted.append({"range": {"rank": {"lte": until}}})
        query = _query(wanted, {"rank": "asc"}, None if after is None else [after.rank, after.key], size)
        query["sort"].append({"key": "asc"})
        return [hit.source.row for hit in _rows(self._search(self.state, query)).hits.hits]

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
        return {one.key: one.doc_count for one in _counts(self._search(self.state, query)).aggregations.groups.buckets}

    def journal_of(self, name: str, tail: Tail) -> list[JournalDocument | None]:
        """The entries of a journal as they are now; None for one that is not there."""
        base = short(name)
        return self._get(self.change, [journal_id(base, number) for number in range(tail.count)], _journal_docs)

    def by_uri(self, name: str, after: str, size: int) -> list[StoredResource]:
        """Up to `size` live resources in the order of their URIs, as of the last refresh."""
        query = _query(_live(name), {"location.value": "asc"}, [after] if after else None, size)
        return [hit.source for hit in _resources(self._search(self.resource, query)).hits.hits]

    def on_page(self, name: str, number: int) -> list[StoredResource]:
        """The live resources of a page in slot order, as of the last refresh."""
        return list(self._on_page(name, number))

    def log(self, name: str, first: int, last: int) -> list[StoredChange]:
        """The changes `first` to `last`, as of the last refresh: some may be missing."""
        between = {"range": {"seq": {"gte": first, "lte": last}}}
        query = _query([{"term": {"resource_set": name}}, between], {"seq": "asc"}, None, min(last - first + 1, WINDOW))
        return [hit.source for hit in _changes(self._search(self.change, query)).hits.hits]

    def _on_page(self, name: str, number: int) -> Iterator[StoredResource]:
        after: list[object] | None = None
        while True:
            query = _query([*_live(name), {"term": {"page": number}}], {"slot": "asc"}, after, WINDOW)
            found = _resources(self._search(self.resource, query)).hits.hits
            yield from (hit.source for hit in found)
            if len(found) < WINDOW:
                return
            after = [found[-1].source.slot]

    def _search(self, index: str, query: dict[str, Any]) -> str:
        path = f"/{index}/_search?allow_partial_search_results=false"
        return self.cluster.ask("POST", path, msgspec.json.encode(query)).body

    def _get(self, index: str, ids: Sequence[str], decode: Callable[[str], _Docs[T]]) -> list[T | None]:
        found: list[T | None] = []
        for start in range(0, len(ids), _GET_SLICE):
            body = msgspec.json.encode({"ids": ids[start : start + _GET_SLICE]})
            found += [document.source for document in self._get_slice(index, body, decode)]
        return found

    def _get_slice(self, index: str, body: bytes, decode: Callable[[str], _Docs[T]]) -> list[_Doc[T]]:
        """A document of a shard that is on its way to another node comes with an error: asked for again."""
        patience = self.cluster.patience()
        while True:
            documents = decode(self.cluster.ask("POST", f"/{index}/_mget", body).body).docs
            error = next((document.error for document in documents if document.error is not None), None)
            if error is None:
                return documents
            patience.wait(ClusterUnreachable(f"{error.type}: {error.reason}", where=index))

    def _head_path(self, verb: str, name: str) -> str:
        return f"/{self.set}/{verb}/{short(name)}"


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
