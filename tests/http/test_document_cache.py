"""What the document cache says of a document belongs to the very version whose octets are sent."""

from __future__ import annotations

import datetime as dt
import os
import time
from pathlib import Path
from typing import cast

import pytest

from headwater.http.documents import DocumentCache
from headwater.http.routes import IMMUTABLE, REVALIDATE
from headwater.publish.site import SITEMAPS
from headwater.publish.store_writer import DocumentMark
from headwater.source.config import SetConfig
from headwater.storage.folder_store import FolderStore
from headwater.storage.object_store import ZIP, Coding, StoredObject
from tests.support.serving import face

NAME = "files/changelist/00000.xml"
AT = dt.datetime(2026, 1, 2, tzinfo=dt.UTC)


def put_segment(store: FolderStore, *, is_closed: bool) -> None:
    until = b' until="2026-01-02T00:00:00Z"' if is_closed else b""
    head = b'<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9"><rs:md capability="changelist"'
    mark = DocumentMark(generation="g", latest=AT, number=0, is_closed=is_closed)
    store.put(NAME, [head, until, b"/></urlset>"], mark=mark.encode)


class ClosedMeanwhile:
    """A store in which the segment is closed right after it was looked up."""

    def __init__(self, store: FolderStore):
        self.store = store

    def __getattr__(self, name: str):
        return getattr(self.store, name)

    def stat(self, name: str) -> StoredObject | None:
        stored = self.store.stat(name)
        put_segment(self.store, is_closed=True)
        return stored


def lifetime(cache: DocumentCache) -> bytes:
    document = cache.look(NAME, IMMUTABLE)
    assert document is not None
    return document.plain.unchanged.partition(b"cache-control: ")[2].partition(b"\r\n")[0]


def test_only_a_version_whose_mark_says_that_it_is_closed_is_immutable(tmp_path: Path) -> None:
    """AMB-62: a cache that took the open version for immutable would hide all later changes for a year."""
    store = FolderStore(tmp_path)
    put_segment(store, is_closed=False)
    assert lifetime(DocumentCache(store)) == REVALIDATE
    assert lifetime(DocumentCache(cast(FolderStore, ClosedMeanwhile(store)))) == REVALIDATE
    assert lifetime(DocumentCache(store)) == IMMUTABLE


def test_a_package_is_sent_from_the_store_as_it_is(tmp_path: Path) -> None:
    """With its own media type and no gzip form; and too large to be kept, it goes on after it was replaced."""
    store, octets = FolderStore(tmp_path), os.urandom(1 << 20) * 9
    store.put("files/package.zip", [octets], ZIP)
    cache = DocumentCache(store)
    document = cache.look("files/package.zip", REVALIDATE)
    assert document is not None
    assert document.gzip is None
    assert b"content-type: application/zip\r\n" in document.plain.content
    opened = cache.open("files/package.zip", REVALIDATE, Coding.GZIP)
    assert opened is not None
    form, body = opened
    assert not cache.has_room(form, body.stored)
    assert (form.etag, form.octets) == (document.plain.etag, len(octets))
    store.put("files/package.zip", [b"another"], ZIP)
    assert body.read(len(octets) - 9, 100) == octets[-9:]
    body.close()
    assert cache.known("files/package.zip") is None


@pytest.mark.parametrize("octets", [0, 5, 200, -1])
def test_a_document_that_was_cut_off_is_not_shown(tmp_path: Path, octets: int) -> None:
    """Neither by who knows it whole nor by who sees it first."""
    store = FolderStore(tmp_path)
    put_segment(store, is_closed=False)
    path = tmp_path / NAME
    cache = DocumentCache(store, clock=lambda: time.time() + 10)
    assert cache.look(NAME, IMMUTABLE)
    assert cache.known(NAME)
    os.truncate(path, octets if octets >= 0 else path.stat().st_size - 5)
    assert cache.known(NAME) is None
    assert cache.look(NAME, IMMUTABLE) is None
    assert DocumentCache(FolderStore(tmp_path)).look(NAME, IMMUTABLE) is None


def test_octets_in_memory_are_bounded_though_readers_are_slow(tmp_path: Path) -> None:
    """Those of an answer that is being sent count as well; what has no room is sent from its file."""
    store = FolderStore(tmp_path)
    cache = DocumentCache(store)

    def read(number: int) -> memoryview | None:
        name = f"files/changelist/{number:05}.xml"
        store.put(name, [b"%d" % number, bytes(3 << 20)])
        found = cache.open(name, REVALIDATE, Coding.IDENTITY)
        assert found is not None
        form, opened = found
        with opened:
            if not cache.has_room(form, opened.stored):
                return None
            assert not cache.has_room(form, opened.stored), "it is read once"
            cache.keep(form, None)
            assert cache.has_room(form, opened.stored), "that it could not be read is forgotten"
            cache.keep(form, memoryview(opened.read(0, form.octets)))
            assert not cache.has_room(form, opened.stored)
            return cache.body(form)

    for number in range(20):
        assert read(number) is not None, "nobody sends the oldest any more"
    sent = [read(number) for number in range(20, 40)]
    assert [one is not None for one in sent] == [True] * 10 + [False] * 10
    sent.clear()
    assert read(40) is not None


@pytest.mark.parametrize(("names", "status"), [("a", 404), ("ab", 200)])
def test_an_index_of_sitemaps_is_there_where_several_sets_have_one(tmp_path: Path, names: str, status: int) -> None:
    sets = tuple(SetConfig(name=name, files=str(tmp_path / name), sitemap=True) for name in names)
    for name in names:
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text(name)
    with face(tmp_path / "a", tmp_path / "state", source_options={"sets": sets}) as server:
        assert server.get(f"/{SITEMAPS}").status == status
