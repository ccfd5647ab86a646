"""The progress of a channel: how far payloads have led without a gap, and what lies beyond one (RS-CN-05…07). Pure.

Times are those of the source, in whole microseconds. A payload covers an interval; the chain of intervals is what shows
that one is missing. Progress by payloads is kept apart from the position of the Change Lists, which they never move.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

_MOST_INTERVALS = 100
_MOST_POLLS = 3
"""After so many readings of the lists that show nothing of a gap it is not waited for."""


class ChannelProgress(msgspec.Struct, frozen=True, kw_only=True):
    """How far the payloads of a channel, and the lists of its set, have led.

    `reached`: all changes before were told; `at_time` counts those done exactly then (as `Position`). `beyond`:
    intervals after a gap, in order, that were applied. `needs_poll`: something may be missing, and the lists have to be
    read; `empty_polls` counts readings that have not closed the gap.
    """

    reached: int | None = None
    at_time: dict[str, int] = {}
    beyond: tuple[tuple[int, int], ...] = ()
    needs_poll: bool = False
    empty_polls: int = 0
    gaps: tuple[tuple[int, int], ...] = ()
    """Intervals before `reached` of which nothing came and the lists have shown nothing yet."""


def raised(progress: ChannelProgress, time: int | None, at_time: dict[str, int]) -> ChannelProgress:
    """The progress where the lists have led to `time`, which may be further."""
    if time is None:
        return progress
    if progress.gaps:
        progress = _without(progress, 0, time)
    if progress.reached is not None and time <= progress.reached:
        return progress
    return _joined(msgspec.structs.replace(progress, reached=time, at_time=at_time))


def is_past(progress: ChannelProgress, from_: int | None, until: int | None) -> bool:
    """Whether a payload of this interval tells nothing that was not told: it came again, or late (RS-CN-07)."""
    reached = progress.reached
    if from_ is None or until is None or reached is None or not from_ <= until < reached:
        return False
    return not any(from_ < end and begin < until for begin, end in progress.gaps)


def begins(progress: ChannelProgress, intervals: Iterable[tuple[int | None, int | None]]) -> int | None:
    """After which time the changes of payloads of these intervals are done: a late one fills a gap before `reached`."""
    late = [
        begin
        for from_, until in intervals
        for begin, end in progress.gaps
        if from_ is not None and until is not None and from_ < end and begin < until
    ]
    return min(late, default=progress.reached)


def placed(progress: ChannelProgress, from_: int | None, until: int | None) -> ChannelProgress:
    """The progress once a payload of this interval is applied.

    One that begins after what was reached shows a gap; one without an interval, or with one that cannot be, shows
    nothing, and is as good as a gap.
    """
    reached = progress.reached
    if from_ is None or until is None or until < from_ or reached is None:
        return needing_poll(progress)
    if progress.gaps:
        progress = _without(progress, from_, until)
    if until <= reached:
        return progress
    if from_ <= reached:
        return _joined(msgspec.structs.replace(progress, reached=until, at_time={}))
    beyond = tuple(sorted({*progress.beyond, (from_, until)}))
    return msgspec.structs.replace(needing_poll(progress), beyond=beyond[:_MOST_INTERVALS])


def needing_poll(progress: ChannelProgress) -> ChannelProgress:
    """The progress where something may be missing."""
    return msgspec.structs.replace(progress, needs_poll=True, empty_polls=0)


def polled(progress: ChannelProgress, time: int | None, at_time: dict[str, int]) -> ChannelProgress:
    """The progress after the lists were read, which have led to `time`.

    A gap is closed once they have led beyond it. Where they have not, they may be older than the payload; after some
    readings it is not waited for any more, but what still comes for it is done.
    """
    after = raised(progress, time, at_time)
    if not after.beyond:
        return msgspec.structs.replace(after, needs_poll=False, empty_polls=0)
    if after.empty_polls + 1 < _MOST_POLLS:
        return msgspec.structs.replace(after, empty_polls=after.empty_polls + 1)
    gaps, at = list(after.gaps), after.beyond[0][0] if after.reached is None else after.reached
    for begin, end in after.beyond:
        if begin > at:
            gaps.append((at, begin))
        at = max(at, end)
    return ChannelProgress(reached=at, gaps=tuple(gaps[-_MOST_INTERVALS:]))


def _without(progress: ChannelProgress, from_: int, until: int) -> ChannelProgress:
    """With what this interval has of the gaps filled."""
    parts = [(a, b) for begin, end in progress.gaps for a, b in ((begin, min(end, from_)), (max(begin, until), end))]
    return msgspec.structs.replace(progress, gaps=tuple(dict.fromkeys((a, b) for a, b in parts if a < b)))


def _joined(progress: ChannelProgress) -> ChannelProgress:
    """With the intervals beyond a gap that are reached by now."""
    reached, at_time, left = progress.reached, progress.at_time, list(progress.beyond)
    while left and reached is not None and left[0][0] <= reached:
        until = left.pop(0)[1]
        if until > reached:
            reached, at_time = until, {}
    return msgspec.structs.replace(progress, reached=reached, at_time=at_time, beyond=tuple(left))
