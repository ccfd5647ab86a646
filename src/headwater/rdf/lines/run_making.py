"""The making of sorted runs: pieces of files of lines, made canonical and sorted by processes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from pyoxigraph import RdfFormat

from headwater.rdf.faults import BadRdf
from headwater.rdf.lines.ranges import LineFile
from headwater.rdf.lines.reading import ended
from headwater.rdf.lines.runs import SortedRun, in_processes, write_run
from headwater.rdf.lines.statements import HAS_BLANK, canonical_and_blanks

T = TypeVar("T")


class RunJob(NamedTuple):
    """A piece of a file of lines to make a run of: octets, or where they lie (`path`, from, to)."""

    number: int
    path: str
    start: int
    end: int
    octets: bytes
    triples: bool


class MadeRun(NamedTuple):
    """What came of it: a run (None: no lines), and the lines with blank nodes, taken out of it, or where they are kept
    the first of them; or a fault, which the caller finds in the file again to tell it."""

    run: SortedRun | None
    blanks: bytes
    is_bad: bool


def made_runs(jobs: Iterable[tuple[T, RunJob]], folder: Path, *, keep_blanks: bool) -> Iterator[tuple[T, MadeRun]]:
    """The runs of pieces, in order. One job alone is done in this process."""
    for item, answer in in_processes(run_maker, (str(folder), keep_blanks), jobs):
        run, blanks, is_bad = answer
        yield item, MadeRun(SortedRun(*run) if run else None, blanks, is_bad)


def run_maker(settings: tuple[str, bool]) -> Callable[[Any], Any]:
    """What a process does that makes runs."""
    folder, keep_blanks = settings

    def made(job: tuple[int, str, int, int, bytes, bool]) -> tuple[tuple[Any, ...], bytes, bool]:
        number, path, start, end, octets, triples = job
        if path:
            with closing(LineFile(Path(path))) as file:
                octets = file.read(start, end)
        octets = ended(octets) if octets else octets
        try:
            parser_format = RdfFormat.N_TRIPLES if triples else RdfFormat.N_QUADS
            block, has_blanks = canonical_and_blanks(octets, 1, path, parser_format)
        except BadRdf:
            return (), b"", True
        blanks: list[bytes] = []
        lines = block.splitlines(keepends=True)
        if has_blanks:
            blanks = [line for line in lines if b"_:" in line and HAS_BLANK.search(line) is not None]
            if keep_blanks:
                blanks = blanks[:1]
            elif blanks:
                taken = set(blanks)
                lines = [line for line in lines if line not in taken]
        del block, octets
        run = write_run(Path(f"{folder}/run-{number}"), lines)
        return () if run is None else tuple(run), b"".join(blanks), False

    return made
