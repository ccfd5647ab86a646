"""The evaluation of one Change List: which entries are still to be done, and the position after it (DST-5.2)."""

from __future__ import annotations

import msgspec

from headwater.spec.records import Document
from headwater.sync.lists.documents import DocumentRead
from headwater.sync.lists.position import (
    Close,
    Interval,
    Position,
    ReadList,
    Style,
    Style10,
    Times,
    advance,
    closedness,
    effective,
    is_past,
    told_again,
    told_until,
    unprocessed,
)
from headwater.sync.lists.staging import ChangeListStaging
from headwater.sync.source_times import last_micros, micros, source_clock

_MOST_LISTS = 1_000
"""Of an index without times, in which every list reaches as far as T; those beyond are judged by times alone."""


class Evaluation(msgspec.Struct, frozen=True):
    """The times of all entries, which of them are pending, the position once those are done, and what was odd.

    `falls`: some time from the first entry after T on is earlier than one before it.
    """

    intervals: list[Interval]
    pending: list[int]
    position: Position
    remarks: list[tuple[str, str]]
    falls: bool = False


def evaluate(answer: DocumentRead, staged: ChangeListStaging, start: Position, reached: Position) -> Evaluation:
    """Judge one list by the position with which the reading began. `reached`: what the lists before it have brought."""
    document = answer.document
    from_, until, times = micros(document.from_), micros(document.until), staged.times()
    stated = max((one.low for one in times if one.low is not None), default=None)
    clock = source_clock(micros(answer.read_at) or 0, start.time, from_, stated)
    order = change_order(times, staged.style, staged.begins(from_, start.time), until, clock)
    intervals, remarks = order.intervals, list(order.remarks)
    begins = None if document.from_ is None else last_micros(document.from_)
    again = told_again(start, answer.uri, from_, begins)
    done = staged.print.done if start.lists else None
    if done is None and start.done_until is not None:  # what a baseline was made after is done, in whatever order
        for n in order.fallen:
            stated = times[n].lastmod if times[n].high is None else times[n].high
            if stated is not None and is_past(stated, start.done_until):
                intervals[n] = Interval(stated, stated, exact=True)
    pending = list(unprocessed(intervals, staged.marks, start, done, again))
    close, remark = closedness(from_, until, _newest(document, intervals, until), clock)
    if remark:
        remarks.append(("DST-C7", remark))
    time, at_time = advance(reached, intervals, staged.marks)
    if close is Close.CLOSED and until is not None and (time is None or until > time):
        time, at_time = until, {}
    position = Position(
        time=time,
        at_time=at_time,
        list_uri=answer.uri,
        list_from=from_,
        count=staged.print.count,
        fingerprint=staged.print.hexdigest(),
        open=close is not Close.CLOSED,
        closed_at=until,
        others=_others(reached, answer.uri, from_, time, has_entries=staged.print.count > 0),
        told=told_until(start, reached, _latest(intervals, from_, until if close is Close.CLOSED else None), time),
    )
    at_t = Interval(start.time, start.time, exact=True)  # of T itself a list may tell what a baseline has
    first = next((n for n in pending if done is not None or intervals[n] != at_t), None)
    falls = first is not None and any(n >= first for n in order.fallen)
    return Evaluation(intervals, pending, position, remarks, falls)


def _others(reached: Position, uri: str, from_: int | None, time: int | None, *, has_entries: bool) -> list[ReadList]:
    """The lists to be known again beside this one: those that the next reading may come to (DST-C10).

    Where this one has nothing yet by which it is known, the last one that had something is among them.
    """
    here = reached.list_before(uri, from_)
    others = [one for one in reached.lists if one.uri != uri and one is not here]
    kept = [one for one in others if one.until is None or time is None or not is_past(one.until, time)]
    if not has_entries and not any(one.count for one in kept):
        kept += [one for one in others if one.count][:1]
    return kept[:_MOST_LISTS]


class ChangeOrder(msgspec.Struct, frozen=True):
    """The times of all entries, which of them fall, and what of it is odd."""

    intervals: list[Interval]
    fallen: list[int]
    remarks: list[tuple[str, str]]


def change_order(
    times: list[Times], style10: Style10 | None, from_: int | None, until: int | None, clock: int
) -> ChangeOrder:
    """Find out when each change was (RS-CL-05)."""
    style = style10.style() if style10 else Style.NONE
    found = effective(times, style, from_, until, clock)
    remarks = []
    if found.odd:
        told = "1 change has" if len(found.odd) == 1 else f"{len(found.odd):,} changes have"
        remarks.append(("DST-C9", f"{told} a time that cannot be right"))
    if style is Style.NONE and times:
        remarks.append(("AMB-17", "changes without a time: their place in the list decides"))
    return ChangeOrder(found.intervals, found.fallen, remarks)


def _newest(document: Document, intervals: list[Interval], until: int | None) -> int | None:
    """The latest time of a change; no later than `until` where that names a period, perhaps a day, in which it lies."""
    newest = max((i.low for i in intervals if i.exact and i.low is not None), default=None)
    if newest is None or until is None or document.until is None:
        return newest
    return newest if newest > last_micros(document.until) else min(newest, until)


def _latest(intervals: list[Interval], from_: int | None, until: int | None) -> int | None:
    """The latest moment that a list tells of."""
    stated = [interval.low for interval in intervals] + [from_, until]
    return max((moment for moment in stated if moment is not None), default=None)
