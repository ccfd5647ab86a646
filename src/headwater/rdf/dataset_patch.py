"""The difference of two datasets in whatever form: what is not canonical is made so, and then compared."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import BinaryIO

from headwater.rdf.canonical import BlankNodes, RdfInput, write_canonical
from headwater.rdf.differences import PatchSummary, write_patch
from headwater.rdf.faults import BOUNDS, BlankNodesRefused, NotCanonical, RdfBounds


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
    with tempfile.TemporaryDirectory(prefix="rdf-", dir=scratch) as folder:
        paths = [one.path if one.syntax.is_lines else None for one in datasets]
        while True:
            for number, one in enumerate(datasets):
                if paths[number] is None:
                    paths[number] = made = Path(folder) / str(number)
                    write_canonical(
                        [one], made, scratch=Path(folder), blank_nodes=blank_nodes, genid=genid, bounds=bounds
                    )
            old, new = paths
            assert old is not None
            assert new is not None
            try:
                return write_patch(old, new, target, blanks=blank_nodes is BlankNodes.KEPT, bounds=bounds)
            except (NotCanonical, BlankNodesRefused) as error:
                if isinstance(error, BlankNodesRefused) and blank_nodes is not BlankNodes.REPLACED:
                    raise
                target.seek(0)
                target.truncate()
                paths = [None if str(path) == error.where else path for path in paths]
