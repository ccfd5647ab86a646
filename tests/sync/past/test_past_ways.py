"""The ways that a TimeMap opens: also past the versions within the second of the moment, which may be later than it."""

from __future__ import annotations

import pytest

from headwater.spec.discovery import parse_link_header
from headwater.sync.lists.position import IndexedList
from headwater.sync.past.versions import dumps_around, versions_of
from headwater.sync.source_times import SECOND, http_date_micros

DAY = "Thu, 12 Nov 2026 12:00:"
MOMENT = http_date_micros(f"{DAY}30 GMT") or 0


def tried(moment: int, more: str = "", *, has_hash: bool) -> list[str]:
    """The mementos that are asked for, by a TimeMap with versions in these seconds, and `more`."""
    seconds = [("a", 10), ("b", 29), ("c", 29), ("d", 30), ("e", 30), ("f", 31)]
    texts = [f'<http://s.example/{name}>; rel="memento"; datetime="{DAY}{second} GMT"' for name, second in seconds]
    links = parse_link_header(", ".join((*texts, *([more] if more else []))), "http://s.example/")
    return [way.href[-1] for way in versions_of(links, moment, has_hash=has_hash)]


def test_versions_before_the_second_of_the_moment_are_tried_as_well() -> None:
    """DST-S8: at 12:00:30 sharp the state was c, though d and e have that second too; the hash decides."""
    assert tried(MOMENT, has_hash=True) == ["e", "d", "c", "b"]
    assert tried(MOMENT - SECOND // 2, has_hash=True) == ["c", "b", "a"]
    assert tried(MOMENT + 5 * SECOND, has_hash=True) == ["f"]


def test_without_a_hash_several_versions_in_a_second_tell_nothing() -> None:
    assert tried(MOMENT, has_hash=False) == []
    assert tried(MOMENT + SECOND, has_hash=False) == ["f"]


def test_without_a_hash_a_timemap_with_further_pages_tells_nothing() -> None:
    """Another page may have a later version."""
    page = '<http://s.example/2>; rel="timemap"'
    assert tried(MOMENT + SECOND, page, has_hash=False) == []
    assert tried(MOMENT + SECOND, page, has_hash=True) == ["f", "e", "d"]
    later = f'{page}; from="{DAY}59 GMT"'
    assert tried(MOMENT + SECOND, later, has_hash=False) == ["f"]


@pytest.mark.parametrize(
    ("moment", "asked"),
    [(5, [7]), (10, [10, 7, 30]), (90, [30, 10, 95]), (97, [95, 30, 99]), (200, [99, 95])],
)
def test_the_dump_before_the_moment_is_asked_first_though_others_are_nearer(moment: int, asked: list[int]) -> None:
    """RS-ARC-34: it has every resource that no list between it and the moment tells of."""
    dumps = [IndexedList(f"http://s.example/{at}.xml", at=at) for at in (99, 10, 30, 95, 7)]
    assert [one.at for one in dumps_around(dumps, moment)] == asked
