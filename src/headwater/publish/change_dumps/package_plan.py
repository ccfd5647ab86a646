"""The plan of a Change Dump: decides which changes are packed next, and which packages stay, by values alone.

Packages follow the segments of the change log: the changes of a closed segment are one package, or several when it has
more than a package may; then the open segment's so far, which is made anew now and then. A package covers its times
half-open (AMB-11): it begins where the one before ends, and one that does not end with its segment ends a microsecond
after its last change, which the catalog gives to no other.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence

import msgspec

from headwater.catalog.interface import Change, Segment
from headwater.publish.publication_state import ChangeDumpState, ChangePackage
from headwater.publish.site import SetSettings

TICK = dt.timedelta(microseconds=1)


class PackagePlan(msgspec.Struct, frozen=True, kw_only=True):
    """Changes to pack: `first` to `last` of a segment, as far as they fit. `until` None: the segment is open."""

    segment: int
    first: int
    last: int
    from_: dt.datetime
    until: dt.datetime | None


def begun(segments: Sequence[Segment]) -> ChangeDumpState:
    """The Change Dump of a set that offers one from now on: it begins with the open segment."""
    return ChangeDumpState(first=segments[-1].first, from_=segments[-1].from_)


def kept(state: ChangeDumpState, segments: Sequence[Segment], first: int) -> ChangeDumpState:
    """The Change Dump without what is of segments before number `first`: they have left the Change Lists."""
    begin = next((one for one in segments if one.number >= first), segments[-1])
    if state.first >= begin.first and state.from_ >= begin.from_:
        return state
    packages = tuple(one for one in state.packages if one.segment >= begin.number)
    if packages:
        return msgspec.structs.replace(state, first=packages[0].first, from_=packages[0].from_, packages=packages)
    return ChangeDumpState(first=begin.first, from_=begin.from_)


def without_damaged(state: ChangeDumpState, damaged: Sequence[ChangePackage]) -> ChangeDumpState:
    """The Change Dump without packages that were lost or damaged: what follows the last of them stays.

    One that is not final is made anew.
    """
    lost = [one for one in damaged if one.is_final]
    if not lost:
        packages = tuple(one for one in state.packages if one not in damaged)
        return msgspec.structs.replace(state, packages=packages, packed_at=None) if damaged else state
    packages = tuple(one for one in state.packages if one.first > lost[-1].first and one not in damaged)
    return ChangeDumpState(first=lost[-1].last + 1, from_=lost[-1].until, packages=packages)


def begin_after(change: Change) -> ChangeDumpState:
    """The Change Dump that begins anew after a change whose octets cannot be had (RS-CDM-10)."""
    return ChangeDumpState(first=change.seq + 1, from_=change.at + TICK)


def next_package(
    state: ChangeDumpState, segments: Sequence[Segment], settings: SetSettings, now: dt.datetime, *, at_once: bool
) -> PackagePlan | None:
    """What is to be packed now; None when nothing is due. With `at_once` the open segment does not wait its time."""
    first, held = state.next_first, state.packages[len(state.final) :]
    for one in segments:
        if one.last < first:
            continue
        plan = PackagePlan(segment=one.number, first=first, last=one.last, from_=state.next_from, until=one.until)
        if one.until is not None:
            return plan
        is_known = bool(held) and held[-1].last == one.last
        is_full = one.last - first + 1 > settings.package_entries
        return plan if not is_known and (at_once or is_full or _is_time(state, settings, now)) else None
    return None


def _is_time(state: ChangeDumpState, settings: SetSettings, now: dt.datetime) -> bool:
    if state.packed_at is None:
        return True
    return abs((now - state.packed_at).total_seconds()) >= settings.change_dump_seconds  # the clock may be set back


def package(plan: PackagePlan, last: Change, octets: int, sha256: str) -> ChangePackage:
    """The package that was made by a plan and holds the changes up to `last`."""
    is_cut = last.seq < plan.last
    until = plan.until if plan.until is not None and not is_cut else end_after(last)
    return ChangePackage(
        segment=plan.segment,
        first=plan.first,
        last=last.seq,
        from_=plan.from_,
        until=until,
        octets=octets,
        hash=sha256,
        is_final=is_cut or plan.until is not None,
    )


def end_after(change: Change) -> dt.datetime:
    """The end of a package whose last change this is: no other change has that time or an earlier one."""
    return change.at + TICK


def with_package(state: ChangeDumpState, one: ChangePackage, now: dt.datetime) -> ChangeDumpState:
    """The Change Dump with one more package, which takes the place of the one that was not final."""
    return msgspec.structs.replace(state, packages=(*state.final, one), packed_at=now)
