"""Patches of RDF datasets applied from file to file, and verified by the hash that the list states of the result.

What is believed is that hash alone. So the file is first taken for what it usually is, sorted canonical N-Quads: blocks
that a patch does not touch are copied as they are. Where that does not give the hash, every line is looked at.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from bisect import bisect_left
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Final

from headwater.files.hashing import HASHERS
from headwater.patches.registry import PatchRefused
from headwater.rdf.applying import PatchSteps, apply_patches
from headwater.rdf.faults import BOUNDS, BadRdf, RdfBounds
from headwater.rdf.statements import is_plain, octets

_BLOCK: Final = 1 << 14
_PIECE: Final = 1 << 20
_MOST_BETWEEN: Final = 1 << 20
"""Octets that are added between two lines before they are written."""
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
        sha256 = _merged(base, steps.statements(), target)
    if result == f"sha-256:{sha256}" or (not result.startswith("sha-256:") and _has(target, result)):
        return target.stat().st_size
    target.unlink()
    made = apply_patches(base, [patch], target, scratch=target.parent, strict=True).dataset
    return made.octets if result == f"sha-256:{made.sha256}" or _has(target, result) else None


def _merged(base: Path, steps: Iterator[tuple[bytes, bytes]], target: Path) -> str:
    """Write what steps, in order, make of a file of sorted lines; its SHA-256. Of no use where the lines are not so."""
    digest = hashlib.sha256()
    step = next(steps, None)
    with base.open("rb", buffering=_PIECE) as old, target.open("wb", buffering=_PIECE) as new:
        while block := old.read(_BLOCK):
            block += old.readline(BOUNDS.line_octets)
            if step is not None and step[0] <= block[block.rfind(b"\n", 0, -1) + 1 :]:
                lines = block.splitlines(keepends=True)
                last, grown = lines[-1], 0
                while step is not None and step[0] <= last:
                    grown += len(step[0])
                    if grown > _MOST_BETWEEN:  # many statements come between two
                        place = bisect_left(lines, step[0])
                        before = b"".join(lines[:place])
                        digest.update(before)
                        new.write(before)
                        del lines[:place]
                        grown = 0
                    _apply_step(lines, *step)
                    step = next(steps, None)
                block = b"".join(lines)
            digest.update(block)
            new.write(block)
        while step is not None:
            if step[1].endswith(b"+"):
                digest.update(step[0])
                new.write(step[0])
            step = next(steps, None)
        new.flush()
        os.fsync(new.fileno())
    return digest.hexdigest()


def _apply_step(lines: list[bytes], statement: bytes, signs: bytes) -> None:
    """Have a statement among sorted lines or not, as its last sign says (NQUD-A4)."""
    place = bisect_left(lines, statement)
    is_there = lines[place : place + 1] == [statement]
    if signs.endswith(b"+") and not is_there:
        lines.insert(place, statement)
    elif signs.endswith(b"-") and is_there:
        del lines[place]


def _has(path: Path, digest: str) -> bool:
    algorithm, _, wanted = digest.partition(":")
    with path.open("rb") as file:
        return hashlib.file_digest(file, HASHERS[algorithm]).hexdigest() == wanted
