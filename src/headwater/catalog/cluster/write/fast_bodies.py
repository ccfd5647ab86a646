"""Fast path for bulk requests that write thousands of resources: encoded many at once, ready to be sent."""

from __future__ import annotations

import hashlib
import itertools
from base64 import urlsafe_b64encode
from collections.abc import Iterable, Iterator

import msgspec

from headwater.catalog.cluster.documents import DIGEST_OCTETS, StoredResource, redone_operation
from headwater.storage.cluster import SLICE_COUNT, Body

IS_ON = True
"""False: each document is encoded on its own."""


class _Index(msgspec.Struct, frozen=True, gc=False):
    """Written over an older revision only, and over its own: a late or doubled request changes nothing."""

    id: str = msgspec.field(name="_id")
    version: int
    version_type: str = "external_gte"


class _Action(msgspec.Struct, frozen=True, gc=False):
    index: _Index


_to_lines = msgspec.json.Encoder().encode_lines


def resource_bodies(name: str, documents: Iterator[StoredResource]) -> Iterator[bytes | Body]:
    """What `redone_operation` makes of each of one set's documents, in ready requests and a quarter of the time."""
    if not IS_ON:
        yield from map(redone_operation, documents)
        return
    while part := list(itertools.islice(documents, SLICE_COUNT)):
        ids = _short_each(name, [document.location.value for document in part])
        lines: list[_Action | StoredResource] = []
        for id_, document in zip(ids, part, strict=True):
            lines += (_Action(_Index(id_, document.rev)), document)
        yield Body(_to_lines(lines))


def _short_each(first: str, texts: Iterable[str]) -> list[str]:
    """`short(first, text)` of each text, in half the time."""
    begun = hashlib.blake2b(f"{first}\0".encode(), digest_size=DIGEST_OCTETS)
    digests = []
    for text in texts:
        digest = begun.copy()
        digest.update(text.encode())
        digests.append(digest.digest())
    # With a NUL each has 28 characters, of which the last one tells nothing: all are written at once.
    line = urlsafe_b64encode(b"".join([digest + b"\0" for digest in digests])).decode()
    return [line[start : start + 27] for start in range(0, len(line), 28)]
