"""The ways that a TimeMap opens: also past the versions within the second of the moment, which may be later than it."""

from __future__ import annotations

import pytest

from headwater.spec.discovery import parse_link_header
from headwater.sync.lists.position import IndexedList
from headwater.sync.past.versions import after_timemap, dumps_around, read_timemap
from headwater.sync.source_times import SECOND, http_date_micros
from headwater.sync.transfer.work_queue import Way, WayKind

DAY = "Thu, 12 Nov 2026 12:00:"
MOMENT = http_date_micros(f"{DAY}30 GMT") or 0


def tried(moment: int, *, has_hash: bool, pages: int = 1) -> list[str]:
    """The mementos that are asked for, by a TimeMap with versions in these seconds, in so many pages."""
    seconds = [("a", 10), ("b", 29), ("c", 29), ("d", 30), ("e", 30), ("f", 31)]
    texts = [f'<http://s.example/{name}>; rel="memento"; datetime="{DAY}{second} GMT"' for name, second in seconds]
    best: tuple[tuple[str, int], ...] = ()
    named: tuple[str, ...] = ()
    for number in range(pages):
        part = texts[number::pages] if pages > 1 else texts
        best, named = read_timemap(parse_link_header(", ".join(part), "http://s.example/"), moment, best)
    ways = after_timemap(Way(WayKind.TIMEMAP, "http://s.example/map"), best, named, has_hash=has_hash)
    return [way.href[-1] for way in ways]


def test_versions_before_the_second_of_the_moment_are_tried_as_well() -> None:
    """DST-S8: at 12:00:30 sharp the state was c, though d and e have that second too; the hash decides."""
    assert tried(MOMENT, has_hash=True) == ["e", "d", "c", "b"]
    assert sorted(tried(MOMENT, has_hash=True, pages=2)) == ["b", "c", "d", "e"]
    assert tried(MOMENT - SECOND // 2, has_hash=True) == ["c", "b", "a"]
    assert tried(MOMENT + 5 * SECOND, has_hash=True) == ["f"]


def test_without_a_hash_several_versions_in_a_second_tell_nothing() -> None:
    assert tried(MOMENT, has_hash=False) == []
    assert tried(MOMENT + SECOND, has_hash=False) == ["f"]


@pytest.mark.parametrize(
    ("moment", "asked"),
    [(5, [7]), (10, [10, 7, 30]), (90, [30, 10, 95]), (97, [95, 30, 99]), (200, [99, 95])],
)
def test_the_dump_before_the_moment_is_asked_first_though_others_are_nearer(moment: int, asked: list[int]) -> None:
    """RS-ARC-34: it has every resource that no list between it and the moment tells of."""
    dumps = [IndexedList(f"http://s.example/{at}.xml", at=at) for at in (99, 10, 30, 95, 7)]
    assert [one.at for one in dumps_around(dumps, moment)] == asked
