"""A source whose documents lie in no folder is published and served like any other."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from headwater.source import configured_source
from headwater.storage.objects.interface import Coding
from tests.storage.memory_store import MemoryStore
from tests.support.published import look
from tests.support.serving import face


def test_a_source_is_served_from_a_store_that_is_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = MemoryStore()
    monkeypatch.setattr(configured_source, "open_store", lambda *_arguments: store)
    files = tmp_path / "files"
    files.mkdir()
    (files / "a.txt").write_bytes(b"a")

    with face(files, tmp_path / "state") as running:

        def listed() -> int:
            return len(look(lambda url: running.get(url.removeprefix(running.url)).body, base=running.url).state)

        assert listed() == 1
        (files / "b.txt").write_bytes(b"b")
        running.source.run_once()
        assert listed() == 2
        names = sorted(store.names())
        assert len(names) >= 5
        for name in names:
            opened = store.open(name, Coding.IDENTITY)
            assert opened is not None
            octets = opened.read(0, opened.octets)
            for _again in range(2):  # read, then from memory
                plain, coded = running.get(f"/{name}"), running.get(f"/{name}", accept_encoding="gzip")
                assert plain.body == gzip.decompress(coded.body) == octets
                assert plain.headers["content-type"] == coded.headers["content-type"] == opened.stored.media_type
                assert running.get(f"/{name}", if_none_match=plain.headers["etag"]).status == 304
                assert running.get(f"/{name}", range="bytes=3-7").body == octets[3:8]
    assert not (tmp_path / "state" / "documents").exists()
