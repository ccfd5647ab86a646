"""Retention: which past states a set forgets, and which versions are removed, by age and by size.

The present state of a resource stays whatever the bounds of its set say; of past states those go first that ended
first. Of versions, one that a published document or a history needs stays whatever the bounds say.

What is *needed* is told by whoever publishes: the digests of all changes whose packages are not complete. A version
that a change has named within the last hour stays as well: its change may be about to be recorded.
"""

import datetime as dt
import hashlib
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator

import msgspec

from headwater.catalog.interface import StateRow
from headwater.spec.times import to_microseconds
from headwater.storage.object_store import octets_of
from headwater.versions.history import History
from headwater.versions.store import StoredVersion, VersionStore

GRACE = dt.timedelta(hours=1)  # longer than a scan takes from reading a file to recording its change
_PREFIX_DIGITS = 16
_REMOVED_AT_ONCE = 1_000


class VersionRetention(msgspec.Struct, frozen=True, kw_only=True):
    """How long versions are kept that nothing needs: so many seconds, and so many octets in all; None: no bound."""

    seconds: float | None = None
    octets: int | None = None


class VersionCounts(msgspec.Struct, frozen=True, kw_only=True):
    """How many versions there are, and their octets; how many of them were `removed`, or would be."""

    versions: int = 0
    octets: int = 0
    needed: int = 0
    removed: int = 0
    removed_octets: int = 0


class DigestSet:
    """Digests in eight octets each. It may take a foreign digest for one of its own, never the other way round."""

    def __init__(self, digests: Iterable[str]) -> None:
        self._keys = array("Q", sorted(int(one[:_PREFIX_DIGITS], 16) for one in digests))

    def __len__(self) -> int:
        return len(set(self._keys))

    def __contains__(self, digest: str) -> bool:
        key = int(digest[:_PREFIX_DIGITS], 16)
        place = bisect_left(self._keys, key)
        return place < len(self._keys) and self._keys[place] == key


def collect(
    store: VersionStore,
    retention: VersionRetention,
    needed: DigestSet,
    asked_at: dt.datetime,
    *,
    freed: DigestSet | None = None,
    dry_run: bool = False,
) -> VersionCounts:
    """Remove what the retention no longer keeps; with `dry_run` only count it. Raises VersionsUnusable.

    `needed` is what published documents and histories need as of `asked_at`, the present time before that was asked.
    `freed` go without a wait when nothing needs them, as the retention of their set has said.
    """
    line = asked_at - GRACE
    kept_from = min(_oldest_kept(store, retention, needed, asked_at), line)
    versions = octets = needed_count = removed = removed_octets = 0
    going: dict[str, int] = {}

    def remove() -> None:
        nonlocal removed, removed_octets
        gone = list(going) if dry_run else store.delete(going, line)
        removed += len(gone)
        removed_octets += sum(going[one] for one in gone)
        going.clear()

    for one in store.versions():
        versions += 1
        octets += one.octets
        if one.digest in needed:
            needed_count += 1
        elif one.used_at < (line if freed is not None and one.digest in freed else kept_from):
            going[one.digest] = one.octets
            if len(going) >= _REMOVED_AT_ONCE:
                remove()
    remove()
    if not dry_run:
        store.reclaim()
    return VersionCounts(
        versions=versions, octets=octets, needed=needed_count, removed=removed, removed_octets=removed_octets
    )


def _oldest_kept(store: VersionStore, retention: VersionRetention, needed: DigestSet, now: dt.datetime) -> dt.datetime:
    by_age = dt.datetime.min.replace(tzinfo=dt.UTC)
    if retention.seconds is not None:
        by_age = now - dt.timedelta(seconds=min(retention.seconds, 1e9))
    if retention.octets is None:
        return by_age
    total, removable = 0, dict[dt.datetime, int]()
    for one in store.versions():
        if one.used_at >= by_age or one.digest in needed:
            total += one.octets
            if one.digest not in needed:
                minute = one.used_at.replace(second=0, microsecond=0)
                removable[minute] = removable.get(minute, 0) + one.octets
    for minute in sorted(removable):
        if total <= retention.octets:
            break
        total -= removable[minute]
        by_age = max(by_age, minute + dt.timedelta(minutes=1))
    return by_age


def damaged(store: VersionStore) -> Iterator[StoredVersion]:
    """The versions whose octets no longer have their digest; reads all of them. Raises VersionsUnusable."""
    for one in store.versions():
        content = store.open(one.digest)
        if content is None:  # it has been removed meanwhile
            continue
        hasher = hashlib.sha256()
        try:
            for block in octets_of(content, 0, content.octets):
                hasher.update(block)
        finally:
            content.close()
        if hasher.hexdigest() != one.digest:
            yield one


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
    held, total = set(present), sum(present.values())
    for place, one in reversed(list(enumerate(ordered, 1))):  # the newest that are within the bounds stay
        total += 0 if one.digest in held else one.octets
        held.add(one.digest)
        is_much = retention.octets is not None and total > retention.octets
        if is_much or (line is not None and one.ended_us < line):
            return ordered[:place]
    return []


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
