"""The document cache: heads made once for each version of a document, octets kept while there is room.

A version is known by its digest. What is sent always belongs together, whatever is published meanwhile: the octets of
one version, or a file that goes on giving them.
"""

from __future__ import annotations

import os
import re
import time
from collections import OrderedDict
from collections.abc import Callable
from email.utils import formatdate
from typing import BinaryIO

import msgspec

from headwater.http.responses import Head, line
from headwater.http.routes import IMMUTABLE, REVALIDATE
from headwater.publish.integrity import IntegrityCheck
from headwater.publish.site import ROBOTS
from headwater.publish.store_writer import Store
from headwater.storage.folder_store import StoredDocument

_CLOSED = re.compile(rb"""<(?:[\w.-]+:)?md\s[^>]*\suntil=["']|<(?:[\w.-]+:)?md\suntil=["']""")
_HEAD_OCTETS = 8_192
_MOST_DOCUMENTS = 4_096


class DocumentRule(msgspec.Struct, frozen=True):
    """What is said of a kind of documents. `cache` IMMUTABLE counts for closed ones, and open ones are revalidated."""

    media_type: bytes
    cache: bytes


class Representation(msgspec.Struct, frozen=True, gc=False):
    """One representation of a document (as it is, or gzip): its tag, size, and the heads of a 200 and of a 304."""

    etag: bytes
    octets: int
    head: Head
    unchanged: Head


class CachedDocument(msgspec.Struct, frozen=True, gc=False):
    """One version of a document in its representations."""

    stored: StoredDocument
    path: str
    modified_second: int
    plain: Representation
    gzip: Representation | None


class DocumentCache:
    """The documents of a store. `look` and `open` may wait for the disk, and may be called from any thread; the other
    methods do not wait, and belong to one thread.
    """

    def __init__(
        self,
        store: Store,
        *,
        room_octets: int = 32 << 20,
        largest_octets: int = 8 << 20,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._store = store
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
        if document is None:
            return None
        try:
            state = os.stat(document.path)
        except OSError:
            return None
        return document if (state.st_ino, state.st_mtime_ns, state.st_size) == document.stored.signature else None

    def look(self, name: str, rule: DocumentRule) -> CachedDocument | None:
        """The present version, or None when there is no such document, or only what somebody has cut off.

        Where the compressed form vouches for nothing, the document itself has to end as one does.
        """
        stored = self._store.get(name)
        if stored is None:
            return None
        if stored.gzip_path is None and name != ROBOTS and not self._integrity.is_complete(name):
            return None
        return self._describe(stored, rule)

    def body(self, form: Representation) -> bytes | None:
        """The octets of a form, when they are kept."""
        body = self._bodies.get(form.etag)
        if body is not None:
            self._bodies.move_to_end(form.etag)
        return body

    def open(self, name: str, rule: DocumentRule, *, coded: bool) -> tuple[Representation, bytes | BinaryIO] | None:
        """The present version's form with its octets, or with an open file when they are too many to keep."""
        held = self._store.open(name, coded=coded)
        if held is None:
            return None
        stored, file = held
        document = self._describe(stored, rule)
        form = document.gzip if coded and document.gzip else document.plain
        if form.octets > self._largest:
            return form, file
        with file:
            return form, file.read()

    def keep(self, form: Representation, body: bytes) -> None:
        """Keep the octets of a form while there is room for them."""
        etag = form.etag
        self._held += len(body) - len(self._bodies.pop(etag, b""))
        self._bodies[etag] = body
        while self._held > self._room:
            self._held -= len(self._bodies.popitem(last=False)[1])

    def _describe(self, stored: StoredDocument, rule: DocumentRule) -> CachedDocument:
        modified = int(stored.modified.timestamp())
        settled = int(self._clock()) > modified
        # It may still be replaced within its second: a date that names the second before never hides that.
        second = modified if settled else modified - 1
        kind = (rule.media_type, self._lifetime(stored, rule))
        gzip = None
        if stored.gzip_path is not None:
            gzip = _form(stored.etag + "-gzip", stored.gzip_octets, second, *kind, coded=True)
        document = CachedDocument(
            stored,
            os.fspath(stored.path),
            modified,
            _form(stored.etag, stored.octets, second, *kind, coded=False),
            gzip,
        )
        if settled:
            if len(self._documents) >= _MOST_DOCUMENTS:
                self._documents.clear()
            self._documents[stored.name] = document
        return document

    def _lifetime(self, stored: StoredDocument, rule: DocumentRule) -> bytes:
        return REVALIDATE if rule.cache == IMMUTABLE and not self._is_closed(stored) else rule.cache

    def _is_closed(self, stored: StoredDocument) -> bool:
        """Whether this very version says `until`: a cache would keep an open list for a year (AMB-62).

        The catalog may already have closed a segment that is published open, and the document may just have been
        replaced by its closed version.
        """
        held = self._store.open(stored.name, coded=False)
        if held is None:
            return False
        found, file = held
        with file:
            head = file.read(_HEAD_OCTETS)
        return found.etag == stored.etag and bool(_CLOSED.search(head.partition(b"<url>")[0]))


def _form(tag: str, octets: int, second: int, kind: bytes, lifetime: bytes, *, coded: bool) -> Representation:
    etag = f'"{tag}"'.encode("ascii")
    unchanged = (
        line(b"etag", etag)
        + line(b"last-modified", formatdate(second, usegmt=True).encode("ascii"))
        + line(b"cache-control", lifetime)
        + line(b"vary", b"Accept-Encoding")
    )
    head = line(b"content-type", kind) + line(b"content-length", b"%d" % octets) + unchanged
    head += line(b"accept-ranges", b"bytes")
    if coded:
        head += line(b"content-encoding", b"gzip")
    return Representation(etag, octets, head, unchanged)
