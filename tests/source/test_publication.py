"""The event of a publication: what of it is told to a listener who has heard so much."""

from __future__ import annotations

from typing import Any

import pytest

from headwater.source.publication import Publication, VisibleChanges


@pytest.mark.parametrize(
    ("position", "told"),
    [
        (None, {"is_first": True, "first": 5, "last": 9}),
        ((4, 9), None),
        ((4, 7), {"is_first": False, "first": 8, "last": 9}),
        ((0, 7), {"is_first": True, "first": 5, "last": 9}),
        ((0, 9), {"is_first": True, "first": 5, "last": 9}),
        ((4, 12), {"is_first": True, "first": 5, "last": 9}),
    ],
)
def test_what_a_position_has_to_be_told(position: tuple[int, int] | None, told: dict[str, Any] | None) -> None:
    visible = VisibleChanges(name="a", history=4, first=5, last=9, resources=3)
    before = None
    if position is not None:
        before = VisibleChanges(name="a", history=position[0], first=1, last=position[1], resources=2)
    assert visible.after(before) == (Publication(name="a", resources=3, **told) if told is not None else None)


def test_a_set_without_changes_is_told_to_be_there() -> None:
    event = VisibleChanges(name="a", history=0, first=1, last=0, resources=3).after(None)
    assert event is not None
    assert (event.is_first, event.changes) == (True, 0)
