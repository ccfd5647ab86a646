"""The plan of a Resource Dump: decides which page is packed next, by values alone.

The packages of a page are made anew when enough of the page has changed, when a change has waited long enough, or when
they have grown old; a page that has none yet comes first. So a dump that is offered has packages of all pages that its
own packages' times know of: a resource on a page that came later was created after the `at` of the dump.

A resource that was deleted and came back on another page may be in packages of both while the first is not made anew;
both changes are later than the `at` of the dump, so that whoever goes on by them comes to the right state.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection, Sequence

import msgspec

from headwater.catalog.interface import Page, SetSnapshot
from headwater.publish.publication_state import PagePackages, ResourceDumpState
from headwater.publish.site import SetSettings

RETRY_SECONDS = 5.0
"""Packages without resources whose octets could not be had are made anew after so long, later the larger they are."""


class PackingPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What is due: a page to pack, or (None) only to offer the dump; `filled` are the pages that have resources.

    `at` is the newest time that the catalog has given when the page is read: it holds all changes up to then, and
    every later one has a later time.
    """

    page: Page | None
    filled: frozenset[int]
    at: dt.datetime


def next_packing(
    state: ResourceDumpState,
    snapshot: SetSnapshot,
    settings: SetSettings,
    now: dt.datetime,
    out_of_reach: Collection[int] = (),
) -> PackingPlan | None:
    """What is to be done next; None when nothing is due.

    What was left out of the pages `out_of_reach` cannot be had now, either: they are not packed anew for its sake.
    """
    filled = frozenset(page.number for page in snapshot.pages if page.count)
    moment = snapshot.state.last_at or snapshot.state.opened_at
    assert moment is not None
    packed = {one.number: one for one in state.pages}
    for page in snapshot.pages:
        if page.count and page.number not in packed:
            return PackingPlan(page=page, filled=filled, at=moment)
    if not state.is_offered:
        return PackingPlan(page=None, filled=filled, at=moment)
    due = [
        page
        for page in snapshot.pages
        if (held := packed.get(page.number)) is not None
        and (_is_due(page, held, settings, now) or (page.number not in out_of_reach and _is_retried(held, now)))
    ]
    if not due:
        return None
    oldest = min(due, key=lambda page: (packed[page.number].completed, page.number))
    return PackingPlan(page=oldest, filled=filled, at=moment)


def _is_due(page: Page, held: PagePackages, settings: SetSettings, now: dt.datetime) -> bool:
    age = _age(held, now)
    if age >= settings.renew_seconds:
        return True
    changed = page.touched - held.touched
    if changed <= 0:
        return False
    return not page.count or changed >= settings.dump_share * page.count or age >= settings.dump_seconds


def _is_retried(held: PagePackages, now: dt.datetime) -> bool:
    """Whether to look again for resources that were left out: the more there is to pack again, the later."""
    octets = sum(one.octets for one in held.packages)
    return bool(held.left_out) and _age(held, now) >= RETRY_SECONDS + octets / 1_000_000


def _age(held: PagePackages, now: dt.datetime) -> float:
    """The seconds since they were packed; where the clock was set back, nothing waits until it has caught up."""
    return abs((now - (held.packed_at or held.completed)).total_seconds())


def with_page(state: ResourceDumpState, plan: PackingPlan, packed: PagePackages | None) -> ResourceDumpState:
    """The dump with what was packed in the place of what the page had; offered when no page is missing."""
    pages: Sequence[PagePackages] = state.pages
    if plan.page is not None:
        number = plan.page.number
        others = [one for one in pages if one.number != number]
        pages = sorted([*others, packed] if packed else others, key=lambda one: one.number)
    is_whole = plan.filled <= {one.number for one in pages} | ({plan.page.number} if plan.page else set())
    return msgspec.structs.replace(
        state, pages=tuple(pages), at=plan.at if not pages else state.at, is_offered=state.is_offered or is_whole
    )
