"""The difference of two canonical files as N-Quads Unified Diff: removals, then additions, each sorted (NQUD-A4).

Both files are read side by side. That they are canonical and in order is checked on the way, of the lines of the new
file that stand in the old one too by comparing octets.
"""

from __future__ import annotations

import shutil
import tempfile
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import chain
from operator import lt
from pathlib import Path
from typing import BinaryIO, NamedTuple

from headwater.rdf.canonical import NO_BLANK_NODES, BlankNodes, DatasetSummary, RdfOptions, write_canonical
from headwater.rdf.faults import BOUNDS, BadRdf, BlankNodesRefused, NotCanonical, RdfBounds
from headwater.rdf.statements import canonical_and_blanks, line_blocks, octets, refuse_blanks
from headwater.rdf.syntaxes import N_QUADS, RdfInput

_PIECE = 1 << 20


@dataclass(frozen=True, slots=True)
class PatchSummary:
    """How many statements a patch removes and adds."""

    removed: int
    added: int


def write_patch(
    old: Path,
    new: Path,
    target: BinaryIO,
    *,
    blanks: bool = True,
    are_canonical: bool = False,
    bounds: RdfBounds = BOUNDS,
) -> PatchSummary:
    """Write what makes the dataset `old` the dataset `new`.

    Both are canonical N-Quads, sorted and without repetitions; else NotCanonical is raised, unless the caller knows
    that they `are_canonical`. Without `blanks` blank nodes raise BlankNodesRefused, else their labels count. Something
    may have been written to `target` then. Additions wait in a temporary file.
    """
    removed = added = 0
    if are_canonical:
        before = _ordered_blocks(old, bounds, is_known=True)
    else:
        before = sorted_blocks(old, bounds, blanks=blanks)
    after = _ordered_blocks(new, bounds, is_known=are_canonical)
    with tempfile.SpooledTemporaryFile(_PIECE * 16) as additions:
        for had, has in _aligned(map(_lines, before), map(_lines, after)):
            if had == has:
                continue
            less, more = _apart(had, has)
            if not are_canonical and not _is_canonical(b"".join(more), blanks=blanks):  # the others are in the old file
                _tell_fault(new, bounds, blanks=blanks)
            target.write(_signed(b"-", less))
            additions.write(_signed(b"+", more))
            removed += len(less)
            added += len(more)
        additions.seek(0)
        shutil.copyfileobj(additions, target, _PIECE)
    return PatchSummary(removed, added)


def _lines(block: bytes) -> list[bytes]:
    return block.splitlines(keepends=True)


def _aligned(old: Iterator[list[bytes]], new: Iterator[list[bytes]]) -> Iterator[tuple[list[bytes], list[bytes]]]:
    """The sorted lines of two files, cut at the same lines."""
    before: list[bytes] = []
    after: list[bytes] = []
    while (before := before or next(old, [])) and (after := after or next(new, [])):
        last = min(before[-1], after[-1])
        to_old, to_new = bisect_right(before, last), bisect_right(after, last)
        yield before[:to_old], after[:to_new]
        before, after = before[to_old:], after[to_new:]
    yield from ((lines, []) for lines in chain([before], old))
    yield from (([], lines) for lines in chain([after], new))


def _apart(before: list[bytes], after: list[bytes]) -> tuple[list[bytes], list[bytes]]:
    """The lines that the one list alone has, and those that the other has, in order."""
    held = set(before)
    more = [line for line in after if line not in held]
    if len(after) - len(more) == len(before):
        return [], more
    held.difference_update(after)
    return sorted(held), more


def _signed(sign: bytes, lines: list[bytes]) -> bytes:
    """Lines of a patch with this sign."""
    return sign + sign.join(lines) if lines else b""


def _is_canonical(lines: bytes, *, blanks: bool) -> bool:
    try:
        canonical, found = canonical_and_blanks(lines, 1, "")
    except BadRdf:
        return False
    return canonical == lines and (blanks or not found)


def _tell_fault(path: Path, bounds: RdfBounds, *, blanks: bool) -> None:
    """Raise what is wrong with a file, with the number of the line."""
    for _block in sorted_blocks(path, bounds, blanks=blanks):
        pass
    raise NotCanonical("the file changes while it is read", where=str(path))


def sorted_blocks(path: Path, bounds: RdfBounds = BOUNDS, *, blanks: bool = True) -> Iterator[bytes]:
    """The lines of a canonical file, each with its LF, in blocks. Raises NotCanonical, BadRdf."""
    number = 1
    for block in _ordered_blocks(path, bounds):
        canonical, found = canonical_and_blanks(block, number, str(path))
        if canonical != block:
            raise NotCanonical("the file is not canonical N-Quads", where=str(path))
        if found and not blanks:
            refuse_blanks(block, str(path), number)
        yield block
        number += block.count(b"\n")


def _ordered_blocks(path: Path, bounds: RdfBounds, *, is_known: bool = False) -> Iterator[bytes]:
    """The same where each line is after the one before it; unless that `is_known`, NotCanonical is raised else."""
    where, end = str(path), b"\n"

    def noted(pieces: Iterator[bytes]) -> Iterator[bytes]:
        nonlocal end
        for piece in pieces:
            end = piece[-1:]
            yield piece

    last, number = b"", 1
    with path.open("rb") as file:
        for block in line_blocks(noted(octets(file, where, bounds)), where, bounds):
            if not is_known:
                lines = [last, *block.splitlines(keepends=True)]
                if not all(map(lt, lines, lines[1:])):
                    raise _disorder(lines, number - 1, where)
                last = lines[-1]
                number += len(lines) - 1
            yield block
    if end != b"\n":
        raise NotCanonical("the last line does not end", where=where)


def _disorder(lines: list[bytes], number: int, where: str) -> NotCanonical:
    """Which line is not after the one before it; the first has this number."""
    at = next(index for index in range(1, len(lines)) if lines[index] <= lines[index - 1])
    is_twice = lines[at] == lines[at - 1]
    what = "the statement stands there twice" if is_twice else "the statement is not in its order"
    return NotCanonical(what, where=where, line=number + at)


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
