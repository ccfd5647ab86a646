"""Patches on their way (DST-S1): asked for, verified, applied to the copy or to what the patch before has made.

Nothing is believed but the hash that the list states of the result. Whatever else comes of a patch, the resource is
fetched whole.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Final, NamedTuple

from headwater.files.hashing import HASHERS
from headwater.patches import LARGEST, PatchRefused, format_of_patch, is_of_dataset
from headwater.sync.copy.file_tree import FileTree
from headwater.sync.transfer.verification import strongest_of
from headwater.sync.transfer.work_queue import PatchAttempt, Work
from headwater.transport.fetch import Objection
from headwater.transport.transport import Fetch, Fetched

LARGEST_OF_DATASET: Final = 256 << 20
"""Octets of a patch of an RDF dataset."""

_MOST_FAULTS: Final = 20
"""When so many patches were of no use, and more than were, no more are asked for in this run."""


class PatchResult(NamedTuple):
    """What the patches so far have made: its octets and digest, and how many octets of patches have come for it.

    It is in the temporary file of the work.
    """

    octets: int
    digest: str
    received: int


class Patching:
    """The patches of one set during one run."""

    def __init__(self, tree: FileTree, temp: str) -> None:
        self._tree = tree
        self._temp = temp
        self._received: dict[int, int] = {}
        self.refusal = ""
        """Why the last patch of a dataset was of no use."""

        self._faults = self._worked = 0

    @property
    def is_distrusted(self) -> bool:
        """Whether the patches of this source have turned out to be of no use."""
        return self._faults >= max(_MOST_FAULTS, self._worked)

    def fetch(self, work: Work, attempt: PatchAttempt, objection: Objection) -> Fetch:
        """The request for the next patch: not for more octets than the link states, or the resource has (or the copy,
        where neither is stated)."""
        step = attempt.step
        wanted = strongest_of(step.hash)
        most = LARGEST_OF_DATASET if is_of_dataset(step.type) else LARGEST
        if work.length is None and step.length is None:
            found = self._tree.stat(work.path)
            most = min(most, max(LARGEST, found.st_size if found is not None else 0))
        bounds = (most, work.length, step.length)
        return Fetch(
            step.href,
            into=f"{self._temp}/{work.name}",
            holds_small=True,
            algorithms=(wanted.algorithm if wanted else "sha-256",),
            max_octets=min(one for one in bounds if one is not None),
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
        made_before = self._made_before(work)
        try:
            patch = self._patch(work, attempt, fetched)
            apply = self._apply_to_dataset if is_of_dataset(attempt.step.type) else self._apply
            octets = apply(work, attempt, patch)
        except (PatchRefused, OSError) as cause:
            self._tree.discard(work.name)
            self._faults += 1
            self.refusal = str(cause) if is_of_dataset(attempt.step.type) else ""
            return None
        finally:
            self._tree.discard(made_before)
        is_last = len(work.attempts) == 1
        if not is_last:
            self._received[work.n] = received
            self._tree.rename(work.name, made_before)
        self._worked += is_last
        return PatchResult(octets, attempt.step.result, received)

    def _apply_to_dataset(self, work: Work, attempt: PatchAttempt, patch: bytes) -> int:
        """Make the dataset that a patch leads to: as canonical N-Quads, which the source's has to be."""
        from headwater.rdf import BadRdf
        from headwater.rdf.unified_diff import write_patched  # takes the RDF library along

        diff = Path(self._temp, f"{work.name}-diff")
        try:
            diff.write_bytes(patch)
            if attempt.base is None:
                base = Path(self._temp, self._made_before(work))
            else:
                os.close(self._tree.open(work.path))  # raises where it is no ordinary file
                base = Path(os.fsdecode(self._tree.root), os.fsdecode(work.path))
                if not _file_has(base, attempt.base):
                    raise PatchRefused("the copy is not the state before")
            step, target = attempt.step, Path(self._temp, work.name)
            is_usual = step.result.startswith("sha-256:")
            made = write_patched(
                base, diff, target,
                lambda one: step.result == f"sha-256:{one.sha256}" if is_usual else _file_has(target, step.result),
            )  # fmt: skip
            if made is None or step.result_length not in (None, made.octets):
                raise PatchRefused("it leads to something else")
            return made.octets
        except BadRdf as cause:
            raise PatchRefused(cause.what) from cause
        finally:
            diff.unlink(missing_ok=True)

    def _apply(self, work: Work, attempt: PatchAttempt, patch: bytes) -> int:
        """Make the content that a patch leads to, from the copy, or from what the patch before has made."""
        tree = self._tree
        opened = tree.open_temporary(self._made_before(work)) if attempt.base is None else tree.open(work.path)
        with os.fdopen(opened, "rb") as file:
            base = file.read(LARGEST + 1)
        if len(base) > LARGEST or (attempt.base is not None and not _has(base, attempt.base)):
            raise PatchRefused("the copy is not the state before")
        kind, step = format_of_patch(attempt.step.type), attempt.step
        if kind is None:
            raise PatchRefused("it is of an unknown type")
        content = kind.apply(base, patch)
        if not _has(content, step.result) or step.result_length not in (None, len(content)):
            raise PatchRefused("it leads to something else")
        return tree.write(work.name, content, None)[0]

    def _patch(self, work: Work, attempt: PatchAttempt, fetched: Fetched) -> bytes:
        """The octets of the patch, if they are what its link states."""
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

    def _made_before(self, work: Work) -> str:
        """The temporary file of what the patch before has made."""
        return f"{work.n}-patched"


def _file_has(path: Path, digest: str) -> bool:
    algorithm, _, wanted = digest.partition(":")
    with path.open("rb") as file:
        return hashlib.file_digest(file, HASHERS[algorithm]).hexdigest() == wanted


def _has(octets: bytes, digest: str) -> bool:
    algorithm, _, wanted = digest.partition(":")
    return bool(HASHERS[algorithm](octets).hexdigest() == wanted)
