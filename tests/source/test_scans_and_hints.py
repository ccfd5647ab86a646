"""What changes while a folder is looked at: no hint is lost, no change falls between two documents."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from headwater.files import hashing
from headwater.publish.publisher import Publisher, PublishResult
from headwater.source.source import Source
from tests.source.test_source import WatchedSource
from tests.support.waiting import DEADLINE, until

pytestmark = pytest.mark.long(10)

LARGE = 2 << 20


@pytest.fixture
def world(tmp_path: Path) -> WatchedSource:
    return WatchedSource(tmp_path)


def test_a_hint_that_comes_when_the_scan_has_looked_at_all_files_is_not_dropped(
    world: WatchedSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that is created while the first scan is published follows at once, not with the next scan."""
    usual, publications = Publisher.publish, list[str]()

    def published(self: Publisher, name: str, *more: Any, **options: Any) -> PublishResult:
        if not publications:
            world.put("late")
            time.sleep(1.0)  # the watch tells of it
        publications.append(name)
        return usual(self, name, *more, **options)

    monkeypatch.setattr(Publisher, "publish", published)
    world.put("a")
    with world.running() as source:
        world.comes()
        assert source.sets_health[0].scans == 1


def test_what_a_rotating_scan_finds_lies_after_the_closed_change_list(tmp_path: Path) -> None:
    """The closed list ends before the scan begins, and the Resource List is of that moment."""
    world = WatchedSource(tmp_path, rotation_seconds=0.1, settle_seconds=0.0)
    for name in ("a", "before"):
        world.put(name)
        with Source(world.config()) as source:
            source.run_once()
    world.put("a", b"another")
    world.put("z")
    time.sleep(0.2)
    with Source(world.config()) as source:
        source.run_once()
        closed = [one.until for one in source.catalog.segments("files") if one.until is not None]
    at = world.tree.read("files/resourcelist.xml")[0].at
    assert closed
    assert at == max(closed)
    found = {one.loc.rpartition("/")[2]: one.datetime for one in world.tree.changes()}
    assert found.keys() == {"before", "a", "z"}
    assert [name for name, told in found.items() if told is not None and told > at] == ["a", "z"]
    assert world.is_current()


def test_a_hint_during_the_first_scan_publishes_nothing_over_newer_documents(
    world: WatchedSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The catalog is an older copy: before the scan has ended its Change Lists would have the same numbers twice."""
    world.put("kept")
    with Source(world.config()) as source:
        source.run_once()
    aside = world.folder.parent / "aside"
    aside.mkdir()
    for path in world.state.glob("catalog.sqlite*"):
        shutil.copy(path, aside)
    world.put("forgotten")
    with Source(world.config()) as source:
        source.run_once()
    for path in world.state.glob("catalog.sqlite*"):
        path.unlink()
    for path in aside.iterdir():
        shutil.copy(path, world.state)
    documents = world.state / "documents" / "files"
    before = (documents / "changelist.xml").read_bytes()
    read, go_on = hashing._feed, threading.Event()

    def slowly(descriptor: int, size: int, takers: list[Any], stop: Callable[[], bool] | None) -> int:
        until_at = time.monotonic() + DEADLINE / 2
        while size == LARGE and not go_on.is_set() and time.monotonic() < until_at:
            assert stop is not None
            stop()
            time.sleep(0.05)
        return read(descriptor, size, takers, stop)

    monkeypatch.setattr(hashing, "_feed", slowly)
    world.put("large", bytes(LARGE))
    with Source(world.config(), listener=world.events.append) as source:
        source.start()
        until(lambda: source.sets_health[0].phase == "scanning", what="the scan")
        time.sleep(0.5)
        world.put("hinted")
        until(lambda: "hinted" in source.catalog.get("files", ["hinted"]), what="the hinted file in the catalog")
        time.sleep(0.5)
        assert (documents / "changelist.xml").read_bytes() == before
        go_on.set()
        until(lambda: source.sets_health[0].scans == 1, what="the end of the scan")
        world.comes()
    numbers = [one.name for one in (documents / "changelist").glob("*.xml")]
    assert len(set(numbers)) == len(numbers)
