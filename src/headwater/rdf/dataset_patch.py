"""The difference of two datasets in whatever form: what is not canonical is made so, and then compared."""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO

from headwater.rdf.canonical import NO_BLANK_NODES, BlankNodes, DatasetRuns, RdfOptions
from headwater.rdf.differences import PatchSummary, signed, write_patch
from headwater.rdf.faults import BlankNodesRefused, NotCanonical
from headwater.rdf.lines.runs import differing
from headwater.rdf.syntaxes import N_QUADS, RdfInput

_PIECE = 1 << 20


def write_dataset_patch(
    datasets: tuple[RdfInput, RdfInput],
    target: BinaryIO,
    *,
    scratch: Path,
    options: RdfOptions = NO_BLANK_NODES,
) -> PatchSummary:
    """Write what makes the first dataset the second. `target` is a file that can be cut.

    Labels of RDFC-1.0 are refused, since they are other ones after a change. Raises BadRdf.
    """
    if options.blank_nodes is BlankNodes.CANONICAL:
        options = replace(options, blank_nodes=BlankNodes.REFUSED)
    bounds = options.bounds
    old, new = datasets
    if old.syntax is N_QUADS and new.syntax is N_QUADS:
        try:
            keeps = options.blank_nodes is BlankNodes.KEPT
            return write_patch(old.path, new.path, target, blanks=keeps, bounds=bounds)
        except NotCanonical:
            pass
        except BlankNodesRefused:
            if options.blank_nodes is not BlankNodes.REPLACED:
                raise
        target.seek(0)
        target.truncate()
    with tempfile.TemporaryDirectory(prefix="rdf-", dir=scratch) as folder:
        runs = []
        for number, one in enumerate(datasets):
            place = Path(folder) / str(number)
            place.mkdir()
            runs.append(DatasetRuns(place, options).made_of([one]))
        removed = added = 0
        with tempfile.SpooledTemporaryFile(_PIECE * 16, dir=folder) as additions:
            for less, more in differing(runs[0], runs[1], bounds):
                target.write(signed(b"-", less))
                additions.write(signed(b"+", more))
                removed += len(less)
                added += len(more)
            additions.seek(0)
            shutil.copyfileobj(additions, target, _PIECE)
    return PatchSummary(removed, added)
