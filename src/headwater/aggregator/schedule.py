"""When sources run: intervals, cron lines, waits after failures; which of the due begin, which runs give way.

Decisions over values, without a clock. Cron lines are in the local time of the machine.

There are two allotments of places, for quick runs and for long ones. A source whose last run was long, or that is new,
begins in the second one, and a run that turns out to be long goes over to it; where it is full, the run that has gone
furthest beyond its turn gives way and continues later. So whatever hangs, drips or is huge costs the others nothing.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

import msgspec
from cronsim import CronSim, CronSimError

from headwater.errors import UsageFault
from headwater.sync.sets.polling import PollingHints, PollInterval, next_wait
from headwater.time_windows import Windows, opens_at

if TYPE_CHECKING:
    from headwater.aggregator.configuration import FollowedSource
    from headwater.aggregator.store import SourceState

QUICK_SECONDS: Final = 5.0
"""A run that takes longer is long."""

LEAST_TURN_SECONDS: Final = 10.0
"""So long a long run may go on while others wait for its place; the next turn of a source is twice its last one …"""

MOST_TURN_SECONDS: Final = 120.0
"""… and at most so long: sources that hang must not hold the places of long runs for hours."""

DEAD_SECONDS: Final = 86_400.0
"""How often is looked whether a dead source is back."""

# times of day


def check_cron(line: str | None) -> None:
    """Raise UsageFault where this is no cron line of five fields, or one that never comes."""
    if line is None:
        return
    try:
        next(CronSim(line, dt.datetime(2026, 1, 1)))
    except (CronSimError, StopIteration) as cause:
        raise UsageFault(f"cron: {line!r:.60} is no cron line, such as 30 2 * * 1-5") from cause


def _cron_after(line: str, moment: dt.datetime) -> dt.datetime:
    """The first time of a cron line after a moment."""
    for wall in CronSim(line, moment.astimezone().replace(tzinfo=None)):
        if (found := wall.astimezone(dt.UTC)) > moment:  # the hour that comes twice is one
            return found
    return moment + dt.timedelta(days=366)


def next_run(
    source: FollowedSource,
    now: dt.datetime,
    *,
    failures: int = 0,
    is_dead: bool = False,
    hints: PollingHints | None = None,
    windows: Iterable[Windows] = (),
    chance: float = 0.0,
) -> dt.datetime:
    """When a source runs again after a run that has ended now, `failures` of them in a row by a fault.

    By its interval or cron line; later after failures, up to a day, and where the source has asked for it by
    `Retry-After` or `max-age`; within all `windows`. `chance`, 0 to 1, spreads runs by the source's jitter.
    """
    hints = hints or PollingHints()
    at, every = now, source.every
    if source.cron is not None:
        at = _cron_after(source.cron, now)
        every = max(60.0, (_cron_after(source.cron, at) - at).total_seconds())
    wait = next_wait(PollInterval(every), 0, hints, failures=0 if is_dead else failures, chance=0.0)
    wait = max(wait, DEAD_SECONDS) if is_dead else wait
    if source.cron is None:
        due = now + dt.timedelta(seconds=wait + every * source.jitter * chance)
    else:
        due = at if wait <= every else _cron_after(source.cron, at + dt.timedelta(seconds=wait - every - 1))
    return opens_at(due, windows)


# places


class RunPlace(msgspec.Struct, kw_only=True):
    """A run that has a place: since when it runs (seconds of a clock that only goes forward), and for how long it may
    go on while others wait."""

    name: str
    number: int
    began: float
    turn: float
    is_long: bool
    is_stopping: bool = False

    def ratio(self, now: float) -> float:
        """How much of its turn it has had; above 1 it may have to give way."""
        return (now - self.began) / self.turn


def begins_long(state: SourceState) -> bool:
    """Whether a source begins among the long runs: its last run was one, or it is new."""
    return state.last_seconds is None or state.last_seconds > QUICK_SECONDS


def turn_of(state: SourceState) -> float:
    """For how long a run of the source may keep its place while others wait."""
    return min(MOST_TURN_SECONDS, max(LEAST_TURN_SECONDS, 2 * (state.last_seconds or 0.0)))


def waiting_since(state: SourceState) -> tuple[bool, dt.datetime]:
    """The order in which sources have their turns: those that a person wants at once, then the longest due."""
    return not state.is_wanted_now, state.next_at or dt.datetime.min.replace(tzinfo=dt.UTC)


def starts(due: Iterable[SourceState], places: Sequence[RunPlace], parallel: int) -> tuple[list[SourceState], int]:
    """Which of the sources that are due begin, and how many of the others wait for the place of a long run."""
    free = {True: parallel, False: parallel}
    for place in places:
        free[place.is_long] -= 1
    begun: list[SourceState] = []
    waiting = 0
    for state in sorted(due, key=waiting_since):
        is_long = begins_long(state)
        if free[is_long] > 0:
            free[is_long] -= 1
            begun.append(state)
        else:
            waiting += is_long
    return begun, waiting


def give_way(places: Sequence[RunPlace], waiting: int, parallel: int, now: float) -> list[RunPlace]:
    """Note which runs have turned out to be long, and return those that give way to others."""
    for place in places:
        place.is_long = place.is_long or now - place.began > QUICK_SECONDS
    long = [place for place in places if place.is_long]
    leaving = sum(place.is_stopping for place in long)
    wanted = max(len(long) - parallel, 0) + waiting - leaving
    beyond = [place for place in long if not place.is_stopping and place.ratio(now) > 1]
    beyond.sort(key=lambda place: place.ratio(now), reverse=True)
    return beyond[: max(0, wanted)]
