"""The inverse of a patch, and one patch for several: both canonical, in bounded memory.

The inverse undoes a patch that was applied to a dataset on which each of its lines had an effect, as `write_patch`
makes them. What is composed has the effect of its parts one after the other, on any dataset.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import BinaryIO

from headwater.rdf.applying import PatchSteps
from headwater.rdf.differences import PatchSummary
from headwater.rdf.faults import BOUNDS, RdfBounds

_PIECE = 1 << 20


def write_inverse(
    patch: Path, target: BinaryIO, *, scratch: Path, strict: bool, bounds: RdfBounds = BOUNDS
) -> PatchSummary:
    """Write the patch that undoes `patch`: what it adds last is removed, what it removes last is added."""
    return _write([patch], target, scratch, strict=strict, bounds=bounds, inverse=True)


def write_composed(
    patches: Sequence[Path], target: BinaryIO, *, scratch: Path, strict: bool, bounds: RdfBounds = BOUNDS
) -> PatchSummary:
    """Write one patch that has the effect of all, one after the other: the last sign of a statement wins (NQUD-A4)."""
    return _write(patches, target, scratch, strict=strict, bounds=bounds, inverse=False)


def _write(
    patches: Sequence[Path], target: BinaryIO, scratch: Path, *, strict: bool, bounds: RdfBounds, inverse: bool
) -> PatchSummary:
    removed = added = 0
    with (
        tempfile.TemporaryDirectory(prefix="rdf-", dir=scratch) as folder,
        tempfile.SpooledTemporaryFile(_PIECE, dir=folder) as additions,
        closing(PatchSteps(Path(folder), bounds)) as steps,
    ):
        for path in patches:
            steps.add(path, strict=strict)
        for statement, signs in steps.statements():
            if signs.endswith(b"+") is not inverse:
                additions.write(b"+" + statement)
                added += 1
            else:
                target.write(b"-" + statement)
                removed += 1
        additions.seek(0)
        while piece := additions.read(_PIECE):
            target.write(piece)
    return PatchSummary(removed, added)
