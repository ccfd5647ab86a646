"""Bulk requests that write thousands of resources, encoded many at once: most of our work in a first load."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import msgspec

from headwater.catalog.cluster.document_names import short_each
from headwater.catalog.cluster.documents import StoredResource
from headwater.storage.cluster import SLICE_COUNT, Body


class _Index(msgspec.Struct, frozen=True, gc=False):
    """Written over an older revision only, and over its own: a late or doubled request changes nothing."""

    id: str = msgspec.field(name="_id")
    version: int
    version_type: str = "external_gte"


class _Action(msgspec.Struct, frozen=True, gc=False):
    index: _Index


_to_lines = msgspec.json.Encoder().encode_lines


def resource_bodies(name: str, documents: Iterator[StoredResource]) -> Iterator[Body]:
    """What `redone_operation` makes of each of one set's documents, in ready requests and a quarter of the time."""
    while part := list(itertools.islice(documents, SLICE_COUNT)):
        ids = short_each(name, [document.location.value for document in part])
        lines: list[_Action | StoredResource] = []
        for id_, document in zip(ids, part, strict=True):
            lines += (_Action(_Index(id_, document.rev)), document)
        yield Body(_to_lines(lines))
