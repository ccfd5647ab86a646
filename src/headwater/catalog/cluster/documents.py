"""Documents of resources, changes and rows on a search cluster: values of the catalog as JSON, and back, exactly.

Their ids are short ones, by digest, whatever they name.
"""

import datetime as dt
import hashlib
from base64 import urlsafe_b64encode
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from headwater.catalog.interface import Change, Metadata, Resource, StateRow, Upsert
from headwater.catalog.page_filling import BatchResult, Logged, PageSlot, Put, RowWrite, to_microseconds
from headwater.spec.records import ChangeKind, Link
from headwater.spec.times import from_microseconds

_DIGEST_OCTETS = 20


def short(*texts: str) -> str:
    """A name of 27 characters for texts of any length and alphabet: 160 bits of their digest."""
    digest = hashlib.blake2b("\0".join(texts).encode(), digest_size=_DIGEST_OCTETS).digest()
    return urlsafe_b64encode(digest).rstrip(b"=").decode()


to_json = msgspec.json.Encoder().encode


class StoredLocation(msgspec.Struct, frozen=True, gc=False):
    """A URI as DIT-ES writes it: `url` when it is complete, else `rel_path` (DIT-07)."""

    value: str
    type: str = "rel_path"


class _StoredLink(Link, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """One link; `rel`, `href` and `mime` are DIT-ES's."""

    href: StoredLocation  # type: ignore[assignment]
    type: str | None = msgspec.field(name="mime", default=None)


class _Described(Metadata, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """What resources and changes have in common: whose they are, their revision, their metadata."""

    resource_set: str
    location: StoredLocation
    rev: int
    seq: int = 0
    type: str | None = msgspec.field(name="mime", default=None)
    links: tuple[_StoredLink, ...] = msgspec.field(name="ln", default=())

    @property
    def uri(self) -> str:
        return self.location.value

    @property
    def metadata(self) -> Metadata:
        links = tuple(Link(**_fields(one, Link) | {"href": one.href.value}) for one in self.links)
        return Metadata(**_fields(self, Metadata) | {"links": links})


def _fields(of: msgspec.Struct, kind: type[msgspec.Struct]) -> dict[str, Any]:
    """The fields of a kind that a value has."""
    return {name: getattr(of, name) for name in kind.__struct_fields__}


class StoredResource(_Described, frozen=True, gc=False, kw_only=True):
    """One resource; not `live`: what is left of a deleted one, so that no late writer brings it back."""

    live: bool
    page: int = -1
    slot: int = -1
    weight: int = 0
    memo: bytes = b""

    @property
    def resource(self) -> Resource:
        return Resource(self.location.value, self.metadata, self.memo, self.page, self.seq)

    @property
    def place(self) -> PageSlot:
        return PageSlot(self.slot, self.page, self.weight)


class Redo(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """What the last change of its URI in a batch makes of the resource; `slot` None: it is gone."""

    slot: int | None = None
    page: int = -1
    weight: int = 0
    memo: bytes = b""


class StoredChange(_Described, frozen=True, gc=False, kw_only=True):
    """One change of the log."""

    change: ChangeKind
    datetime: dt.datetime
    redo: Redo | None = None

    @property
    def recorded(self) -> Change:
        return Change(self.seq, self.datetime, self.location.value, self.change, self.metadata)


class JournalDocument(msgspec.Struct, frozen=True):
    """One resource as a load or new memos leave it, written down before it takes the place of what is there."""

    resource_set: str
    rev: int
    redo: StoredResource


def resource_operation(name: str, put: Put, rev: int) -> bytes:
    """The bulk operation that writes one resource as the plan of a batch places it."""
    return redone_operation(_resource(name, rev, put.seq, put.event, put.place))


def redone_operation(document: StoredResource) -> bytes:
    """The bulk operation that writes one resource as a change or a journal entry says."""
    return _operation(short(document.resource_set, document.uri), document.rev, to_json(document))


def change_operations(documents: Iterable[StoredChange], index: str = "") -> Iterator[bytes]:
    """The bulk operations that write changes."""
    for document in documents:
        yield _operation(change_id(document.resource_set, document.seq), document.rev, to_json(document), index)


def journal_operations(documents: Iterable[JournalDocument]) -> Iterator[bytes]:
    """The bulk operations that write a journal, over the one before."""
    for number, document in enumerate(documents):
        yield _operation(journal_id(document.resource_set, number), document.rev, to_json(document))


def change_id(name: str, seq: int) -> str:
    return f"{short(name)}/{seq}"


def journal_id(name: str, number: int) -> str:
    return f"{short(name)}/j/{number}"


def change_documents(name: str, changes: list[Logged], outcome: BatchResult, first_rev: int) -> list[StoredChange]:
    """The documents of a batch's changes; the last one of each URI says what it makes of the resource."""
    puts = {put.event.uri: put for put in (*outcome.kept, *outcome.fresh)}
    last = {logged.uri: logged.seq for logged in changes}
    documents = []
    for rev, logged in enumerate(changes, first_rev):
        redo, put = None, puts.get(logged.uri)
        if last[logged.uri] == logged.seq:
            redo = Redo() if put is None else Redo(put.place.slot, put.place.page, put.place.weight, put.event.memo)
        documents.append(
            StoredChange(
                resource_set=name,
                location=_location(logged.uri),
                rev=rev,
                seq=logged.seq,
                change=logged.change,
                datetime=from_microseconds(logged.at_us),
                redo=redo,
                **_metadata_fields(logged.metadata),
            )
        )
    return documents


def journal_documents(name: str, outcome: BatchResult, first_rev: int) -> list[JournalDocument]:
    """What a load makes of resources that are there."""
    moved = {uri for uri, _ in outcome.gone}
    puts = [*outcome.kept, *(put for put in outcome.fresh if put.event.uri in moved)]
    documents = [_resource(name, rev, put.seq, put.event, put.place) for rev, put in enumerate(puts, first_rev)]
    gone = sorted(moved - {put.event.uri for put in puts})
    documents += [_tombstone(name, uri, rev, 0) for rev, uri in enumerate(gone, first_rev + len(puts))]
    return [JournalDocument(name, document.rev, document) for document in documents]


def after_change(change: StoredChange) -> StoredResource | None:
    """The resource as the change leaves it; None when a later change of the batch does."""
    redo = change.redo
    if redo is None:
        return None
    if redo.slot is None:
        return _tombstone(change.resource_set, change.uri, change.rev, change.seq)
    described = _fields(change, _Described)
    return StoredResource(live=True, page=redo.page, slot=redo.slot, weight=redo.weight, memo=redo.memo, **described)


def _resource(name: str, rev: int, seq: int, event: Upsert, place: PageSlot) -> StoredResource:
    return StoredResource(
        resource_set=name,
        location=_location(event.uri),
        rev=rev,
        seq=seq,
        live=True,
        page=place.page,
        slot=place.slot,
        weight=place.weight,
        memo=event.memo,
        **_metadata_fields(event.metadata),
    )


def _metadata_fields(metadata: Metadata) -> dict[str, Any]:
    links = tuple(
        _StoredLink(**_fields(one, Link) | {"href": _location(one.href), "modified": _plain(one.modified)})
        for one in metadata.links
    )
    return _fields(metadata, Metadata) | {"lastmod": _plain(metadata.lastmod), "links": links}


def _tombstone(name: str, uri: str, rev: int, seq: int) -> StoredResource:
    return StoredResource(resource_set=name, location=_location(uri), rev=rev, seq=seq, live=False)


def _location(uri: str) -> StoredLocation:
    return StoredLocation(uri, "url") if "://" in uri else StoredLocation(uri)


def _plain(moment: dt.datetime | None) -> dt.datetime | None:
    """A time that JSON keeps exactly: of no subclass, in UTC. Raises Unacceptable for one without a zone."""
    if moment is None or (moment.tzinfo is dt.UTC and type(moment) is dt.datetime):
        return moment
    return from_microseconds(to_microseconds(moment))


def _operation(id_: str, rev: int, document: bytes | None, index: str = "") -> bytes:
    """Written over an older revision only, and over its own: a late or doubled request changes nothing.

    Without a document, the one of this id is deleted.
    """
    kind = b"delete" if document is None else b"index"
    where = b'"_index":"%b",' % index.encode() if index else b""
    action = b'{"%b":{%b"_id":"%b","version":%d,"version_type":"external_gte"}}\n' % (kind, where, id_.encode(), rev)
    return action if document is None else b"%b%b\n" % (action, document)


def removal_operation(id_: str, rev: int) -> bytes:
    """The bulk operation that removes a document, unless it is of a later revision."""
    return _operation(id_, rev, None)


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


def row_operations(name: str, writes: Iterable[RowWrite], rev: int, index: str) -> Iterator[bytes]:
    """The bulk operations that write rows: over older revisions only, and over their own."""
    for write in writes:
        document = None
        if write.value is not None:
            document = to_json(RowDocument(name, write.kind, write.key, rev, write.rank, write.value))
        yield _operation(short(name, write.kind, write.key), rev, document, index)
