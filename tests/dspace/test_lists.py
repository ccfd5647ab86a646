"""Lists that move while they are read, as values: nothing is missed, and each reading ends."""

from __future__ import annotations

import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.ingest.dspace.repository import BadAnswer, ListPage, RestObject, item_octets, read_list, time_of

SIZE = 10


class MovingList:
    """A list by pages of SIZE; before each page `moves` may take entries away or add them at the end."""

    def __init__(self, count: int, moves: dict[int, tuple[int, int]]) -> None:
        self.entries = [str(uuid.UUID(int=number)) for number in range(count)]
        self.count = count
        self.moves = moves
        self.asked: list[int] = []
        self.gone: set[str] = set()

    def ask(self, page: int) -> ListPage:
        place, added = self.moves.get(len(self.asked), (-1, 0))
        self.asked.append(page)
        if 0 <= place < len(self.entries):
            self.gone.add(self.entries.pop(place))
        for _ in range(added):
            self.entries.append(str(uuid.UUID(int=self.count)))
            self.count += 1
        found = self.entries[page * SIZE : (page + 1) * SIZE]
        is_last = len(found) < SIZE and (page + 1) * SIZE >= len(self.entries)
        return ListPage([RestObject(uuid=one) for one in found], is_last)


def read(listed: MovingList) -> set[str]:
    seen: set[str] = set()
    for new in read_list(listed.ask):
        assert seen.isdisjoint(one.uuid for one in new)
        seen.update(one.uuid for one in new)
    return seen


def test_three_deletions_between_two_pages_hide_nothing() -> None:
    """Case 10: what moves to a page that was read already is found on the way back."""
    listed = MovingList(50, {2: (0, 0), 3: (0, 0), 4: (0, 0)})
    assert read(listed) >= set(listed.entries)
    upwards_only = MovingList(50, {2: (0, 0), 3: (0, 0), 4: (0, 0)})
    seen = {one.uuid for page in range(5) for one in upwards_only.ask(page).entries}
    assert not seen >= set(upwards_only.entries), "else nothing was to be found on the way back"


@given(st.integers(0, 60), st.dictionaries(st.integers(0, 12), st.tuples(st.integers(0, 59), st.integers(0, 3))))
def test_what_stays_is_read_whatever_else_moves(count: int, moves: dict[int, tuple[int, int]]) -> None:
    """Entries are taken away anywhere and added at the end during the first readings."""
    listed = MovingList(count, moves)
    before = set(listed.entries)
    assert read(listed) >= before - listed.gone
    assert len(listed.asked) <= 12 * 9


@pytest.mark.parametrize(
    ("count", "requests"), [(0, [0]), (9, [0]), (10, [0, 1, 0]), (25, [0, 1, 2, 2, 1, 0]), (30, [0, 1, 2, 3, 2, 1, 0])]
)
def test_a_list_that_does_not_move_is_read_in_both_directions_once(count: int, requests: list[int]) -> None:
    listed = MovingList(count, {})
    assert read(listed) == set(listed.entries)
    assert listed.asked == requests


def test_a_list_without_an_end_is_told() -> None:
    page = ListPage([RestObject(uuid=str(uuid.UUID(int=1)))], is_last=False)
    with pytest.raises(BadAnswer, match="without an end"):
        list(read_list(lambda _page: page))


def test_empty_pages_end_a_list_whose_total_promises_more() -> None:
    asked: list[int] = []

    def ask(page: int) -> ListPage:
        asked.append(page)
        return ListPage([RestObject(uuid=str(uuid.UUID(int=page)))] if page < 2 else [], is_last=False)

    assert [one.uuid[-1] for new in read_list(ask) for one in new] == ["0", "1"]
    assert asked[:4] == [0, 1, 2, 3]
    assert max(asked) == 3


def test_the_metadata_resource_changes_with_the_metadata_alone() -> None:
    item = RestObject(uuid="u", name="n", metadata={"b": [{"value": "1", "place": 0}], "a": []}, last_modified="1")
    same = RestObject(uuid="u", name="n", metadata={"a": [], "b": [{"place": 0, "value": "1"}]}, last_modified="2")
    assert item_octets(item) == item_octets(same)
    other = RestObject(uuid="u", name="n", metadata={"a": [], "b": [{"place": 1, "value": "1"}]}, last_modified="1")
    assert item_octets(item) != item_octets(other)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("2017-06-24T00:40:54.970+0000", "2017-06-24T00:40:54.970000+00:00"),
        ("2021-06-21T14:53:57+02:00", "2021-06-21T12:53:57+00:00"),
        ("2021-06-21", "2021-06-21T00:00:00+00:00"),
        ("yesterday", "None"),
        ("0001-01-01T00:00:00+14:00", "None"),
    ],
)
def test_times_are_read_as_dspace_writes_them(text: str, told: str) -> None:
    at = time_of(text)
    assert (at.isoformat() if at is not None else "None") == told
