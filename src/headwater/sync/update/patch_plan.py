"""The plan of patches: decides whether pending changes of a resource are done by patches, and by which (DST-S1)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from headwater.patches.registry import LARGEST, format_of_patch, is_of_dataset
from headwater.spec.kinds import PATCH
from headwater.spec.records import Link
from headwater.sync.lists.entries import links_of
from headwater.sync.transfer.verification import digests_of, strongest_of
from headwater.sync.transfer.work_queue import PatchAttempt, PatchStep

MOST_STEPS: Final = 20
"""So many patches, one after the other, are asked for at most: each is a request that waits for the one before. Of
datasets there is no such limit where their octets are stated: while they change, the whole is newer than any list."""
_MOST_WRITTEN: Final = 16 << 30
"""Octets that so many patches of a dataset may have written: each writes the whole."""

PENDING_CHANGES = (
    "SELECT change, at, hash, length, links FROM temp.changed WHERE uri = ? AND (pending OR folded)"
    " ORDER BY list, ordinal"
)


class PendingChange(NamedTuple):
    """A change of one resource after the position; the fields are columns of `temp.changed`."""

    change: str
    at: int | None
    hash: str | None
    length: int | None
    links: str | None


class HeldState(NamedTuple):
    """The copy: its digest, its octets, and whether it is what was listed before the pending changes."""

    digest: str
    octets: int
    is_previous: bool


Objection = Callable[[str], str | None]


def planned_patches(held: HeldState, pending: Sequence[PendingChange], objection: Objection) -> PatchAttempt | None:
    """The patches that lead from the copy to the last of these changes; None: it is fetched whole.

    1. The copy is exactly a state that the changes tell of, or else the one before all of them (`is_previous`).
    2. Each change after it is an update with a hash, and has a patch of a known type within the scope.
    3. Together they are fewer octets than the resource, and no more than `MOST_STEPS`, but of a dataset.
    """
    changes = [one for n, one in enumerate(pending) if n + 1 == len(pending) or not _is_same(one, pending[n + 1])]
    start = next((n + 1 for n in range(len(changes) - 1, -1, -1) if _leaves(changes[n], held.digest)), None)
    if start is None:
        start = 0 if held.is_previous else len(changes)
    steps = [_step(one, objection) for one in changes[start:]]
    found = [one for one in steps if one is not None]
    if not found or len(found) < len(steps):
        return None
    of_dataset = all(is_of_dataset(one.type) for one in found)
    if held.octets > LARGEST and not of_dataset:
        return None
    whole = changes[-1].length
    octets = sum(one.length or 0 for one in found)
    is_stated = all(one.length is not None for one in found)
    if whole is not None and (octets >= whole or not (of_dataset or is_stated or len(found) == 1)):
        return None
    is_fewer = is_stated and octets < held.octets
    if len(found) > MOST_STEPS and not (of_dataset and is_fewer and len(found) * held.octets <= _MOST_WRITTEN):
        return None
    return PatchAttempt(base=held.digest, steps=tuple(found))


def _is_same(one: PendingChange, other: PendingChange) -> bool:
    """Whether two lists that overlap tell one change twice."""
    return one.at is not None and (one.change, one.at, one.hash) == (other.change, other.at, other.hash)


def _leaves(change: PendingChange, digest: str) -> bool:
    """Whether a change has left octets of this digest."""
    return change.change != "deleted" and digest in map(str, digests_of(change.hash))


def _step(change: PendingChange, objection: Objection) -> PatchStep | None:
    result = strongest_of(change.hash)
    if change.change != "updated" or result is None:
        return None
    for link in links_of(change.links, PATCH):
        if _is_usable(link) and objection(link.href) is None:
            hash_ = str(digest) if (digest := strongest_of(link.hash)) is not None else None
            return PatchStep(link.href, link.type or "", link.length, hash_, str(result), change.length)
    return None


def _is_usable(link: Link) -> bool:
    """Whether the patch is of a known type (RS-DST-12), as it is, and not too large."""
    if is_of_dataset(link.type):
        return not link.encoding
    return format_of_patch(link.type) is not None and not link.encoding and (link.length or 0) <= LARGEST
