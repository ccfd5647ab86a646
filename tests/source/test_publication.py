"""The event of a publication: what of it is told to listeners who have heard so much."""

from __future__ import annotations

import datetime as dt
import math
from typing import Any

import pytest

from headwater.publish.publisher import PublishResult
from headwater.source.set_health import Publication, PublicationEvents


def result(history: int, first: int, last: int) -> PublishResult:
    return PublishResult(
        name="a",
        written=(),
        removed=(),
        kept=0,
        seq=last,
        history=history,
        history_first=first,
        resources=3,
        at=dt.datetime(2026, 1, 1, tzinfo=dt.UTC),
        pages_rendered=0,
        pages_stale=0,
        pages_left=0,
        due_in_seconds=math.inf,
    )


@pytest.mark.parametrize(
    ("before", "told"),
    [
        (None, {"is_first": True, "first": 5, "last": 9}),
        ((4, 9), None),
        ((4, 7), {"is_first": False, "first": 8, "last": 9}),
        ((0, 7), {"is_first": True, "first": 5, "last": 9}),
        ((0, 9), {"is_first": True, "first": 5, "last": 9}),
        ((4, 12), {"is_first": True, "first": 5, "last": 9}),
    ],
)
def test_what_is_told_after_what_was_told_before(before: tuple[int, int] | None, told: dict[str, Any] | None) -> None:
    events, heard = PublicationEvents(), list[Publication]()
    if before is not None:
        events.published(result(before[0], 1, before[1]))
    events.listen(heard.append)
    events.published(result(4, 5, 9))
    more: dict[str, Any] = {"name": "a", "resources": 3, "history": 4, "history_first": 5}
    assert heard == ([Publication(**more, **told)] if told is not None else [])


def test_a_set_without_changes_is_told_to_be_there() -> None:
    events, heard = PublicationEvents(), list[Publication]()
    events.listen(heard.append)
    events.published(result(0, 1, 0))
    assert [(one.is_first, one.changes) for one in heard] == [(True, 0)]
