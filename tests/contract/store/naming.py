"""The contract of names: which there are, and which there cannot be."""

from __future__ import annotations

import pytest

from headwater.storage.folder_store import FolderStore
from headwater.storage.object_store import RESERVED, XML, ZIP
from tests.contract.store.backend import StoreBackend
from tests.support.failing import failing

HOSTILE = {
    "empty": "",
    "absolute": "/a",
    "a folder": "a/",
    "an empty part": "a//b",
    "up": "../a",
    "up in the middle": "a/../b",
    "up at the end": "a/..",
    "here": ".",
    "here at the beginning": "./a",
    "a zero octet": "a\0b",
    "a backslash": "a\\b",
    "a gzip form": "a.gz",
    "a file of the store": f"files/{RESERVED}tmp-x",
    "a folder of the store": f"{RESERVED}x/a",
    "no text": "a\udcff",
}
LISTED = ["b", "a/b.xml", "a/a.xml", "robots.txt", ".well-known/resourcesync", "a/list/00000.xml", "ab/c", "a/p.zip"]
PREFIXES = ["a", "a/", "a/l", "a/list/0", "a/list/00000.xml", "r", ".", "x", "x/", "../", "/", "a/../b", "ab"]


class NamingContract:
    """The contract of names."""

    @pytest.mark.parametrize("name", HOSTILE.values(), ids=HOSTILE)
    def test_a_name_that_could_lead_elsewhere_is_refused(self, store: FolderStore, name: str) -> None:
        def write(name: str) -> None:
            with store.writer(name) as writing:
                writing.write(b"x")

        for attempt in (
            lambda: store.put(name, [b"x"]),
            lambda: write(name),
            lambda: store.stat(name),
            lambda: store.version(name),
            lambda: store.noted_etag(name),
            lambda: store.mark(name),
            lambda: store.open(name),
            lambda: store.delete(name),
        ):
            with failing("HW-STO-10"):
                attempt()
        assert list(store.names()) == []

    def test_names_are_listed_by_prefix(self, backend: StoreBackend) -> None:
        store = backend.fresh()
        for name in LISTED:
            store.put(name, [name.encode()], ZIP if name.endswith(".zip") else XML)
        for one in (store, backend.again(store)):
            assert sorted(one.names()) == sorted(LISTED)
            for prefix in PREFIXES:
                listed = list(one.names(prefix))
                assert sorted(listed) == sorted(name for name in LISTED if name.startswith(prefix)), prefix
        store.delete("a/a.xml")
        store.delete("a/a.xml")
        assert sorted(store.names("a/")) == ["a/b.xml", "a/list/00000.xml", "a/p.zip"]

    def test_thousands_of_names(self, backend: StoreBackend) -> None:
        """More than any of the common stores tells at once, which are 5,000 at most."""
        store = backend.fresh()
        names = [f"set{number % 3}/resourcelist/{number:05d}.xml" for number in range(6_000)]
        for name in names:
            store.put(name, [b"x"], ZIP)
        listed = list(backend.again(store).names())
        assert len(listed) == len(names)
        assert set(listed) == set(names)
        assert len(list(store.names("set1/"))) == 2_000
