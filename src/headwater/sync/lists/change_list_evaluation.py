"""The evaluation of one Change List: which entries are still to be done, and the position after it (DST-5.2)."""

from __future__ import annotations

import msgspec

from headwater.spec.records import Document
from headwater.sync.lists.documents import DocumentRead
from headwater.sync.lists.fingerprints import ChangeListFingerprint
from headwater.sync.lists.position import (
    Close,
    Interval,
    Position,
    Style,
    Style10,
    Times,
    advance,
    closedness,
    effective,
    newest_first,
    told_again,
    told_until,
    unprocessed,
)
from headwater.sync.lists.staging import ChangeListStaging
from headwater.sync.source_times import last_micros, micros, source_clock

FORGOTTEN = "the list no longer has changes that were applied: the source may have been restored from a backup"
_INSERTED = "the list has got changes before those that were done: the next Resource List settles what they bring"


class Evaluation(msgspec.Struct, frozen=True):
    """The times of all entries, which of them are pending, the position once those are done, and what was odd.

    `newest_first`: of two entries of one resource the first one is the later. `disordered`: some time goes backwards.
    """

    intervals: list[Interval]
    pending: list[int]
    position: Position
    remarks: list[tuple[str, str]]
    newest_first: bool = False
    disordered: bool = False


def evaluate(answer: DocumentRead, staged: ChangeListStaging, start: Position, reached: Position) -> Evaluation:
    """Judge one list by the position with which the reading began; `reached` is what the lists before it have brought.

    `backwards` of the new position counts the polls in which the source's times have gone back (DST-F12).
    """
    document = answer.document
    from_, until, times = micros(document.from_), micros(document.until), staged.times()
    stated = max((one.low for one in times if one.low is not None), default=None)
    clock = source_clock(micros(answer.read_at) or 0, start.time, from_, stated)
    order = change_order(times, staged.style, staged.begins(from_, start.time), until, clock)
    intervals, remarks = order.intervals, list(order.remarks)
    rewritten = staged.print.rewritten if intervals else ChangeListFingerprint(start, answer.uri, from_).rewritten
    if rewritten:
        remarks.append(("DST-C4", "the Change List was rewritten"))
    begins = None if document.from_ is None else last_micros(document.from_)
    again = told_again(start, answer.uri, from_, begins)
    pending = list(unprocessed(intervals, staged.marks, start, staged.print.done, again))
    close, remark = closedness(from_, until, _newest(document, intervals, until), clock)
    if remark:
        remarks.append(("DST-C7", remark))
    time, at_time, own = advance(reached, intervals, staged.marks)
    backwards = 0
    if close is Close.CLOSED and until is not None:
        backwards = _backwards(start, answer.uri, from_, until)
        if time is None or until > time:
            time, at_time, own = until, {}, {}
    if backwards:
        remarks.append(("DST-F12", "the source's times go backwards"))
    gone = rewritten and staged.print.tail_end is None and _are_forgotten(start, intervals, staged.marks)
    told = {interval.low for interval in intervals} | {one.low for one in times}
    reaches = start.time is not None and start.time in told
    lost = _still_lost(start, intervals, staged.marks)
    if gone and not reaches and start.lost is None:
        lost = start.time
    if gone:
        remarks.append(("DST-F12", FORGOTTEN))
    elif rewritten and _are_inserted(start, intervals):
        gone = True
        remarks.append(("DST-C4", _INSERTED))
    position = Position(
        time=time,
        at_time=at_time,
        own=own,
        list_uri=answer.uri,
        list_from=from_,
        count=staged.print.count,
        fingerprint=staged.print.hexdigest(),
        open=close is not Close.CLOSED,
        closed_at=until,
        backwards=backwards,
        rewound=start.rewound or gone,
        lost=lost,
        tail=staged.print.tail,
        told=told_until(start, reached, _latest(intervals, from_, until if close is Close.CLOSED else None), time),
    )
    return Evaluation(intervals, pending, position, remarks, order.newest_first, order.disordered)


class ChangeOrder(msgspec.Struct, frozen=True):
    """The times of all entries in the order of the list, what order that is, and what of it is odd."""

    intervals: list[Interval]
    remarks: list[tuple[str, str]]
    newest_first: bool
    disordered: bool


def change_order(
    times: list[Times], style10: Style10 | None, from_: int | None, until: int | None, clock: int
) -> ChangeOrder:
    """Find out when each change was, and in which direction the list goes (RS-CL-05)."""
    style = style10.style() if style10 else Style.NONE
    is_reversed = newest_first(times, style)
    step = -1 if is_reversed else 1
    intervals, odd = effective(times[::step], style, from_, until, clock)
    remarks = []
    if is_reversed:
        remarks.append(("RS-CL-05", "the changes are listed newest first: their times decide"))
    if odd:
        remarks.append(("DST-C9", f"{len(odd)} changes have a time that cannot be right"))
    if style is Style.NONE and times:
        remarks.append(("AMB-17", "changes without a time: their place in the list decides"))
    return ChangeOrder(intervals[::step], remarks, is_reversed, bool(odd))


def _newest(document: Document, intervals: list[Interval], until: int | None) -> int | None:
    """The latest time of a change; no later than `until` where that names a period, perhaps a day, in which it lies."""
    newest = max((i.low for i in intervals if i.exact and i.low is not None), default=None)
    if newest is None or until is None or document.until is None:
        return newest
    return newest if newest > last_micros(document.until) else min(newest, until)


def _backwards(start: Position, uri: str, from_: int | None, until: int) -> int:
    """In how many polls a closed list has ended before the position; a poll of the same list does not count again."""
    if start.time is None or until >= start.time or start.list_uri is None:
        return 0
    return start.backwards + (start.list_uri != uri or start.list_from != from_)


def _are_forgotten(start: Position, intervals: list[Interval], marks: list[str]) -> bool:
    """Whether a list that begins where it began tells fewer changes than before, or none of those done at T."""
    told = {mark for interval, mark in zip(intervals, marks, strict=True) if interval.low == start.time}
    return len(marks) < start.count or (bool(start.at_time) and told.isdisjoint(start.at_time))


def _still_lost(start: Position, intervals: list[Interval], marks: list[str]) -> int | None:
    """`lost`, unless nothing was done since, and the list tells all again that it had told at T."""
    if start.lost is None or start.lost != start.time or not start.at_time:
        return start.lost
    told = {mark for interval, mark in zip(intervals, marks, strict=True) if interval.low == start.time}
    return None if start.at_time.keys() <= told else start.lost


def _are_inserted(start: Position, intervals: list[Interval]) -> bool:
    """Whether a list tells more changes of the time before T than it told in all: some of them pass for done."""
    until = start.done_until
    before = sum(1 for interval in intervals if interval.exact and until is not None and (interval.low or 0) < until)
    return before > start.count


def _latest(intervals: list[Interval], from_: int | None, until: int | None) -> int | None:
    """The latest moment that a list tells of."""
    stated = [interval.low for interval in intervals] + [from_, until]
    return max((moment for moment in stated if moment is not None), default=None)
