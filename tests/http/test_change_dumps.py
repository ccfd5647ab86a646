"""Change Dumps over HTTP: packages that caches keep for good, and a server that goes on packing while files change."""

from __future__ import annotations

import errno
import hashlib
import json
import os
from collections.abc import Iterable
from pathlib import Path

import pytest

from headwater.ingest.push.events import take_lines
from headwater.ingest.push.feed import Line
from headwater.publish.store_writer import StoreWriter
from headwater.source.config import BadPushConfig, SetConfig, SourceConfig
from headwater.source.source import Source
from headwater.storage.object_store import CannotWrite
from tests.publish.change_history import PackedChanges, read_change_dump
from tests.support.serving import Face, face, request
from tests.support.waiting import settle, until

ONE_CHANGE = {"segment_entries": 1}
"""Each change closes a Change List, which is packed at once."""


def dump(running: Face) -> PackedChanges:
    def fetch(url: str) -> bytes | None:
        answer = request(running.url, url.removeprefix(running.url))
        return answer.body if answer.status == 200 else None

    found = read_change_dump(fetch, base=running.url)
    assert found is not None
    return found


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    files = tmp_path / "files"
    files.mkdir()
    (files / "a.txt").write_bytes(b"0")
    return files


def test_a_package_is_served_whole_and_in_parts_and_cached_for_good(folder: Path, tmp_path: Path) -> None:
    """AMB-62: what has another name when its octets change never changes."""
    with face(folder, tmp_path / "state", change_dump=True) as running:
        settle()
        (folder / "a.txt").write_bytes(b"1" * 5_000)
        running.source.run_once()
        found = dump(running)
        assert [one.content for one in found.changes] == [b"1" * 5_000]
        target = found.names[0].removeprefix(running.url)
        whole = running.get(target)
        assert whole.headers["content-type"] == "application/zip"
        assert whole.headers["cache-control"] == "public, max-age=31536000, immutable"
        part = running.get(target, range="bytes=10-19")
        assert (part.status, part.body) == (206, whole.body[10:20])
        assert running.get(target, if_none_match=whole.headers["etag"]).status == 304
        manifest = running.get(target.replace(".zip", ".xml"))
        assert manifest.headers["content-type"] == "application/xml; charset=utf-8"
        assert running.get("/files/changedump.xml").headers["cache-control"] == "no-cache"
        assert running.get("/files/changedump/00000-0123456789abcdef.zip").status == 404
        assert b"Change Dump" in running.get("/").body


def test_a_set_that_offers_none_has_none(folder: Path, tmp_path: Path) -> None:
    with face(folder, tmp_path / "state") as running:
        assert running.get("/files/changedump.xml").status == 404
        assert b"changedump" not in running.get("/files/capabilitylist.xml").body
        assert not (tmp_path / "state" / "versions").exists()


def test_a_server_packs_what_changes_while_it_runs(folder: Path, tmp_path: Path) -> None:
    with face(folder, tmp_path / "state", source_options=ONE_CHANGE, change_dump=True) as running:
        source = running.source
        assert isinstance(source, Source)
        source.start()
        until(lambda: source.sets_health[0].phase == "following", what="the first scan")
        for number in range(1, 4):
            (folder / "a.txt").write_bytes(b"%d" % number)
            until(lambda: source.catalog.newest()["files"] >= number, what="the change")  # noqa: B023 - it is awaited
        until(lambda: [one.content for one in dump(running).changes][:2] == [b"1", b"2"], what="the closed ones")
        assert source.health()["dumps"][0]["failures"] == 0  # type: ignore[index]
        assert source.stop()


def test_without_room_for_packages_the_dump_lags_and_change_lists_go_on(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, is_full = StoreWriter.blocks, [True]

    def blocks(self: StoreWriter, name: str, blocks: Iterable[bytes], *more: object) -> object:
        if is_full[0] and name.endswith(".zip"):
            raise CannotWrite(os.strerror(errno.ENOSPC), where=name)
        return real(self, name, blocks, *more)  # type: ignore[arg-type]

    with face(folder, tmp_path / "state", source_options=ONE_CHANGE, change_dump=True) as running:
        source = running.source
        assert isinstance(source, Source)
        monkeypatch.setattr(StoreWriter, "blocks", blocks)
        source.start()
        until(lambda: source.sets_health[0].phase == "following", what="the first scan")
        (folder / "a.txt").write_bytes(b"1")
        until(lambda: b"updated" in running.get("/files/changelist.xml").body, what="the change")
        until(lambda: source.health()["dumps"][0]["failures"], what="the failure")  # type: ignore[index]
        assert source.sets_health[0].error is None
        assert dump(running).changes == []
        is_full[0] = False
        until(lambda: dump(running).changes, what="the package")
        until(lambda: source.health()["dumps"][0]["error"] is None, what="the end of the failure")  # type: ignore[index]
        assert source.stop()


def announced(source: Source, *lines: bytes) -> None:
    outcomes = take_lines(source.push_sets.by_set["files"], [Line(number, one) for number, one in enumerate(lines, 1)])
    assert all(one.status < 400 for one in outcomes), outcomes


def test_a_push_set_keeps_what_is_announced(folder: Path, tmp_path: Path) -> None:
    """Its records have to state a SHA-256; what was not kept is packed while its file is as announced."""
    with pytest.raises(BadPushConfig, match="change_dump"):
        SetConfig(feed="events", change_dump=True)
    config = SourceConfig(
        state=str(tmp_path / "state"),
        base_url="http://h",
        sets=(SetConfig(feed="events", resource_root=str(folder), change_dump=True),),
    )

    def line(content: bytes, algorithm: str = "sha256") -> bytes:
        name = {"sha256": "sha-256", "md5": "md5"}[algorithm]
        digest = hashlib.new(algorithm, content).hexdigest()
        event = {"path": "/a.txt", "hash": f"{name}:{digest}", "length": len(content)}
        (folder / "a.txt").write_bytes(content)
        return json.dumps(event).encode()

    notices: list[object] = []
    with Source(config, listener=notices.append) as source:
        feed = source.push_sets.by_set["files"]
        feed.open()

        def publish() -> list[bytes | None]:
            source.publisher.publish("files", source.catalog.mark("files", source._clock()))
            while source.publisher.pack_changes("files", at_once=True).is_done:
                pass

            def fetch(url: str) -> bytes | None:
                found = tmp_path / "state" / "documents" / url.removeprefix("http://h/")
                return found.read_bytes() if found.is_file() else None

            found = read_change_dump(fetch, base="http://h")
            assert found is not None
            return [one.content for one in found.changes]

        publish()
        announced(source, line(b"one"))
        announced(source, line(b"two"))
        assert publish() == [b"one", b"two"]
        assert notices == []
        announced(source, line(b"three", "md5"))
        assert len(notices) == 1  # no SHA-256 is stated; the file itself is packed while it has the stated digest
        assert publish() == [b"one", b"two", b"three"]
        announced(source, line(b"four", "md5"))
        announced(source, line(b"five"))
        assert publish() == [b"five"]  # RS-CDM-10
