"""The head document of a set on a search cluster, by which the writes of a writer that was too late do not count.

Whoever replaces the head by compare-and-set has committed. Everything else that lies in the cluster counts by its
revision (`rev`, one more for each event): a document exists for readers only when the head says so (`valid`).
"""

from bisect import bisect_left
from collections.abc import Sequence

import msgspec
from msgspec.structs import astuple, replace

from headwater.catalog.cluster.documents import StoredChange
from headwater.catalog.interface import Limits, Page, Rendered, Segment, SetState, Unacceptable, WrongPhase
from headwater.catalog.lease import HeldBy
from headwater.catalog.page_filling import (
    Log,
    PageFill,
    Places,
    RowWrite,
    SegmentRun,
    page_of,
    segment_of,
    to_microseconds,
)
from headwater.spec.times import from_optional

TERM_BITS = 32
"""A revision is a term and a counter within it; a writer that was overtaken has used up no more than one term."""

STAMPS = 32
"""Of so many handles a head remembers the newest write: whoever lost the answer to it finds out that it was done.

However much others write meanwhile: an answer may be late by half a minute, in which a set is written a thousand times.
"""


class PageBook(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One page's snapshot; its number is its place in the list. Times are microseconds."""

    count: int
    weight: int
    touched: int
    rendered: int = 0
    at_us: int | None = None
    completed_us: int | None = None
    stale_us: int | None = None


class RunBook(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One segment's snapshot; its number is its place in the list. The last one is open."""

    first: int
    last: int
    from_us: int
    weight: int = 0
    until_us: int | None = None


class Tail(msgspec.Struct, frozen=True):
    """What is committed but perhaps not yet in the resources' documents: `count` entries to be done (again).

    Entry n has revision `rev` + n. In the log (`journal` false) it is change `first` + n, else journal entry n. Older
    versions have left small batches in the tail itself (`changes`), and perhaps nowhere else yet.
    """

    rev: int
    count: int
    first: int
    journal: bool
    changes: tuple[StoredChange, ...] = ()
    rows: tuple[RowWrite, ...] = ()  # what becomes of rows, all of one revision: the next after the entries

    @property
    def row_rev(self) -> int:
        """The revision of the rows."""
        return self.rev + self.count


class SetHead(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """All snapshot of one set. `dead` are pairs (after, until): no revision between the two is valid.

    The head of a set that was `dropped` stays: one that is made anew goes on counting revisions.
    """

    resource_set: str
    rev: int = 0
    opened_us: int | None = None
    last_seq: int = 0
    last_us: int | None = None
    count: int = 0
    next_slot: int = 0
    page_count: int = 0
    notes: bytes = b""
    dead: tuple[tuple[int, int], ...] = ()
    tail: Tail | None = None
    lease: HeldBy | None = None
    stamps: tuple[str, ...] = ()
    fence: int = 0
    state_version: int = 0
    pages: tuple[PageBook, ...] = ()
    runs: tuple[RunBook, ...] = ()
    dropped: bool = False


def valid(head: SetHead, rev: int) -> bool:
    """Whether what has this revision was committed: not ahead of the head, and of no writer that was overtaken."""
    return rev <= head.rev and not void(head, rev)


def void(head: SetHead, rev: int) -> bool:
    """Whether what has this revision was sent by a writer that was overtaken, and never will count."""
    before = bisect_left(head.dead, (rev, 0)) - 1
    return before >= 0 and rev < head.dead[before][1]


def stamped(head: SetHead, stamp: str) -> SetHead:
    """The head as it is to be written: no two writes have the same stamp, `HANDLE.NUMBER`.

    A handle writes one set by one call at a time, so that its newest stamp is the only one that it may ask for.
    """
    handle = stamp.partition(".")[0]
    others = [one for one in head.stamps if one.partition(".")[0] != handle]
    return replace(head, stamps=(*others[1 - STAMPS :], stamp))


def overtaken(head: SetHead) -> SetHead:
    """Whatever the last holder of the lease has sent, or still sends, beyond the head's revision is void."""
    until = ((head.rev >> TERM_BITS) + 2) << TERM_BITS
    dead, since = head.dead, head.rev
    if dead and dead[-1][1] == since:  # nothing was committed in between: one that fails again and again takes no room
        dead, since = dead[:-1], dead[-1][0]
    return replace(head, rev=until, dead=(*dead, (since, until)), lease=None)


def emptied(head: SetHead) -> SetHead:
    """The set as it was made, with nothing valid of what was written before."""
    until, fence = overtaken(head).rev, head.fence + 1
    return SetHead(resource_set=head.resource_set, rev=until, dead=((-1, until),), stamps=head.stamps, fence=fence)


def is_free_head(head: SetHead) -> bool:
    """Whether anybody may write, with nothing left to do."""
    return head.lease is None and head.tail is None


def state_of(head: SetHead) -> SetState:
    return SetState(
        name=head.resource_set,
        opened_at=from_optional(head.opened_us),
        last_seq=head.last_seq,
        last_at=from_optional(head.last_us),
        count=head.count,
        page_count=head.page_count,
        notes=head.notes,
        fence=head.fence,
        state_version=head.state_version,
    )


def pages_of(head: SetHead) -> list[Page]:
    return [page_of(number, *astuple(book)) for number, book in enumerate(head.pages)]


def segments_of(head: SetHead) -> list[Segment]:
    return [segment_of(number, *astuple(book)) for number, book in enumerate(head.runs)]


def with_rows(head: SetHead, rows: tuple[RowWrite, ...]) -> SetHead:
    """The snapshot after a batch that writes rows: its last revision is theirs."""
    if not rows:
        return head
    tail = head.tail if head.tail is not None else Tail(head.rev + 1, 0, head.last_seq + 1, journal=False)
    return replace(head, rev=head.rev + 1, tail=replace(tail, rows=rows), state_version=head.state_version + 1)


def fills_of(head: SetHead, numbers: set[int]) -> dict[int, PageFill]:
    """How full these pages and the last one are, as the plan of a batch wants to know it."""
    if head.pages:
        numbers = numbers | {len(head.pages) - 1}
    return {number: PageFill(number, head.pages[number].count, head.pages[number].weight) for number in sorted(numbers)}


def log_of(head: SetHead, limits: Limits) -> Log:
    """The end of the log, as the plan of a batch wants to know it. Raises WrongPhase while the set is loading."""
    if head.opened_us is None or head.last_us is None:
        raise WrongPhase("the set is still loading: open it first", where=head.resource_set)
    number, book = len(head.runs) - 1, head.runs[-1]
    return Log(
        limits, head.last_seq, head.last_us, SegmentRun(number, book.first, book.last, book.from_us, book.weight)
    )


def with_places(head: SetHead, places: Places) -> SetHead:
    """The snapshot after a planned batch was placed."""
    pages = list(head.pages)
    for fill in sorted((fill for fill in places.pages.values() if fill.touches), key=lambda fill: fill.number):
        if fill.number == len(pages):
            pages.append(PageBook(fill.count, fill.weight, fill.touches, stale_us=fill.first_us))
            continue
        old = pages[fill.number]
        pages[fill.number] = replace(
            old,
            count=fill.count,
            weight=fill.weight,
            touched=old.touched + fill.touches,
            stale_us=fill.first_us if old.stale_us is None else old.stale_us,
        )
    return replace(
        head, count=head.count + places.added, next_slot=places.next_slot, pages=tuple(pages), page_count=len(pages)
    )


def with_log(head: SetHead, log: Log) -> SetHead:
    """The snapshot after a planned batch was logged, or closed a segment."""
    runs = [*log.closed, log.run]
    books = tuple(RunBook(run.first, run.last, run.from_us, run.weight, run.until_us) for run in runs)
    return replace(head, last_seq=log.last_seq, last_us=log.last_us, runs=(*head.runs[: runs[0].number], *books))


def opened(head: SetHead, at_us: int) -> SetHead:
    """Nothing changes when the set is open."""
    if head.opened_us is not None:
        return head
    pages = tuple(replace(book, stale_us=at_us) if book.touched > book.rendered else book for book in head.pages)
    return replace(
        head,
        opened_us=at_us,
        last_us=at_us if head.last_us is None else max(at_us, head.last_us),
        pages=pages,
        runs=(RunBook(head.last_seq + 1, head.last_seq, at_us),),
    )


def marked(head: SetHead, now_us: int) -> SetHead:
    return replace(head, last_us=now_us if head.last_us is None else max(now_us, head.last_us))


def closed(head: SetHead, now_us: int, limits: Limits) -> SetHead:
    """The open segment is closed and the next one open. Raises WrongPhase while the set is loading."""
    log = log_of(head, limits)
    log.close(max(now_us, log.last_us + 1))
    return with_log(head, log)


def rendered(head: SetHead, said: Sequence[Rendered]) -> SetHead:
    """Raises Unacceptable for a page that is not there or was never touched so often."""
    pages = list(head.pages)
    for page in said:
        if not 0 <= page.number < len(pages) or pages[page.number].touched < page.touched:
            raise Unacceptable(f"page {page.number} was never touched {page.touched} times", where=head.resource_set)
        book, stale_us = pages[page.number], None
        at_us, completed_us = to_microseconds(page.at), to_microseconds(page.completed)
        if book.touched > page.touched:  # it was touched while it was rendered
            stale_us = at_us if book.stale_us is None else max(book.stale_us, at_us)
        times = {"at_us": at_us, "completed_us": completed_us, "stale_us": stale_us}
        pages[page.number] = replace(book, rendered=page.touched, **times)
    return replace(head, pages=tuple(pages))
