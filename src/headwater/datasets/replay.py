"""The replay of a dataset: all of its patches, executed in series on nothing, each checked by its digest (TIM-08)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from headwater.datasets.dataset_folder import DatasetFolder
from headwater.datasets.faults import BrokenSeries
from headwater.datasets.rows import DatasetPatch
from headwater.rdf.applying import apply_patches
from headwater.rdf.canonical import DatasetSummary


class Replay(msgspec.Struct, frozen=True):
    """What patches have made: a file of canonical N-Quads."""

    path: Path
    summary: DatasetSummary


def replayed(folder: DatasetFolder, patches: Sequence[DatasetPatch], scratch: Path) -> Replay:
    """Execute the patches, in `scratch`. Raises BrokenSeries where one is lost or damaged, or a line has no effect."""
    paths = []
    for one in patches:
        folder.check(folder.patch_of(one), one.sha256, one.octets)
        paths.append(folder.patch_of(one))
    target = scratch / "replay.nq"
    applied = apply_patches(None, paths, target, scratch=scratch, strict=True)
    if applied.already_there or applied.not_there:
        count = applied.already_there + applied.not_there
        raise BrokenSeries(f"{count:,} lines of the patches have no effect", where=str(folder.path))
    return Replay(target, applied.dataset)
