"""Resource Dumps of a running source: whatever changes or is killed when, dump and later changes come to the folder.

A writer changes files without a pause. Before each kill a referee reads the dump with all its packages; at the end,
when the writer rests, every dump that was ever read has to lead to what lies in the folder, by the changes after its
`at` (AMB-90). HEADWATER_KILLS sets how often the server is killed (default 4).
"""

from __future__ import annotations

import datetime as dt
import hashlib
import os
import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import unquote

import pytest
from tools.engines.launch import free_port

from headwater.spec.records import ChangeKind
from tests.http.killed_source import KILLS, write_config
from tests.publish.packed_catalog import PackedResources, read_resource_dump
from tests.support.published import look
from tests.support.serving import Process, face, request
from tests.support.waiting import settle, until

pytestmark = pytest.mark.long(10)

SETTINGS = """dump = true
dump_share = 0.01
dump_seconds = 0.1
renew_seconds = 2
package_entries = 5
"""
Held = dict[str, str]
"""Relative path and SHA-256."""


def test_a_package_is_served_whole_and_in_parts_and_cached_for_good(tmp_path: Path) -> None:
    """AMB-62: what has another name when its octets change never changes."""
    folder = tmp_path / "files"
    folder.mkdir()
    (folder / "a.txt").write_bytes(b"1" * 5_000)
    settle()
    with face(folder, tmp_path / "state", dump=True) as running:
        found = read_resource_dump(
            lambda url: request(running.url, url.removeprefix(running.url)).body, base=running.url
        )
        assert found is not None
        assert list(found.resources.values()) == [b"1" * 5_000]
        target = next(iter(found.packages)).removeprefix(running.url)
        whole = running.get(target)
        assert whole.headers["content-type"] == "application/zip"
        assert whole.headers["cache-control"] == "public, max-age=31536000, immutable"
        part = running.get(target, range="bytes=10-19")
        assert (part.status, part.body) == (206, whole.body[10:20])
        assert running.get(target, if_none_match=whole.headers["etag"]).status == 304
        assert running.get("/files/resourcedump.xml").headers["cache-control"] == "no-cache"
        assert running.get("/files/resourcedump/00000-000-0123456789abcdef.zip").status == 404
        assert b"Resource Dump" in running.get("/").body


def test_a_set_that_offers_none_has_none(tmp_path: Path) -> None:
    folder = tmp_path / "files"
    folder.mkdir()
    with face(folder, tmp_path / "state") as running:
        assert running.get("/files/resourcedump.xml").status == 404
        assert b"resourcedump" not in running.get("/files/capabilitylist.xml").body


@contextmanager
def writer(folder: Path, seed: int) -> Iterator[None]:
    """Creates, updates, deletes, touches and replaces files until the context ends."""
    chance, ended = random.Random(seed), threading.Event()

    def change() -> None:
        path = folder / f"{chance.randrange(3)}/f{chance.randrange(20):02d}.txt"
        if path.exists() and chance.random() < 0.3:
            path.unlink()
        elif path.exists() and chance.random() < 0.2:
            os.utime(path)  # it is what it was
        else:
            path.parent.mkdir(exist_ok=True)
            octets = chance.choice([1, 400, 60_000])
            path.write_bytes(chance.choice([b"a", b"b"]) * octets)

    def work() -> None:
        while not ended.is_set():
            change()
            time.sleep(0.02)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


class Referee:
    """Keeps what every dump that was read has told."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.read: list[tuple[dt.datetime, Held]] = []

    def fetch(self, url: str) -> bytes | None:
        answer = request(self.url, url.removeprefix(self.url))
        return answer.body if answer.status == 200 else None

    def look(self) -> PackedResources | None:
        found = read_resource_dump(self.fetch, base=self.url)
        if found is not None:
            digests = {self.path(uri): hashlib.sha256(one).hexdigest() for uri, one in found.resources.items()}
            self.read.append((found.at, digests))
        return found

    def path(self, uri: str) -> str:
        return unquote(uri.removeprefix(f"{self.url}/files/resources/"))

    def judge(self, held: Held) -> None:
        """Every dump, and the changes after it, come to what is held."""
        changes = look(self.fetch, base=self.url, midway=True).changes
        for at, digests in self.read:
            state = dict(digests)
            for entry in changes:
                assert entry.datetime is not None
                if entry.datetime <= at:
                    continue
                if entry.change is ChangeKind.DELETED:
                    state.pop(self.path(entry.loc), None)
                else:
                    state[self.path(entry.loc)] = str(entry.hash).rpartition("sha-256:")[2]
            assert state == held


def contents(folder: Path) -> Held:
    return {
        str(one.relative_to(folder)): hashlib.sha256(one.read_bytes()).hexdigest()
        for one in folder.rglob("*")
        if one.is_file()
    }


@pytest.mark.parametrize("seed", [1])
def test_killed_at_any_moment_every_dump_that_was_read_leads_to_the_folder(tmp_path: Path, seed: int) -> None:
    chance, folder = random.Random(seed), tmp_path / "files"
    folder.mkdir()
    config = write_config(tmp_path, free_port(), SETTINGS)
    referee: Referee | None = None
    with writer(folder, seed):
        for _ in range(KILLS):
            with Process("--quiet", str(config)) as running:
                referee = referee or Referee(running.ready())
                assert running.url or running.ready() == referee.url
                until(lambda: referee.look(), what="a dump")  # noqa: B023
                for _more in range(chance.randrange(6)):
                    referee.look()
                running.kill()
    assert referee is not None
    with Process("--quiet", str(config)) as running:
        running.ready()
        held = contents(folder)
        until(lambda: _is_whole(referee, held), what="a dump of the folder as it is")
        referee.judge(held)
        stored = {one.name for one in (tmp_path / "state" / "documents" / "files" / "resourcedump").glob("*.zip")}
        found = referee.look()
        assert found is not None
        assert {one.rpartition("/")[2] for one in found.packages} <= stored


def _is_whole(referee: Referee, held: Held) -> bool:
    referee.look()
    return referee.read[-1][1] == held
