"""What a push set remembers, as rows of its catalog: on SQLite and on both engines, by several handles at a time."""

from __future__ import annotations

import datetime as dt
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tools.engines.engine import Engine

from headwater.catalog import page_filling
from headwater.catalog.cluster.catalog import ClusterCatalog
from headwater.catalog.cluster.schema import remove
from headwater.catalog.interface import (
    Catalog,
    ClusterOptions,
    Delete,
    Metadata,
    Moved,
    Resource,
    StateRow,
    StateUpdate,
    Upsert,
)
from headwater.catalog.sqlite_catalog import SqliteCatalog
from headwater.ingest.push import feed as feed_module
from headwater.ingest.push import ingest_state
from headwater.ingest.push.events import take_lines
from headwater.ingest.push.feed import Feed, Line
from headwater.ingest.push.ingest_state import (
    MOST_LINKS,
    REQUEST_SECONDS,
    SEEN_SECONDS,
    AsideCount,
    AsideRow,
    Effects,
    IngestState,
    RequestProgress,
    ResourceDocument,
    refuse_old_memory,
    sweep,
    unpaired,
)
from headwater.ingest.push.resource_locations import Locations
from headwater.spec.records import ChangeKind
from headwater.storage.cluster import Cluster, ClusterUnreachable
from tests.support.engines import NUMBERS, Scoped, access, prefix
from tests.support.failing import failing
from tests.support.waiting import until

pytestmark = pytest.mark.long(20)

NOW = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
Ground = Callable[[], Catalog]
Alone = Callable[[], ClusterCatalog]


def later(seconds: float) -> dt.datetime:
    return NOW + dt.timedelta(seconds=seconds)


@pytest.fixture(scope="module")
def homes(request: pytest.FixtureRequest) -> Iterator[Callable[[str], tuple[Engine, str]]]:
    """The engine of a name, and the prefix there that the tests of this module share: new indices cost a second."""
    found: dict[str, tuple[Engine, str]] = {}

    def home(name: str) -> tuple[Engine, str]:
        if name not in found:
            found[name] = (request.getfixturevalue(name), prefix())
        return found[name]

    yield home
    for engine, where in found.values():
        forget(engine, where)


def forget(engine: Engine, where: str) -> None:
    cluster = Cluster(access(engine))
    remove(cluster, where)
    cluster.close()


def handle(engine: Engine, where: str) -> ClusterCatalog:
    return ClusterCatalog(access(engine), where, options=ClusterOptions(replicas=0, lease_seconds=2))


@pytest.fixture
def ground(
    request: pytest.FixtureRequest, homes: Callable[[str], tuple[Engine, str]], tmp_path: Path
) -> Iterator[Ground]:
    """Makes handles on one catalog, as many as there are processes."""
    made: list[Catalog] = []
    scope = f"{next(NUMBERS)}/"

    def make() -> Catalog:
        catalog: Catalog
        if request.param == "sqlite":
            catalog = SqliteCatalog(tmp_path / "catalog.sqlite")
        else:
            catalog = Scoped(handle(*homes(request.param)), scope)
        made.append(catalog)
        return catalog

    yield make
    for catalog in made:
        catalog.close()


@pytest.fixture
def alone(request: pytest.FixtureRequest) -> Iterator[Alone]:
    """As `ground`, with indices of its own, for what is done to them."""
    made: list[ClusterCatalog] = []
    engine, where = request.getfixturevalue(request.param), prefix()

    def make() -> ClusterCatalog:
        made.append(handle(engine, where))
        return made[-1]

    yield make
    for catalog in made:
        catalog.close()
    forget(engine, where)


everywhere = pytest.mark.parametrize("ground", ["sqlite", "opensearch", "elasticsearch"], indirect=True)
shared = pytest.mark.parametrize("alone", ["opensearch", "elasticsearch"], indirect=True)


def half(uri: str, due: float) -> AsideRow:
    return AsideRow(due=later(due), state=ResourceDocument(uri=uri, metadata=Metadata(length=1)))


def keep(catalog: Catalog, name: str, effects: Effects, now: dt.datetime = NOW) -> None:
    """Remember the effects, in a set that is open."""
    catalog.create(name)
    catalog.open(name, NOW)
    catalog.record(name, [], now, state=IngestState(catalog, name).update(effects, now))


@everywhere
def test_what_was_committed_is_known_by_every_handle(ground: Ground) -> None:
    """All kinds of what is remembered, of two sets with the same keys (DIT-A4, DIT-24)."""
    catalog, other_catalog = ground(), ground()
    other_catalog.create("t")
    state, other, foreign = IngestState(catalog, "s"), IngestState(other_catalog, "s"), IngestState(other_catalog, "t")
    effects = Effects(
        seen={b"\x00k"},
        gone={"g": 7},
        aside={"h1": half("h1", 2), "h2": half("h2", 1)},
        statements={"a": (("describes", "b"), ("describes", "c")), "d": (("describes", "b"),)},
        positions={"f": b"10"},
    )
    keep(catalog, "s", effects)
    found = other.remembered(["g", "h", "h1", "b"], seen=[b"\x00k", b"x"], statements=["a", "b"])
    assert found.seen == {b"\x00k"}
    assert (found.gone, found.aside) == ({"g": 7}, {"h1": half("h1", 2)})
    assert found.statements == {"a": (("describes", "b"), ("describes", "c"))}
    assert {uri: set(said) for uri, said in found.about.items()} == {"b": {("describes", "a"), ("describes", "d")}}
    assert other.about(["c", "a"]) == {"c": (("describes", "a"),)}
    assert (other.position("f"), other.position("x")) == (b"10", None)
    keep(other_catalog, "s", Effects(aside={"h2": None}, statements={"a": (("x", "c"),), "d": ()}))
    assert list(state.remembered(["h1", "h2"]).aside) == ["h1"]
    assert state.about(["b", "c"]) == {"c": (("x", "a"),)}
    assert state.statements(["a", "d"]) == {"a": (("x", "c"),)}
    assert foreign.remembered(seen=[b"\x00k"]).seen == frozenset()
    assert foreign.position("f") is None


@everywhere
def test_what_is_set_aside_is_counted_with_the_oldest_of_it(ground: Ground) -> None:
    """The oldest is not that which is due first; what an older version has kept does not say since when it waits."""
    catalog = ground()
    waiting = {f"h{n}": msgspec.structs.replace(half(f"h{n}", 5), since=later(-n)) for n in range(1, 4)}
    waiting["doubted"] = msgspec.structs.replace(half("doubted", 3_600), since=later(-60))
    for name, halves in (("s", {**waiting, "old": half("old", 1)}), ("t", {"old": half("old", 1)})):
        keep(catalog, name, Effects(aside={**halves}))
        catalog.rows_of(name, "half", limit=1)  # a cluster shows what was searched for before
    assert unpaired(catalog) == {"s": AsideCount(5, later(-60)), "t": AsideCount(1, None)}
    keep(catalog, "s", Effects(aside={"doubted": None}))
    catalog.rows_of("s", "half", limit=1)
    assert unpaired(catalog)["s"] == AsideCount(4, later(-3))


@everywhere
def test_a_request_grows_and_is_known_again(ground: Ground) -> None:
    catalog, other = ground(), IngestState(ground(), "s")
    catalog.create("s")
    assert other.request("key") is None
    for lines, part in ((10, b"one"), (20, b"two"), (25, b"")):
        before = other.taken("key")
        progress = RequestProgress(
            key="key", lines=lines, digest=b"d%d" % lines, part=part, complete=lines == 25, before=before
        )
        keep(catalog, "s", Effects(progress=progress))
        taken = other.taken("key")
        assert taken is not None
        assert taken.lines == lines
    found = other.request("key")
    assert found is not None
    assert (found[0].lines, found[0].digest, found[0].complete, found[1]) == (25, b"d25", True, (b"one", b"two"))
    assert other.taken("other") is None


@everywhere
def test_what_is_too_old_is_taken_away(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a set that is open and of one that is loading; no more requests than there may be, with their answers."""
    monkeypatch.setattr(ingest_state, "MOST_REQUESTS", 2)
    monkeypatch.setattr(ingest_state, "SWEEP", 3)
    catalog = ground()
    state = IngestState(catalog, "s")
    old = Effects(seen={b"%d" % n for n in range(8)}, gone={"old": 1})
    keep(catalog, "s", old)
    keep(catalog, "s", Effects(progress=RequestProgress(key="key", lines=1, digest=b"d", part=b"p")))
    for number in range(4):
        progress = RequestProgress(key=f"new{number}", lines=1, digest=b"d", part=b"p")
        keep(catalog, "s", Effects(seen={b"new"}, progress=progress), later(SEEN_SECONDS + 1 + number))
    catalog.create("loading")
    catalog.load("loading", [], state=IngestState(catalog, "loading").update(old, NOW))

    def swept() -> bool:
        sweep(catalog, later(SEEN_SECONDS + 5))
        loading = catalog.row_counts("loading")
        return not loading and state.taken("new1") is None and not state.remembered(seen=old.seen).seen

    until(swept, what="the sweep")
    assert catalog.row_counts("s") == {"seen": 1, "request": 2, "answer": 2}
    assert {key for key in ("key", "new0", "new1", "new2", "new3") if state.taken(key)} == {"new2", "new3"}
    assert state.remembered(seen=[b"new"]).seen == {b"new"}
    assert SEEN_SECONDS > REQUEST_SECONDS


def test_old_rows_are_taken_away_now_and_then(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    catalog = SqliteCatalog(tmp_path / "catalog.sqlite")
    keep(catalog, "another", Effects(gone={"old": 1}), later(-SEEN_SECONDS - 1))
    feed = feed_of(catalog)
    feed.open()
    monkeypatch.setattr(feed_module, "_batches", iter(range(1, 1_000)))
    for number in range(feed_module.SWEEP_EVERY):
        assert catalog.row_counts("another") == {"gone": 1}
        take(feed, f"{number}")
    assert catalog.row_counts("another") == {}
    catalog.close()


def feed_of(catalog: Catalog) -> Feed:
    return Feed(catalog, "s", Locations("http://h/", None), lambda: NOW)


def take(feed: Feed, *paths: str) -> list[int | None]:
    """Announce; the numbers of the changes that the answer tells."""
    outcomes = take_lines(
        feed, [Line(number, b'{"path":"%s"}' % path.encode()) for number, path in enumerate(paths, 1)]
    )
    return [one.seq for one in outcomes]


@everywhere
def test_a_batch_that_another_has_overtaken_is_decided_anew(ground: Ground) -> None:
    """What another has recorded in between is never written over, and counts for what is decided."""
    feed, other = feed_of(ground()), ground()
    feed.open()
    take(feed, "a")
    record = feed.catalog.record
    rivals = [Upsert("b", Metadata()), Upsert("foreign", Metadata())]

    def overtaken(name: str, *arguments: Any, **named: Any) -> object:
        if rivals:
            other.record("s", [rivals.pop()], NOW)
        return record(name, *arguments, **named)

    feed.catalog.record = overtaken  # type: ignore[method-assign,assignment]
    assert take(feed, "b", "c") == [None, 4]
    assert [one.uri for one in feed.catalog.changes("s")] == ["a", "foreign", "b", "c"]
    assert {one.change for one in feed.catalog.changes("s")} == {ChangeKind.CREATED}


@everywhere
def test_what_another_has_remembered_meanwhile_is_not_forgotten(ground: Ground) -> None:
    """No change tells it: that rows were written is seen by themselves."""
    feed, other = feed_of(ground()), ground()
    feed.open()
    record = feed.catalog.record
    attempts: list[int] = []

    def overtaken(name: str, *arguments: Any, **named: Any) -> object:
        if not attempts:
            keep(other, "s", Effects(seen={b"k"}))
        attempts.append(1)
        return record(name, *arguments, **named)

    feed.catalog.record = overtaken  # type: ignore[method-assign,assignment]
    found: list[frozenset[bytes]] = []

    def work() -> None:
        found.append(feed.state.remembered(seen=[b"k"]).seen)
        feed.write([], Effects(positions={"f": b"1"}))

    feed.attempt(work)
    assert found == [frozenset(), {b"k"}]


def test_what_another_has_opened_meanwhile_is_recorded(tmp_path: Path) -> None:
    catalog = SqliteCatalog(tmp_path / "catalog.sqlite")
    feed, load = feed_of(catalog), catalog.load

    def opened(*arguments: Any, **named: Any) -> int:
        catalog.open("s", NOW)
        return load(*arguments, **named)

    catalog.load = opened  # type: ignore[method-assign]
    assert take(feed, "a") == [1]
    catalog.close()


def test_a_sweep_lets_a_set_be_that_nobody_sees_or_that_is_opened(tmp_path: Path) -> None:
    """Of a restore that has failed a cluster has rows, and no set: it is no matter of the batch that was recorded."""
    catalog = SqliteCatalog(tmp_path / "catalog.sqlite")
    catalog.create("s")
    old = Effects(gone={"g": 1}, aside={"h": half("h", 1)})
    catalog.load("s", [], state=IngestState(catalog, "s").update(old, NOW))
    counted, load = catalog.sets_with_rows, catalog.load
    catalog.sets_with_rows = lambda *arguments: {"hidden": 1, **counted(*arguments)}  # type: ignore[method-assign]

    def opened(*arguments: Any, **named: Any) -> int:
        catalog.open("s", NOW)
        return load(*arguments, **named)

    catalog.load = opened  # type: ignore[method-assign]
    sweep(catalog, later(SEEN_SECONDS + 5))
    assert catalog.row_counts("s") == {"gone": 1}
    sweep(catalog, later(SEEN_SECONDS + 5))
    assert catalog.row_counts("s") == {}
    catalog.close()


def test_an_answer_that_is_swept_while_it_is_read_is_as_one_that_was_swept_before(tmp_path: Path) -> None:
    catalog = SqliteCatalog(tmp_path / "catalog.sqlite")
    keep(catalog, "s", Effects(progress=RequestProgress(key="key", lines=1, digest=b"d", part=b"[]", complete=True)))
    feed, taken = feed_of(catalog), IngestState.taken

    def swept(key: str) -> object:
        found = taken(feed.state, key)
        sweep(catalog, later(REQUEST_SECONDS + 5))
        return found

    feed.state.taken = swept  # type: ignore[method-assign,assignment]
    assert feed.request("key") is None
    catalog.close()


def test_a_resource_of_which_many_speak_holds_nothing_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is remembered of it is bounded as its links are, and a row as well (DIT-24)."""
    monkeypatch.setattr(page_filling, "LARGEST_VALUE", 20_000)
    catalog = SqliteCatalog(tmp_path / "catalog.sqlite")
    feed = feed_of(catalog)
    feed.open()
    links = [{"rel": "describedby", "href": "http://h/schema"}]
    for start in range(0, 2_000, 500):
        paths = [f"{number:04}" for number in range(start, start + 500)]
        lines = [msgspec.json.encode({"path": path, "links": links}) for path in paths]
        outcomes = take_lines(feed, [Line(number, text) for number, text in enumerate(lines, 1)])
        assert {one.status for one in outcomes} == {200}
    assert catalog.state("s").count == 2_000
    take(feed, "schema")
    assert len(catalog.get("s", ["schema"])["schema"].metadata.links) == MOST_LINKS
    take(feed, "0000")
    assert ("describedby", "0000") not in feed.state.about(["schema"])["schema"]
    catalog.close()


def test_what_is_no_news_is_so_when_it_is_answered(tmp_path: Path) -> None:
    """Else who announces is told that the set has what it has lost, or never had for good (a node of a cluster)."""
    catalog = SqliteCatalog(tmp_path / "catalog.sqlite")
    feed, held = feed_of(catalog), catalog.get
    feed.open()
    assert take(feed, "a") == [1]
    rivals = [Delete("a")]

    def overtaken(name: str, uris: Sequence[str]) -> dict[str, Resource]:
        found = held(name, uris)
        if rivals:
            catalog.record("s", [rivals.pop()], NOW)
        return found

    catalog.get = overtaken  # type: ignore[method-assign]
    assert take(feed, "a") == [3]
    assert take(feed, "a") == [None]
    assert take(feed) == []
    assert catalog.state("s").last_seq == 3
    catalog.close()


def test_what_is_answered_again_is_made_sure_of(tmp_path: Path) -> None:
    """A node of a cluster may show what it then loses: only who has written over what it shows can rely on it."""
    catalog = SqliteCatalog(tmp_path / "catalog.sqlite")
    keep(catalog, "s", Effects(progress=RequestProgress(key="key", lines=1, digest=b"d", part=b"[]", complete=True)))
    feed, record = feed_of(catalog), catalog.record
    overtaken = [Moved("what was seen is gone")]
    seen: list[object] = []

    def recording(*arguments: Any, **named: Any) -> object:
        if overtaken:
            raise overtaken.pop()
        seen.append(named["after"])
        return record(*arguments, **named)

    catalog.record = recording  # type: ignore[method-assign,assignment]
    assert feed.request("new") is None
    found = feed.request("key")
    assert found is not None
    assert (found[0].complete, seen) == (True, [catalog.state("s")])
    assert not overtaken
    catalog.close()


def test_who_is_always_overtaken_is_told_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed_module, "BUSY_SECONDS", 0.2)
    feed = feed_of(SqliteCatalog(tmp_path / "catalog.sqlite"))
    feed.open()

    def overtaken() -> None:
        raise Moved("the newest change is another")

    with failing("HW-ING-52") as told:
        feed.attempt(overtaken)
    assert told.value.code == "HW-ING-52"
    assert take(feed, "a") == [1]
    feed.catalog.close()


@everywhere
def test_many_who_announce_at_once_are_all_taken(ground: Ground) -> None:
    """By two handles, as of two processes, with two threads each: each number once, each line once."""
    feeds = [feed_of(ground()) for _ in range(2)]
    feeds[0].open()
    told: list[int | None] = []

    def work(feed: Feed, who: int) -> None:
        for number in range(5):
            told.extend(take(feed, f"{who}/{number}/a", f"{who}/{number}/b"))

    threads = [threading.Thread(target=work, args=(feeds[who % 2], who)) for who in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    assert sorted(one or 0 for one in told) == list(range(1, 41))
    assert len({one.uri for one in feeds[0].catalog.changes("s")}) == 40


@shared
def test_what_cannot_be_read_is_not_taken_for_missing(alone: Alone) -> None:
    """A shard that no node has at this moment (a node was killed) would say that nothing was ever taken."""
    catalog = alone()
    state = IngestState(catalog, "s")
    keep(catalog, "s", Effects(positions={"f": b"1"}))
    index = f"/{catalog.prefix}-state-v1"
    nowhere = b'{"settings": {"index.routing.allocation.require._name": "nobody", "index.number_of_replicas": 0}}'
    catalog.cluster.ask("DELETE", index)
    catalog.cluster.ask("PUT", f"{index}?wait_for_active_shards=0", nowhere)
    catalog.cluster.patience_seconds = 0.2
    with pytest.raises(ClusterUnreachable):
        state.position("f")
    with pytest.raises(ClusterUnreachable):
        state.request("key")


@shared
def test_a_crash_before_rows_are_in_their_places_is_made_good(alone: Alone, monkeypatch: pytest.MonkeyPatch) -> None:
    """The head says them, and who comes next puts them into their places."""
    catalog, other = alone(), alone()
    catalog.create("s")
    catalog.open("s", NOW)

    class Killed(BaseException):
        """Nothing more is done."""

    def killed(*_arguments: object) -> bool:
        raise Killed

    state, mine = IngestState(other, "s"), IngestState(catalog, "s")
    for events, position in (([], b"9"), ([Upsert("a", Metadata())], b"1")):
        catalog.record("s", [], NOW, state=mine.update(Effects(seen={b"k"}, positions={"f": b"1"}), NOW))
        monkeypatch.setattr(Cluster, "bulk", killed)
        with pytest.raises(Killed):  # events are sent before the head that commits them
            catalog.record("s", events, NOW, state=mine.update(Effects(positions={"f": b"9"}), NOW))
        monkeypatch.undo()
        assert state.position("f") == position
        assert state.remembered(seen=[b"k"]).seen == {b"k"}
        assert other.rows_of("s", "position") == [StateRow("position", "f", position)]
        assert other.row_counts("s") == {"seen": 1, "position": 1}
        other.record("s", [], NOW, state=state.update(Effects(positions={"g": b"1"}), NOW))
        assert (state.position("f"), state.position("g")) == (position, b"1")
        other.record("s", [], NOW, state=StateUpdate(delete=[("position", "g")]))


def test_what_an_older_version_has_left_is_refused(tmp_path: Path) -> None:
    refuse_old_memory(tmp_path)
    (tmp_path / "ingest.sqlite").write_bytes(b"")
    with failing("HW-ING-62") as told:
        refuse_old_memory(tmp_path)
    assert (told.value.code, told.value.where) == ("HW-ING-62", str(tmp_path / "ingest.sqlite"))
