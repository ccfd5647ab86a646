"""Patches of RDF datasets applied from file to file, and verified by the hash that the list states of the result.

What is believed is that hash alone. So the file is first taken for what it usually is, sorted canonical N-Quads: blocks
that a patch does not touch are copied as they are. Where that does not give the hash, every line is looked at.
"""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Final

from headwater.files.hashing import HASHERS
from headwater.patches.registry import PatchRefused
from headwater.rdf.canonical import DatasetSummary, write_blocks
from headwater.rdf.faults import BOUNDS, BadRdf, RdfBounds
from headwater.rdf.statements import is_plain, octets
from headwater.rdf.unified_diff import EffectCounts, PatchSteps, apply_patches, patched_blocks, plain_blocks

_PIECE: Final = 1 << 20
_MOST_GROWTH: Final = 64
"""A patch in gzip is inflated to so many times its octets at most,"""
_GROWS_FREELY: Final = 64 << 20
"""and to so many octets whatever it has: N-Quads of a dataset grow ten to forty times."""


def _bounds_of(patch: Path) -> RdfBounds:
    """The bounds on a patch: each line of what is inflated without end would be sorted."""
    if is_plain(patch):
        return BOUNDS
    return replace(BOUNDS, octets=max(_GROWS_FREELY, _MOST_GROWTH * patch.stat().st_size))


def check_growth(patch: Path) -> None:
    """Raises RdfTooCostly where a patch in gzip is inflated beyond all measure. For one that is read with others, and
    so with bounds that are not its own."""
    bounds = _bounds_of(patch)
    if bounds is not BOUNDS:
        with patch.open("rb") as file:
            for _piece in octets(file, "the patch", bounds):
                pass


def check_base(base: Path, digest: str) -> None:
    """Raises PatchRefused where a file is not the state before."""
    if not _has(base, digest):
        raise PatchRefused("the copy is not the state before")


def applied_to_file(base: Path, patch: Path, target: Path, result: str, result_length: int | None) -> int:
    """Write what a patch makes of a dataset, which is to have the digest `result`; how many octets it has.

    Raises PatchRefused, whose text has the line.
    """
    try:
        length = _applied(base, patch, target, result)
    except BadRdf as cause:
        raise PatchRefused(cause.what) from cause
    if length is None or result_length not in (None, length):
        raise PatchRefused("it leads to something else")
    return length


def _applied(base: Path, patch: Path, target: Path, result: str) -> int | None:
    """The octets of a file with this digest; None where the patch does not lead to it. Raises BadRdf."""
    with (
        tempfile.TemporaryDirectory(prefix="rdf-", dir=target.parent) as scratch,
        closing(PatchSteps(Path(scratch), _bounds_of(patch))) as steps,
    ):
        steps.add(patch, strict=True)
        made = _merged(base, steps.statements(), target)
    if not _is_made(made, target, result):
        made = apply_patches(base, [patch], target, scratch=target.parent, strict=True).dataset
    return made.octets if _is_made(made, target, result) else None


def _is_made(made: DatasetSummary, target: Path, result: str) -> bool:
    """Whether a file that was just written has this digest."""
    is_known = result.startswith("sha-256:")
    return result == f"sha-256:{made.sha256}" if is_known else _has(target, result)


def _merged(base: Path, steps: Iterator[tuple[bytes, bytes]], target: Path) -> DatasetSummary:
    """Write what steps, in order, make of a file of sorted lines. Of no use where the lines are not so."""
    with base.open("rb", buffering=_PIECE) as old:
        return write_blocks(patched_blocks(plain_blocks(old), steps, EffectCounts()), target)


def _has(path: Path, digest: str) -> bool:
    algorithm, _, wanted = digest.partition(":")
    with path.open("rb") as file:
        return hashlib.file_digest(file, HASHERS[algorithm]).hexdigest() == wanted
