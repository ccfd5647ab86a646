"""Patches applied to a dataset in a file, inverted, and composed to one: sorted, in bounded memory (NQUD-A5, NQUD-A14).

Of patches that are applied, all are or none is. The inverse undoes a patch that was applied to a dataset on which each
of its lines had an effect, as `write_patch` makes them. What is composed has the effect of its parts one after the
other, on any dataset.
"""

from __future__ import annotations

import tempfile
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import chain, groupby
from pathlib import Path
from typing import BinaryIO

from headwater.rdf.canonical import LABELS_KEPT, BlankNodes, DatasetSummary, RdfOptions, write_blocks, write_canonical
from headwater.rdf.differences import PatchSummary, sorted_blocks
from headwater.rdf.faults import BOUNDS, NotCanonical, RdfBounds
from headwater.rdf.patch_lines import read_patch
from headwater.rdf.sorting import LineSorter
from headwater.rdf.statements import refuse_blanks
from headwater.rdf.syntaxes import N_QUADS, RdfInput

_LINES = 1_000
_OCTETS = 1 << 20
_BLOCK = 1 << 14


@dataclass(frozen=True, slots=True)
class AppliedSummary:
    """What patches did: statements added and removed, additions of what was there, removals of what was not, malformed
    lines that were skipped; and the dataset that came of it. A statement that is added and removed again counts twice.
    """

    added: int
    removed: int
    already_there: int
    not_there: int
    skipped: int
    dataset: DatasetSummary


class EffectCounts:
    """Counts what lines of patches have done, or would have done if the dataset were another."""

    def __init__(self) -> None:
        self.added = self.removed = self.already_there = self.not_there = 0

    def apply(self, signs: bytes, *, there: bool) -> bool:
        """Whether a statement is there after what the patches say of it, one after the other."""
        for sign in signs:
            if sign == 43:  # a plus
                self.already_there += there
                self.added += not there
                there = True
            else:
                self.not_there += not there
                self.removed += there
                there = False
        return there


def apply_patches(
    base: Path | None,
    patches: Sequence[Path],
    target: Path,
    *,
    scratch: Path,
    strict: bool,
    options: RdfOptions = LABELS_KEPT,
) -> AppliedSummary:
    """Write at `target` what patches, one after the other, make of the dataset `base` (None: of nothing).

    `base` is N-Quads, in any order; labels of blank nodes are those of the base and of all patches (NQUD-A6): where
    they are not KEPT, BlankNodesRefused is raised. `target` gets canonical N-Quads, sorted, and is replaced as a whole
    or not touched; it may be `base`. What has no effect is counted. Raises BadRdf, BadRdfPatch.
    """
    with tempfile.TemporaryDirectory(prefix="rdf-", dir=scratch) as name:
        folder, bounds = Path(name), options.bounds
        blanks = options.blank_nodes is BlankNodes.KEPT

        def made(start: Path | None) -> AppliedSummary:
            counts = EffectCounts()
            with closing(PatchSteps(folder, bounds)) as steps:
                for path in patches:
                    steps.add(path, strict=strict, blanks=blanks)
                blocks = iter(()) if start is None else sorted_blocks(start, bounds, blanks=blanks)
                dataset = write_blocks(patched_blocks(blocks, steps.statements(), counts), target)
            return AppliedSummary(
                counts.added, counts.removed, counts.already_there, counts.not_there, steps.skipped, dataset
            )

        try:
            return made(base)
        except NotCanonical:
            assert base is not None
            inputs = [RdfInput(base, N_QUADS)]
            write_canonical(
                inputs,
                folder / "base",
                scratch=folder,
                durable=False,
                options=replace(options, blank_nodes=BlankNodes.KEPT),
            )
            return made(folder / "base")


class PatchSteps:
    """What patches say of each statement, in their order: sorted by statement, in bounded memory."""

    def __init__(self, scratch: Path, bounds: RdfBounds = BOUNDS) -> None:
        self._sorter = LineSorter(scratch, bounds)
        self._bounds = bounds
        self._number = 0
        self.skipped = 0
        """Malformed lines."""

    def add(self, path: Path, *, strict: bool, blanks: bool = True) -> None:
        """Take a patch, after those before."""
        with path.open("rb") as file:
            reader = read_patch(file, strict=strict, where=str(path), bounds=self._bounds)
            lines, octets_held = [], 0
            for sign, statement, number in reader:
                if not blanks:
                    refuse_blanks(statement, str(path), number)
                # a control character is in no canonical line, and sorts before all that is
                lines.append(b"%s\x01%016x%s\n" % (statement[:-1], self._number, sign.encode()))
                self._number += 1
                octets_held += len(statement)
                if len(lines) >= _LINES or octets_held >= _OCTETS:
                    self._sorter.add(b"".join(lines))
                    lines, octets_held = [], 0
            self._sorter.add(b"".join(lines))
            self.skipped += reader.skipped

    def close(self) -> None:
        """Let go of what was taken."""
        self._sorter.close()

    def statements(self) -> Iterator[tuple[bytes, bytes]]:
        """Each statement (with its LF), in order, and the signs that patches give it one after the other. Once only."""
        for statement, lines in groupby(self._sorter.lines(), lambda line: line[:-19]):
            yield statement + b"\n", bytes(line[-2] for line in lines)


def plain_blocks(file: BinaryIO) -> Iterator[bytes]:
    """The lines of a file in blocks, as they are: whether they are sorted and canonical nobody has looked at."""
    while block := file.read(_BLOCK):
        yield block + file.readline(BOUNDS.line_octets)


def patched_blocks(
    blocks: Iterable[bytes], steps: Iterator[tuple[bytes, bytes]], counts: EffectCounts
) -> Iterator[bytes]:
    """Sorted lines, given and yielded in blocks, as steps leave them, which are sorted by their statements.

    A block that no step touches stays as it is. Of no use where the lines are not sorted.
    """
    step = next(steps, None)
    for block in chain(blocks, [b""]):
        last = block[block.rfind(b"\n", 0, -1) + 1 :]
        if block and (step is None or step[0] > last):
            yield block
            continue
        lines, grown = block.splitlines(keepends=True), 0
        while step is not None and (not block or step[0] <= last):
            statement, signs = step
            place = bisect_left(lines, statement)
            if grown > _OCTETS:  # many statements come between two
                yield b"".join(lines[:place])
                del lines[:place]
                place = grown = 0
            grown += len(statement)
            was_there = lines[place : place + 1] == [statement]
            is_there = counts.apply(signs, there=was_there)  # as the last sign says (NQUD-A4)
            lines[place : place + was_there] = [statement] * is_there
            step = next(steps, None)
        yield b"".join(lines)


_PIECE = 1 << 20


def write_inverse(
    patch: Path, target: BinaryIO, *, scratch: Path, strict: bool, bounds: RdfBounds = BOUNDS
) -> PatchSummary:
    """Write the patch that undoes `patch`: what it adds last is removed, what it removes last is added."""
    return _write([patch], target, scratch, strict=strict, bounds=bounds, inverse=True)


def write_composed(
    patches: Sequence[Path], target: BinaryIO, *, scratch: Path, strict: bool, bounds: RdfBounds = BOUNDS
) -> PatchSummary:
    """Write one patch that has the effect of all, one after the other: the last sign of a statement wins (NQUD-A4)."""
    return _write(patches, target, scratch, strict=strict, bounds=bounds, inverse=False)


def _write(
    patches: Sequence[Path], target: BinaryIO, scratch: Path, *, strict: bool, bounds: RdfBounds, inverse: bool
) -> PatchSummary:
    removed = added = 0
    with (
        tempfile.TemporaryDirectory(prefix="rdf-", dir=scratch) as folder,
        tempfile.SpooledTemporaryFile(_PIECE, dir=folder) as additions,
        closing(PatchSteps(Path(folder), bounds)) as steps,
    ):
        for path in patches:
            steps.add(path, strict=strict)
        for statement, signs in steps.statements():
            if signs.endswith(b"+") is not inverse:
                additions.write(b"+" + statement)
                added += 1
            else:
                target.write(b"-" + statement)
                removed += 1
        additions.seek(0)
        while piece := additions.read(_PIECE):
            target.write(piece)
    return PatchSummary(removed, added)
