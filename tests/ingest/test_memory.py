"""The memory of a fed set: one contract, kept by the file beside SQLite and by the cluster beside its catalog."""

from __future__ import annotations

import datetime as dt
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest
from tools.engines.engine import Engine

from headwater.catalog.cluster.catalog import ClusterCatalog
from headwater.catalog.cluster.schema import remove
from headwater.catalog.interface import Catalog, Metadata, Moved, SetState, Upsert
from headwater.catalog.sqlite.catalog import SqliteCatalog
from headwater.ingest.fed import cluster_memory
from headwater.ingest.fed.cluster_memory import ClusterMemory
from headwater.ingest.fed.cluster_turn import ClusterTurn, IntakeBusy
from headwater.ingest.fed.feed import Feed
from headwater.ingest.fed.intake import take_lines
from headwater.ingest.fed.lines import Line
from headwater.ingest.fed.locations import Locations
from headwater.ingest.fed.memories import open_memory
from headwater.ingest.fed.memory import REQUEST_SECONDS, SEEN_SECONDS, Effects, Intent, Memory, Progress, SqliteMemory
from headwater.ingest.fed.pairs import Half, State, Unpaired
from headwater.spec.records import Change
from headwater.storage.cluster import Cluster
from headwater.storage.cluster_faults import ClusterUnreachable
from tests.catalog.clusters import LAYOUT, access, prefix
from tests.http.serving import until

NOW = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
Ground = Callable[[], tuple[Catalog, Memory]]


def later(seconds: float) -> dt.datetime:
    return NOW + dt.timedelta(seconds=seconds)


@pytest.fixture
def ground(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Ground]:
    """Makes handles on one catalog and one memory, as many as there are processes."""
    made: list[tuple[Catalog, Memory]] = []
    engine: Engine | None = None if request.param == "sqlite" else request.getfixturevalue(request.param)
    where = prefix()

    def make() -> tuple[Catalog, Memory]:
        catalog: Catalog
        if engine is None:
            catalog = SqliteCatalog(tmp_path / "catalog.sqlite")
        else:
            catalog = ClusterCatalog(access(engine), where, layout=LAYOUT, lease_seconds=2)
        memory = open_memory(catalog, tmp_path / "ingest.sqlite", lambda: NOW)
        made.append((catalog, memory))
        return catalog, memory

    yield make
    for catalog, memory in made:
        memory.close()
        catalog.close()
    if engine is not None:
        cluster = Cluster(access(engine))
        remove(cluster, where)
        cluster.close()


everywhere = pytest.mark.parametrize("ground", ["sqlite", "opensearch", "elasticsearch"], indirect=True)
shared = pytest.mark.parametrize("ground", ["opensearch", "elasticsearch"], indirect=True)


def half(uri: str, due: float) -> Half:
    return Half(due=later(due), state=State(uri=uri, metadata=Metadata(length=1)))


@everywhere
def test_what_was_committed_is_known_by_every_handle(ground: Ground) -> None:
    """All kinds of what is kept in mind, of two sets with the same keys (DIT-A4, DIT-24)."""
    (_, memory), (_, other) = ground(), ground()
    assert isinstance(memory, SqliteMemory | ClusterMemory)
    effects = Effects(
        seen={b"\x00k": 1},
        gone={"g": 7},
        halves={"h1": half("h1", 2), "h2": half("h2", 1)},
        statements={"a": (("describes", "b"), ("describes", "c")), "d": (("describes", "b"),)},
        positions={"f": b"10"},
    )
    with memory.turn("s"):
        memory.commit("s", effects, NOW)
    with other.turn("s"), other.turn("s"):
        assert other.seen("s", [b"\x00k", b"x"]) == {b"\x00k"}
        assert other.gone("s", ["g", "h"]) == {"g": 7}
        assert other.halves("s", ["h1", "none"]) == {"h1": half("h1", 2)}
        assert list(other.due("s", None, 10)) == ["h2", "h1"]
        assert list(other.due("s", None, 1)) == ["h2"]
        assert list(other.due("s", later(1), 10)) == ["h2"]
        assert other.statements("s", ["a", "b"]) == {"a": (("describes", "b"), ("describes", "c"))}
        assert {uri: set(said) for uri, said in other.about("s", ["b", "c", "a"]).items()} == {
            "b": {("describes", "a"), ("describes", "d")},
            "c": {("describes", "a")},
        }
        assert (other.position("s", "f"), other.position("s", "x")) == (b"10", None)
        other.commit("s", Effects(halves={"h2": None}, statements={"a": (("x", "c"),), "d": ()}), NOW)
    with memory.turn("s"):
        assert list(memory.due("s", None, 10)) == ["h1"]
        assert memory.about("s", ["b", "c"]) == {"c": (("x", "a"),)}
        assert memory.statements("s", ["a", "d"]) == {"a": (("x", "c"),)}
    assert memory.seen("t", [b"\x00k"]) == frozenset()
    assert memory.position("t", "f") is None


@everywhere
def test_what_waits_is_counted_with_the_oldest_of_it(ground: Ground) -> None:
    """The oldest is not that which is due first; what an older version has kept does not say since when it waits."""
    _, memory = ground()
    waiting = {f"h{n}": msgspec.structs.replace(half(f"h{n}", 5), since=later(-n)) for n in range(1, 4)}
    waiting["doubted"] = msgspec.structs.replace(half("doubted", 3_600), since=later(-60))
    for name, halves in (("s", {**waiting, "old": half("old", 1)}), ("t", {"old": half("old", 1)})):
        with memory.turn(name):
            memory.commit(name, Effects(halves={**halves}), NOW)
            memory.due(name, None, 1)  # a cluster shows what was searched for before
    assert memory.unpaired() == {"s": Unpaired(5, later(-60)), "t": Unpaired(1, None)}
    with memory.turn("s"):
        memory.commit("s", Effects(halves={"doubted": None}), NOW)
        memory.due("s", None, 1)
    assert memory.unpaired()["s"] == Unpaired(4, later(-3))


@everywhere
def test_a_request_grows_and_is_known_again(ground: Ground) -> None:
    (_, memory), (_, other) = ground(), ground()
    assert memory.request("s", "key") is None
    for lines, part in ((10, b"one"), (20, b"two"), (25, b"")):
        progress = Progress(key="key", lines=lines, digest=b"d%d" % lines, part=part, complete=lines == 25)
        with memory.turn("s"):
            memory.commit("s", Effects(progress=progress), NOW)
        assert other.lines_taken("s", "key") == lines
    found = other.request("s", "key")
    assert found is not None
    assert (found.lines, found.digest, found.complete, found.parts) == (25, b"d25", True, (b"one", b"two"))
    assert other.lines_taken("s", "other") is None


@everywhere
def test_a_batch_that_was_begun_is_found_until_it_has_ended(ground: Ground) -> None:
    (catalog, memory), (_, other) = ground(), ground()
    catalog.create("s")
    intent = Intent(3, 2, Effects(positions={"f": b"1"}))
    with memory.turn("s"):
        memory.begin("s", intent)
    until(lambda: other.unsettled(later(60)) == {"s"}, what="what was left behind")
    with other.turn("s"):
        assert other.intent("s") == intent
        other.commit("s", intent.effects, NOW)
        assert other.intent("s") is None
        assert other.position("s", "f") == b"1"
        other.begin("s", intent)
        other.abandon("s")
        assert other.intent("s") is None
    until(lambda: not other.unsettled(later(60)), what="nothing left behind")


@everywhere
def test_a_set_is_had_by_one_at_a_time(ground: Ground) -> None:
    (_, memory), (_, other) = ground(), ground()
    had: list[int] = []

    def work(mine: Memory) -> None:
        for _ in range(5):
            with mine.turn("s"):
                had.append(1)
                assert len(had) == 1
                had.clear()

    threads = [threading.Thread(target=work, args=(one,)) for one in (memory, other, memory)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive()
    assert had == []


@everywhere
def test_what_is_too_old_is_taken_away(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_memory, "_SWEEP_EVERY", 1)
    monkeypatch.setattr("headwater.ingest.fed.memory._SWEEP_EVERY", 1)
    _, memory = ground()
    with memory.turn("s"):
        progress = Progress(key="key", lines=1, digest=b"d", part=b"p")
        memory.commit("s", Effects(seen={b"old": 1}, gone={"old": 1}, progress=progress), NOW)
        memory.commit("s", Effects(seen={b"new": 1}), later(SEEN_SECONDS + 1))

        def swept() -> bool:
            memory.commit("s", Effects(), later(max(SEEN_SECONDS, REQUEST_SECONDS) + 2))
            return not memory.seen("s", [b"old"])

        until(swept, what="the sweep")
        assert memory.gone("s", ["old"]) == {}
        assert memory.request("s", "key") is None
        assert memory.seen("s", [b"new"]) == {b"new"}


def feed_of(handles: tuple[Catalog, Memory]) -> Feed:
    return Feed(handles[0], handles[1], "s", Locations("http://h/", None), lambda: NOW)


def take(feed: Feed, *paths: str) -> None:
    take_lines(feed, [Line(number, b'{"path":"%s"}' % path.encode()) for number, path in enumerate(paths, 1)])


@everywhere
def test_a_batch_that_is_not_the_next_is_refused_as_a_whole(ground: Ground) -> None:
    """What another has recorded in between is never written over (the turn was lost without notice)."""
    first = ground()
    feed = feed_of(first)
    feed.open()
    take(feed, "a")
    other = feed_of(ground())
    state, record = feed.catalog.state, feed.catalog.record

    def overtaken(name: str, events: object, now: dt.datetime, *, after: SetState) -> object:
        other.catalog.record("s", [Upsert("foreign", Metadata())], NOW)
        return record(name, events, now, after=after)  # type: ignore[arg-type]

    feed.catalog.record = overtaken  # type: ignore[method-assign,assignment]
    with pytest.raises(Moved):
        take(feed, "b")
    feed.catalog.record = record  # type: ignore[method-assign]
    assert first[1].intent("s") is None
    take(feed, "b")
    assert [one.uri for one in feed.catalog.changes("s")] == ["a", "foreign", "b"]
    assert state("s").last_seq == 3
    assert {one.change for one in feed.catalog.changes("s")} == {Change.CREATED}


@shared
def test_a_holder_that_was_silent_for_too_long_begins_nothing(ground: Ground) -> None:
    """Paused for longer than its lease, the other has taken over: it is told, and nothing of it is recorded."""
    (_, memory), (_, other) = ground(), ground()
    turn = memory.turn("s")
    turn.__enter__()
    with other.turn("s"):  # waits for the lease to be over
        with pytest.raises(IntakeBusy):
            memory.begin("s", Intent(0, 1, Effects()))
        assert other.intent("s") is None
    turn.__exit__(None, None, None)


@shared
def test_a_turn_that_was_lost_unnoticed_overwrites_nothing(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    """Paused right after it has made sure of its turn: what the others have begun or committed stands."""
    (catalog, memory), (_, other) = ground(), ground()
    catalog.create("s")
    theirs = Intent(0, 1, Effects(positions={"f": b"2"}))
    with memory.turn("s"):
        with other.turn("s"):  # waits for the lease to be over
            other.begin("s", theirs)
        monkeypatch.setattr(ClusterTurn, "check", lambda turn: None)
        with pytest.raises(IntakeBusy):
            memory.begin("s", Intent(0, 1, Effects()))
        with pytest.raises(IntakeBusy):
            memory.commit("s", Effects(positions={"f": b"1"}), NOW)
    with other.turn("s"):
        assert other.intent("s") == theirs
        other.commit("s", theirs.effects, NOW)
        assert other.position("s", "f") == b"2"


@shared
def test_what_cannot_be_read_is_not_taken_for_missing(ground: Ground) -> None:
    """A shard that no node has at this moment (a node was killed) would say that nothing was ever taken."""
    catalog, memory = ground()
    assert isinstance(catalog, ClusterCatalog)
    with memory.turn("s"):
        memory.commit("s", Effects(positions={"f": b"1"}), NOW)
    index = f"/{catalog.prefix}-memory-v1"
    nowhere = b'{"settings": {"index.routing.allocation.require._name": "nobody", "index.number_of_replicas": 0}}'
    catalog.cluster.ask("DELETE", index)
    catalog.cluster.ask("PUT", f"{index}?wait_for_active_shards=0", nowhere)
    catalog.cluster.patience_seconds = 0.2
    with pytest.raises(ClusterUnreachable):
        memory.position("s", "f")
    with pytest.raises(ClusterUnreachable):
        memory.request("s", "key")


@shared
def test_what_was_recorded_is_remembered_though_the_turn_was_lost(ground: Ground) -> None:
    """Its batch was recorded, then it was silent: whoever took over has remembered it, and it is not done twice."""
    (catalog, memory), (_, other) = ground(), ground()
    feed = feed_of((catalog, other))
    feed.open()
    progress = Progress(key="key", lines=1, digest=b"d", part=b"part")
    turn = memory.turn("s")
    turn.__enter__()
    memory.begin("s", Intent(0, 1, Effects(progress=progress)))
    take_recorded(catalog)
    with other.turn("s"):
        feed.recover()
        found = other.request("s", "key")
    memory.commit("s", Effects(progress=progress), NOW)
    turn.__exit__(None, None, None)
    assert found is not None
    assert memory.request("s", "key") == found


def take_recorded(catalog: Catalog) -> None:
    catalog.record("s", [Upsert("a", Metadata())], NOW, after=catalog.state("s"))


@shared
def test_a_crash_in_the_middle_of_remembering_is_made_good(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    (_, memory), (_, other) = ground(), ground()

    class Killed(BaseException):
        """Nothing more is done."""

    def killed(*_arguments: object) -> bool:
        raise Killed

    monkeypatch.setattr(Cluster, "stream", killed)
    with pytest.raises(Killed), memory.turn("s"):
        memory.commit("s", Effects(seen={b"k": 1}, positions={"f": b"9"}), NOW)
    monkeypatch.undo()
    with other.turn("s"):
        assert other.position("s", "f") == b"9"
        assert other.seen("s", [b"k"]) == {b"k"}
