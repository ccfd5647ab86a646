"""The difference of two canonical files as N-Quads Unified Diff: removals, then additions, each sorted (NQUD-A4)."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from headwater.rdf.faults import BOUNDS, NotCanonical, RdfBounds
from headwater.rdf.lines.reading import line_blocks, octets
from headwater.rdf.lines.statements import canonical_block, refuse_blanks

_PIECE = 1 << 20


@dataclass(frozen=True, slots=True)
class PatchSummary:
    """How many statements a patch removes and adds."""

    removed: int
    added: int


def write_patch(
    old: Path, new: Path, target: BinaryIO, *, blanks: bool = True, bounds: RdfBounds = BOUNDS
) -> PatchSummary:
    """Write what makes the dataset `old` the dataset `new`.

    Both are canonical N-Quads, sorted and without repetitions; else NotCanonical is raised. Without `blanks` blank
    nodes raise BlankNodesRefused, else their labels count. Something may have been written to `target` then. Additions
    wait in a temporary file.
    """
    removed = added = 0
    with tempfile.SpooledTemporaryFile(_PIECE * 16) as additions:
        for sign, line in _differing(
            sorted_lines(old, bounds, blanks=blanks), sorted_lines(new, bounds, blanks=blanks)
        ):
            if sign == b"-":
                target.write(b"-" + line)
                removed += 1
            else:
                additions.write(b"+" + line)
                added += 1
        additions.seek(0)
        while piece := additions.read(_PIECE):
            target.write(piece)
    return PatchSummary(removed, added)


def _differing(old: Iterator[bytes], new: Iterator[bytes]) -> Iterator[tuple[bytes, bytes]]:
    before, after = next(old, None), next(new, None)
    while before is not None or after is not None:
        if before == after:
            before, after = next(old, None), next(new, None)
        elif after is None or (before is not None and before < after):
            assert before is not None
            yield b"-", before
            before = next(old, None)
        else:
            yield b"+", after
            after = next(new, None)


def sorted_lines(path: Path, bounds: RdfBounds = BOUNDS, *, blanks: bool = True) -> Iterator[bytes]:
    """The lines of a canonical file, each with its LF. Raises NotCanonical, BadRdf."""
    where = str(path)
    last, number = b"", 1
    with path.open("rb") as file:
        for block in line_blocks(octets(file, where, bounds), where, bounds):
            if canonical_block(block, number, where) != block:
                raise NotCanonical("the file is not canonical N-Quads", where=where)
            if not blanks:
                refuse_blanks(block, where, number)
            for text in block.split(b"\n")[:-1]:
                line = text + b"\n"
                if line <= last:
                    what = "the statement stands there twice" if line == last else "the statement is not in its order"
                    raise NotCanonical(what, where=where, line=number)
                yield line
                last = line
                number += 1
