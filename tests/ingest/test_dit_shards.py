"""Indices of several shards: changes are taken in the order of `datetime`, no pair is settled before it was read."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from headwater.ingest.dit import follower
from headwater.ingest.dit.follower import (
    LONGEST_SECONDS,
    MARGIN_SECONDS,
    DitFollower,
    ShardPage,
    audit,
    held_seconds,
    ready,
)
from headwater.ingest.dit.index import PAGE, Index, Shard, ShardPosition, _seconds
from headwater.ingest.dit.texts import Wrapped
from headwater.storage.cluster import ClusterUnreachable
from tests.support.examples import MANY
from tests.support.push_set import PushSet, at, change, resource
from tests.support.waiting import START

pytestmark = pytest.mark.long(10)


class Shards(Index):
    """An index in memory: each shard shows what it holds as of its own last refresh."""

    def __init__(self, count: int, refresh_seconds: float = 0.0) -> None:
        self._shards = [Shard("i", "u", number, refresh_seconds=refresh_seconds) for number in range(count)]
        self.held: list[dict[int, dict[str, object]]] = [{} for _ in range(count)]
        self.shown: list[dict[int, dict[str, object]]] = [{} for _ in range(count)]
        self.next = [0] * count
        self.is_away = False
        self.stand_still: Callable[[], object] | None = None
        """What happens while it stands still, once, with a look under way."""

    def put(self, shard: int, document: dict[str, object]) -> None:
        """A resource replaces the one of its location; a change is added."""
        if "change" not in document:
            self.remove(shard, str(document["location"]))
        self.held[shard][self.next[shard]] = document
        self.next[shard] += 1

    def remove(self, shard: int, location: str) -> None:
        held = self.held[shard]
        for number, one in list(held.items()):
            if "change" not in one and str(one["location"]) == location:
                del held[number]
                self.next[shard] += 1

    def refresh(self, *shards: int) -> None:
        for shard in shards or range(len(self.held)):
            self.shown[shard] = dict(self.held[shard])

    def shards(self) -> list[Shard]:
        if self.is_away:
            raise ClusterUnreachable("it does not answer")
        if self.stand_still is not None:
            self.stand_still()
            self.stand_still = None
        return self._shards

    def newest(self, shard: Shard) -> int:
        return max(self.shown[shard.number], default=-1)

    def look(
        self,
        shard: Shard,
        position: ShardPosition,
        sets: frozenset[str] | None = None,
        until: int | None = None,
        most: int = PAGE,
    ) -> tuple[list[Wrapped], bool]:
        found = [
            Wrapped(source, number=number)
            for number, source in sorted(self.shown[shard.number].items())
            if position.is_new(number) and (until is None or number <= until)
        ]
        return found[:most], len(found) >= most


@pytest.fixture
def fed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[PushSet]:
    made = PushSet(tmp_path)
    made.later(100_000)
    monkeypatch.setattr(follower, "_seconds", lambda: (made.now - START).total_seconds())
    yield made
    made.close()


def followed(fed: PushSet, index: Index) -> DitFollower:
    return DitFollower(fed.feed, index, frozenset({"s"}))


def told(fed: PushSet, uri: str) -> list[str]:
    return [kind for kind, one in fed.log() if one == uri]


@pytest.mark.parametrize("apart", [300, 1, 0], ids=["minutes", "a second", "the same second"])
def test_what_is_deleted_and_made_again_is_told_whatever_shards_it_lies_in(fed: PushSet, apart: int) -> None:
    index = Shards(3)
    following = followed(fed, index)
    names = [f"{number}" for number in range(27)]
    for name in names:
        fed.documents(resource(name, 1), change(name, "created", 1))
    for number, name in enumerate(names):
        deleted, created, there = number % 3, number // 3 % 3, number // 9
        index.put(deleted, change(name, "deleted", 1_000))
        index.put(there, resource(name, 1_000 + apart, "b"))
        index.put(created, change(name, "created", 1_000 + apart))
    index.refresh()
    following.poll()
    assert {tuple(told(fed, name)) for name in names} == {("created", "deleted", "created")}
    assert fed.state() == dict.fromkeys(names, "md5:" + "b" * 32)


def test_what_is_made_and_deleted_within_a_second_is_told_and_not_there(fed: PushSet) -> None:
    index = Shards(2)
    index.put(0, change("a", "deleted", 5))
    index.put(1, change("a", "created", 5))
    index.refresh()
    following = followed(fed, index)
    following.poll()
    fed.later(60)
    following.poll()
    assert (told(fed, "a"), fed.state()) == (["created", "deleted"], {})


@pytest.mark.parametrize("seed", range(12 if MANY else 2))
def test_a_backlog_of_many_pages_is_taken_in_the_order_of_time(fed: PushSet, seed: int) -> None:
    """Of shards that hold very different amounts, and documents of which come a little out of order (DIT-A3)."""
    chance = random.Random(seed)
    index = Shards(3)
    cycle = ["created", "updated", "deleted"]
    wanted: dict[str, list[str]] = {}
    written: list[tuple[float, dict[str, object]]] = []
    for number in range(2_500):
        name = f"{chance.randrange(60)}"
        kind = cycle[len(wanted.setdefault(name, [])) % 3]
        wanted[name].append(kind)
        written.append((number + chance.random() * 2, change(name, kind, number)))
    for _, one in sorted(written, key=lambda one: one[0]):
        index.put(chance.choices([0, 1, 2], weights=[20, 4, 1])[0], one)
    index.refresh()
    following = followed(fed, index)
    while following.poll():
        pass
    fed.later(60)
    following.poll()
    assert {name: told(fed, name) for name in wanted} == wanted


def test_a_change_is_held_back_until_every_shard_has_shown_what_came_before_it(fed: PushSet) -> None:
    fed.documents(resource("a", 1), change("a", "created", 1))
    index = Shards(2, refresh_seconds=1.0)
    following = followed(fed, index)
    index.put(0, change("a", "deleted", 1_000))
    index.put(1, change("a", "created", 2_000))
    index.put(1, resource("a", 2_000, "b"))
    index.refresh(1)
    assert following.poll() == 0
    fed.later(0.9)
    index.refresh(0)
    following.poll()
    assert told(fed, "a") == ["created"]
    fed.later(2.2)
    assert following.poll() == 3
    assert told(fed, "a") == ["created", "deleted", "created"]
    assert fed.state() == {"a": "md5:" + "b" * 32}


def test_a_resource_that_was_shown_first_waits_for_the_changes_that_came_before_it(fed: PushSet) -> None:
    """Taken before the deletion it would be newer than that, which would never be told, nor what was made after it."""
    fed.documents(resource("a", 1), change("a", "created", 1))
    index = Shards(2, refresh_seconds=1.0)
    following = followed(fed, index)
    index.put(0, change("a", "deleted", 1_000))
    index.put(1, resource("a", 2_000, "b"))
    index.refresh(1)
    assert following.poll() == 0
    fed.later(0.9)
    index.refresh(0)
    index.put(1, change("a", "created", 2_000))
    for _ in range(3):
        fed.later(2.2)
        following.poll()
        index.refresh(1)
    fed.later(2.2)
    following.poll()
    assert told(fed, "a") == ["created", "deleted", "created"]
    assert fed.state() == {"a": "md5:" + "b" * 32}


@pytest.mark.parametrize("is_away", [False, True], ids=["a look takes long", "looks fail"])
def test_while_an_engine_stands_still_its_shards_show_nothing(fed: PushSet, is_away: bool) -> None:
    """What was written before is shown after that: as much later as it stood still, whatever the clock says."""
    fed.documents(resource("a", 1), change("a", "created", 1))
    index = Shards(2, refresh_seconds=1.0)
    following = followed(fed, index)
    index.put(0, change("a", "deleted", 1_000))
    index.put(1, resource("a", 2_000, "b"))
    index.put(1, change("a", "created", 2_000))
    index.refresh(1)
    assert following.poll() == 0
    if is_away:
        index.is_away = True
        for _ in range(3):
            with pytest.raises(ClusterUnreachable):
                following.poll()
            fed.later(5)
        index.is_away = False
    else:
        index.stand_still = lambda: fed.later(5)
    following.poll()
    assert told(fed, "a") == ["created"], "the other shard had no time to show what came before"
    index.refresh(0)
    for _ in range(30):
        fed.later(1)
        following.poll()
    assert told(fed, "a") == ["created", "deleted", "created"]
    assert fed.state() == {"a": "md5:" + "b" * 32}


def test_what_was_made_again_has_no_digest_where_its_resource_was_taken_for_an_older_change(fed: PushSet) -> None:
    """Its file has come back with the old modification time, and was shown before the deletion: an audit says more."""
    fed.documents(resource("a", 1), change("a", "created", 1))
    index = Shards(2)
    following = followed(fed, index)
    index.put(0, change("a", "updated", 300))
    index.put(1, change("a", "deleted", 400))
    index.put(1, change("a", "created", 500, lastmod=at(300)))
    index.put(0, resource("a", 300, "b"))
    index.refresh(0)
    following.poll()
    index.refresh(1)
    following.poll()
    assert told(fed, "a") == ["created", "updated", "deleted", "created"]
    assert fed.state() == {"a": None}
    audit(following, 1.0)
    assert fed.state() == {"a": "md5:" + "b" * 32}


@pytest.mark.parametrize("lastmod", [300, 500], ids=["the same time", "another time"])
def test_what_was_made_again_has_no_digest_of_before(fed: PushSet, lastmod: int) -> None:
    """A shard may show what has been deleted, whether its file had the old modification time or another one."""
    fed.documents(resource("a", 1), change("a", "created", 1))
    index = Shards(2)
    following = followed(fed, index)
    index.put(0, change("a", "updated", 300))
    index.put(0, resource("a", 300, "b"))
    index.refresh(0)
    following.poll()
    index.remove(0, str(resource("a", 300)["location"]))
    index.put(1, change("a", "deleted", 400))
    index.put(1, change("a", "created", 500, lastmod=at(lastmod)))
    index.refresh(1)
    following.poll()
    assert told(fed, "a") == ["created", "updated", "deleted", "created"]
    assert fed.state() == {"a": None}
    index.put(0, resource("a", lastmod, "c"))
    index.refresh(0)
    following.poll()
    assert fed.state() == {"a": "md5:" + "c" * 32}


def test_what_comes_in_all_the_time_is_not_held_back_for_ever(fed: PushSet) -> None:
    index = Shards(3, refresh_seconds=1.0)
    following = followed(fed, index)
    for second in range(30):
        for shard in range(3):
            index.put(shard, resource(f"{second}/{shard}", second))
            index.put((shard + 1) % 3, change(f"{second}/{shard}", "created", second))
        index.refresh(second % 3, (second + 1) % 3)
        following.poll()
        fed.later(0.5)
        assert len(fed.log()) >= 3 * (second - 8), "nothing lies longer than four seconds"
    index.refresh()
    following.poll()
    fed.later(4.0)
    following.poll()
    assert 90 <= len(fed.log()) < 180, "a change that is shown before its resource is corrected by it"
    assert set(fed.state().values()) == {"md5:" + "a" * 32}


def test_one_shard_holds_nothing_back(fed: PushSet) -> None:
    index = Shards(1, refresh_seconds=30.0)
    index.put(0, resource("a", 1))
    index.put(0, change("a", "created", 1))
    index.refresh()
    assert followed(fed, index).poll() == 2
    assert fed.state() == {"a": "md5:" + "a" * 32}


def page(*seconds: int | None, mark: int = 99, start: int = 0, is_full: bool = False, after: int = 0) -> ShardPage:
    """Changes that happened then, None for another resource."""
    sources = [resource("y", 1) if one is None else change("x", "updated", one) for one in seconds]
    found = [Wrapped(one, number=number) for number, one in enumerate(sources, start)]
    made = ShardPage(Shard("i", "u", 0), ShardPosition(after), found, is_full=is_full)
    made.mark = mark
    return made


READY = {
    "all of pages that are not cut": ([page(5, 9), page(7)], [2, 1]),
    "no more than the end of the shortest": ([page(1, 2, 9, 10), page(*range(1, 11), is_full=True)], [3, 9]),
    "a whole page that is out of order": ([page(9), page(3, 1, is_full=True)], [0, 2]),
    "something of the page that is cut first": ([page(8, 9, is_full=True), page(1, 3, is_full=True)], [0, 1]),
    "resources alone, of the page that is cut": ([page(None, None, is_full=True), page(None, 3, None)], [2, 0]),
    "no resource behind them while a page is cut": ([page(1, None, 5), page(1, 3, is_full=True)], [1, 1]),
    "resources behind them once none is": ([page(1, None, 5), page(1, 3)], [3, 2]),
    "nothing that has just been seen": ([page(1, 2, mark=-1), page(3, mark=-1)], [0, 0]),
    "what is new and earlier than what is not": ([page(5, mark=0), page(4, 6, mark=-1)], [1, 1]),
    "a new resource before it": ([page(5, mark=0), page(None, 4, None, mark=-1)], [1, 2]),
    "late ones in any case": ([page(9, 9, mark=-1, start=3, after=4), page(1, is_full=True)], [1, 1]),
    "a change that states no time": ([page(None, mark=0), page(None, mark=-1)], [1, 0]),
    "nothing of nothing": ([page(), page(is_full=True)], [0, 0]),
}


@pytest.mark.parametrize(("pages", "counts"), READY.values(), ids=READY)
def test_how_far_each_shard_may_be_read(pages: list[ShardPage], counts: list[int]) -> None:
    assert ready(pages) == counts


def test_changes_are_held_back_for_as_long_as_shards_take() -> None:
    assert held_seconds([30.0]) == held_seconds([]) == held_seconds([0.0, 0.0]) == 0.0
    assert held_seconds([1.0, 0.5, 0.0]) == 2.0 + MARGIN_SECONDS
    assert held_seconds([3_600.0] * 3) == LONGEST_SECONDS


@pytest.mark.parametrize(
    ("interval", "seconds"), [(None, 1.0), ("-1", 0.0), ("500ms", 0.5), ("30s", 30.0), ("2m", 120.0), ("odd", 0.0)]
)
def test_intervals_at_which_an_index_shows_what_is_new(interval: Any, seconds: float) -> None:
    assert _seconds(interval) == seconds


def test_an_index_is_read_to_its_end_though_the_clock_is_set_back(
    fed: PushSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    seconds = 0.0

    def sleep(pause: float) -> None:
        nonlocal seconds
        seconds += pause
        fed.later(pause)
        assert seconds < 100

    monkeypatch.setattr(follower, "_seconds", lambda: seconds)
    monkeypatch.setattr("headwater.ingest.dit.follower.time.sleep", sleep)
    index = Shards(2)
    index.stand_still = lambda: fed.later(-3_600)
    followed(fed, index).read_to_end()
