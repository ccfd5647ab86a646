"""Sorted runs, the external merge sort of lines: each is a file of what fits into memory, sorted, each line once.

To merge runs, their lines are cut into ranges such that what all runs have of a range fits into memory, too; processes
sort ranges.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from itertools import pairwise
from operator import eq
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from headwater.processes.pool import ProcessPool, WorkerProgram
from headwater.processes.processors import processors
from headwater.rdf.faults import RdfBounds
from headwater.rdf.lines.block_difference import block_difference
from headwater.rdf.lines.ranges import LineFile

_SAMPLES = 64
"""Lines of a run that are remembered, to cut ranges."""
_MOST_RUNS = 200
"""More runs are merged to fewer first: each is an open file."""
_MERGED = 4 << 20
"""Octets of a range of a merge."""
_FEW = 8 * _MERGED
"""Up to so many octets are merged in this process: others would not have started yet."""
_AHEAD = 2

T = TypeVar("T")

_RangeJob = tuple[bytes, bytes, list[tuple[int, int]]]


class SortedRun(NamedTuple):
    """A file of sorted lines, each once: how many, and some of them with where they begin, the first among them."""

    path: str
    lines: int
    octets: int
    samples: list[tuple[bytes, int]]
    last: bytes


def in_processes(
    function: Callable[[Any], Callable[[Any], Any]], settings: Any, jobs: Iterable[tuple[T, Any]]
) -> Iterator[tuple[T, Any]]:
    """What `function(settings)` makes of each job, in order; one job alone is done in this process."""
    source = iter(jobs)
    first, second = next(source, None), next(source, None)
    if first is None:
        return
    here = function(settings)
    if second is None:
        yield first[0], here(tuple(first[1]))
        return

    def all_jobs() -> Iterator[tuple[T, Any]]:
        for item, job in (first, second):
            yield item, tuple(job)
        for item, job in source:
            yield item, tuple(job)

    program = WorkerProgram(function=function, settings=settings, libraries=True)
    pool = ProcessPool[T](program, here, processes=processors(), ahead=_AHEAD)
    with closing(pool.answers(all_jobs())) as answers:
        yield from answers


def _answers(
    function: Callable[[Any], Callable[[Any], Any]], settings: Any, jobs: Iterable[tuple[T, Any]], octets: int
) -> Iterator[tuple[T, Any]]:
    """The same, in this process while there are few octets."""
    if octets > _FEW:
        return in_processes(function, settings, jobs)
    here = function(settings)
    return ((item, here(job)) for item, job in jobs)


def write_run(path: Path, lines: list[bytes]) -> SortedRun | None:
    """Sort lines, in their list, and write each once as a run; None: there are none."""
    if not lines:
        return None
    lines.sort()
    if any(map(eq, lines, lines[1:])):
        lines = list(dict.fromkeys(lines))
    every = max(1, len(lines) // _SAMPLES)
    samples, octets = [], 0
    with path.open("wb") as file:
        for start in range(0, len(lines), every):
            samples.append((lines[start], octets))
            octets += file.write(b"".join(lines[start : start + every]))
    return SortedRun(str(path), len(lines), octets, samples, lines[-1])


def merged(runs: list[SortedRun], bounds: RdfBounds) -> Iterator[tuple[int, bytes]]:
    """All lines of runs in order, each once: blocks, with the number of their lines. The runs' files are removed."""
    runs = sorted(_few(runs, bounds), key=lambda run: run.samples[0])
    if all(one.last < other.samples[0][0] for one, other in pairwise(runs)):
        for run in runs:
            yield from _read(run)
        return
    paths, jobs = [run.path for run in runs], _range_jobs(runs)
    for _none, (number, block) in _answers(range_merger, paths, jobs, sum(run.octets for run in runs)):
        if number:
            yield number, block
    for run in runs:
        Path(run.path).unlink()


def differing(
    old: list[SortedRun], new: list[SortedRun], bounds: RdfBounds
) -> Iterator[tuple[list[bytes], list[bytes]]]:
    """What is in the runs of one dataset only, and what is in those of the other, in order, as lists of lines."""
    old, new = (_few(runs, bounds) for runs in (old, new))
    settings = (len(old), [run.path for run in (*old, *new)])
    for _none, (less, more) in in_processes(range_difference, settings, _range_jobs([*old, *new])):
        yield less, more


class MergedBlock(NamedTuple):
    """Lines of runs in order, so many, and what differs there from a file: lines that it alone has, and those that it
    has not."""

    lines: int
    octets: bytes
    gone: list[bytes]
    fresh: list[bytes]


def merged_beside(runs: list[SortedRun], old: Path, bounds: RdfBounds) -> Iterator[MergedBlock]:
    """The lines of runs as `merged` gives them, compared with a file on the way that is sorted, each line once."""
    beside = _run_of(old, bounds)
    if beside is None:
        for number, block in merged(runs, bounds):
            yield MergedBlock(number, block, [], block.splitlines(keepends=True))
        return
    runs = [beside, *_few(runs, bounds)]
    paths, jobs = [run.path for run in runs], _range_jobs(runs)
    for _none, answer in _answers(range_update, paths, jobs, sum(run.octets for run in runs)):
        yield MergedBlock(*answer)
    for run in runs[1:]:
        Path(run.path).unlink()


def _run_of(path: Path, bounds: RdfBounds) -> SortedRun | None:
    """A sorted file as a run; None: it is empty. Its lines are not counted."""
    with closing(LineFile(path, bounds)) as file:
        if not file.octets:
            return None
        count = max(_SAMPLES, 2 * file.octets // _MERGED)
        found = [file.next_line(file.octets * number // count) for number in range(count)]
    samples = {start: line for start, line in found if line}
    return SortedRun(str(path), 0, file.octets, [(line, start) for start, line in samples.items()], b"")


def _few(runs: list[SortedRun], bounds: RdfBounds) -> list[SortedRun]:
    """The same lines in no more runs than can be open."""
    while len(runs) > _MOST_RUNS:
        some, runs = runs[:_MOST_RUNS], runs[_MOST_RUNS:]
        runs.append(_merged_run(some, Path(some[0].path + "-merged"), bounds))
    return runs


def _read(run: SortedRun) -> Iterator[tuple[int, bytes]]:
    offsets = [offset for _line, offset in run.samples] + [run.octets]
    every = max(1, _MERGED * len(run.samples) // run.octets)
    with closing(LineFile(Path(run.path))) as file:
        for start, end in pairwise([*offsets[:-1:every], run.octets]):
            block = file.read(start, end)
            yield block.count(b"\n"), block
    Path(run.path).unlink()


def _merged_run(runs: list[SortedRun], path: Path, bounds: RdfBounds) -> SortedRun:
    lines = octets = 0
    samples: list[tuple[bytes, int]] = []
    last = b""
    with path.open("xb") as file:
        for number, block in merged(runs, bounds):
            samples.append((block[: block.index(b"\n") + 1], octets))
            octets += file.write(block)
            lines += number
            last = block[block.rfind(b"\n", 0, -1) + 1 :]
    return SortedRun(str(path), lines, octets, samples, last)


def _range_jobs(runs: list[SortedRun]) -> Iterator[tuple[None, _RangeJob]]:
    """Where a range begins and ends (b"": no bound), and for each run between which offsets its lines lie at most."""
    weighted = sorted((line, run.octets // len(run.samples)) for run in runs for line, _offset in run.samples)
    pivots: list[bytes] = []
    weight = 0
    for line, octets in weighted:
        weight += octets
        if weight >= _MERGED and line > (pivots[-1] if pivots else b""):
            pivots.append(line)
            weight = 0
    lines = [[line for line, _offset in run.samples] for run in runs]
    offsets = [[*(offset for _line, offset in run.samples), run.octets] for run in runs]
    for low, high in pairwise([b"", *pivots, b""]):
        spans = []
        for begin, known in zip(lines, offsets, strict=True):
            first = max(0, bisect_right(begin, low) - 1) if low else 0
            last = bisect_left(begin, high) if high else len(begin)
            spans.append((known[first], known[last]))
        yield None, (low, high, spans)


def range_merger(paths: list[str]) -> Callable[[Any], Any]:
    """What a process does that merges ranges of runs."""
    files = [LineFile(Path(path)) for path in paths]

    def merge(job: _RangeJob) -> tuple[int, bytes]:
        lines = _of_range(files, job)
        return len(lines), b"".join(lines)

    return merge


def range_difference(settings: tuple[int, list[str]]) -> Callable[[Any], Any]:
    """What a process does that compares ranges of the runs of two datasets."""
    count_of_old, paths = settings
    files = [LineFile(Path(path)) for path in paths]

    def compare(job: _RangeJob) -> tuple[list[bytes], list[bytes]]:
        low, high, spans = job
        old = _of_range(files[:count_of_old], (low, high, spans[:count_of_old]))
        new = _of_range(files[count_of_old:], (low, high, spans[count_of_old:]))
        return [line for line in old if line not in new], [line for line in new if line not in old]

    return compare


def range_update(paths: list[str]) -> Callable[[Any], Any]:
    """What a process does that merges ranges of runs, and compares them with those of the first file."""
    old, *runs = [LineFile(Path(path)) for path in paths]

    def update(job: _RangeJob) -> tuple[int, bytes, list[bytes], list[bytes]]:
        low, high, spans = job
        lines = _of_range(runs, (low, high, spans[1:]))
        block = b"".join(lines)
        return len(lines), block, *block_difference(_octets_of([old], (low, high, spans[:1])), block)

    return update


def _of_range(files: list[LineFile], job: _RangeJob) -> dict[bytes, None]:
    """The lines of a range, in order, each once."""
    lines = _octets_of(files, job).splitlines(keepends=True)
    lines.sort()  # the pieces are in order: they are merged
    return dict.fromkeys(lines)


def _octets_of(files: list[LineFile], job: _RangeJob) -> bytes:
    """What each file has of a range, one after the other."""
    low, high, spans = job
    pieces = []
    for file, (start, end) in zip(files, spans, strict=True):
        begin = file.position(low, start, end) if low else start
        stop = file.position(high, begin, end) if high else end
        if begin < stop:
            pieces.append(file.read(begin, stop))
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)
