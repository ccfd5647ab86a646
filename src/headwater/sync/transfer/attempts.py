"""The ways to one resource, and which comes next: `loc`, `loc` past all caches, then the mirrors by their `pri`.

Decisions over values (5.3, DST-S2, DST-F11).
"""

from __future__ import annotations

import msgspec

from headwater.sync.timestamps import SECOND, http_date_micros
from headwater.sync.transfer.verification import digests_of
from headwater.sync.transfer.work_queue import Work

_ROOM_FOR_GROWTH = 64 << 20


def mirrors_of(work: Work) -> list[str]:
    """The mirrors of a resource, best first."""
    return msgspec.json.decode(work.mirrors, type=list[str]) if work.mirrors else []


def next_step(work: Work, distrusted: set[str], *, mismatch: bool) -> int | None:
    """The way after `work.step`: 0 `loc`, 1 `loc` past all caches, 2… the mirrors; None when there is none left.

    A mirror is trusted only where the entry has a hash or a length to check it by (DST-S2), and no longer in this run
    once it has sent something else (DST-F11).
    """
    if work.step == 0 and mismatch:
        return 1
    if not digests_of(work.hash) and work.length is None:
        return None
    mirrors = mirrors_of(work)
    for number in range(max(work.step - 1, 0), len(mirrors)):
        if mirror_base(work.loc, mirrors[number]) not in distrusted:
            return number + 2
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
