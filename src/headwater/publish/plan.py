"""The plan of a publication: which pages are due, which segments leave, and which old documents are removed.

Pages are expensive and can wait, because the open Change List carries what they do not show yet. They are rendered

1. all, when nothing was published or when what shapes documents has changed;
2. when forced, all that are stale;
3. else by policy, in rounds: a round is due when one page has collected so many events, has been stale for so long or
   has grown old, and when its cost is within `DUTY` of the time since the last. It takes all stale pages, because a
   URI that was deleted on one page and created again on another would else be listed twice (RS-RL-08, AMB-89).

Pages follow each other in their order, because a resource only ever comes to the last page: so it has left its page in
the list before it is on another. Whatever a crash leaves `pending` is rendered as well, and then all that is stale: an
index that was put together from the rows could state an earlier `at` than before. Pages that are not in the list yet
come with any other: the list's `at` may pass the creation of their resources. A list that becomes an index, or stops
being one, has all its pages rendered: their names and `index` links change.
"""

import datetime as dt
from collections.abc import Sequence, Set
from enum import Enum, auto

import msgspec

from headwater.catalog.interface import Page, Segment, SetState
from headwater.publish.publication_state import PublicationState
from headwater.publish.site import SetSettings
from headwater.retry import TimeShare

DUTY = TimeShare(0.05)  # how much of the time the rendering of pages may take by policy

GRACE_SECONDS = 3_600.0
"""How long a document stays that nothing names any more, for readers that hold an older index (AMB-63)."""


class Refresh(Enum):
    """How much one publication brings up to date; each value does what those before it do, and more."""

    CHANGES = auto()  # the changes; pages of a published set wait, and count as left
    DUE = auto()  # pages as well, as far as the set's settings say that they are due
    REPAIR = auto()  # documents that others have removed or damaged are written again, too
    STALE = auto()  # all pages that do not show everything are rendered, due or not
    ALL = auto()  # every document is written anew, but for closed Change Lists that are as they were left


class PagePlan(msgspec.Struct, frozen=True, kw_only=True):
    """Pages to render, pages to drop because they are empty, and the pages that the list has then."""

    render: tuple[int, ...] = ()
    drop: tuple[int, ...] = ()
    listed: tuple[int, ...] = ()
    indexed: bool = False
    rewrite: bool = False  # whether the Resource List's top document changes


def newest_at(state: SetState, publication: PublicationState) -> dt.datetime:
    """The newest time that the catalog has given or a document has stated: every later change comes after it."""
    return max(moment for moment in (state.last_at, state.opened_at, publication.at) if moment is not None)


def true_at(at: dt.datetime, state: SetState, publication: PublicationState) -> dt.datetime:
    """The `at` that pages may state: `at`, within what the catalog's own times allow.

    Never before the first Change List begins nor before an `at` that was stated already (what was recorded then still
    is); never later than the newest time that the catalog has given, because a later change could then fall before it.
    """
    newest = newest_at(state, publication)
    earliest = max(moment for moment in (state.opened_at, publication.at) if moment is not None)
    return max(earliest, min(at, newest))


def completed_at(at: dt.datetime, now: dt.datetime, state: SetState) -> dt.datetime:
    """When a document that shows what is in the catalog was completed, by a state read after that (RS-TIME-06).

    Never before a change that it shows: where the clock was set back, changes have later times than it tells.
    """
    return max(moment for moment in (at, now, state.last_at) if moment is not None)


def plan_pages(
    pages: Sequence[Page],
    publication: PublicationState,
    settings: SetSettings,
    now: dt.datetime,
    refresh: Refresh = Refresh.DUE,
) -> PagePlan:
    """Decide which pages of a Resource List are rendered now."""
    listed, filled = set(publication.listed), {page.number for page in pages if page.count}
    pending = set(publication.pending) & (filled | listed)
    if refresh is Refresh.ALL:
        due = filled | listed
    elif refresh is Refresh.STALE or pending:
        due = pending | {page.number for page in pages if is_stale(page)}
    else:
        due = _round(pages, publication, settings, now)
    due &= filled | listed
    if not due and refresh is not Refresh.ALL:
        return PagePlan(listed=publication.listed, indexed=publication.indexed)
    due |= filled - listed
    after = tuple(sorted(listed - due | due & filled))
    if len(after) < 2 or not publication.indexed:  # names and `index` links change: nothing is left as it was
        after = tuple(number for number in after if number in filled)
        due |= set(after)
    return PagePlan(
        render=tuple(number for number in after if number in due),
        drop=tuple(sorted(listed - set(after))),
        listed=after,
        indexed=len(after) > 1,
        rewrite=True,
    )


def _round(pages: Sequence[Page], publication: PublicationState, settings: SetSettings, now: dt.datetime) -> set[int]:
    """The pages of a new round, or none when it is not due or would cost too much yet."""
    listed = set(publication.listed)
    stale = [page for page in pages if is_stale(page) and (page.count or page.number in listed)]
    fresh = [page for page in pages if page.number in listed and not is_stale(page) and page.at is not None]
    # The `at` of some may lie so far back that new destinations replay more than they should.
    old = [page for page in fresh if page.at and (now - page.at).total_seconds() >= settings.renew_seconds]
    if not old and not any(is_due(page, settings, now) for page in stale):
        return set()
    found, allowed = {page.number for page in (*stale, *old)}, affordable_pages(publication, now)
    return found if allowed is None or len(found) <= allowed else set()


def is_stale(page: Page) -> bool:
    """Whether events have touched the page since it was rendered."""
    return page.touched > page.rendered


def is_due(page: Page, settings: SetSettings, now: dt.datetime) -> bool:
    """Whether a page is stale and has waited long enough, or collected enough events."""
    if not is_stale(page):
        return False
    if page.touched - page.rendered >= settings.refresh_changes:
        return True
    return page.stale_at is not None and _apart(now, page.stale_at) >= settings.refresh_seconds


def affordable_pages(publication: PublicationState, now: dt.datetime) -> int | None:
    """How many pages may be rendered now within DUTY of the time since the last were; None: no limit is known."""
    if publication.refreshed_at is None or publication.page_seconds <= 0:
        return None
    return int(DUTY.work_after(_apart(now, publication.refreshed_at)) / publication.page_seconds)


def _apart(now: dt.datetime, since: dt.datetime) -> float:
    """The seconds since then; where the clock was set back, what waits does not wait until it has caught up."""
    return abs((now - since).total_seconds())


def first_retained(
    segments: Sequence[Segment],
    pages: Sequence[Page],
    publication: PublicationState,
    settings: SetSettings,
    now: dt.datetime,
) -> int:
    """The number of the first segment that stays in the index.

    Closed ones go `retention_seconds` after their end, once the Resource List, and the Resource Dump where there is
    one, show all that they say. So whoever comes back within that time finds every change. One that went stays away.
    """
    first, listed = publication.open.first, set(publication.listed)
    shown = [page.at for page in pages if page.number in listed and page.at is not None]
    if settings.retention_seconds is None or not shown:
        return first
    if (dump := publication.resource_dump) is not None:  # while it is first packed, too: that may take days
        shown.append(min((page.at for page in dump.pages), default=dump.at))
    line = min(*shown, now - dt.timedelta(seconds=settings.retention_seconds))
    return max([first, *(one.number + 1 for one in segments if one.until is not None and one.until <= line)])


def is_period_over(segment: Segment, seconds: float | None, now: dt.datetime) -> bool:
    """Whether the open segment has lasted its period. An empty one never has: nobody would gain from closing it.

    What it states to begin with never goes back, if the clock does: then its period begins when the clock is there.
    """
    return seconds is not None and segment.last >= segment.first and (now - segment.from_).total_seconds() >= seconds


def is_over(since: dt.datetime, now: dt.datetime) -> bool:
    """Whether the grace of what nothing names since then is over."""
    return (now - since).total_seconds() >= GRACE_SECONDS


def with_retired(
    publication: PublicationState, before: Set[str], live: Set[str], now: dt.datetime
) -> tuple[tuple[str, dt.datetime], ...]:
    """Names that are not `live`, each with the moment since when: those noted already, and those of `before`."""
    known = dict.fromkeys(before, now) | dict(publication.retired)
    return tuple(sorted((one, since) for one, since in known.items() if one not in live))
