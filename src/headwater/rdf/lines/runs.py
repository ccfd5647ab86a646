"""Sorted runs, the external merge sort of lines: each is a file of what fits into memory, sorted, each line once.

To merge runs, their lines are cut into ranges such that what all runs have of a range fits into memory, too; processes
sort ranges. Where that cannot be, since lines are long and begin alike, lines are compared in their files, one by one.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from heapq import merge
from itertools import accumulate, groupby, pairwise, repeat
from operator import eq, itemgetter
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from headwater.processes.pool import ProcessPool, WorkerProgram
from headwater.processes.processors import processors
from headwater.rdf.faults import RdfBounds
from headwater.rdf.lines.block_difference import block_difference
from headwater.rdf.lines.ranges import LineFile, LineInFile

_SAMPLES = 64
"""Lines of a run that are remembered, to cut ranges."""
_MOST_RUNS = 200
"""More runs are merged to fewer first: each is an open file."""
_MERGED = 4 << 20
"""Octets of a range of a merge."""
_FEW = 8 * _MERGED
"""Up to so many octets are merged in this process: others would not have started yet."""
_KEY = 4 << 10
"""So many octets of a line are remembered: it and those after it are not less than they."""
_LARGEST = 32 << 20
"""More octets of a range are not read at once."""
_AHEAD = 2

T = TypeVar("T")

_RangeJob = tuple[bytes, bytes, list[tuple[int, int]]]


class SortedRun(NamedTuple):
    """A file of sorted lines, each once: how many, and the beginnings of some of them with where they are, the first
    among them, and the beginning of the last."""

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


def _in_turn(
    function: Callable[[Any], Callable[[Any], Any]], settings: Any, runs: list[SortedRun]
) -> Iterator[tuple[_RangeJob | None, Iterator[Any]]]:
    """What `function(settings)` makes of each range of runs, in order, in this process while there are few octets; and
    in their turn the ranges that are too large to be read at once, for the caller."""
    few = sum(run.octets for run in runs) <= _FEW
    here = function(settings)
    for is_large, some in groupby(_range_jobs(runs), lambda weighed: weighed[0] > _LARGEST):
        if is_large:
            yield from ((job, iter(())) for _octets, job in some)
        elif few:
            yield None, (here(job) for _octets, job in some)
        else:
            yield None, (answer for _octets, answer in in_processes(function, settings, some))


def _aligned(paths: list[str], job: _RangeJob, old: int) -> Iterator[tuple[LineInFile, bool, bool]]:
    """The lines of a range in order, each once, and whether one of the first `old` files has it, and one of others."""
    low, high, spans = job
    streams = []
    for number, (path, (start, end)) in enumerate(zip(paths, spans, strict=True)):
        if start < end:
            file = LineFile(Path(path))
            begin = file.position(low, start, end) if low else start
            stop = file.position(high, begin, end) if high else end
            streams.append(zip(file.lines(begin, stop), repeat(number < old)))
    held: LineInFile | None = None
    is_old = is_new = False
    for line, of_old in merge(*streams, key=itemgetter(0)):
        if held is None or held < line:
            if held is not None:
                yield held, is_old, is_new
            held, is_old, is_new = line, False, False
        is_old, is_new = is_old or of_old, is_new or not of_old
    if held is not None:
        yield held, is_old, is_new


def write_run(path: Path, lines: list[bytes]) -> SortedRun | None:
    """Sort lines, in their list, and write each once as a run; None: there are none."""
    if not lines:
        return None
    lines.sort()
    if any(map(eq, lines, lines[1:])):
        lines = list(dict.fromkeys(lines))
    offsets = list(accumulate(map(len, lines), initial=0))
    step = max(1, offsets[-1] // _SAMPLES)
    samples, start = [], 0
    with path.open("wb") as file:
        while start < len(lines):
            end = min(len(lines), bisect_left(offsets, offsets[start] + step, start + 1))
            if end - start > 1 and len(lines[end - 1]) > step:
                end -= 1  # a long line stands by itself
            samples.append((lines[start][:_KEY], offsets[start]))
            file.write(b"".join(lines[start:end]))
            start = end
    return SortedRun(str(path), len(lines), offsets[-1], samples, lines[-1][:_KEY])


def merged(runs: list[SortedRun], bounds: RdfBounds) -> Iterator[tuple[int, bytes]]:
    """All lines of runs in order, each once: blocks, with the number of their lines. The runs' files are removed."""
    runs = sorted(_few(runs, bounds), key=lambda run: run.samples[0])
    if all(one.last < other.samples[0][0] for one, other in pairwise(runs)):
        for run in runs:
            yield from _read(run)
        return
    paths = [run.path for run in runs]
    for job, answers in _in_turn(range_merger, paths, runs):
        for number, block in answers:
            if number:
                yield number, block
        if job is not None:
            yield from ((1, line.octets()) for line, _is_old, _is_new in _aligned(paths, job, 0))
    for run in runs:
        Path(run.path).unlink()


def differing(
    old: list[SortedRun], new: list[SortedRun], bounds: RdfBounds
) -> Iterator[tuple[list[bytes], list[bytes]]]:
    """What is in the runs of one dataset only, and what is in those of the other, in order, as lists of lines."""
    old, new = (_few(runs, bounds) for runs in (old, new))
    settings = (len(old), [run.path for run in (*old, *new)])
    for job, answers in _in_turn(range_difference, settings, [*old, *new]):
        yield from answers
        for line, is_old, is_new in _aligned(settings[1], job, len(old)) if job is not None else ():
            if is_old is not is_new:
                yield ([line.octets()], []) if is_old else ([], [line.octets()])


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
    paths = [run.path for run in runs]
    for job, answers in _in_turn(range_update, paths, runs):
        for answer in answers:
            yield MergedBlock(*answer)
        for line, is_old, is_new in _aligned(paths, job, 1) if job is not None else ():
            octets = b"" if is_old and not is_new else line.octets()
            gone = [] if is_new else [line.octets()]
            yield MergedBlock(int(is_new), octets, gone, [] if is_old else [octets])
    for run in runs[1:]:
        Path(run.path).unlink()


def _run_of(path: Path, bounds: RdfBounds) -> SortedRun | None:
    """A sorted file as a run; None: it is empty. Its lines are not counted."""
    with closing(LineFile(path, bounds)) as file:
        if not file.octets:
            return None
        count = max(_SAMPLES, 2 * file.octets // _MERGED)
        found = [file.head_at(file.octets * number // count, _KEY) for number in range(count)]
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
            if not samples or octets - samples[-1][1] >= _MERGED // 4:
                samples.append((block[: block.index(b"\n") + 1][:_KEY], octets))
            octets += file.write(block)
            lines += number
            last = block[block.rfind(b"\n", 0, -1) + 1 :][:_KEY]
    return SortedRun(str(path), lines, octets, samples, last)


def _range_jobs(runs: list[SortedRun]) -> Iterator[tuple[int, _RangeJob]]:
    """About how many octets a range has; where it begins and ends (b"": no bound), and for each run between which
    offsets its lines lie at most."""
    lines = [[line for line, _offset in run.samples] for run in runs]
    offsets = [[*(offset for _line, offset in run.samples), run.octets] for run in runs]
    weighted = sorted(
        (line, end - start)
        for begin, known in zip(lines, offsets, strict=True)
        for line, (start, end) in zip(begin, pairwise(known), strict=True)
    )
    pivots, weights = [b""], [0]
    for line, octets in weighted:
        if weights[-1] and weights[-1] + octets >= _MERGED and line > pivots[-1]:
            pivots.append(line)
            weights.append(0)
        weights[-1] += octets
    for weight, (low, high) in zip(weights, pairwise([*pivots, b""]), strict=True):
        spans = []
        for run, begin, known in zip(runs, lines, offsets, strict=True):
            first = bisect_left(begin, low) if low else 0
            if run.lines != len(begin):  # lines that are not remembered may be of the range
                first = max(0, first - 1)
            last = bisect_left(begin, high) if high else len(begin)
            spans.append((known[first], known[last]))
        yield weight, (low, high, spans)


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
        if start >= end:
            continue
        begin = file.position(low, start, end) if low else start
        stop = file.position(high, begin, end) if high else end
        if begin < stop:
            pieces.append(file.read(begin, stop))
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)
