"""The document cache: heads made once for each version of a document, octets kept while there is room.

A version is known by its digest. What is sent always belongs together, whatever is published meanwhile: the octets of
one version, or a file that goes on giving them.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from email.utils import formatdate
from types import MappingProxyType

import msgspec

from headwater.http.responses import INERT, Head, line
from headwater.http.routes import IMMUTABLE, REVALIDATE
from headwater.publish.site import ROBOTS
from headwater.publish.store_writer import IntegrityCheck, decode_mark
from headwater.storage.objects.interface import Coding, ObjectStore, OpenObject, StoredObject

_MOST_DOCUMENTS = 4_096


class Representation(msgspec.Struct, frozen=True, gc=False):
    """One representation of a document (as it is, or gzip): its tag, size, and the heads of a 200 and of a 304."""

    etag: bytes
    stated_second: int
    """What `Last-Modified` says once the document cannot be replaced within its second."""
    octets: int
    head: Head
    unchanged: Head


class CachedDocument(msgspec.Struct, frozen=True, gc=False):
    """One version of a document in its representations."""

    stored: StoredObject
    modified_second: int
    plain: Representation
    gzip: Representation | None


class DocumentCache:
    """The documents of a store. `look` and `open` may wait for the disk, and may be called from any thread; the other
    methods do not wait, and belong to one thread. `links` are further header lines of documents. `rule` is the cache
    rule of a document: IMMUTABLE counts for closed ones, and open ones are revalidated.
    """

    def __init__(
        self,
        store: ObjectStore,
        links: Mapping[str, Head] = MappingProxyType({}),
        *,
        room_octets: int = 32 << 20,
        largest_octets: int = 8 << 20,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._store = store
        self._links = links
        self._integrity = IntegrityCheck(store)
        self._room = room_octets
        self._largest = largest_octets
        self._clock = clock
        self._documents: dict[str, CachedDocument] = {}
        self._bodies: OrderedDict[bytes, bytes] = OrderedDict()
        self._held = 0

    def known(self, name: str) -> CachedDocument | None:
        """The present version, when it has been looked at before; None says nothing."""
        document = self._documents.get(name)
        if document is None or self._store.version(name) != document.stored.version:
            return None
        return document

    def look(self, name: str, rule: bytes) -> CachedDocument | None:
        """The present version, or None when there is no such document, or only what somebody has cut off.

        Where nothing vouches for it, the document itself has to end as one does.
        """
        stored = self._store.stat(name)
        if stored is None:
            return None
        if not stored.is_vouched and name != ROBOTS and not self._integrity.is_complete(name):
            return None
        return self._describe(stored, rule)

    def body(self, form: Representation) -> bytes | None:
        """The octets of a form, when they are kept."""
        body = self._bodies.get(form.etag)
        if body is not None:
            self._bodies.move_to_end(form.etag)
        return body

    def open(self, name: str, rule: bytes, coding: Coding) -> tuple[Representation, bytes | OpenObject] | None:
        """The present version's form with its octets, or opened when they are too many to keep."""
        opened = self._store.open(name, coding)
        if opened is None:
            return None
        document = self._describe(opened.stored, rule)
        form = document.gzip if opened.coding is Coding.GZIP and document.gzip else document.plain
        if form.octets > self._largest:
            return form, opened
        with opened:
            return form, opened.read(0, form.octets)

    def keep(self, form: Representation, body: bytes) -> None:
        """Keep the octets of a form while there is room for them."""
        etag = form.etag
        self._held += len(body) - len(self._bodies.pop(etag, b""))
        self._bodies[etag] = body
        while self._held > self._room:
            self._held -= len(self._bodies.popitem(last=False)[1])

    def _describe(self, stored: StoredObject, rule: bytes) -> CachedDocument:
        modified = int(stored.modified.timestamp())
        settled = int(self._clock()) > modified
        # It may still be replaced within its second: a date that names the second before never hides that.
        stated = modified
        second: int | None = modified if settled else modified - 1
        if (mark := decode_mark(stored.mark)) is not None and mark.lastmod is not None:
            stated = int(mark.lastmod.timestamp())  # as the lists say of the resource
            second = stated if settled else None
        if rule == IMMUTABLE and not _is_closed(stored):
            rule = REVALIDATE
        more = line(b"cache-control", rule) + self._links.get(stored.name, ())
        document = CachedDocument(
            stored,
            modified,
            _form(stored, Coding.IDENTITY, stated, second, more),
            None if stored.gzip_octets is None else _form(stored, Coding.GZIP, stated, second, more),
        )
        if settled:
            if len(self._documents) >= _MOST_DOCUMENTS:
                self._documents.clear()
            self._documents[stored.name] = document
        return document


def _is_closed(stored: StoredObject) -> bool:
    """Whether this very version of a Change List is closed: a cache would keep an open one for a year (AMB-62).

    The catalog may already have closed a segment that is published open.
    """
    mark = decode_mark(stored.mark)
    return mark is not None and mark.is_closed


def _form(stored: StoredObject, coding: Coding, stated: int, second: int | None, more: Head) -> Representation:
    tag, octets = stored.etag, stored.octets
    if coding is Coding.GZIP and stored.gzip_octets is not None:
        tag, octets = f"{tag}-gzip", stored.gzip_octets
    etag = f'"{tag}"'.encode("ascii")
    unchanged = (
        line(b"etag", etag)
        + (() if second is None else line(b"last-modified", formatdate(second, usegmt=True).encode("ascii")))
        + more
        + line(b"vary", b"Accept-Encoding")
    )
    head = line(b"content-type", stored.media_type.encode("ascii"))
    head += line(b"content-length", b"%d" % octets) + unchanged + line(b"accept-ranges", b"bytes") + INERT
    if coding is Coding.GZIP:
        head += line(b"content-encoding", b"gzip")
    return Representation(etag, stated, octets, head, unchanged)
