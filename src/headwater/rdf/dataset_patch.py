"""The difference of two datasets in whatever form: what is not canonical is made so, and then compared."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import BinaryIO

from headwater.rdf.canonical import BlankNodes, DatasetRuns
from headwater.rdf.differences import PatchSummary, signed, write_patch
from headwater.rdf.faults import BOUNDS, BlankNodesRefused, NotCanonical, RdfBounds
from headwater.rdf.lines.runs import differing
from headwater.rdf.syntaxes import N_QUADS, RdfInput

_PIECE = 1 << 20


def write_dataset_patch(
    datasets: tuple[RdfInput, RdfInput],
    target: BinaryIO,
    *,
    scratch: Path,
    blank_nodes: BlankNodes = BlankNodes.REFUSED,
    genid: str | None = None,
    bounds: RdfBounds = BOUNDS,
) -> PatchSummary:
    """Write what makes the first dataset the second. `target` is a file that can be cut.

    Labels of RDFC-1.0 are refused, since they are other ones after a change. Raises BadRdf.
    """
    if blank_nodes is BlankNodes.CANONICAL:
        blank_nodes = BlankNodes.REFUSED
    old, new = datasets
    if old.syntax is N_QUADS and new.syntax is N_QUADS:
        try:
            return write_patch(old.path, new.path, target, blanks=blank_nodes is BlankNodes.KEPT, bounds=bounds)
        except NotCanonical:
            pass
        except BlankNodesRefused:
            if blank_nodes is not BlankNodes.REPLACED:
                raise
        target.seek(0)
        target.truncate()
    with tempfile.TemporaryDirectory(prefix="rdf-", dir=scratch) as folder:
        runs = []
        for number, one in enumerate(datasets):
            place = Path(folder) / str(number)
            place.mkdir()
            runs.append(DatasetRuns(place, bounds, blank_nodes, genid).made_of([one]))
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
