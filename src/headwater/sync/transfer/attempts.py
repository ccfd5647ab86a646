"""Fetch attempts: which attempt comes next for a resource, and the bounds of its body and of its time.

Decisions over values (5.3, DST-S2, DST-F11).
"""

from __future__ import annotations

from headwater.sync.source_times import SECOND, http_date_micros
from headwater.sync.transfer.verification import digests_of
from headwater.sync.transfer.work_queue import PAST_CACHES, Attempt, MirrorAttempt, Work, mirrors_of

_ROOM_FOR_GROWTH = 64 << 20


def next_attempt(work: Work, distrusted: set[str], *, mismatch: bool) -> Attempt | None:
    """The attempt after `work.attempt`: `loc`, `loc` past all caches, then the mirrors; None when there is none left.

    A mirror is trusted only where the entry has a hash or a length to check it by (DST-S2), and no longer in this run
    once it has sent something else (DST-F11).
    """
    if work.is_first and mismatch:
        return PAST_CACHES
    if not digests_of(work.hash) and work.length is None:
        return None
    mirrors, tried = mirrors_of(work), work.attempt
    for number in range(tried.number + 1 if isinstance(tried, MirrorAttempt) else 0, len(mirrors)):
        if mirror_base(work.loc, mirrors[number]) not in distrusted:
            return MirrorAttempt(number)
    return None


def mirror_base(loc: str, href: str) -> str:
    """Which mirror a link leads to: its URI without the names at the end that it has in common with `loc`.

    One host may hold several mirrors, and only the one that sent something else is distrusted (DST-F11).
    """
    own, theirs = loc.split("/"), href.split("/")
    while len(theirs) > 3 and own and theirs[-1] == own[-1]:
        own.pop()
        theirs.pop()
    return "/".join(theirs)


def octet_limit(length: int | None, largest: int) -> int:
    """How many octets of a resource are taken: a listed length leaves room for growth, not for an endless answer."""
    return largest if length is None else min(largest, max(_ROOM_FOR_GROWTH, 4 * length))


def mtime_ns(lastmod: int | None, last_modified: str | None) -> int | None:
    """The file's modification time: as listed, else as sent, else none."""
    at = lastmod if lastmod is not None else http_date_micros(last_modified)
    return at * 1000 if at is not None and 0 <= at < 8_000_000_000 * SECOND else None
