"""Patches in the place of whole resources (DST-S1): which are asked for, and their execution.

Nothing is believed but the hash that the list states of the result. Whatever else comes of a patch, the resource is
fetched whole.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Container, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from headwater.files.hashing import HASHERS
from headwater.patches import JSON, LARGEST, PatchRefused, format_of_patch, is_of_dataset
from headwater.spec.kinds import PATCH
from headwater.sync.copy.file_tree import FileTree
from headwater.sync.lists.entries import links_of
from headwater.sync.transfer.verification import digests_of, strongest_of
from headwater.sync.transfer.work_queue import PatchAttempt, PatchStep, RunContext, Work
from headwater.transport.fetch import Fetch, Fetched, Objection

LARGEST_OF_DATASET: Final = 256 << 20
"""Octets of a patch of an RDF dataset."""

# which patches are asked for

MOST_STEPS: Final = 20
"""So many patches, one after the other, are asked for at most: each is a request that waits for the one before. Of
datasets there is no such limit where their octets are stated: while they change, the whole is newer than any list."""
_MOST_WRITTEN: Final = 16 << 30
"""Octets that so many patches of a dataset may have written: each writes the whole."""

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


class HeldState(NamedTuple):
    """The copy: its digest, its octets, and whether it is what was listed before the pending changes."""

    digest: str
    octets: int
    is_previous: bool


def planned_patches(
    held: HeldState, pending: Sequence[PendingChange], objection: Objection
) -> tuple[PatchAttempt, ...]:
    """The patches that lead from the copy to the last of these changes; none: it is fetched whole.

    1. The copy is exactly a state that the changes tell of, or else the one before all of them (`is_previous`).
    2. Each change after it is an update with a hash, and has a patch of a known type within the scope.
    3. Together they are fewer octets than the resource, and no more than `MOST_STEPS`, but of a dataset.
    """
    changes = [  # lists that overlap tell one change twice
        one
        for one, later in zip(pending, (*pending[1:], None), strict=True)
        if later is None or one.at is None or one[:3] != later[:3]
    ]
    states = [n + 1 for n, one in enumerate(changes) if one.leaves((held.digest,))]
    start = states[-1] if states else 0 if held.is_previous else len(changes)
    steps = [_step(one, objection) for one in changes[start:]]
    found = [one for one in steps if one is not None]
    if not found or len(found) < len(steps):
        return ()
    of_dataset = all(is_of_dataset(one.type) for one in found)
    whole, octets = changes[-1].length, sum(one.length or 0 for one in found)
    is_stated = all(one.length is not None for one in found)
    if held.octets > LARGEST and not of_dataset:
        return ()
    if whole is not None and (octets >= whole or not (of_dataset or is_stated or len(found) == 1)):
        return ()
    is_fewer = is_stated and octets < held.octets
    if len(found) > MOST_STEPS and not (of_dataset and is_fewer and len(found) * held.octets <= _MOST_WRITTEN):
        return ()
    return (PatchAttempt(found[0], held.digest), *map(PatchAttempt, found[1:]))


def _step(change: PendingChange, objection: Objection) -> PatchStep | None:
    result = strongest_of(change.hash)
    if change.change != "updated" or result is None:
        return None
    for link in links_of(change.links, PATCH):
        is_small = format_of_patch(link.type) is not None and (link.length or 0) <= LARGEST
        if (is_of_dataset(link.type) or is_small) and not link.encoding and objection(link.href) is None:
            hash_ = str(digest) if (digest := strongest_of(link.hash)) is not None else None
            return PatchStep(link.href, link.type or "", link.length, hash_, str(result), change.length)
    return None


# their execution

MOST_WASTED_SECONDS: Final = 60.0
"""So much time of the processor patches of no use may take in a run: after that resources are fetched whole."""


class PatchResult(NamedTuple):
    """What the patches so far have made: its octets and digest, and how many octets of patches have come for it.

    It is in the temporary file of the work.
    """

    octets: int
    digest: str
    received: int


class Patching:
    """The patches of one set during one run."""

    def __init__(self, context: RunContext, tree: FileTree, temp: str) -> None:
        self._context = context
        self._tree = tree
        self._temp = temp
        self._received: dict[int, int] = {}
        self.refusal = ""
        """Why the last patch of a dataset was of no use."""

    def or_whole(self, work: Work) -> Work:
        """The work with the attempt that is made now: with no patch when too much time has gone into others."""
        if not isinstance(work.attempt, PatchAttempt) or self._context.wasted_seconds <= MOST_WASTED_SECONDS:
            return work
        self._tree.discard(f"{work.n}-patched")
        return msgspec.structs.replace(work, attempt_json=None)

    def fetch(self, work: Work, attempt: PatchAttempt, objection: Objection) -> Fetch:
        """The request for the next patch: not for more octets than the link states, or the resource has (or the copy,
        where neither is stated)."""
        step = attempt.step
        wanted = strongest_of(step.hash)
        most = LARGEST_OF_DATASET if is_of_dataset(step.type) else LARGEST
        if work.length is None and step.length is None:
            found = self._tree.stat(work.path)
            most = min(most, max(LARGEST, found.st_size if found is not None else 0))
        return Fetch(
            step.href,
            into=f"{self._temp}/{work.name}",
            holds_small=True,
            algorithms=(wanted.algorithm if wanted else "sha-256",),
            max_octets=min(one for one in (most, work.length, step.length) if one is not None),
            key=(work, wanted),
            objection=objection,
            retries=0,
        )

    def result(self, work: Work, attempt: PatchAttempt, fetched: Fetched) -> PatchResult | None:
        """What the patch makes, verified by the hash of the change that it is of; None: it is of no use.

        What is not the end is kept for the next patch.
        """
        received = self._received.pop(work.n, 0) + fetched.octets
        self.refusal = ""
        made_before = f"{work.n}-patched"  # of the patch before
        is_dataset = is_of_dataset(attempt.step.type)
        began = time.process_time()
        try:
            if self._context.wasted_seconds > MOST_WASTED_SECONDS:
                raise PatchRefused("too much time has gone into others")
            patch = self._patch(work, attempt, fetched)
            octets = (self._apply_to_dataset if is_dataset else self._apply)(work, attempt, patch, made_before)
        except (PatchRefused, OSError) as cause:
            self._context.wasted_seconds += time.process_time() - began
            self._tree.discard(work.name)
            self.refusal = str(cause) if is_dataset else ""
            return None
        finally:
            self._tree.discard(made_before)
        if len(work.attempts) > 1:
            self._received[work.n] = received
            self._tree.rename(work.name, made_before)
        return PatchResult(octets, attempt.step.result, received)

    def _patch(self, work: Work, attempt: PatchAttempt, fetched: Fetched) -> bytes:
        if not fetched.ok:
            raise PatchRefused(fetched.failure.text if fetched.failure else f"HTTP status {fetched.status}")
        body = fetched.body
        if not fetched.held:
            body = Path(self._temp, work.name).read_bytes()
            self._tree.discard(work.name)
        step = attempt.step
        if fetched.status not in (200, 203) or fetched.headers.get("content-encoding", "identity") != "identity":
            raise PatchRefused("it is not what was asked for")
        if step.length not in (None, len(body)) or (step.hash is not None and not _has(body, step.hash)):
            raise PatchRefused("it is not what its link states")
        return body

    def _apply_to_dataset(self, work: Work, attempt: PatchAttempt, patch: bytes, made_before: str) -> int:
        """Make the dataset that a patch leads to: as canonical N-Quads, which the source's has to be."""
        from headwater.rdf import BadRdf
        from headwater.rdf.unified_diff import write_patched  # takes the RDF library along

        step, target, diff = attempt.step, Path(self._temp, work.name), Path(self._temp, f"{work.name}-diff")
        try:
            diff.write_bytes(patch)
            base = Path(self._temp, made_before)
            if attempt.base is not None:
                os.close(self._tree.open(work.path))  # raises where it is no ordinary file
                base = Path(os.fsdecode(self._tree.root), os.fsdecode(work.path))
                if not _file_has(base, attempt.base):
                    raise PatchRefused("the copy is not the state before")
            made = write_patched(base, [diff], target, lambda made: _is_made(target, made.sha256, step.result))
            if made is None or step.result_length not in (None, made.octets):
                raise PatchRefused("it leads to something else")
            return made.octets
        except BadRdf as cause:
            raise PatchRefused(cause.what) from cause
        finally:
            diff.unlink(missing_ok=True)

    def _apply(self, work: Work, attempt: PatchAttempt, patch: bytes, made_before: str) -> int:
        """Make the content that a patch leads to, from the copy, or from what the patch before has made."""
        tree, step = self._tree, attempt.step
        opened = tree.open_temporary(made_before) if attempt.base is None else tree.open(work.path)
        with os.fdopen(opened, "rb") as file:
            base = file.read(LARGEST + 1)
        if len(base) > LARGEST or (attempt.base is not None and not _has(base, attempt.base)):
            raise PatchRefused("the copy is not the state before")
        if format_of_patch(step.type) is not JSON:
            raise PatchRefused("it is of an unknown type")
        from headwater.patches import json_patch  # imported where it is used: most runs meet no patch

        content = json_patch.apply(base, patch)
        if not _has(content, step.result) or step.result_length not in (None, len(content)):
            raise PatchRefused("it leads to something else")
        return tree.write(work.name, content, None)[0]


def _is_made(path: Path, sha256: str, digest: str) -> bool:
    """Whether a file has a digest: by its SHA-256 as it was written, and read again for another algorithm alone."""
    return digest == f"sha-256:{sha256}" if digest.startswith("sha-256:") else _file_has(path, digest)


def _file_has(path: Path, digest: str) -> bool:
    algorithm, _, wanted = digest.partition(":")
    with path.open("rb") as file:
        return hashlib.file_digest(file, HASHERS[algorithm]).hexdigest() == wanted


def _has(octets: bytes, digest: str) -> bool:
    algorithm, _, wanted = digest.partition(":")
    return bool(HASHERS[algorithm](octets).hexdigest() == wanted)
