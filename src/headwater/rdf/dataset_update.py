"""A dataset in whatever form made canonical, and the patch to it from the state before: in one pass over both."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from headwater.rdf.canonical import NO_BLANK_NODES, DatasetRuns, DatasetSummary, RdfOptions, write_blocks
from headwater.rdf.differences import PatchSummary, signed
from headwater.rdf.lines.runs import MergedBlock, merged_beside
from headwater.rdf.syntaxes import RdfInput

_PIECE = 1 << 20


class DatasetBase(NamedTuple):
    """The state before, a canonical file that is known to be one, and where the patch from it is to lie."""

    dataset: Path
    patch: Path


class UpdateSummary(NamedTuple):
    """What was written."""

    dataset: DatasetSummary
    patch: PatchSummary


def write_update(
    inputs: Iterable[RdfInput],
    target: Path,
    base: DatasetBase,
    *,
    scratch: Path,
    options: RdfOptions = NO_BLANK_NODES,
) -> UpdateSummary:
    """Write the union of files as `write_canonical` does, and the patch from the state before as `write_patch` does.

    Raises BadRdf and its kinds; something may have been written to the patch then.
    """
    with (
        tempfile.TemporaryDirectory(prefix="rdf-", dir=scratch) as folder,
        base.patch.open("wb") as patch,
        tempfile.SpooledTemporaryFile(_PIECE * 16, dir=folder) as additions,
    ):
        removed = added = 0

        def blocks(merged: Iterator[MergedBlock]) -> Iterator[tuple[int, bytes]]:
            nonlocal removed, added
            for one in merged:
                patch.write(signed(b"-", one.gone))
                additions.write(signed(b"+", one.fresh))
                removed += len(one.gone)
                added += len(one.fresh)
                yield one.lines, one.octets

        runs = DatasetRuns(Path(folder), options).made_of(inputs)
        dataset = write_blocks(blocks(merged_beside(runs, base.dataset, options.bounds)), target)
        additions.seek(0)
        shutil.copyfileobj(additions, patch, _PIECE)
    return UpdateSummary(dataset, PatchSummary(removed, added))
