"""Durable listeners: told of all that becomes visible, in order, whatever fails or is killed, and never in the way."""

from __future__ import annotations

import itertools
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from headwater.catalog.catalog_url import open_catalog
from headwater.catalog.cluster.catalog import ClusterCatalog
from headwater.catalog.cluster.schema import Layout, remove
from headwater.catalog.interface import Catalog, Metadata, Upsert
from headwater.progress import Notice, Progress
from headwater.source.config import SetConfig, SourceConfig
from headwater.source.configured_source import utc_now
from headwater.source.events.publication import ListenerPosition, Publication, PublicationListener, VisibleChanges
from headwater.source.health import records
from headwater.source.source import Source
from headwater.storage.cluster import Cluster
from tests.support.engines import access, prefix
from tests.support.waiting import until

NAME = "recorder"
HERE = "http://source.example"


class Recorder:
    """What was told, and what is to fail."""

    def __init__(self) -> None:
        self.told: list[Publication] = []
        self.failing: set[str] = set()
        self.attempts = 0

    def __call__(self, event: Publication) -> None:
        if event.name in self.failing:
            self.attempts += 1
            raise OSError("the hub does not answer")
        self.told.append(event)

    def ranges(self, name: str) -> list[tuple[int, int]]:
        return [(one.first, one.last) for one in self.told if one.name == name]

    def last(self, name: str) -> int:
        return max((one.last for one in self.told if one.name == name), default=0)


class PushedSource:
    """A source of sets that are filled by push, and whoever records into them as another process does."""

    def __init__(self, folder: Path, catalog: str | None = None) -> None:
        self.folder = folder
        self.catalog = catalog
        self.heard: list[Notice | Progress] = []

    def config(self, base_url: str = HERE) -> SourceConfig:
        sets = tuple(SetConfig(name=name, feed="events", resource_base="http://f.example/") for name in "ab")
        return SourceConfig(state=str(self.folder / "state"), catalog=self.catalog, sets=sets, base_url=base_url)

    @contextmanager
    def running(self, hear: PublicationListener | None = None, base_url: str = HERE) -> Iterator[Source]:
        with Source(self.config(base_url), listener=self.heard.append) as source:
            if hear is not None:
                source.listen_durably(NAME, hear)
            source.start()
            for one in source.config.sets:
                source.push_sets.by_set[one.name].open()
            yield source

    @contextmanager
    def opened(self) -> Iterator[Catalog]:
        catalog = open_catalog(self.catalog or self.folder / "state" / "catalog.sqlite")
        yield catalog
        catalog.close()

    def record(self, name: str, *uris: str) -> None:
        with self.opened() as catalog:
            catalog.record(name, [Upsert(uri, Metadata(length=1)) for uri in uris], utc_now())


@pytest.fixture(params=["sqlite", "opensearch"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[PushedSource]:
    if request.param == "sqlite":
        yield PushedSource(tmp_path)
        return
    engine = request.getfixturevalue("opensearch")
    indices = prefix()
    ClusterCatalog(access(engine), indices, layout=Layout(replicas=0)).close()
    yield PushedSource(tmp_path, f"opensearch://{engine.url.removeprefix('http://')}/{indices}?lease_seconds=2")
    cluster = Cluster(access(engine))
    remove(cluster, indices)
    cluster.close()


@pytest.fixture
def local(tmp_path: Path) -> PushedSource:
    return PushedSource(tmp_path)


def in_order(ranges: list[tuple[int, int]]) -> bool:
    """Whether nothing is left out and nothing comes twice."""
    return all(after[0] == before[1] + 1 for before, after in itertools.pairwise(ranges))


def test_all_is_told_in_order_and_after_a_restart_what_came_without_the_listener(world: PushedSource) -> None:
    recorder = Recorder()
    with world.running(recorder):
        until(lambda: {one.name for one in recorder.told} == {"a", "b"}, what="both sets are shown")
        for number in range(3):
            world.record("a", f"u{number}", f"v{number}")
            until(lambda number=number: recorder.last("a") == 2 * number + 2, what="its changes")  # type: ignore[misc]
    assert [one.is_first for one in recorder.told if one.name == "a"] == [
        True,
        *[False] * (len(recorder.ranges("a")) - 1),
    ]
    assert recorder.ranges("a")[0][0] == 1
    assert in_order(recorder.ranges("a"))
    assert recorder.told[-1].resources == 6
    with world.running() as source:
        world.record("a", "w")
        until(lambda: source.catalog.state("a").last_seq == 7, what="what is told to nobody")
    world.record("a", "x")
    again = Recorder()
    with world.running(again):
        until(lambda: again.last("a") == 8, what="what came meanwhile")
    assert again.told == [Publication(name="a", is_first=False, resources=8, first=7, last=8)], "and nothing of b"


KILLED = """
import os, sys
from pathlib import Path
from tests.source.test_durable_listener import PushedSource
from tests.support.waiting import until

def hear(event):
    if event.last == 2:
        os._exit(9)

world = PushedSource(Path(sys.argv[1]))
with world.running(hear):
    world.record("a", "u", "v")
    until(lambda: False)
"""


def test_what_was_published_by_a_process_that_is_killed_is_told_by_the_next_one(local: PushedSource) -> None:
    killed = subprocess.run([sys.executable, "-c", KILLED, str(local.folder)], timeout=60, check=False)
    assert killed.returncode == 9
    recorder = Recorder()
    with local.running(recorder):
        until(lambda: recorder.last("a") == 2, what="what was not told to its end")
        with local.opened() as catalog:
            until(lambda: catalog.row_counts("a") == {"listener position": 1}, what="its position")


def test_a_listener_that_fails_is_tried_again_and_holds_up_nothing(local: PushedSource) -> None:
    recorder = Recorder()
    recorder.failing = {"a"}
    with local.running(recorder) as source:
        local.record("a", "u")
        until(lambda: recorder.attempts > 1, what="another attempt")
        local.record("b", "u")
        local.record("a", "v")
        until(lambda: recorder.last("b") == 1, what="the other set")
        until(lambda: _published(source, "a") == 2, what="the set itself")
        health = _health(source)
        assert (health["behind"], health["error_code"]) == (1, "HW-000")
        assert "does not answer" in health["error"]
        assert len([one for one in local.heard if "does not answer" in str(one)]) == 1, "told once"
        recorder.failing = set()
        until(lambda: recorder.last("a") == 2, what="the end of the failure")
        until(lambda: _health(source)["error"] is None, what="its health")
    assert recorder.ranges("a") == [(1, 2)]


def test_a_listener_that_hangs_holds_up_nothing(local: PushedSource) -> None:
    hangs, goes_on = threading.Event(), threading.Event()
    recorder = Recorder()

    def hear(event: Publication) -> None:
        hangs.set()
        goes_on.wait(60)
        recorder(event)

    with local.running(hear) as source:
        until(hangs.is_set)
        for number in range(5):
            local.record("a", f"u{number}")
        until(lambda: _published(source, "a") == 5, what="the publications")
        goes_on.set()
        until(lambda: recorder.last("a") == 5, what="the listener")


def test_a_history_that_begins_anew_is_told_as_such(local: PushedSource) -> None:
    recorder = Recorder()
    with local.running(recorder):
        local.record("a", "u", "v")
        until(lambda: recorder.last("a") == 2)
    recorder.told.clear()
    with local.running(recorder, "https://elsewhere.example"):
        until(lambda: bool(recorder.ranges("a")), what="the new history")
        local.record("a", "w")
        until(lambda: recorder.last("a") == 3)
    first, *_ = told = [one for one in recorder.told if one.name == "a"]
    assert first.is_first
    assert (first.first, told[-1].last) == (3, 3), "what was published elsewhere is no part of it"


def _health(source: Source) -> dict[str, Any]:
    (found,) = records(source.health()["listeners"])
    return found


def _published(source: Source, name: str) -> int:
    from headwater.publish.publication_state import decode_publication

    return decode_publication(source.catalog.state(name).notes).open.seq


@pytest.mark.parametrize(
    ("position", "told"),
    [
        (None, {"is_first": True, "first": 5, "last": 9}),
        (ListenerPosition(4, 9), None),
        (ListenerPosition(4, 7), {"is_first": False, "first": 8, "last": 9}),
        (ListenerPosition(0, 7), {"is_first": True, "first": 5, "last": 9}),
        (ListenerPosition(0, 9), {"is_first": True, "first": 5, "last": 9}),
        (ListenerPosition(4, 12), {"is_first": True, "first": 5, "last": 9}),
    ],
)
def test_what_a_position_has_to_be_told(position: ListenerPosition | None, told: dict[str, Any] | None) -> None:
    visible = VisibleChanges(name="a", history=4, first=5, last=9, resources=3)
    assert visible.after(position) == (Publication(name="a", resources=3, **told) if told is not None else None)


def test_a_set_without_changes_is_told_to_be_there() -> None:
    event = VisibleChanges(name="a", history=0, first=1, last=0, resources=3).after(None)
    assert event is not None
    assert (event.is_first, event.changes) == (True, 0)
