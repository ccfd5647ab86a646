"""What the document cache says of a document belongs to the very version whose octets are sent."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from headwater.http.document_cache import DocumentCache, DocumentRule
from headwater.http.responses import fields
from headwater.http.routes import IMMUTABLE, REVALIDATE
from headwater.storage.folder_store import FolderStore, StoredDocument

NAME = "files/changelist/00000.xml"
SEGMENT = DocumentRule(b"application/xml", IMMUTABLE)


def segment(until: str) -> list[bytes]:
    return [
        b'<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9" xmlns:rs="http://www.openarchives.org/rs/terms/">'
        b'<rs:md capability="changelist" from="2026-01-01T00:00:00Z"' + until.encode() + b"/></urlset>"
    ]


class ClosedMeanwhile:
    """A store in which the segment is closed right after it was looked up."""

    def __init__(self, store: FolderStore):
        self.store = store

    def __getattr__(self, name: str):
        return getattr(self.store, name)

    def get(self, name: str) -> StoredDocument | None:
        stored = self.store.get(name)
        self.store.write(name, segment(' until="2026-01-02T00:00:00Z"'))
        return stored


def lifetime(cache: DocumentCache) -> bytes:
    document = cache.look(NAME, SEGMENT)
    assert document is not None
    return dict(fields(document.plain.head))[b"cache-control"]


def test_only_a_version_that_says_until_is_immutable(tmp_path: Path) -> None:
    """AMB-62: a cache that took the open version for immutable would hide all later changes for a year."""
    store = FolderStore(tmp_path)
    store.write(NAME, segment(""))
    assert lifetime(DocumentCache(store)) == REVALIDATE
    assert lifetime(DocumentCache(ClosedMeanwhile(store))) == REVALIDATE
    assert lifetime(DocumentCache(store)) == IMMUTABLE


@pytest.mark.parametrize("octets", [0, 5, 200, -1])
def test_a_document_that_was_cut_off_is_not_shown(tmp_path: Path, octets: int) -> None:
    """Neither by who knows it whole nor by who sees it first."""
    store = FolderStore(tmp_path)
    stored = store.write(NAME, segment(""))
    cache = DocumentCache(store, clock=lambda: time.time() + 10)
    assert cache.look(NAME, SEGMENT)
    assert cache.known(NAME)
    os.truncate(stored.path, octets if octets >= 0 else stored.octets - 5)
    assert cache.known(NAME) is None
    assert cache.look(NAME, SEGMENT) is None
    assert DocumentCache(FolderStore(tmp_path)).look(NAME, SEGMENT) is None
