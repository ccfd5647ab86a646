"""The position with one set: how far a destination has got, by times (DST-5.2), and whether Change Lists read on there.

Pure rules over values. All times are source times (DST-C8) in whole microseconds (`source_times`). A *position* is a
time T, the multiset of changes already applied exactly at T, and how much of which list has been processed. What
decides where Change Lists do not read on, `Invariant` says (DST-C10).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import Enum
from hashlib import blake2b

import msgspec

from headwater.spec.records import Entry
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

    `time` T; None: nothing is known, every entry is unprocessed. `at_time` counts the marks of changes applied exactly
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

    @property
    def precise(self) -> int | None:
        """The change time, if it is no coarse one."""
        return self.low if self.low == self.high else None


class Interval(msgspec.Struct, frozen=True, gc=False):
    """The effective time of an entry: known (`exact`), or somewhere between `low` and `high` (DST-5.2)."""

    low: int | None
    high: int | None
    exact: bool


class Style(Enum):
    """What gives the entries of one document their effective times (DST-5.2, AMB-18, AMB-21)."""

    DATETIME = "datetime"
    LASTMOD = "lastmod"
    NONE = "none"


class Style10:
    """Detects, entry by entry, whether a document of ResourceSync 1.0 has the change time in `lastmod`."""

    def __init__(self, from_: int | None, until: int | None) -> None:
        self._from, self._until = from_, until
        self._last: int | None = None
        self._any_datetime = self._any_lastmod = False
        self._fits = True

    def see(self, times: Times) -> None:
        """Take one entry's times, in document order."""
        if times.low is not None:
            self._any_datetime = True
        if times.lastmod is None:
            return
        self._any_lastmod = True
        inside = (self._from is None or times.lastmod >= self._from) and (
            self._until is None or times.lastmod <= self._until
        )
        if not inside or (self._last is not None and times.lastmod < self._last):
            self._fits = False
        self._last = times.lastmod

    def style(self) -> Style:
        """The document's style, once all entries have been seen."""
        if self._any_datetime:
            return Style.DATETIME
        return Style.LASTMOD if self._any_lastmod and self._fits else Style.NONE


class ChangeTimes(msgspec.Struct, frozen=True):
    """The effective time of each entry of one document, and what is wrong with those that are stated.

    `odd`: the ordinals whose stated time cannot be right; `fallen`: those of them that are earlier than one before.
    """

    style: Style
    intervals: list[Interval]
    odd: list[int]
    fallen: list[int]

    def remarks(self) -> Iterator[tuple[str, str]]:
        """Warnings about the times: a rule and a sentence each."""
        if self.odd:
            told = "1 change has" if len(self.odd) == 1 else f"{len(self.odd):,} changes have"
            yield "DST-C9", f"{told} a time that cannot be right"
        if self.style is Style.NONE and self.intervals:
            yield "AMB-17", "changes without a time: their place in the list decides"


class StatedTimes:
    """Collects the times that the entries of one Change List state, and tells when each change was (RS-CL-05)."""

    def __init__(self, from_: int | None = None, until: int | None = None) -> None:
        self._style = Style10(from_, until)
        self._until = until
        self.times: list[Times] = []
        """The times of each entry, in document order."""

    def see(self, entry: Entry) -> Times:
        """Take the next entry; returns its times."""
        low = high = micros(entry.datetime)
        if isinstance(entry.datetime, Coarse):
            high = last_micros(entry.datetime)
        times = Times(low, high, micros(entry.lastmod))
        self._style.see(times)
        self.times.append(times)
        return times

    def changes(self, from_: int | None, clock: int) -> ChangeTimes:
        """When each change was, in a list that begins at `from_` and was read at `clock`."""
        return effective(self.times, self._style.style(), from_, self._until, clock)


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
        span = _stated(entry, style)
        if span is not None and newest is not None and is_past(span[1], newest):
            fallen.append(ordinal)
            odd.append(ordinal)
            span = None
        if span is not None and span[0] > read_at + FUTURE:
            odd.append(ordinal)
            span = None
        begins = None if span is None else span[0]
        if span is not None and from_ is not None and span[0] < from_ <= span[1]:
            span = from_, span[1]  # a day, of which the list tells the rest
        if span is not None and from_ is not None and span[1] < from_:
            if is_past(span[1], from_):
                odd.append(ordinal)
            span = None
        if span is not None and begins is not None:
            newest = max(newest, begins) if newest is not None else begins
        stated.append(span)
    return ChangeTimes(style, _bounded(stated, from_, until, read_at), odd, fallen)


def _stated(entry: Times, style: Style) -> tuple[int, int] | None:
    if style is Style.DATETIME and entry.low is not None:
        return entry.low, entry.high if entry.high is not None else entry.low
    if style is Style.LASTMOD and entry.lastmod is not None:
        return entry.lastmod, entry.lastmod
    return None


def _bounded(
    stated: list[tuple[int, int] | None], from_: int | None, until: int | None, read_at: int
) -> list[Interval]:
    upper: int | None = read_at if until is None else min(until, read_at) if until < read_at else read_at
    highs: list[int | None] = [None] * len(stated)
    for ordinal in range(len(stated) - 1, -1, -1):
        highs[ordinal] = upper
        span = stated[ordinal]
        if span is not None:
            upper = span[1]
    found: list[Interval] = []
    lower = from_
    for span, high in zip(stated, highs, strict=True):
        if span is None:
            found.append(
                Interval(lower, max(high, lower) if high is not None and lower is not None else high, exact=False)
            )
        else:
            found.append(Interval(span[0], span[1], exact=span[0] == span[1]))
            lower = span[0] if lower is None else max(lower, span[0])
    return found


def kept_bound(high: int | None) -> int | None:
    """The upper bound of an unknown change time, as it is kept (`is_bound`)."""
    return None if high is None else high - high % SECOND + SECOND - 1


def is_bound(moment: int) -> bool:
    """Whether a kept time is only a bound: the last microsecond of a second. What comes after may have a lower time."""
    return moment % SECOND == SECOND - 1


def is_past(moment: int, since: int) -> bool:
    """Whether a stated time lies before another for certain: a whole second may mean any moment in it (AMB-06)."""
    return moment < since and not (moment % SECOND == 0 and since - moment < SECOND)


def told_again(position: Position, uri: str, from_: int | None, begins: int | None) -> Mapping[str, int]:
    """The multiset of changes at T that this list, not known by its fingerprint, tells again (DST-5.2).

    `begins`: the last moment that its `from` may mean. A list that may begin amid T may tell other changes that are
    equal to those done.
    """
    if position.time is None or begins is None or begins >= position.time:
        return {}
    return {} if (uri, from_) == (position.list_uri, position.list_from) else position.at_time


def unprocessed(
    intervals: Sequence[Interval], marks: Sequence[str], position: Position, done: int | None, again: Mapping[str, int]
) -> Iterator[int]:
    """The ordinals of the entries still to be done, in document order (DST-5.2).

    `done` entries at the front are known to be done because the stored fingerprint still matches; then everything
    behind them is not, whatever its time (DST-C9). With None times decide: earlier than T is done, later is not,
    at T only what is told `again`, and what may lie at or after T (or after what was `told`) is not.
    """
    if done is not None:
        yield from range(done, len(intervals))
        return
    left = dict(again)
    since, until = position.time, position.done_until
    for ordinal, interval in enumerate(intervals):
        if since is None or until is None:
            yield ordinal
        elif interval.exact and interval.low == since:
            mark = marks[ordinal]
            if left.get(mark, 0) > 0:
                left[mark] -= 1
            else:
                yield ordinal
        elif interval.high is None or not is_past(interval.high, until):
            yield ordinal


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


def kept_ahead(reached: Position, before: Position) -> Position:
    """The position where the lists have led to `reached` alone: T stays, and what comes after in them is new."""
    if before.time is None or (reached.time is not None and reached.time > before.time):
        return reached
    return msgspec.structs.replace(reached, time=before.time, at_time=before.at_time, told=before.told)


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
    """T, and the multiset at T after every entry of one list is done. T never goes back (DST-F12).

    Of a change that several lists tell the one that tells it most often counts: overcounting loses a change, which
    passes for done, undercounting does one again without harm.
    """
    time = position.time
    at_time = dict(position.at_time)
    own: dict[str, int] = {}
    for ordinal, interval in enumerate(intervals):
        if interval.low is None:
            continue
        if time is None or interval.low > time:
            time, at_time, own = interval.low, {}, {}
        if interval.exact and interval.low == time:
            mark = marks[ordinal]
            own[mark] = own.get(mark, 0) + 1
    for mark, count in own.items():
        at_time[mark] = max(at_time.get(mark, 0), count)
    return time, at_time


def mark_of(uri: str, change: str, hash_text: str | None = None, length: int | None = None) -> str:
    """What tells one change from another at the same moment: URI, nature and what is listed, in 16 characters."""
    text = f"{change} {uri} {hash_text} {length}"
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()


class IndexedList(msgspec.Struct, frozen=True):
    """One entry of a Change List Index: a list, and the interval that it states (`until` None: open or unstated)."""

    uri: str
    from_: int | None = None
    until: int | None = None

    @classmethod
    def of(cls, entry: Entry) -> IndexedList:
        """What an index, or an archive, says of a Change List."""
        return cls(entry.loc, micros(entry.from_), None if entry.until is None else last_micros(entry.until))


class ListSelection(msgspec.Struct, frozen=True):
    """Which lists of an index are to be read, in document order, and whether changes after T are missing (DST-5.1)."""

    parts: tuple[IndexedList, ...]
    gap: bool


def select(parts: Sequence[IndexedList], index_from: int | None, since: int | None) -> ListSelection:
    """Pick every list whose interval can hold changes at or after T (DST-5.1, AMB-11), whatever their names."""
    if since is None:
        return ListSelection(tuple(parts), gap=False)
    chosen = tuple(part for part in parts if part.until is None or not is_past(part.until, since))
    if not parts or any(part.from_ is None for part in parts):
        return ListSelection(chosen, is_gap(index_from, since))
    return ListSelection(chosen, _torn(chosen, since))


def _torn(chosen: Sequence[IndexedList], since: int) -> bool:
    """Whether some moment after T is in none of the chosen lists, up to where they end (AMB-23)."""
    reach: int | None = since
    for part in sorted(chosen, key=lambda part: part.from_ or 0):
        if reach is not None and part.from_ is not None and part.from_ > reach:
            return True
        reach = None if part.until is None or reach is None else max(reach, part.until)
    return False


def is_gap(from_: int | None, since: int | None) -> bool:
    """Whether a list that starts at `from_` leaves out changes after T; without a `from` nothing can be said."""
    return from_ is not None and since is not None and from_ > since


def closedness(from_: int | None, until: int | None, newest: int | None, read_at: int) -> tuple[bool, str | None]:
    """Whether a list is closed (DST-5.4), and why its `until` is in doubt, which leaves it open (DST-C7)."""
    if until is None:
        return False, None
    if until > read_at + SLACK:
        return False, "`until` lies in the future"
    if from_ is not None and until < from_:
        return False, "`until` is earlier than `from`"
    if newest is not None and newest > until:
        return False, "an entry is later than `until`"
    return True, None


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
