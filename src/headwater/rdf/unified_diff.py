"""N-Quads Unified Diff: differences of two datasets are written; patches are read, applied, inverted, composed.

Written are removals, then additions, each sorted (NQUD-A4). Of what is read the effective lines count, all else is
passed over (NQUD-01, NQUD-02). Of patches that are applied, all are or none is (NQUD-A5, NQUD-A14). The inverse undoes
a patch that was applied to a dataset on which each of its lines had an effect, as `write_patch` makes them. What is
composed has the effect of its parts one after the other, on any dataset.
"""

import os
import re
import shutil
import tempfile
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, count, groupby
from operator import lt
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple, cast

from headwater.rdf import BOUNDS, BadRdf, BadRdfPatch, RdfBounds
from headwater.rdf.canonical import (
    LABELS_KEPT,
    NO_BLANK_NODES,
    BlankNodes,
    DatasetSummary,
    LineSorter,
    NotCanonical,
    RdfOptions,
    canonical_checker,
    in_processes,
    plain_blocks,
    write_blocks,
    write_canonical,
)
from headwater.rdf.statements import line_blocks, octets, parsed_lines, refuse_blanks, signed_end, utf8_checked
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


# the difference of two canonical files, cut at the same lines into ranges that processes compare

_RANGE = 4 << 20
_FEW = 4  # ranges that are compared in this process: others would not have started yet
_Range = tuple[int, int]
_Job = tuple[_Range, _Range, bytes, bytes]
"""A range of each file, and between which lines theirs are."""
_Difference = tuple[int | None, int, bytes, int, bytes]
"""Which file is not canonical, if one is; removals and additions as lines of a patch, each after their number."""


@dataclass(frozen=True, slots=True)
class PatchSummary:
    """How many statements a patch removes and adds."""

    removed: int
    added: int


def write_patch(old: Path, new: Path, target: BinaryIO) -> PatchSummary:
    """Write what makes the dataset `old` the dataset `new`: files as `write_canonical` makes them, which nobody checks.

    Labels of blank nodes count. Additions wait in a temporary file.
    """
    return _write_patch((old, new), target, (False, False))


def _write_patch(
    paths: tuple[Path, Path], target: BinaryIO, checked: tuple[bool, bool], *, keeps_blanks: bool = True
) -> PatchSummary:
    """The same of sorted files. Raises NotCanonical for one of those that are checked."""
    removed = added = 0
    settings = (*map(str, paths), checked, keeps_blanks)
    with paths[0].open("rb") as old, paths[1].open("rb") as new, tempfile.SpooledTemporaryFile(_RANGE * 4) as additions:
        jobs = ((None, job) for job in _common_ranges(old, new))
        with closing(in_processes(range_comparer, settings, jobs, _FEW)) as answers:
            for _none, (fault, fewer, less, further, more) in answers:
                if fault is not None:
                    raise NotCanonical(paths[fault])
                target.write(less)
                additions.write(more)
                removed += fewer
                added += further
        additions.seek(0)
        shutil.copyfileobj(additions, target, _RANGE)
    return PatchSummary(removed, added)


def _common_ranges(old: BinaryIO, new: BinaryIO) -> Iterator[_Job]:
    """Ranges of two sorted files, together the whole of both, that begin at the same lines."""
    files, places, last = (old, new), [0, 0], b""
    while True:
        ahead = [_line_at(file, place + _RANGE) for file, place in zip(files, places, strict=True)]
        line = min((line for _place, line in ahead if line), default=b"")
        ends = [  # the file that has the line gets on, whatever order it is in
            end if begun == line else _first_from(file, place, end, line)
            for file, place, (end, begun) in zip(files, places, ahead, strict=True)
        ]
        yield (places[0], ends[0]), (places[1], ends[1]), last, line
        if not line:
            return
        places, last = ends, line


def _line_at(file: BinaryIO, place: int) -> tuple[int, bytes]:
    """The first line that begins behind a place, and where; the end of the file has none."""
    file.seek(min(place - 1, os.fstat(file.fileno()).st_size))
    file.readline(BOUNDS.line_octets)
    return file.tell(), file.readline(BOUNDS.line_octets)


def _first_from(file: BinaryIO, low: int, high: int, line: bytes) -> int:
    """Where the lines between two places begin that are not less than a line; the places begin lines."""
    while low < high:
        middle = (low + high) // 2
        place, found = (low, b"") if middle == low else _line_at(file, middle)
        if place >= high or not found:  # the rest is one line, or nothing begins in its second half
            file.seek(low)
            place, found = low, file.readline(BOUNDS.line_octets)
            if not found or found >= line:
                return low
            low += len(found)
        elif found < line:
            low = place + len(found)
        else:
            high = place
    return low


def range_comparer(settings: tuple[str, str, tuple[bool, bool], bool]) -> Callable[[_Job], _Difference]:
    """What a process does that compares ranges of two files. It looks whether those that are `checked` are canonical;
    of the new one's lines, those that the old one does not have."""
    *paths, (checks_old, checks_new), keeps_blanks = settings
    is_sound = canonical_checker(keeps_blanks)

    def compare(job: _Job) -> _Difference:
        *ranges, low, high = job
        before, after = (_read(path, *where) for path, where in zip(paths, ranges, strict=True))
        had, has = before.splitlines(keepends=True), after.splitlines(keepends=True)
        if checks_old and not (_are_rising(had, low, high) and is_sound((before,))):
            return 0, 0, b"", 0, b""
        if before == after:
            return None, 0, b"", 0, b""
        held, less = set(had), list[bytes]()
        more = [line for line in has if line not in held]
        if checks_new and not (_are_rising(has, low, high) and is_sound((b"".join(more),))):
            return 1, 0, b"", 0, b""
        if len(has) - len(more) < len(had):
            held.difference_update(has)
            less = sorted(held)
        return None, len(less), _signed(b"-", less), len(more), _signed(b"+", more)

    return compare


def _read(path: str, begin: int, end: int) -> bytes:
    with open(path, "rb") as file:
        file.seek(begin)
        return file.read(end - begin)


def _are_rising(lines: list[bytes], low: bytes, high: bytes) -> bool:
    """Whether lines are in order, each once, none before `low`, all before `high` (b"": the end of the file)."""
    return not lines or (lines[0] >= low and (not high or lines[-1] < high) and all(map(lt, lines, lines[1:])))


def _signed(sign: bytes, lines: list[bytes]) -> bytes:
    return sign + sign.join(lines) if lines else b""


def write_dataset_patch(
    datasets: tuple[RdfInput, RdfInput], target: BinaryIO, *, scratch: Path, options: RdfOptions = NO_BLANK_NODES
) -> PatchSummary:
    """Write what makes the first dataset the second. Files that are canonical N-Quads are compared as they are.

    Labels of RDFC-1.0 are refused, since they are other ones after a change. Raises BadRdf.
    """
    if options.blank_nodes is BlankNodes.CANONICAL:
        options = replace(options, blank_nodes=BlankNodes.REFUSED)
    keeps, plain = options.blank_nodes is BlankNodes.KEPT, {one.path for one in datasets if one.syntax is N_QUADS}
    with tempfile.TemporaryDirectory(prefix="rdf-", dir=scratch) as folder:
        while True:
            old, new = (one.path if one.path in plain else Path(folder, str(n)) for n, one in enumerate(datasets))
            for one, path in zip(datasets, (old, new), strict=True):
                if path not in plain and not path.exists():
                    write_canonical([one], path, scratch=Path(folder), options=options, durable=False)
            try:
                return _write_patch((old, new), target, (old in plain, new in plain), keeps_blanks=keeps)
            except NotCanonical as fault:
                plain.discard(fault.path)
                target.seek(0)
                target.truncate()


# patches applied, inverted, composed: sorted, in bounded memory

_OCTETS = 1 << 20
_BLOCK = 1 << 14
_MOST_GROWTH = 64
"""A patch in gzip is inflated to so many times its octets at most,"""
_GROWS_FREELY = 64 << 20
"""and to so many octets whatever it has: N-Quads of a dataset grow ten to forty times."""


_NOTHING: Final = DatasetSummary(0, 0, "")


@dataclass(slots=True)
class AppliedSummary:
    """What lines of patches have done: statements added and removed, additions of what was there, removals of what was
    not (a statement that is added and removed again counts twice), malformed lines that were skipped; and the dataset
    that came of it."""

    added: int = 0
    removed: int = 0
    already_there: int = 0
    not_there: int = 0
    skipped: int = 0
    dataset: DatasetSummary = _NOTHING

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


def merge_patches(
    base: Path | None,
    patches: Sequence[Path],
    target: Path,
    *,
    scratch: Path,
    strict: bool = True,
    options: RdfOptions = LABELS_KEPT,
) -> AppliedSummary:
    """Write at `target` what patches, one after the other, make of the dataset `base` (None: of nothing).

    `base` is taken for canonical N-Quads, sorted: nobody looks, and blocks of it that no patch touches are copied as
    they are. Labels of blank nodes are those of the base and of all patches (NQUD-A6): where they are not KEPT,
    BlankNodesRefused is raised for those of patches. `target` is replaced as a whole or not touched; it may be `base`.
    A power failure may take it away. What has no effect is counted. Raises BadRdf, BadRdfPatch.
    """
    found = AppliedSummary()
    with (
        tempfile.TemporaryDirectory(prefix="rdf-", dir=scratch) as folder,
        closing(PatchSteps(Path(folder), options.bounds)) as steps,
        open(base or os.devnull, "rb", buffering=_RANGE) as held,
    ):
        for path in patches:
            steps.add(path, strict=strict, blanks=options.blank_nodes is BlankNodes.KEPT)
        blocks = patched_blocks(plain_blocks(held, _BLOCK), steps.statements(), found)
        found.dataset = write_blocks(blocks, target, durable=False)
        found.skipped = steps.skipped
    return found


class PatchSteps:
    """What patches say of each statement, in their order: sorted by statement, in bounded memory."""

    def __init__(self, scratch: Path, bounds: RdfBounds = BOUNDS) -> None:
        self._sorter = LineSorter(scratch, bounds)
        self._bounds = bounds
        self._number = 0
        self.skipped = 0
        """Malformed lines."""

    def add(self, path: Path, *, strict: bool, blanks: bool = True) -> None:
        """Take a patch, after those before. Each line of what gzip inflates without end would be sorted: it may grow
        so much and no more."""
        most = max(_GROWS_FREELY, _MOST_GROWTH * path.stat().st_size)
        bounds = replace(self._bounds, octets=min(most, self._bounds.octets))
        with path.open("rb") as file:
            reader = read_patch(file, strict=strict, where=str(path), bounds=bounds, skipped=self._skip)
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


def patched_blocks(
    blocks: Iterable[bytes], steps: Iterator[tuple[bytes, bytes]], counts: AppliedSummary
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
        tempfile.SpooledTemporaryFile(_OCTETS, dir=folder) as additions,
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
        shutil.copyfileobj(additions, target, _OCTETS)
    return PatchSummary(removed, added)
