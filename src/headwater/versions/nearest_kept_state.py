"""The nearest state of a resource whose octets are kept, past those that were deletions or could not be kept."""

from __future__ import annotations

from collections.abc import Iterator

from headwater.versions.history import History, PastState

MOST_STATES = 50_000
"""So many states of a resource are looked at; beyond, it counts as one of which nothing is kept."""

_FIRST, _MORE = 16, 1_000


def kept_until(history: History, uri: str, at_us: int) -> PastState | None:
    """The last state that began not later than `at_us` and is kept."""
    return next((one for one in _states(history, uri, at_us, earlier=True) if one.is_kept), None)


def kept_after(history: History, uri: str, at_us: int) -> PastState | None:
    """The first state that began later than `at_us` and is kept."""
    return next((one for one in _states(history, uri, at_us, earlier=False) if one.is_kept), None)


def _states(history: History, uri: str, at_us: int, *, earlier: bool) -> Iterator[PastState]:
    count, limit = 0, _FIRST
    while count < MOST_STATES:
        found = history.until(uri, at_us, limit) if earlier else history.after(uri, at_us, limit)
        yield from found
        if len(found) < limit:
            return
        count, limit = count + limit, _MORE
        at_us = found[-1].at_us - 1 if earlier else found[-1].at_us
