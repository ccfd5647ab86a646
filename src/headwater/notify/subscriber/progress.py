"""The progress of a channel: how far payloads have led without a gap, and what lies beyond one (RS-CN-05…07). Pure.

Times are those of the source, in whole microseconds. A payload covers an interval; the chain of intervals is what shows
that one is missing. Progress by payloads is kept apart from the position of the Change Lists, which they never move.
"""

from __future__ import annotations

import msgspec

_MOST_INTERVALS = 100


class ChannelProgress(msgspec.Struct, frozen=True, kw_only=True):
    """How far the payloads of a channel, and the lists of its set, have led.

    `reached`: all changes before were told. `beyond`: intervals after a gap, in order, that were applied. `needs_poll`:
    something may be missing, and the lists have to be read.
    """

    reached: int | None = None
    beyond: tuple[tuple[int, int], ...] = ()
    needs_poll: bool = False


def raised(progress: ChannelProgress, time: int | None) -> ChannelProgress:
    """The progress where all changes before `time` are told, which may be further."""
    reached, left = progress.reached, list(progress.beyond)
    if time is not None and (reached is None or time > reached):
        reached = time
    while left and reached is not None and left[0][0] <= reached:
        reached = max(reached, left.pop(0)[1])
    return msgspec.structs.replace(progress, reached=reached, beyond=tuple(left))


def is_past(progress: ChannelProgress, from_: int | None, until: int | None) -> bool:
    """Whether a payload of this interval tells nothing that was not told: it came again, or late (RS-CN-07)."""
    return from_ is not None and until is not None and from_ <= until < (progress.reached or 0)


def placed(progress: ChannelProgress, from_: int | None, until: int | None) -> ChannelProgress:
    """The progress once a payload of this interval is applied.

    One that begins after what was reached shows a gap; one without an interval, or with one that cannot be, shows
    nothing, and is as good as a gap.
    """
    if from_ is None or until is None or until < from_ or progress.reached is None:
        return needing_poll(progress)
    if from_ <= progress.reached:
        return raised(progress, until)
    beyond = tuple(sorted({*progress.beyond, (from_, until)}))
    return msgspec.structs.replace(needing_poll(progress), beyond=beyond[:_MOST_INTERVALS])


def needing_poll(progress: ChannelProgress) -> ChannelProgress:
    """The progress where something may be missing."""
    return msgspec.structs.replace(progress, needs_poll=True)


def polled(progress: ChannelProgress, time: int | None) -> ChannelProgress:
    """The progress after the lists were read, which have led to `time`: a gap before that is closed."""
    after = raised(progress, time)
    return msgspec.structs.replace(after, needs_poll=bool(after.beyond))
