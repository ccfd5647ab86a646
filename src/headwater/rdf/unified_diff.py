"""N-Quads Unified Diff: differences of two datasets are written; patches are read, applied, inverted, composed.

Written are removals, then additions, each sorted (NQUD-A4). Of what is read the effective lines count, all else is
passed over (NQUD-01, NQUD-02). Of patches that are applied, all are or none is (NQUD-A5, NQUD-A14). The inverse undoes
a patch that was applied to a dataset on which each of its lines had an effect, as `write_patch` makes them. What is
composed has the effect of its parts one after the other, on any dataset.
"""

from __future__ import annotations

import re
import shutil
import tempfile
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, count, groupby
from operator import lt
from pathlib import Path
from typing import Any, BinaryIO, Final, NamedTuple, cast

from headwater.rdf import BOUNDS, BadRdf, BadRdfPatch, BlankNodesRefused, NotCanonical, RdfBounds
from headwater.rdf.canonical import (
    LABELS_KEPT,
    NO_BLANK_NODES,
    BlankNodes,
    DatasetSummary,
    LineSorter,
    RdfOptions,
    in_processes,
    write_blocks,
    write_canonical,
)
from headwater.rdf.statements import (
    canonical_and_blanks,
    canonical_block,
    line_blocks,
    octets,
    parsed_lines,
    refuse_blanks,
    signed_end,
    utf8_checked,
)
from headwater.rdf.syntaxes import N_QUADS, RdfInput

_SIGNS: Final = {b"+": "+", b"-": "-"}
_PLUS: Final = 43
_NOT_EFFECTIVE: Final = re.compile(
    rb"(?:[^+\-\n][^\n]*+\n|\n|\+\+[^\n]*+\n|--[^\n]*+\n|[+\-][ \t]*+(?:\r?\n|#[^\n]*+\n))++"
)
"""Lines that say nothing, as `_other` knows them too: there may be one for each octet of a patch."""


class PatchLine(NamedTuple):
    """An effective line: `+` or `-`, the statement as a canonical N-Quads line with its LF, its number in the file."""

    sign: str
    statement: bytes
    number: int


_PATCH_LINE: Final = cast("Callable[[tuple[str, bytes, int]], PatchLine]", partial(tuple.__new__, PatchLine))
"""A record of its fields, without a call of Python for each."""


def read_patch(
    stream: BinaryIO,
    *,
    strict: bool,
    where: str = "the patch",
    bounds: RdfBounds = BOUNDS,
    skipped: Callable[[BadRdfPatch], None] = lambda fault: None,
) -> Iterator[PatchLine]:
    """The effective lines of a patch, in its order, inflated where it is gzip. While they are read BadRdfPatch is
    raised for a malformed one if `strict`, else it is passed over, and `skipped` is told; for what is not UTF-8 always
    (NQUD-A3, NQUD-A11)."""
    number = 1
    for block in line_blocks(octets(stream, where, bounds), where, bounds):
        utf8_checked(block, number, lambda what, at: BadRdfPatch(what, where=where, line=at, rule="NQUD-A11"))
        start = 0
        while start < len(block):
            end = signed_end(block, start)
            lines = block[start:end].splitlines(keepends=True)
            signs = ["+" if line[0] == _PLUS else "-" for line in lines]
            yield from map(_PATCH_LINE, zip(signs, [line[1:] for line in lines], count(number), strict=False))
            number += len(lines)
            if end < len(block) and (passed := _NOT_EFFECTIVE.match(block, end)):
                start = passed.end()
                number += block.count(b"\n", end, start)
            elif end < len(block):
                start = block.index(b"\n", end) + 1
                try:
                    if (other := _other(block[end:start], number, where)) is not None:
                        yield other
                except BadRdfPatch as fault:
                    if strict:
                        raise
                    skipped(fault)
                number += 1
            else:
                start = end


def _other(line: bytes, number: int, where: str) -> PatchLine | None:
    """A line that the pattern does not recognise: most often one that is not effective."""
    sign, text = line[:1], line[1:]
    body = text.lstrip(b" \t")
    if sign not in _SIGNS or text.startswith(sign) or body in (b"\n", b"\r\n") or body.startswith(b"#"):
        return None
    try:
        if text.startswith(tuple(_SIGNS)):
            raise BadRdf("two different signs", rule="NQUD-A1")
        if not body.startswith((b"<", b"_:")):
            raise BadRdf("a statement begins with an IRI or a blank node")
        statement = parsed_lines(body, number, where)
        if not statement:
            raise BadRdf("there is no statement after the sign")
    except BadRdf as error:
        raise BadRdfPatch(error.said, where=where, line=number, rule=error.rule or "NQUD-A3") from error
    return PatchLine(_SIGNS[sign], statement, number)


# the difference of two canonical files, read side by side. That they are canonical and in order is checked on the way,
# of the lines of the new file that stand in the old one too by comparing octets.

_PIECE = 1 << 20
_LARGE = 8 << 20
"""Octets of a file from which it is worth the start of processes to check it."""

_Lines = Generator[tuple[bytes, list[bytes]], None, None]
"""Blocks, and the lines of each."""


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
        before = _ordered_lines(old, bounds, is_known=True)
    else:
        before = _canonical_lines(old, bounds, blanks=blanks)
    after = _ordered_lines(new, bounds, is_known=are_canonical)
    with closing(before), tempfile.SpooledTemporaryFile(_PIECE * 16) as additions:
        for had, has in _aligned((lines for _, lines in before), (lines for _, lines in after)):
            if had == has:
                continue
            held, less = set(had), list[bytes]()
            more = [line for line in has if line not in held]
            if len(has) - len(more) < len(had):
                less = sorted(held.difference(has))
            if not are_canonical and not _is_canonical(b"".join(more), blanks=blanks):  # the others are in the old file
                for _block in sorted_blocks(new, bounds, blanks=blanks):  # which says what is wrong, and on which line
                    pass
                raise NotCanonical("the file changes while it is read", where=str(new))
            for lines, sign, file in ((less, b"-", target), (more, b"+", additions)):
                if lines:
                    file.write(sign + sign.join(lines))
            removed += len(less)
            added += len(more)
        additions.seek(0)
        shutil.copyfileobj(additions, target, _PIECE)
    return PatchSummary(removed, added)


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


def _is_canonical(lines: bytes, *, blanks: bool) -> bool:
    try:
        canonical, found = canonical_and_blanks(lines, 1, "")
    except BadRdf:
        return False
    return canonical == lines and (blanks or not found)


def sorted_blocks(path: Path, bounds: RdfBounds = BOUNDS, *, blanks: bool = True) -> Iterator[bytes]:
    """The lines of a canonical file, each with its LF, in blocks. Raises NotCanonical, BadRdf."""
    return (block for block, _lines in _canonical_lines(path, bounds, blanks=blanks))


def _canonical_lines(path: Path, bounds: RdfBounds, *, blanks: bool) -> _Lines:
    """The same, and the lines of each block; a large file is checked by processes, beside whoever reads on here."""
    number = 1
    here = canonical_checker(blanks)
    pairs = _ordered_lines(path, bounds)
    if path.stat().st_size < _LARGE:
        checked: Iterator[tuple[tuple[bytes, list[bytes]], bool]] = ((pair, here(pair[:1])) for pair in pairs)
    else:
        checked = in_processes(canonical_checker, blanks, ((pair, pair[:1]) for pair in pairs))
    for (block, lines), is_sound in checked:
        if not is_sound:
            if canonical_block(block, number, str(path)) != block:
                raise NotCanonical("the file is not canonical N-Quads", where=str(path))
            refuse_blanks(block, str(path), number)
        yield block, lines
        number += len(lines)


def canonical_checker(blanks: bool) -> Callable[[Any], bool]:  # noqa: FBT001 - the settings of a process
    """What such a process does: it says whether lines are canonical, and without blank nodes where none may be."""
    return lambda job: _is_canonical(job[0], blanks=blanks)


def _ordered_lines(path: Path, bounds: RdfBounds, *, is_known: bool = False) -> _Lines:
    """Blocks and their lines where each line is after the one before it, as `is_known`; else NotCanonical is raised."""
    where, end = str(path), b"\n"

    def noted(pieces: Iterator[bytes]) -> Iterator[bytes]:
        nonlocal end
        for piece in pieces:
            end = piece[-1:]
            yield piece

    last, number = b"", 1
    with path.open("rb") as file:
        for block in line_blocks(noted(octets(file, where, bounds)), where, bounds):
            lines = block.splitlines(keepends=True)
            if not is_known and not (last < lines[0] and all(map(lt, lines, lines[1:]))):
                lines.insert(0, last)
                at = next(index for index in range(1, len(lines)) if lines[index] <= lines[index - 1])
                is_twice = lines[at] == lines[at - 1]
                what = "the statement stands there twice" if is_twice else "the statement is not in its order"
                raise NotCanonical(what, where=where, line=number + at - 1)
            last = lines[-1]
            number += len(lines)
            yield block, lines
    if end != b"\n":
        raise NotCanonical("the last line does not end", where=where)


def write_dataset_patch(
    datasets: tuple[RdfInput, RdfInput], target: BinaryIO, *, scratch: Path, options: RdfOptions = NO_BLANK_NODES
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


# patches applied, inverted, composed: sorted, in bounded memory

_OCTETS = 1 << 20
_BLOCK = 1 << 14


_NOTHING: Final = DatasetSummary(0, 0, "")


@dataclass(slots=True)
class EffectCounts:
    """What lines of patches have done, or would have done if the dataset were another: statements added and removed,
    additions of what was there, removals of what was not. A statement that is added and removed again counts twice."""

    added: int = 0
    removed: int = 0
    already_there: int = 0
    not_there: int = 0

    def apply(self, signs: bytes, *, there: bool) -> bool:
        """Whether a statement is there after what the patches say of it, one after the other."""
        for sign in signs:
            if sign == _PLUS:
                self.already_there += there
                self.added += not there
            else:
                self.not_there += not there
                self.removed += there
            there = sign == _PLUS
        return there


@dataclass(slots=True)
class AppliedSummary(EffectCounts):
    """The same of patches that were applied: malformed lines that were skipped, and the dataset that came of it."""

    skipped: int = 0
    dataset: DatasetSummary = _NOTHING


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
            found = AppliedSummary()
            with closing(PatchSteps(folder, bounds)) as steps:
                for path in patches:
                    steps.add(path, strict=strict, blanks=blanks)
                blocks = iter(()) if start is None else sorted_blocks(start, bounds, blanks=blanks)
                found.dataset = write_blocks(patched_blocks(blocks, steps.statements(), found), target)
                found.skipped = steps.skipped
            return found

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
            reader = read_patch(file, strict=strict, where=str(path), bounds=self._bounds, skipped=self._skip)
            for sign, statement, number in reader:
                if not blanks:
                    refuse_blanks(statement, str(path), number)
                # a control character is in no canonical line, and sorts before all that is
                self._sorter.add(b"%s\x01%016x%s\n" % (statement[:-1], self._number, sign.encode()))
                self._number += 1

    def _skip(self, _fault: BadRdfPatch) -> None:
        self.skipped += 1

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


def write_composed(
    patches: Sequence[Path], target: BinaryIO, *, scratch: Path, strict: bool, inverse: bool = False
) -> PatchSummary:
    """Write one patch that has the effect of all, one after the other: the last sign of a statement wins (NQUD-A4).

    Or its `inverse`, which removes what they add, and adds what they remove.
    """
    removed = added = 0
    with (
        tempfile.TemporaryDirectory(prefix="rdf-", dir=scratch) as folder,
        tempfile.SpooledTemporaryFile(_PIECE, dir=folder) as additions,
        closing(PatchSteps(Path(folder))) as steps,
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
        shutil.copyfileobj(additions, target, _PIECE)
    return PatchSummary(removed, added)


# a patch of which the result is known

_MOST_GROWTH = 64
"""A patch in gzip is inflated to so many times its octets at most,"""
_GROWS_FREELY = 64 << 20
"""and to so many octets whatever it has: N-Quads of a dataset grow ten to forty times."""


def write_patched(
    base: Path, patch: Path, target: Path, is_result: Callable[[DatasetSummary], bool]
) -> DatasetSummary | None:
    """Write what a patch makes of the dataset in a file; None where nothing that it makes `is_result`. Raises BadRdf.

    The file is first taken for what it usually is, sorted canonical N-Quads: blocks that a patch does not touch are
    copied as they are. Where that does not give the result, every line is looked at.
    """
    with (
        tempfile.TemporaryDirectory(prefix="rdf-", dir=target.parent) as scratch,
        closing(PatchSteps(Path(scratch), _bounds_of(patch))) as steps,
        base.open("rb", buffering=_PIECE) as old,
    ):
        steps.add(patch, strict=True)
        made = write_blocks(patched_blocks(plain_blocks(old), steps.statements(), EffectCounts()), target)
    if not is_result(made):
        made = apply_patches(base, [patch], target, scratch=target.parent, strict=True).dataset
    return made if is_result(made) else None


def _bounds_of(patch: Path) -> RdfBounds:
    """The bounds on a patch: each line of what is inflated without end would be sorted."""
    return replace(BOUNDS, octets=max(_GROWS_FREELY, _MOST_GROWTH * patch.stat().st_size))


def check_growth(patch: Path) -> None:
    """Raises RdfTooCostly where a patch in gzip is inflated beyond all measure. For one that is read with others, and
    so with bounds that are not its own."""
    with patch.open("rb") as file:
        for _piece in octets(file, "the patch", _bounds_of(patch)):
            pass
