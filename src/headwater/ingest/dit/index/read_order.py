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
