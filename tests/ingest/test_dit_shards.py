"""Indices of several shards: changes are taken in the order of `datetime`, as far as the shards show them."""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.ingest.dit.follower import DitFollower, ShardPage, ready
from headwater.ingest.dit.index import PAGE, Index, IndexDocument, Shard, ShardPosition
from headwater.ingest.dit.texts import Wrapped
from tests.support.examples import MANY
from tests.support.push_set import PushSet, change, resource
from tests.support.waiting import START

pytestmark = pytest.mark.long(10)


class Shards(Index):
    """An index in memory: each shard shows what it holds as of its own last refresh."""

    def __init__(self, count: int) -> None:
        self._shards = [Shard("i", "u", number) for number in range(count)]
        self.held: list[dict[int, dict[str, object]]] = [{} for _ in range(count)]
        self.shown: list[dict[int, dict[str, object]]] = [{} for _ in range(count)]
        self.next = [0] * count

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
    ) -> tuple[list[IndexDocument], bool]:
        found = [
            IndexDocument(number, Wrapped(source))
            for number, source in sorted(self.shown[shard.number].items())
            if position.is_new(number) and (until is None or number <= until)
        ]
        return found[:most], len(found) >= most


@pytest.fixture
def fed(tmp_path: Path) -> Iterator[PushSet]:
    made = PushSet(tmp_path)
    made.later(100_000)
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
    assert {name: told(fed, name) for name in wanted} == wanted


def test_a_change_that_a_shard_shows_late_undoes_nothing_newer(fed: PushSet) -> None:
    fed.documents(resource("a", 1), change("a", "created", 1))
    index = Shards(2)
    following = followed(fed, index)
    index.put(0, change("a", "deleted", 1_000))
    index.put(1, change("a", "created", 2_000))
    index.put(1, resource("a", 2_000, "b"))
    index.refresh(1)
    assert following.poll() == 2
    index.refresh(0)
    assert following.poll() == 1
    assert told(fed, "a") == ["created", "updated"]
    assert fed.state() == {"a": "md5:" + "b" * 32}


def test_what_comes_in_all_the_time_is_taken_at_once(fed: PushSet) -> None:
    index = Shards(3)
    following = followed(fed, index)
    for second in range(30):
        for shard in range(3):
            index.put(shard, resource(f"{second}/{shard}", second))
            index.put((shard + 1) % 3, change(f"{second}/{shard}", "created", second))
        index.refresh(second % 3, (second + 1) % 3)
        following.poll()
    index.refresh()
    following.poll()
    assert 90 <= len(fed.log()) < 180, "a change that is shown before its resource is corrected by it"
    assert set(fed.state().values()) == {"md5:" + "a" * 32}


def times(*seconds: int | None) -> list[dt.datetime | None]:
    return [None if one is None else START + dt.timedelta(seconds=one) for one in seconds]


def page(*seconds: int | None, start: int = 0, is_full: bool = False, after: int = 0) -> ShardPage:
    numbers = range(start, start + len(seconds))
    return ShardPage(numbers=numbers, times=times(*seconds), next=after, is_full=is_full)


READY = {
    "all of pages that are not full": ([page(5, 9), page(7)], [2, 1]),
    "no more than the end of the shortest": ([page(1, 2, 9, 10), page(*range(1, 11), is_full=True)], [3, 9]),
    "a whole page that is out of order": ([page(9), page(8, 3, 1, is_full=True)], [0, 3]),
    "something of the page that is full first": ([page(8, 9, is_full=True), page(1, 3, is_full=True)], [0, 1]),
    "resources alone are taken at once": ([page(None, None, is_full=True), page(None, 3, None)], [2, 1]),
    "late ones in any case": ([page(9, 9, start=3, after=4), page(1, is_full=True)], [1, 1]),
    "changes that state no time": ([page(None), page(None)], [1, 1]),
    "nothing of nothing": ([page(), page(is_full=True)], [0, 0]),
}


@pytest.mark.parametrize(("pages", "counts"), READY.values(), ids=READY)
def test_how_far_each_shard_may_be_read(pages: list[ShardPage], counts: list[int]) -> None:
    assert ready([one if one.numbers else page() for one in pages]) == counts
