"""The position with one set (DST-5.2): when each change was, how far a copy is, whether Change Lists read on.

Pure rules over values. All times are source times (DST-C8) in whole microseconds (`source_times`). A *position* is a
time T, and how much of which list has been processed. What decides where Change Lists do not read on, `Invariant` says
(DST-C10).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import Enum
from hashlib import blake2b

import msgspec

from headwater.spec.records import Document, Entry
from headwater.spec.times import Coarse
from headwater.sync.source_times import FUTURE, SECOND, last_micros, micros


class ReadList(msgspec.Struct, frozen=True, array_like=True):
    """What is remembered of a Change List that was read: its first `count` entries, all done, and their digest."""

    uri: str
    from_: int | None
    count: int = 0
    fingerprint: str = ""
    unused: list[int] = []  # a field of earlier versions
    until: int | None = None


class Position(msgspec.Struct, frozen=True, kw_only=True):
    """The durable position with one set.

    `time` T; None: nothing is known, every entry is unprocessed. `told`: before which time every change is done, if
    that is earlier than T, which is the `at` of a Resource List or the `until` of a Change List then.
    `list_uri`, `list_from`, `count`, `fingerprint`: the last list read and its first `count` entries, all done.
    `last`: the digest of the entry that was read last, in whatever list.
    `others`: the lists that were read beside it and reach as far.
    `open`: that list can still grow, so it is what is polled (RS-DST-09); `closed_at`: its `until`, or what the `at` of
    a Resource List claims, by which a list that follows begins, though it seems to lie in the future (DST-C7, DST-C8).
    """

    time: int | None = None
    told: int | None = None
    list_uri: str | None = None
    list_from: int | None = None
    count: int = 0
    fingerprint: str = ""
    last: str = ""
    open: bool = False
    closed_at: int | None = None
    others: list[ReadList] = []

    @property
    def done_until(self) -> int | None:
        """Before which time every change is done, whatever list tells it."""
        return self.time if self.told is None else self.told

    @property
    def reach(self) -> int | None:
        """Up to which time the source says that it has told of changes: a list that begins later leaves a gap."""
        return self.time if self.time is None or self.closed_at is None else max(self.time, self.closed_at)

    @property
    def lists(self) -> list[ReadList]:
        """The lists that were read, the one that is polled first."""
        if self.list_uri is None:
            return self.others
        polled = ReadList(self.list_uri, self.list_from, self.count, self.fingerprint, until=self.closed_at)
        return [polled, *self.others]

    @property
    def is_unread(self) -> bool:
        """Whether no change was read since a baseline."""
        return not (self.last or any(one.count for one in self.lists))

    @property
    def latest(self) -> list[ReadList]:
        """The list that was read last, and the last one that told of changes: where they are, lists read on."""
        return [*self.lists[:1], *(one for one in self.lists if one.count)][:2]

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


class ChangeTimes(msgspec.Struct, frozen=True):
    """The effective time of each entry of one document.

    `odd_count`: how many stated times cannot be right; `fallen`: the ordinals of those that are before an earlier one.
    """

    intervals: list[Interval]
    odd_count: int
    fallen: list[int]


def effective(times: Sequence[Times], from_: int | None, until: int | None, read_at: int) -> ChangeTimes:
    """The effective time of each entry of one document that tells of changes from `from_` on (DST-5.2).

    A time that goes backwards, lies before the list begins (DST-C7) or far in the future (AMB-27) is as good as
    unknown: the entry lies between its neighbours. Without any `datetime` a `lastmod` is the time (AMB-18, AMB-21).
    """
    spans = [(one.low, one.high) for one in times]
    if all(low is None for low, _ in spans) and _is_of_changes([one.lastmod for one in times], from_, until):
        spans = [(one.lastmod, one.lastmod) for one in times]
    stated: list[tuple[int, int] | None] = []
    odd_count, newest = 0, None
    fallen: list[int] = []
    for ordinal, (low, high) in enumerate(spans):
        span = None
        if low is None or high is None:
            pass
        elif newest is not None and is_past(high, newest):
            fallen.append(ordinal)
            odd_count += 1
        elif low > read_at + FUTURE:
            odd_count += 1
        elif from_ is not None and high < from_:
            odd_count += is_past(high, from_)
        else:
            newest = low if newest is None else max(newest, low)
            span = low if from_ is None else max(low, from_), high  # of a day the list tells the rest
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
    return ChangeTimes(intervals, odd_count, fallen)


def _is_of_changes(lastmods: Sequence[int | None], from_: int | None, until: int | None) -> bool:
    """Whether times of modification may be those of changes: in order, and of the period of the list."""
    stated = [one for one in lastmods if one is not None]
    is_inside = all((from_ is None or one >= from_) and (until is None or one <= until) for one in stated)
    return is_inside and stated == sorted(stated)


def kept_bound(high: int) -> int:
    """The upper bound of an unknown change time, as it is kept: the last microsecond of a second, and by that no time
    of a change. What comes after may have a lower time."""
    return high - high % SECOND + SECOND - 1


def is_past(moment: int, since: int) -> bool:
    """Whether a stated time lies before another for certain: a whole second may mean any moment in it (AMB-06)."""
    return moment < since and not (moment % SECOND == 0 and since - moment < SECOND)


def position_of_list(at: int | None, claimed: int | None) -> Position:
    """The position of a Resource List that can be of no later moment than `at`, and states `claimed` (DST-4.5).

    Its Change List may well begin at what it states; which changes it has is only certain of those before `at`.
    """
    return Position(time=at, closed_at=claimed if at is not None and claimed is not None and claimed > at else None)


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


def leaves_gap(lists: Sequence[IndexedList], index_from: int | None, since: int | None) -> bool:
    """Whether some moment after `since` is in none of the lists that may tell of it, up to where they end (AMB-23).

    Where one does not say from when on it tells, only the begin of their index counts.
    """
    if since is None or not lists or any(one.from_ is None for one in lists):
        return is_gap(index_from, since)
    return ToldPeriods.of_lists(lists).hole(since - 1, max(one.end for one in lists)) is not None


def is_gap(from_: int | None, since: int | None) -> bool:
    """Whether a list that starts at `from_` leaves out changes after T; without a `from` nothing can be said."""
    return from_ is not None and since is not None and from_ > since


# whether Change Lists read on from where the copy was (DST-C10)


class Invariant(Enum):
    """The three sentences by which a copy follows its source, as docs/explanation has them."""

    FOLLOWED = (
        "Headwater follows a Change List only while the list reads on from where the copy was. The list has the same"
        " `from`. What Headwater has read before is still there, unchanged and first. Times do not fall."
    )
    BASELINE = (
        "Anything else leads to a baseline. Headwater compares the whole Resource List with the copy. If there is no"
        " usable Resource List, the run ends with status 5 and says which sentence was broken."
    )
    WORD = (
        "The hash decides about content, and only two documents may delete. Headwater deletes a file if a Change List"
        " as in sentence 1 says so, or if a complete Resource List lacks it."
    )


class Break(Enum):
    """The part of `Invariant.FOLLOWED` that does not hold, in the words of the notice and the error."""

    EARLIER = "the Change List begins earlier than before"
    LATER = "a Change List begins later than it did"
    REWRITTEN = "earlier entries of the Change List are gone"
    LAST = "the Change Lists no longer have the last changes of this copy"
    FALLEN = "the times in the Change List go back"


class ChangeListFingerprint:
    """A digest over the entries of a list so far; `matches` becomes true when the first n are those of a position."""

    def __init__(self, position: Position, uri: str, from_: int | None) -> None:
        known = position.list_before(uri, from_)
        self._known = known if known is not None and known.from_ == from_ else None
        self._digest = blake2b(digest_size=16)
        self._last_before = position.last
        self._line = b""
        self.count = 0
        self.matches = self._known is not None and self._known.count == 0
        self.has_last = False
        """Whether the entry that was read last before is here, in a list that was not read before."""

    @property
    def comparable(self) -> bool:
        """Whether the list is one that was read before."""
        return self._known is not None

    def see(self, uri: str, change: str, low: int | None, lastmod: int | None, hash_text: str | None) -> None:
        """Take one entry, in document order."""
        self._line = f"{uri}\0{change}\0{low}\0{lastmod}\0{hash_text}\n".encode("utf-8", "surrogatepass")
        self._digest.update(self._line)
        self.count += 1
        if self._known is None:
            self.has_last = self.has_last or (self._last_before != "" and self.last == self._last_before)
        elif self.count == self._known.count:
            self.matches = self._digest.hexdigest() == self._known.fingerprint

    @property
    def last(self) -> str:
        """The digest of the entry seen last; where there is none, of that of before."""
        return blake2b(self._line, digest_size=8).hexdigest() if self._line else self._last_before

    @property
    def done(self) -> int | None:
        """How many entries at the front are known to be done; None where nothing is known of the list."""
        return self._known.count if self._known is not None and self.matches else None

    @property
    def beyond(self) -> bool:
        """Whether the next entry is behind those of the list that were there before."""
        return self._known is not None and self.count >= self._known.count

    def hexdigest(self) -> str:
        """The digest over all entries seen."""
        return self._digest.hexdigest()
