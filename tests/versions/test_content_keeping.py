"""The octets of announced records are kept with their batch; what is not kept is told, and noted as lost."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

from headwater.catalog.interface import Event, Metadata, Upsert
from headwater.files.file_copies import SMALL_OCTETS
from headwater.ingest.content import ContentRoot, FileContentReader
from headwater.ingest.push.events import take_lines
from headwater.ingest.push.feed import Line
from headwater.progress import Notice
from headwater.source.config import SetConfig, SourceConfig
from headwater.source.source import Source
from headwater.spec.times import to_microseconds
from headwater.versions.history import History, Keeping, kept_until
from headwater.versions.keeping import ContentKeeping
from headwater.versions.store import VersionStore
from tests.support.kept_versions import damage, kept_octets


def digest(octets: bytes) -> str:
    return hashlib.sha256(octets).hexdigest()


def stated(uri: str, octets: bytes, algorithm: str = "sha-256") -> Upsert:
    name = hashlib.new(algorithm.replace("-", ""), octets).hexdigest()
    return Upsert(uri, Metadata(hash=f"{algorithm}:{name}", length=len(octets)))


class World:
    """The folder of a push set, and what keeps its octets."""

    def __init__(self, base: Path) -> None:
        self.files, self.versions = base / "files", base / "versions"
        self.files.mkdir()
        self.told: list[Notice] = []
        contents = FileContentReader({"s": ContentRoot(prefix="http://h/s/", folder=str(self.files))})
        self.store = VersionStore(self.versions)
        self._keeping = ContentKeeping(self.store, contents, "s", self._tell)

    def _tell(self, told: object) -> None:
        assert isinstance(told, Notice)
        assert told.rule == "HW-ING-23"
        self.told.append(told)

    def put(self, uri: str, octets: bytes) -> Upsert:
        (self.files / uri).write_bytes(octets)
        return stated(uri, octets)

    def keep(self, events: Sequence[Event]) -> set[str]:
        return self._keeping.keep(events)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


LARGE = b"large" * SMALL_OCTETS


def test_a_batch_is_kept_at_once_and_again_without_its_files(world: World) -> None:
    """Small and large ones, the same octets under two names, of which one has no file any more."""
    contents = [b"%d" % number for number in range(50)] + [LARGE, b"", b"x" * SMALL_OCTETS]
    events = [world.put(f"{number}", one) for number, one in enumerate(contents)]
    assert world.keep([stated("gone", b"7"), *events]) == set()
    assert kept_octets(world.versions) == {digest(one): one for one in contents}
    shutil.rmtree(world.files)
    assert world.keep(events) == set()
    assert world.told == []
    assert list((world.versions / ".aside").iterdir()) == []


def test_what_cannot_be_kept_costs_the_others_nothing(world: World) -> None:
    events = [world.put("a", b"a"), world.put("b", b"b"), world.put("c", b"c"), world.put("d", LARGE)]
    (world.files / "b").write_bytes(b"B")
    (world.files / "c").unlink()
    (world.files / "d").write_bytes(LARGE[:-1] + b"?")
    assert world.keep([*events, stated("a", b"a", "md5")]) == {digest(b"b"), digest(b"c"), digest(LARGE), ""}
    assert sorted(map(str, (one.where for one in world.told))) == ["a", "b", "c", "d"]
    assert kept_octets(world.versions) == {digest(b"a"): b"a"}


def test_on_a_full_disk_each_is_told(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    contents = [b"a", b"b", LARGE]
    events = [world.put(f"{number}", one) for number, one in enumerate(contents)]
    assert world.keep(events[:1]) == set()
    monkeypatch.setattr("headwater.files.file_copies.RESERVE_OCTETS", 1 << 60)
    assert world.keep(events) == {digest(b"b"), digest(LARGE)}
    assert {one.where for one in world.told} == {"1", "2"}
    assert all("the disk would have less than" in one.message for one in world.told)


def test_where_the_store_cannot_be_made_each_is_told(world: World) -> None:
    world.versions.write_bytes(b"a file in its place")
    events = [world.put("a", b"a"), world.put("d", LARGE)]
    assert world.keep(events) == {digest(b"a"), digest(LARGE)}
    assert len(world.told) == 2


@pytest.mark.parametrize("octets", [b"once", b"a" * 100_000], ids=["small", "larger"])
def test_octets_that_the_disk_has_altered_are_kept_anew(world: World, octets: bytes) -> None:
    """A version that does not have its digest is no proof that the octets are kept."""
    event = world.put("a", octets)
    world.keep([event, world.put("b", b"b")])
    damage(world.versions, octets)
    assert world.keep([event]) == set()
    assert kept_octets(world.versions) == {digest(octets): octets, digest(b"b"): b"b"}
    damage(world.versions, octets)
    (world.files / "a").unlink()
    assert world.keep([event]) == {digest(octets)}


def states(history: History, uri: str) -> list[tuple[Keeping, str]]:
    return [(one.keeping, one.digest) for one in history.after(uri, -(1 << 60), 10)]


def test_of_a_first_load_nothing_is_named_that_was_not_kept(tmp_path: Path) -> None:
    """HW-ING-23: the state is noted as lost, before and after it is overtaken; what came in time is kept."""
    folder = tmp_path / "files"
    folder.mkdir()
    (folder / "a").write_bytes(b"a")
    config = SourceConfig(
        state=str(tmp_path / "state"),
        base_url="http://h",
        sets=(SetConfig(feed="events", resource_root=str(folder), versions=True),),
    )
    told: list[object] = []
    with Source(config, listener=told.append) as source:
        feed = source.push_sets.by_set["files"]

        def announce(*lines: tuple[str, bytes]) -> None:
            text = '{"path": "/%s", "hash": "sha-256:%s", "length": %d}'
            records = [(text % (path, digest(octets), len(octets))).encode() for path, octets in lines]
            outcomes = take_lines(feed, [Line(number, one) for number, one in enumerate(records, 1)])
            assert all(one.status < 400 for one in outcomes), outcomes

        announce(("a", b"a"), ("b", b"b"), ("c", b"c"))
        assert len(told) == 2
        (folder / "d").write_bytes(b"c")
        announce(("d", b"c"))  # the octets that were not kept of c
        feed.open()
        catalog = source.catalog
        expected = {"a": (Keeping.KEPT, digest(b"a")), "b": (Keeping.LOST, digest(b"b"))}
        expected["c"] = expected["d"] = (Keeping.KEPT, digest(b"c"))
        history = History(catalog, "files", source.versions.has)
        now_us = to_microseconds(source._clock())
        for uri, state in expected.items():
            assert states(history, uri) == [state]
        assert {uri: one.is_kept for uri, one in history.each_until(["a", "b", "c"], now_us).items()} == {
            "a": True,
            "b": False,
            "c": True,
        }
        assert kept_until(history, "b", 1 << 60) is None
        for uri in expected:
            (folder / uri).write_bytes(b"new")
        announce(*((uri, b"new") for uri in expected))
        for uri, state in expected.items():
            assert states(history, uri) == [state, (Keeping.KEPT, digest(b"new"))]
        history.forget()
        assert not any(kind.startswith("version") for kind in catalog.row_counts("files"))
    assert kept_octets(tmp_path / "state" / "versions")
