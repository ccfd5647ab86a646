"""The patch between two datasets in whatever form: what is not canonical is made so first, then files are compared."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO, NamedTuple

from headwater.rdf.canonical import NO_BLANK_NODES, BlankNodes, DatasetSummary, RdfOptions, write_canonical
from headwater.rdf.differences import PatchSummary, write_patch
from headwater.rdf.faults import BlankNodesRefused, NotCanonical
from headwater.rdf.syntaxes import N_QUADS, RdfInput


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
    old, new = datasets
    if old.syntax is N_QUADS and new.syntax is N_QUADS:
        try:
            keeps = options.blank_nodes is BlankNodes.KEPT
            return write_patch(old.path, new.path, target, blanks=keeps, bounds=options.bounds)
        except NotCanonical:
            pass
        except BlankNodesRefused:
            if options.blank_nodes is not BlankNodes.REPLACED:
                raise
        target.seek(0)
        target.truncate()
    with tempfile.TemporaryDirectory(prefix="rdf-", dir=scratch) as folder:
        paths = (Path(folder, "old"), Path(folder, "new"))
        for one, path in zip(datasets, paths, strict=True):
            write_canonical([one], path, scratch=Path(folder), options=options, durable=False)
        return write_patch(*paths, target, are_canonical=True, bounds=options.bounds)


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
    """Write the union of files as `write_canonical` does, then the patch from the state before as `write_patch` does.

    Raises BadRdf and its kinds.
    """
    dataset = write_canonical(inputs, target, scratch=scratch, options=options)
    with base.patch.open("wb") as patch:
        return UpdateSummary(
            dataset, write_patch(base.dataset, target, patch, are_canonical=True, bounds=options.bounds)
        )
