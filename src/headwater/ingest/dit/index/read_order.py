"""How far to read each shard of an index, so that changes are taken in the order of their `datetime` over all of them.

Within a shard documents have an order, that of their operations; over several shards only changes have one, their
`datetime`. Two things could put it out of order. Where there is more than a page, the page of one shard may end earlier
than another's; so nothing is taken that is later than where the first of them ends. And each shard shows what is new
at moments of its own; so a change is held back until all shards have had the time to show what came before it. Pure.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from typing import Final

import msgspec

MARGIN_SECONDS: Final = 1.0
"""Beyond twice the interval at which shards show what is new: an engine with much to do is late with it."""
LONGEST_SECONDS: Final = 60.0
"""A change is held back for so long at most, whatever the interval is."""
PROMPT_SECONDS: Final = 0.5
"""An engine that answers within this time shows what is new in time."""
LATEST_SECONDS: Final = 10.0
"""So much later, at most, is expected of an engine that has answered late."""
ENOUGH_LOOKS: Final = 10
"""An engine that has answered so often since has shown what it had, however slow it is all the time."""

_SHARE = 0.9
"""Of a page that was cut: writers at work at the same time are a little out of order, also across its end."""
_FIRST = dt.datetime.min.replace(tzinfo=dt.UTC)
_LAST = dt.datetime.max.replace(tzinfo=dt.UTC)


class ShardPage(msgspec.Struct, frozen=True, kw_only=True):
    """What one shard shows beyond its position: the numbers of documents and, of changes, when they happened.

    Numbers below `next` were late to be seen; those up to `mark` have been to be seen for long enough. `is_full`:
    there may be more after them.
    """

    numbers: Sequence[int]
    times: Sequence[dt.datetime | None]
    next: int
    mark: int
    is_full: bool

    @property
    def is_cut(self) -> bool:
        """Whether there may be more that has been to be seen for long enough."""
        return self.is_full and self.numbers[-1] <= self.mark

    def end(self, share: float) -> dt.datetime:
        """The time up to which this share of its changes lies: what comes after the page is hardly earlier."""
        times = sorted(at for at in self.times if at is not None)
        return times[max(0, int(share * len(times)) - 1)] if times else _FIRST


def ready(pages: Sequence[ShardPage]) -> list[int]:
    """How many documents of each page may be taken now, from its beginning; some at least if one page was cut."""
    seen = [
        at
        for page in pages
        for number, at in zip(page.numbers, page.times, strict=True)
        if number <= page.mark and at is not None
    ]
    shown = max(seen, default=_FIRST)
    counts: list[int] = []
    for share in (_SHARE, 1.0):  # if the first change of all shards is out of order, a page is taken as a whole
        end = min((page.end(share) for page in pages if page.is_cut), default=_LAST)
        counts = [_ready(page, end, shown) for page in pages]
        if any(counts):
            break
    return counts


def _ready(page: ShardPage, end: dt.datetime, shown: dt.datetime) -> int:
    count = 0
    for place, (number, at) in enumerate(zip(page.numbers, page.times, strict=True), 1):
        is_old = number < page.next or number <= page.mark
        if at is None:  # a resource has no place in the order; one that is new goes along with what comes after it
            count = place if is_old else count
        elif number < page.next or (at <= end and (is_old or at <= shown)):
            count = place
        else:
            break
    return count


def held_seconds(refresh_seconds: Sequence[float]) -> float:
    """How long a change is held back, by the intervals at which the shards show what is new (0: all at once)."""
    longest = max(refresh_seconds, default=0.0)
    if len(refresh_seconds) < 2 or not longest:
        return 0.0
    return min(2 * longest + MARGIN_SECONDS, LONGEST_SECONDS)


class Look(msgspec.Struct, frozen=True):
    """When a look at the index was answered, and how many seconds it took, with those before it that failed."""

    second: float
    took: float


def long_enough_ago(looks: Sequence[Look], held: float) -> tuple[int | None, float]:
    """Which look was `held` seconds before the last one, or None, and how late the engine may show what is new.

    An engine that stands still or has too much to do answers late, and shows late what was written before. Such a time
    is no time in which a shard could show something; after it, so much more is allowed for (`LATEST_SECONDS` at most).
    """
    now, lost, late = looks[-1].second, 0.0, 0.0
    for place in range(len(looks) - 1, -1, -1):
        look = looks[place]
        took = look.took if look.took > PROMPT_SECONDS else 0.0
        late = min(max(late, took), LATEST_SECONDS)
        age = now - look.second
        if len(looks) - 1 - place < ENOUGH_LOOKS:
            age -= lost
        if not held or age >= held + late:
            return place, late
        lost += took
    return None, late
