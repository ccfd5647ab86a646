"""The difference of two canonical files as N-Quads Unified Diff: removals, then additions, each sorted (NQUD-A4).

Both files are cut at the same lines into ranges (`sorting`), which processes compare; that they are canonical
and in order is checked on the way, of the lines of the new file that stand in the old one too by comparing octets.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from operator import lt
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from headwater.processes.pool import ProcessPool, WorkerProgram, processors
from headwater.rdf.canonical import NO_BLANK_NODES, BlankNodes, DatasetSummary, RdfOptions, write_canonical
from headwater.rdf.faults import BOUNDS, BadRdf, BlankNodesRefused, NotCanonical, RdfBounds
from headwater.rdf.sorting import LineFile, common_ranges
from headwater.rdf.statements import canonical_and_blanks, inflated_file, line_blocks, octets, refuse_blanks
from headwater.rdf.syntaxes import N_QUADS, RdfInput

_RANGE = 4 << 20
_PIECE = 1 << 20
_FEW = 4 * _RANGE
"""Up to so many octets are compared in this process: others would not have started yet."""
_AHEAD = 3
_OLD, _NEW = 1, 2

_Lines = tuple[int, bytes]
_Job = tuple[int, int, int, int, bytes, bytes]


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
    with (
        tempfile.TemporaryDirectory(prefix="rdf-") as folder,
        inflated_file(old, Path(folder) / "old", bounds) as before,
        inflated_file(new, Path(folder) / "new", bounds) as after,
        tempfile.SpooledTemporaryFile(_PIECE * 16) as additions,
    ):
        for fault, less, more in _compared(before, after, bounds, (blanks, are_canonical)):
            if fault:
                _tell_fault(old if fault == _OLD else new, bounds, blanks=blanks)
            target.write(less[1])
            additions.write(more[1])
            removed += less[0]
            added += more[0]
        additions.seek(0)
        shutil.copyfileobj(additions, target, _PIECE)
    return PatchSummary(removed, added)


def _compared(
    old: Path, new: Path, bounds: RdfBounds, checks: tuple[bool, bool]
) -> Iterator[tuple[int, _Lines, _Lines]]:
    with closing(LineFile(old, bounds)) as first, closing(LineFile(new, bounds)) as second:
        jobs = common_ranges(first, second, _RANGE)
        if checks[1]:  # lines may be long, and nobody needs those at the ends
            jobs = ((*places[:4], b"", b"") for places in jobs)
        settings = (str(old), str(new), *checks)
        compare = range_comparison(settings)
        if first.octets + second.octets <= _FEW:
            yield from map(compare, jobs)
            return
        pool = ProcessPool[None](
            WorkerProgram(function=range_comparison, settings=settings, libraries=True),
            compare,
            processes=processors(),
            ahead=_AHEAD,
        )
        with closing(pool.answers((None, job) for job in jobs)) as answers:
            for _none, answer in answers:
                yield answer


def range_comparison(settings: tuple[str, str, bool, bool]) -> Callable[[_Job], Any]:
    """What a process does that compares ranges of two files: 0, or which file is not as it should be, and removals and
    additions as lines of a patch, with their number."""
    old, new = LineFile(Path(settings[0])), LineFile(Path(settings[1]))
    blanks, are_canonical = settings[2:]

    def compare(job: _Job) -> tuple[int, _Lines, _Lines]:
        a, to_a, b, to_b, low, high = job
        before, after = old.read(a, to_a), new.read(b, to_b)
        return _known(before, after) if are_canonical else _difference(before, after, (low, high), blanks=blanks)

    return compare


def _known(old: bytes, new: bytes) -> tuple[int, _Lines, _Lines]:
    """The same for the octets of two ranges of canonical files."""
    if old == new:
        return 0, (0, b""), (0, b"")
    less, more = _apart(old.splitlines(keepends=True), new.splitlines(keepends=True))
    return 0, (len(less), _signed(b"-", less)), (len(more), _signed(b"+", more))


def _apart(before: list[bytes], after: list[bytes]) -> tuple[list[bytes], list[bytes]]:
    """The lines that the one list alone has, and those that the other has, in order."""
    held = set(before)
    more = [line for line in after if line not in held]
    if len(after) - len(more) == len(before):
        return [], more
    held.difference_update(after)
    return sorted(held), more


def _difference(old: bytes, new: bytes, between: tuple[bytes, bytes], *, blanks: bool) -> tuple[int, _Lines, _Lines]:
    """The same for the octets of two ranges."""
    nothing = (0, b"")
    before = old.splitlines(keepends=True)
    if not _is_canonical(old, blanks=blanks) or not _in_order(before, *between):
        return _OLD, nothing, nothing
    if old == new:
        return 0, nothing, nothing
    after = new.splitlines(keepends=True)
    if (new and not new.endswith(b"\n")) or not _in_order(after, *between):
        return _NEW, nothing, nothing
    less, more = _apart(before, after)
    if not _is_canonical(b"".join(more), blanks=blanks):  # the others are lines of the old file
        return _NEW, nothing, nothing
    return 0, (len(less), _signed(b"-", less)), (len(more), _signed(b"+", more))


def _signed(sign: bytes, lines: list[bytes]) -> bytes:
    """Lines of a patch with this sign."""
    return sign + sign.join(lines) if lines else b""


def _is_canonical(block: bytes, *, blanks: bool) -> bool:
    if block and not block.endswith(b"\n"):
        return False
    try:
        canonical, found = canonical_and_blanks(block, 1, "")
    except BadRdf:
        return False
    return canonical == block and (blanks or not found)


def _in_order(lines: list[bytes], low: bytes, high: bytes) -> bool:
    """Whether lines are sorted, each once, not less than `low` and less than `high` (b"": no bound)."""
    if not lines:
        return True
    return lines[0] >= low and (not high or lines[-1] < high) and all(map(lt, lines, lines[1:]))


def _tell_fault(path: Path, bounds: RdfBounds, *, blanks: bool) -> None:
    """Raise what is wrong with a file, with the number of the line."""
    for _line in sorted_lines(path, bounds, blanks=blanks):
        pass
    raise NotCanonical("the last line does not end, or the file changes while it is read", where=str(path))


def sorted_lines(path: Path, bounds: RdfBounds = BOUNDS, *, blanks: bool = True) -> Iterator[bytes]:
    """The lines of a canonical file, each with its LF. Raises NotCanonical, BadRdf."""
    for block in sorted_blocks(path, bounds, blanks=blanks):
        yield from block.splitlines(keepends=True)


def sorted_blocks(path: Path, bounds: RdfBounds = BOUNDS, *, blanks: bool = True) -> Iterator[bytes]:
    """The same in blocks of lines."""
    where = str(path)
    last, number = b"", 1
    with path.open("rb") as file:
        for block in line_blocks(octets(file, where, bounds), where, bounds):
            canonical, found = canonical_and_blanks(block, number, where)
            if canonical != block:
                raise NotCanonical("the file is not canonical N-Quads", where=where)
            if found and not blanks:
                refuse_blanks(block, where, number)
            lines = block.splitlines(keepends=True)
            if lines[0] <= last or not _in_order(lines, b"", b""):
                raise _disorder([last, *lines], number - 1, where)
            yield block
            last = lines[-1]
            number += len(lines)


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
