"""The evaluation of one Change List: which entries are still to be done, and the position after it (5.2)."""

from __future__ import annotations

import msgspec

from headwater.sync.lists.documents import DocumentRead
from headwater.sync.lists.position import (
    ChangeListFingerprint,
    Close,
    Interval,
    Position,
    Style,
    advance,
    closedness,
    effective,
    newest_first,
    told_again,
    unprocessed,
)
from headwater.sync.lists.staging import ChangeListStaging
from headwater.sync.source_times import last_micros, micros


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
    from_, until, clock = micros(document.from_), micros(document.until), micros(answer.read_at) or 0
    times = staged.times()
    style = staged.style.style() if staged.style else Style.NONE
    step = -1 if newest_first(times, style) else 1
    intervals, odd = effective(times[::step], style, from_, until, clock)
    intervals = intervals[::step]
    remarks = []
    if step < 0:
        remarks.append(("RS-CL-05", "the changes are listed newest first: their times decide"))
    if odd:
        remarks.append(("DST-C9", f"{len(odd)} changes have a time that cannot be right"))
    rewritten = staged.print.rewritten if times else ChangeListFingerprint(start, answer.uri, from_).rewritten
    if rewritten:
        remarks.append(("DST-C4", "the Change List was rewritten"))
    if style is Style.NONE and times:
        remarks.append(("AMB-17", "changes without a time: their place in the list decides"))
    begins = None if document.from_ is None else last_micros(document.from_)
    again = told_again(start, answer.uri, from_, begins)
    pending = list(unprocessed(intervals, staged.marks, start, staged.print.done, again))
    time, at_time, own = advance(reached, intervals, staged.marks)
    newest = max((i.low for i in intervals if i.exact and i.low is not None), default=None)
    if newest is not None and until is not None and document.until is not None:
        newest = newest if newest > last_micros(document.until) else min(newest, until)  # a day, perhaps
    close, remark = closedness(from_, until, newest, clock)
    if remark:
        remarks.append(("DST-C7", remark))
    backwards = 0
    if close is Close.CLOSED and until is not None:
        if start.time is not None and until < start.time and start.list_uri is not None:
            backwards = start.backwards + (start.list_uri != answer.uri or start.list_from != from_)
        if time is None or until > time:
            time, at_time, own = until, {}, {}
    if backwards:
        remarks.append(("DST-F12", "the source's times go backwards"))
    gone = rewritten and _are_forgotten(start, intervals, staged.marks)
    if gone:
        remarks.append(("DST-F12", "changes that were done are told no more: the source may have been set back"))
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
    )
    return Evaluation(intervals, pending, position, remarks, step < 0, bool(odd))


def _are_forgotten(start: Position, intervals: list[Interval], marks: list[str]) -> bool:
    """Whether a list that begins where it began tells fewer changes than before, or none of those done at T."""
    told = {mark for interval, mark in zip(intervals, marks, strict=True) if interval.low == start.time}
    return len(marks) < start.count or (bool(start.at_time) and told.isdisjoint(start.at_time))
