"""The position with one set (DST-5.2): when each change was, how far a copy is, whether Change Lists read on.

Pure rules over values. All times are source times (DST-C8) in whole microseconds (`source_times`). A *position* is a
time T, the changes already applied exactly at T, and how much of which list has been processed. What
decides where Change Lists do not read on, `Invariant` says (DST-C10).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import Enum
from hashlib import blake2b

import msgspec

from headwater.spec.records import Document, Entry
from headwater.spec.times import Coarse
from headwater.sync.source_times import DATE_LAG, FUTURE, SECOND, last_micros, micros


class ReadList(msgspec.Struct, frozen=True, array_like=True):
    """What is remembered of a Change List that was read: its first `count` entries, all done, and their digest."""

    uri: str
    from_: int | None
    count: int = 0
    fingerprint: str = ""
    unused: list[int] = []
    """A field of earlier versions."""

    until: int | None = None


class Position(msgspec.Struct, frozen=True, kw_only=True):
    """The durable position with one set.

    `time` T; None: nothing is known, every entry is unprocessed. `at_time` has the marks of changes applied exactly
    at T. `list_uri`, `list_from`, `count`, `fingerprint`: the last list read and its first `count` entries, all done.
    `others`: the lists that were read beside it and reach as far as T.
    `open`: that list can still grow, so it is what is polled (RS-DST-09); `closed_at`: its `until`, which an open one
    has where that is in doubt (DST-C7).
    `told`: where T is the `at` of a Resource List, the time up to which changes were
    told when it was read, if that is earlier; those between that are told later are new. Before a Change List was read
    it is the `Date` of that list, where `at` is ahead of it.
    """

    time: int | None = None
    at_time: dict[str, int] = {}
    list_uri: str | None = None
    list_from: int | None = None
    count: int = 0
    fingerprint: str = ""
    open: bool = False
    closed_at: int | None = None
    others: list[ReadList] = []
    told: int | None = None

    @property
    def done_until(self) -> int | None:
        """Before which time every change is done, whatever list tells it."""
        return self.time if self.told is None else self.told

    @property
    def lists(self) -> list[ReadList]:
        """The lists that were read, the one that is polled first."""
        if self.list_uri is None:
            return self.others
        polled = ReadList(self.list_uri, self.list_from, self.count, self.fingerprint, until=self.closed_at)
        return [polled, *self.others]

    def list_before(self, uri: str, from_: int | None) -> ReadList | None:
        """What is remembered of a list: the one that began so, perhaps at another URI, else that at `uri`."""
        known = self.lists
        same = [one for one in known if one.from_ == from_ and (from_ is not None or one.uri == uri)]
        same.sort(key=lambda one: one.uri != uri)
        return next(iter([*same, *(one for one in known if one.uri == uri)]), None)


class Times(msgspec.Struct, frozen=True, gc=False):
    """What one entry says of its time: change time as [`low`, `high`] (equal unless coarse), and `lastmod`."""

    low: int | None = None
    high: int | None = None
    lastmod: int | None = None

    @classmethod
    def of(cls, entry: Entry) -> Times:
        """The times that an entry of a Change List states (RS-CL-05)."""
        low = micros(entry.datetime)
        high = last_micros(entry.datetime) if isinstance(entry.datetime, Coarse) else low
        return cls(low, high, micros(entry.lastmod))


class Interval(msgspec.Struct, frozen=True, gc=False):
    """The effective time of an entry: known (`exact`), or somewhere between `low` and `high` (DST-5.2)."""

    low: int | None
    high: int
    exact: bool


class Style(Enum):
    """What gives the entries of one document their effective times (DST-5.2, AMB-18, AMB-21)."""

    DATETIME = "datetime"
    LASTMOD = "lastmod"
    NONE = "none"

    @classmethod
    def of(cls, times: Sequence[Times], from_: int | None, until: int | None) -> Style:
        """The style of a document with these entries; one of ResourceSync 1.0 may have the change time in `lastmod`."""
        if any(one.low is not None for one in times):
            return cls.DATETIME
        told = [one.lastmod for one in times if one.lastmod is not None]
        inside = all((from_ is None or at >= from_) and (until is None or at <= until) for at in told)
        return cls.LASTMOD if told and inside and told == sorted(told) else cls.NONE


class ChangeTimes(msgspec.Struct, frozen=True):
    """The effective time of each entry of one document, and what is wrong with those that are stated.

    `odd`: the ordinals whose stated time cannot be right; `fallen`: those of them that are earlier than one before.
    """

    style: Style
    intervals: list[Interval]
    odd: list[int]
    fallen: list[int]


def effective(times: Sequence[Times], style: Style, from_: int | None, until: int | None, read_at: int) -> ChangeTimes:
    """The effective time of each entry of one document (DST-5.2).

    A time that goes backwards, lies before the list begins (DST-C7) or far in the future (AMB-27) is as good as
    unknown: the entry lies between its neighbours.
    """
    stated: list[tuple[int, int] | None] = []
    odd: list[int] = []
    fallen: list[int] = []
    newest: int | None = None
    for ordinal, entry in enumerate(times):
        low, high = (entry.low, entry.high) if style is Style.DATETIME else (entry.lastmod, entry.lastmod)
        span = None if style is Style.NONE or low is None or high is None else (low, high)
        if span is not None and newest is not None and is_past(span[1], newest):
            fallen.append(ordinal)
            odd.append(ordinal)
            span = None
        if span is not None and span[0] > read_at + FUTURE:
            odd.append(ordinal)
            span = None
        if span is not None and from_ is not None and span[1] < from_:
            if is_past(span[1], from_):
                odd.append(ordinal)
            span = None
        if span is not None:
            newest = span[0] if newest is None else max(newest, span[0])
            if from_ is not None and span[0] < from_:
                span = from_, span[1]  # a day, of which the list tells the rest
        stated.append(span)
    upper = read_at if until is None else min(until, read_at)
    highs: list[int] = []
    for span in reversed(stated):
        highs.append(upper)
        upper = upper if span is None else span[1]
    lower = from_
    intervals: list[Interval] = []
    for span, high in zip(stated, reversed(highs), strict=True):
        if span is None:
            intervals.append(Interval(lower, high if lower is None else max(high, lower), exact=False))
        else:
            intervals.append(Interval(*span, exact=span[0] == span[1]))
            lower = span[0] if lower is None else max(lower, span[0])
    return ChangeTimes(style, intervals, odd, fallen)


def kept_bound(high: int) -> int:
    """The upper bound of an unknown change time, as it is kept (`is_bound`)."""
    return high - high % SECOND + SECOND - 1


def is_bound(moment: int) -> bool:
    """Whether a kept time is only a bound: the last microsecond of a second. What comes after may have a lower time."""
    return moment % SECOND == SECOND - 1


def is_past(moment: int, since: int) -> bool:
    """Whether a stated time lies before another for certain: a whole second may mean any moment in it (AMB-06)."""
    return moment < since and not (moment % SECOND == 0 and since - moment < SECOND)


def unprocessed(intervals: Sequence[Interval], position: Position, done: int | None) -> list[int]:
    """The ordinals of the entries still to be done, in document order (DST-5.2).

    `done` entries at the front are known to be done because the stored fingerprint still matches; then everything
    behind them is not, whatever its time (DST-C9). With None times decide: earlier than T is done, what may lie at or
    after T (or after what was `told`) is not. To do a change of T itself again does no harm: the hash decides.
    """
    if done is not None:
        return list(range(done, len(intervals)))
    until = position.done_until
    return [number for number, one in enumerate(intervals) if until is None or not is_past(one.high, until)]


def position_of_list(at: int | None, claimed: int | None) -> Position:
    """The position of a Resource List that can be of no later moment than `at`, and states `claimed` (DST-4.5).

    Its Change List may well begin at what it states; which changes it has is only certain of those before `at`.
    """
    return Position(time=claimed, told=at if at is not None and claimed is not None and at < claimed else None)


def not_back(position: Position, before: Position | None) -> Position:
    """The position after a baseline: T does not go back (DST-F12), and without an `at` it stays."""
    if before is None or before.time is None or (position.time is not None and position.time > before.time):
        return position
    if position.time == before.time:
        return msgspec.structs.replace(position, told=before.told)  # what was changed at T itself is read again
    return before


def told_until(start: Position, reached: Position, newest: int | None, time: int | None) -> int | None:
    """`told` of the position after one list, of which `newest` is the latest time, and T is `time` (DST-4.5).

    A list that is read after one that has brought us to T says nothing new of what was told.
    """
    if time is None or newest is None or (start.list_uri is not None and start.told is None):
        return None
    before = [one.told for one in (start, reached) if one.list_uri is not None and one.told is not None]
    told = max([newest, *before])
    return told if told < time else None


def supported(position: Position, start: Position, clock: int) -> Position:
    """The position after all lists: T is no `at` of the future that no change and no `from` comes near (AMB-27).

    Such an `at` would hide every gap until then. With T are the changes that were told, and the `Date` of the list.
    """
    if position.told is None or position.time is None or position.time <= clock + DATE_LAG:
        return position
    first = start.told if start.list_uri is None and start.told is not None else position.told
    time = max(first, position.told)
    told = position.told if position.told < time else None
    return msgspec.structs.replace(position, time=time, told=told, at_time={})


def advance(
    position: Position, intervals: Iterable[Interval], marks: Sequence[str]
) -> tuple[int | None, dict[str, int]]:
    """T, and the marks of what was changed at T, after every entry of one list is done. T never goes back (DST-F12)."""
    time = position.time
    at_time = dict(position.at_time)
    for interval, mark in zip(intervals, marks, strict=True):
        if interval.low is not None and (time is None or interval.low > time):
            time, at_time = interval.low, {}
        if interval.exact and interval.low == time:
            at_time[mark] = 1
    return time, at_time


def mark_of(uri: str, change: str, hash_text: str | None = None, length: int | None = None) -> str:
    """What tells one change from another at the same moment: URI, nature and what is listed, in 16 characters."""
    text = f"{change} {uri} {hash_text} {length}"
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()


class IndexedList(msgspec.Struct, frozen=True):
    """A list or dump as an index, an archive or its own head tells of it, in the source's time.

    One of changes has an interval (`until` None: open or unstated), one of resources has `at`.
    """

    uri: str
    from_: int | None = None
    until: int | None = None
    at: int | None = None

    @classmethod
    def of(cls, uri: str, told: Entry | Document) -> IndexedList:
        """What an entry of an index or an archive, or the document itself, says of the list at `uri`."""
        until = None if told.until is None else last_micros(told.until)
        return cls(uri, micros(told.from_), until, micros(told.at))

    @property
    def end(self) -> int:
        """Up to when a Change List tells all changes: of one that ends before it begins only its begin is certain."""
        return NEVER if self.until is None else max(self.until, self.until if self.from_ is None else self.from_)


NEVER = 1 << 62


def touching(lists: Iterable[IndexedList], after: int, until: int) -> list[IndexedList]:
    """The Change Lists whose interval can hold changes of a period, or that state none (DST-5.1, AMB-11).

    When the last change was of one that ends before it begins nobody knows.
    """
    return [
        one
        for one in lists
        if (one.from_ is None or one.from_ <= until)
        and (one.until is None or one.until < one.end or not is_past(one.until, after))
    ]


class ToldPeriods(msgspec.Struct, frozen=True):
    """The periods of which every change is told: apart from each other, in order, both ends included."""

    periods: tuple[tuple[int, int], ...] = ()

    @classmethod
    def of(cls, lists: Iterable[tuple[int, int]]) -> ToldPeriods:
        """The periods that Change Lists from `from` to `until` cover.

        A change at the very `until` of a list may stand in the next one alone (AMB-11): only where there is none that
        begins later the end belongs to it.
        """
        merged: list[tuple[int, int]] = []
        for begin, end in sorted(lists):
            if merged and begin <= merged[-1][1]:
                merged[-1] = merged[-1][0], max(end, merged[-1][1])
            else:
                merged.append((begin, end))
        whole = [(begin, end - 1) for begin, end in merged[:-1]] + merged[-1:]
        return cls(tuple((begin, end) for begin, end in whole if begin <= end))

    def tells(self, after: int, until: int) -> bool:
        """Whether all changes later than `after`, up to and with `until`, are told."""
        return after >= until or any(begin <= after + 1 and until <= end for begin, end in self.periods)

    def hole(self, after: int, until: int) -> tuple[int, int] | None:
        """The first part of a period of which the changes are not told: later than one moment, up to another."""
        for begin, end in self.periods:
            if begin > after + 1:
                break
            after = max(after, end)
        if after >= until:
            return None
        later = [begin - 1 for begin, _ in self.periods if begin > after]
        return after, min([until, *later])

    @classmethod
    def of_lists(cls, lists: Iterable[IndexedList]) -> ToldPeriods:
        """The periods that these Change Lists cover; one without `from` covers none."""
        return cls.of((one.from_, one.end) for one in lists if one.from_ is not None)


def select(
    parts: Sequence[IndexedList], index_from: int | None, since: int | None
) -> tuple[Sequence[IndexedList], bool]:
    """Every list whose interval can hold changes at or after T (DST-5.1, AMB-11), in document order, whatever its name;
    and whether some moment after T is in none of them, up to where they end (AMB-23)."""
    if since is None:
        return parts, False
    chosen = touching(parts, since, NEVER)
    if not parts or any(part.from_ is None for part in parts):
        return chosen, is_gap(index_from, since)
    end = max((part.end for part in chosen), default=since - 1)
    return chosen, ToldPeriods.of_lists(chosen).hole(since - 1, end) is not None


def is_gap(from_: int | None, since: int | None) -> bool:
    """Whether a list that starts at `from_` leaves out changes after T; without a `from` nothing can be said."""
    return from_ is not None and since is not None and from_ > since


def closedness(from_: int | None, until: int | None, read_at: int, *, has_later: bool) -> tuple[bool, str | None]:
    """Whether a list is closed (DST-5.4), and why its `until` is in doubt, which leaves it open (DST-C7).

    `has_later`: whether a change in it is later than its `until`.
    """
    if until is None:
        return False, None
    if until > read_at + SLACK:
        return False, "`until` lies in the future"
    if from_ is not None and until < from_:
        return False, "`until` is earlier than `from`"
    return not has_later, "an entry is later than `until`" if has_later else None


SLACK = 5_000_000
"""An `until` up to this far beyond the answer's clock (whole seconds, some skew) is taken as now."""


# whether Change Lists read on from where the copy was (DST-C10)


class Invariant(Enum):
    """The three sentences by which a copy follows its source; the manual and the tests say them in the same words."""

    FOLLOWED = (
        "Change Lists are followed only while they read on from where the copy was: the same `from`, what was read"
        " before is still there unchanged and comes first, times do not fall."
    )
    BASELINE = (
        "Whatever is otherwise means a baseline from the Resource List; without a usable one the run ends with 5 and"
        " says which sentence was broken."
    )
    WORD = (
        "The hash decides for each resource, and a deletion is done only on the word of a list of kind 1 or of a"
        " complete Resource List."
    )


class Break(Enum):
    """The part of `Invariant.FOLLOWED` that does not hold, in the words of the notice and the error."""

    EARLIER = "the Change List begins earlier than before"
    LATER = "a Change List begins later than it did"
    REWRITTEN = "what was read of the Change List is not there any more"
    LAST = "the Change Lists do not have the changes any more that were done last"
    SHORT = "no Change List reaches as far any more as they were read"
    FALLEN = "the times of the Change List fall"


class ChangeListFingerprint:
    """A digest over the entries of a list so far; `matches` becomes true when the first n are those of a position."""

    def __init__(self, position: Position, uri: str, from_: int | None) -> None:
        known = position.list_before(uri, from_)
        self.comparable = known is not None and known.from_ == from_
        """Whether the list is one that was read before."""

        self._known: ReadList | None = known if self.comparable else None
        self._digest = blake2b(digest_size=16)
        self.count = 0
        self.matches = self._known is not None and self._known.count == 0

    def see(self, uri: str, change: str, low: int | None, lastmod: int | None, hash_text: str | None) -> None:
        """Take one entry, in document order."""
        self._digest.update(f"{uri}\0{change}\0{low}\0{lastmod}\0{hash_text}\n".encode("utf-8", "surrogatepass"))
        self.count += 1
        if self._known is not None and self.count == self._known.count:
            self.matches = self._digest.hexdigest() == self._known.fingerprint

    @property
    def done(self) -> int | None:
        """How many entries at the front are known to be done; None where nothing is known of the list."""
        return self._known.count if self._known is not None and self.matches else None

    @property
    def beyond(self) -> bool:
        """Whether the next entry is behind those of the list that were there before."""
        return self._known is not None and self.count >= self._known.count

    @property
    def rewritten(self) -> bool:
        """Whether the list is the one we know, and what was read of it is not at its beginning any more."""
        return self.comparable and not self.matches

    def hexdigest(self) -> str:
        """The digest over all entries seen."""
        return self._digest.hexdigest()
