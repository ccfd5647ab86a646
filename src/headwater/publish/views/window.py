"""The window of an open Change List that spans segments: decides with which change it begins.

It begins with the first change that retention leaves. When it would become longer than it may, it begins anew with the
newer half: so whoever comes back within that many changes finds all of them, and whoever comes later finds a `from`
after the own position, which is a gap (AMB-23, DST-C2). It never begins after what the Resource List beside it shows,
and anew with the last change that that list shows, so that its `from` is not later than the list's `at`: who makes a
baseline now misses nothing, and sees no gap (RS-TIME-08).
"""

from __future__ import annotations


def first_change(before: int | None, retained: int, last: int, shown: int, limit: int) -> int | None:
    """The number of the first change to list; None: there are too many that the Resource List does not show.

    `before` is the first one that is listed so far, `retained` the first that retention leaves, `last` the newest.
    All up to `shown` are in the Resource List.
    """
    newest_shown = max(shown, 1)
    start = max(before or 0, retained)
    if start > shown + 1:
        start = newest_shown
    if last - start < limit:
        return start
    start = max(start, min(last - limit // 2 + 1, newest_shown))
    return start if last - start < limit else None


def is_far_behind(last: int, shown: int, limit: int) -> bool:
    """Whether the Resource List has to show more soon, so that the Change List can begin anew in time."""
    return last - shown > limit // 2
