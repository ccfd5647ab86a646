"""Retention of histories: which past states of a set are forgotten, by age and by octets, and what the others need.

The present state of a resource stays whatever the bounds say; of past states those go first that ended first.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator

import msgspec

from headwater.catalog.state import StateRow
from headwater.spec.times import to_microseconds
from headwater.versions.history import History
from headwater.versions.retention import VersionRetention


class EndedState(msgspec.Struct, frozen=True, gc=False):
    """A state that is past: its row, when it ended, and its octets."""

    row: StateRow
    ended_us: int
    digest: str
    octets: int


def expired(
    ended: list[EndedState], present: dict[str, int], retention: VersionRetention, now: dt.datetime
) -> list[EndedState]:
    """Those of the ended states that go: `present` are the digests and octets of what stays in any case."""
    ordered = sorted(ended, key=lambda one: one.ended_us)
    line = None
    if retention.seconds is not None:
        line = to_microseconds(now) - int(min(retention.seconds, 1e9) * 1_000_000)
    gone = [one for one in ordered if line is not None and one.ended_us < line]
    if retention.octets is None:
        return gone
    uses: dict[str, int] = {}
    total = sum(present.values())
    for one in ordered[len(gone) :]:
        if one.digest not in present and one.digest not in uses:
            total += one.octets
        uses[one.digest] = uses.get(one.digest, 0) + 1
    for one in ordered[len(gone) :]:
        if total <= retention.octets:
            break
        gone.append(one)
        uses[one.digest] -= 1
        if not uses[one.digest] and one.digest not in present:
            total -= one.octets
    return gone


def prune(history: History, retention: VersionRetention, now: dt.datetime, *, dry_run: bool = False) -> list[str]:
    """Forget what the retention no longer keeps, or with `dry_run` tell; the digests that this may have freed.

    Raises the catalog's StoreFaults.
    """
    if retention.seconds is None and retention.octets is None:
        return []
    ended, present = [], dict(history.present_digests())
    for row, state, following in history.states():
        if following is not None or not state.digest:  # a deletion ends as soon as it began
            end = state.at_us if following is None else following.at_us
            ended.append(EndedState(row, end, state.digest, state.length or 0))
    gone = expired(ended, present, retention, now)
    if gone and not dry_run:
        history.remove([one.row for one in gone], max(one.ended_us for one in gone))
    return [one.digest for one in gone if one.digest]


def needed_digests(history: History) -> Iterator[str]:
    """The digests of all states of a history, the present ones among them."""
    yield from (digest for digest, _octets in history.present_digests())
    yield from (state.digest for _row, state, _next in history.states() if state.is_kept)
