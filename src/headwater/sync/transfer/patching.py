"""Patches in the place of whole resources (DST-S1): which are asked for, and their execution.

All patches of a resource are fetched together and executed one after the other: on the copy, or for the first import
of a dataset on nothing (TIM-A6). Nothing is believed but the hash that the list states of the result. Whatever else
comes of a patch, the resource is fetched whole.
"""

import os
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple, cast

from headwater.files.hashing import HASHERS
from headwater.patches import JSON, LARGEST, PatchRefused, format_of_patch, is_of_dataset
from headwater.spec.kinds import PATCH
from headwater.sync.copy.file_tree import FileTree
from headwater.sync.copy.held_files import file_has
from headwater.sync.lists.entries import links_of
from headwater.sync.transfer.verification import digests_of, strongest_of
from headwater.sync.transfer.work_queue import PatchAttempt, PatchStep, Work
from headwater.transport.fetch import Fetch, Fetched, Objection

LARGEST_OF_DATASET: Final = 256 << 20
"""Octets of a patch of an RDF dataset."""

# which patches are asked for

MOST_STEPS: Final = 20
"""So many patches are asked for at most. Of datasets there are more where their octets are stated: while they change,
the whole is newer than any list."""
_MOST_OF_DATASET: Final = 100_000
_MOST_OCTETS: Final = 64 << 30
"""Of the patches of a first import together."""

PENDING_CHANGES = (
    "SELECT change, coalesce(stated, at), hash, length, links FROM temp.changed WHERE uri = ? AND (pending OR folded)"
    " ORDER BY list, ordinal"
)


class PendingChange(NamedTuple):
    """A change of one resource after the position; the fields are columns of `temp.changed`."""

    change: str
    at: int | None
    hash: str | None
    length: int | None
    links: str | None

    def leaves(self, digests: Container[str]) -> bool:
        """Whether it has left octets with one of these digests."""
        return self.change != "deleted" and any(str(digest) in digests for digest in digests_of(self.hash))


def planned_patches(
    digest: str, held_octets: int, pending: Sequence[PendingChange], objection: Objection, *, is_previous: bool
) -> PatchAttempt | None:
    """The patches that lead from the copy, by its digest and octets, to the last of these changes; None: it is fetched
    whole.

    1. The copy is exactly a state that the changes tell of, or else the one before all of them (`is_previous`).
    2. Each change after it is an update, and has a patch of a known type within the scope; the last has a hash.
    3. Together they are fewer octets than the resource, and no more than `MOST_STEPS`, but of a dataset.
    """
    changes = _told_once(pending)
    states = [n + 1 for n, one in enumerate(changes) if one.leaves((digest,))]
    changes = changes[states[-1] if states else 0 if is_previous else len(changes) :]
    steps = tuple(step for one in changes if (step := _step(one, objection)) is not None)
    if not steps or len(steps) < len(changes) or any(one.change != "updated" for one in changes):
        return None
    if strongest_of(changes[-1].hash) is None:
        return None
    of_dataset = _are_of_dataset(steps)
    whole, octets = changes[-1].length, sum(one.length or 0 for one in steps)
    is_stated = all(one.length is not None for one in steps)
    if held_octets > LARGEST and not of_dataset:
        return None
    if whole is not None and (octets >= whole or not (of_dataset or is_stated or len(steps) == 1)):
        return None
    if len(steps) > (_MOST_OF_DATASET if of_dataset and is_stated and octets < held_octets else MOST_STEPS):
        return None
    return PatchAttempt(steps, digest)


def patches_from_nothing(
    hash_: str | None, known_at: int | None, changes: Sequence[PendingChange], objection: Objection
) -> PatchAttempt:
    """The patches that make a dataset with this hash of nothing, or what is told up to the time of its list (TIM-08).

    Raises PatchRefused, which says why there are none.
    """
    wanted = set(map(str, digests_of(hash_)))
    if not wanted:
        raise PatchRefused("the Resource List states no hash of it")
    changes = _told_once(changes)
    changes = changes[max((n + 1 for n, one in enumerate(changes) if one.change == "deleted"), default=0) :]
    if ends := [n + 1 for n, one in enumerate(changes) if one.leaves(wanted)]:
        changes = changes[: ends[-1]]
    elif known_at is not None:
        changes = [one for one in changes if one.at is None or one.at <= known_at]
    if not changes:
        raise PatchRefused("the Change List has none of its changes")
    steps = tuple(step for one in changes if (step := _step(one, objection)) is not None)
    if len(steps) < len(changes) or not _are_of_dataset(steps):
        raise PatchRefused("a change has no patch")
    if len(steps) > _MOST_OF_DATASET or sum(one.length or 0 for one in steps) > _MOST_OCTETS:
        raise PatchRefused("its changes are too many, or too large")
    return PatchAttempt(steps)


def _told_once(changes: Sequence[PendingChange]) -> list[PendingChange]:
    """Changes without those that lists that overlap tell again."""
    pairs = zip(changes, (*changes[1:], None), strict=True)
    return [one for one, later in pairs if later is None or one.at is None or one[:3] != later[:3]]


def _step(change: PendingChange, objection: Objection) -> PatchStep | None:
    for link in links_of(change.links, PATCH):
        is_small = format_of_patch(link.type) is not None and (link.length or 0) <= LARGEST
        if (is_of_dataset(link.type) or is_small) and not link.encoding and objection(link.href) is None:
            hash_ = str(digest) if (digest := strongest_of(link.hash)) is not None else None
            return PatchStep(link.href, link.type or "", link.length, hash_)
    return None


def _are_of_dataset(steps: Sequence[PatchStep]) -> bool:
    return all(is_of_dataset(one.type) for one in steps)


# their execution


@dataclass
class _Arrivals:
    """What has come of the patches of one resource: how many, their octets, and why one is of no use, if one is."""

    count: int = 0
    octets: int = 0
    refused: str = ""


class Patching:
    """The patches of one set during one run."""

    def __init__(self, tree: FileTree, temp: str) -> None:
        self._tree = tree
        self._temp = temp
        self._came: dict[int, _Arrivals] = {}
        self._is_any_vain = False
        """Whether one was executed in vain: then no other is, so that useless ones take a bounded time."""

    def fetches(self, work: Work, attempt: PatchAttempt, objection: Objection) -> Iterator[Fetch]:
        """The requests for all patches: not for more octets than the link states, or the resource has (or the copy,
        where neither is stated)."""
        of_dataset, from_nothing = _are_of_dataset(attempt.steps), attempt.base is None
        most = min(LARGEST_OF_DATASET if of_dataset else LARGEST, _MOST_OCTETS // len(attempt.steps))
        if not from_nothing:
            found = self._tree.stat(work.path) if work.length is None else None
            most = min(most, work.length or max(LARGEST, found.st_size if found is not None else 0))
        for number, step in enumerate(attempt.steps):
            wanted = strongest_of(step.hash)
            yield Fetch(
                step.href,
                into=f"{self._temp}/{_name(work, number)}",
                algorithms=(wanted.algorithm if wanted else "sha-256",),
                max_octets=most if step.length is None else min(most, step.length),
                key=(work, number),
                objection=objection,
                retries=None if from_nothing else 0,
            )

    def result(self, work: Work, attempt: PatchAttempt, fetched: Fetched) -> tuple[int, int] | None:
        """How many octets the patches make of how many, once the last of them has come; None: others are still to come.

        What they make has the hash that is listed, and is in the temporary file of the work. Raises PatchRefused where
        they are of no use.
        """
        came = self._came.setdefault(work.n, _Arrivals())
        came.count += 1
        came.octets += fetched.octets
        _, number = cast("tuple[Work, int]", fetched.fetch.key)
        came.refused = came.refused or _fault(attempt.steps[number], fetched)
        if came.count < len(attempt.steps):
            return None
        del self._came[work.n]
        names = [_name(work, number) for number in range(came.count)]
        paths, wanted = [Path(self._temp, name) for name in names], str(strongest_of(work.hash))
        try:
            if came.refused:
                raise PatchRefused(came.refused)
            if self._is_any_vain:
                raise PatchRefused("another patch failed")
            of_dataset = _are_of_dataset(attempt.steps)
            octets = (self._apply_to_dataset if of_dataset else self._apply)(work, attempt, paths, wanted)
            if work.length not in (None, octets):
                raise PatchRefused("its result is wrong")
        except (PatchRefused, OSError) as cause:
            self._is_any_vain = self._is_any_vain or not came.refused
            self._tree.discard(work.name)
            raise PatchRefused(str(cause)) from cause
        finally:
            for name in names:
                self._tree.discard(name)
        return octets, came.octets

    def _apply_to_dataset(self, work: Work, attempt: PatchAttempt, patches: Sequence[Path], wanted: str) -> int:
        """Make the dataset that patches lead to: of canonical N-Quads, sorted, as the source's have to be."""
        from headwater.rdf import BadRdf
        from headwater.rdf.unified_diff import merge_patches  # takes the RDF library along

        target, base = Path(self._temp, work.name), None
        if attempt.base is not None:
            os.close(self._tree.open(work.path))  # raises where it is no ordinary file
            base = Path(os.fsdecode(self._tree.root), os.fsdecode(work.path))
            if not file_has(base, attempt.base):
                raise PatchRefused("the copy is not the state before")
        try:
            made = merge_patches(base, patches, target, scratch=target.parent).dataset
        except BadRdf as cause:
            raise PatchRefused(cause.what) from cause
        if wanted != f"sha-256:{made.sha256}" and not file_has(target, wanted):
            raise PatchRefused("its result is wrong")
        return made.octets

    def _apply(self, work: Work, attempt: PatchAttempt, patches: Sequence[Path], wanted: str) -> int:
        """Make the content that patches lead to, in memory."""
        with os.fdopen(self._tree.open(work.path), "rb") as file:
            content = file.read(LARGEST + 1)
        if len(content) > LARGEST or attempt.base is None or not _has(content, attempt.base):
            raise PatchRefused("the copy is not the state before")
        if any(format_of_patch(step.type) is not JSON for step in attempt.steps):
            raise PatchRefused("one is of another type")
        from headwater.patches import json_patch  # imported where it is used: most runs meet no patch

        for path in patches:
            content = json_patch.apply(content, path.read_bytes())
        if not _has(content, wanted):
            raise PatchRefused("its result is wrong")
        return self._tree.write(work.name, content, None)[0]


def _name(work: Work, number: int) -> str:
    return f"{work.n}-patch-{number}"


def _fault(step: PatchStep, fetched: Fetched) -> str:
    """Why an answer is not the patch that its link states; empty where it is."""
    if not fetched.ok:
        return fetched.failure.text if fetched.failure else f"HTTP status {fetched.status}"
    if fetched.status not in (200, 203) or fetched.headers.get("content-encoding", "identity") != "identity":
        return "it is not what was asked for"
    algorithm, _, wanted = (step.hash or "").partition(":")
    if step.length not in (None, fetched.octets) or (wanted and fetched.digests[algorithm] != wanted):
        return "it is not what its link states"
    return ""


def _has(octets: bytes, digest: str) -> bool:
    algorithm, _, wanted = digest.partition(":")
    return bool(HASHERS[algorithm](octets).hexdigest() == wanted)
