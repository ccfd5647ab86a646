"""Canonical N-Quads: one form for each dataset, sorted bytewise, each statement once, whatever it was written in."""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from enum import Enum
from itertools import count
from pathlib import Path

from headwater.rdf.faults import BOUNDS, BlankNodesRefused, DatasetChanges, RdfBounds
from headwater.rdf.lines.blank_nodes import NamedLines
from headwater.rdf.lines.parsing import DocumentNodes, parsed_files
from headwater.rdf.lines.ranges import LineFile
from headwater.rdf.lines.reading import is_plain, line_blocks, octets
from headwater.rdf.lines.run_making import RunJob, made_runs
from headwater.rdf.lines.runs import SortedRun, merged
from headwater.rdf.lines.statements import canonical_block, has_blanks, refuse_blanks
from headwater.rdf.syntaxes import N_QUADS, N_TRIPLES, RdfInput


class BlankNodes(Enum):
    """What becomes of blank nodes (NQUD-A6)."""

    REFUSED = "refuse"
    """BlankNodesRefused is raised."""
    REPLACED = "iris"
    """By stable IRIs below a prefix, which change only where what is said of them changes (RDF 1.1 section 3.5)."""
    CANONICAL = "canonical"
    """They get the labels of RDFC-1.0: the same for the same dataset, but others after a change."""
    KEPT = "keep"
    """Their labels stay as they are: of one file in a syntax with labels."""


@dataclass(frozen=True, slots=True)
class RdfOptions:
    """How RDF is taken: what becomes of its blank nodes, and within which bounds.

    `genid` is the prefix of the IRIs by which blank nodes are REPLACED (`https://…/.well-known/genid/`).
    """

    blank_nodes: BlankNodes = BlankNodes.REFUSED
    genid: str | None = None
    bounds: RdfBounds = BOUNDS


NO_BLANK_NODES = RdfOptions()
"""Blank nodes are refused, and the usual bounds hold."""
LABELS_KEPT = RdfOptions(BlankNodes.KEPT)
"""Blank nodes keep their labels."""


@dataclass(frozen=True, slots=True)
class DatasetSummary:
    """What was written: the number of statements, the octets and their SHA-256 (hexadecimal)."""

    quads: int
    octets: int
    sha256: str


def write_canonical(
    inputs: Iterable[RdfInput],
    target: Path,
    *,
    scratch: Path,
    options: RdfOptions = NO_BLANK_NODES,
    durable: bool = True,
) -> DatasetSummary:
    """Write the union of files as canonical N-Quads at `target`, which is replaced as a whole or not touched.

    Runs are kept in a folder of its own below `scratch`. Unless it is `durable` a power failure may take the file
    away. Raises BadRdf and its kinds.
    """
    with tempfile.TemporaryDirectory(prefix="rdf-", dir=scratch) as folder:
        runs = DatasetRuns(Path(folder), options).made_of(inputs)
        return write_blocks(merged(runs, options.bounds), target, durable=durable)


_DOCUMENT_NODES = {
    BlankNodes.REFUSED: DocumentNodes.REFUSED,
    BlankNodes.KEPT: DocumentNodes.KEPT,
    BlankNodes.REPLACED: DocumentNodes.APART,
    BlankNodes.CANONICAL: DocumentNodes.APART,
}


class DatasetRuns:
    """The sorted runs of the files of a dataset, in a folder; its blank nodes are treated as told."""

    def __init__(self, folder: Path, options: RdfOptions) -> None:
        self._folder = folder
        self._bounds = options.bounds
        self._treated = options.blank_nodes
        is_replaced = self._treated is BlankNodes.REPLACED
        self._named = NamedLines(options.bounds, options.genid if is_replaced else None)
        self._with_blanks: RdfInput | None = None
        self._runs: list[SortedRun] = []
        self._names = count()

    def made_of(self, inputs: Iterable[RdfInput]) -> list[SortedRun]:
        """The runs of all statements of the files. Raises BadRdf, DatasetChanges."""
        self._take(inputs)
        for block in self._named.blocks():
            job = RunJob(next(self._names), "", 0, 0, block, triples=False)
            self._runs += [
                made.run for _none, made in made_runs([(None, job)], self._folder, keep_blanks=True) if made.run
            ]
        return self._runs

    def _take(self, inputs: Iterable[RdfInput]) -> None:
        seen: list[tuple[RdfInput, tuple[int, ...]]] = []
        jobs = self._jobs(self._lines(inputs, seen))
        for (number, one, path), made in made_runs(jobs, self._folder, keep_blanks=self._treated is BlankNodes.KEPT):
            if made.is_bad:
                for _block in line_statements(one, path, self._bounds):
                    pass
                raise DatasetChanges("the file changes while it is read", where=one.where)
            if made.run is not None:
                self._runs.append(made.run)
            if made.blanks:
                self._take_blanks(made.blanks, number, one)
        for one, signature in seen:
            if _signature(one.path) != signature:
                raise DatasetChanges("the file changes while it is read", where=one.where)

    def _take_blanks(self, lines: bytes, number: int, one: RdfInput) -> None:
        if self._treated is BlankNodes.KEPT:
            self._with_blanks = self._with_blanks or one
            if self._with_blanks is not one:
                raise BlankNodesRefused(
                    "labels of blank nodes cannot be kept of two files", where=one.where, rule="NQUD-A6"
                )
        elif self._treated is BlankNodes.REFUSED:
            if one.syntax.is_lines:
                for _block in line_statements(one, one.path, self._bounds, blanks=False):
                    pass
            refuse_blanks(lines, one.where, None)
        else:
            self._named.take(lines, number, one.where)

    def _lines(
        self, inputs: Iterable[RdfInput], seen: list[tuple[RdfInput, tuple[int, ...]]]
    ) -> Iterator[tuple[RdfInput, Path]]:
        """Each file as one of lines; documents come parsed, after the others."""
        documents = []
        for one in inputs:
            seen.append((one, _signature(one.path)))
            if one.syntax.is_lines:
                yield one, one.path
            else:
                documents.append(one)
        yield from parsed_files(documents, self._folder, self._bounds, _DOCUMENT_NODES[self._treated])

    def _jobs(self, files: Iterable[tuple[RdfInput, Path]]) -> Iterator[tuple[tuple[int, RdfInput, Path], RunJob]]:
        for number, (one, path) in enumerate(files):
            item = (number, one, path)
            triples = one.syntax.is_lines and one.syntax.name == N_TRIPLES.name
            for job in run_jobs(path, one.where, self._bounds, triples=triples):
                yield item, job._replace(number=next(self._names))


def run_jobs(path: Path, where: str, bounds: RdfBounds, *, triples: bool) -> Iterator[RunJob]:
    """The pieces of a file of lines that runs are made of."""
    if is_plain(path):
        with closing(LineFile(path, bounds)) as file:
            start = 0
            while start < file.octets:
                end = file.next_line(min(file.octets, start + bounds.run_octets))[0]
                yield RunJob(0, str(path), start, end, b"", triples)
                start = end
        return
    blocks: list[bytes] = []
    with path.open("rb") as stream:
        for block in line_blocks(octets(stream, where, bounds), where, bounds):
            blocks.append(block)
            if sum(map(len, blocks)) >= bounds.run_octets:
                yield RunJob(0, "", 0, 0, b"".join(blocks), triples)
                blocks = []
    if blocks:
        yield RunJob(0, "", 0, 0, b"".join(blocks), triples)


def _signature(path: Path) -> tuple[int, ...]:
    found = path.stat()
    return found.st_ino, found.st_size, found.st_mtime_ns


def line_statements(one: RdfInput, path: Path, bounds: RdfBounds = BOUNDS, *, blanks: bool = True) -> Iterator[bytes]:
    """The statements of a file of lines as blocks of canonical lines, in its order. Raises BadRdf with the line."""
    line = 1
    with path.open("rb") as file:
        for block in line_blocks(octets(file, one.where, bounds), one.where, bounds):
            parser_format = one.syntax.parser_format if one.syntax.is_lines else N_QUADS.parser_format
            canonical = canonical_block(block, line, one.where, parser_format)
            if not blanks and has_blanks(canonical):
                for number, text in enumerate(block.split(b"\n")[:-1], line):
                    refuse_blanks(canonical_block(text + b"\n", number, one.where, parser_format), one.where, number)
            yield canonical
            line += block.count(b"\n")


def write_blocks(blocks: Iterable[tuple[int, bytes]], target: Path, *, durable: bool = True) -> DatasetSummary:
    """Write blocks of lines that are in order, given with their number, to a file, which gets its name at the end."""
    digest = hashlib.sha256()
    quads = length = 0
    aside = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        with aside.open("wb") as file:
            for number, block in blocks:
                digest.update(block)
                length += file.write(block)
                quads += number
            file.flush()
            if durable:
                os.fsync(file.fileno())
        aside.replace(target)
    finally:
        aside.unlink(missing_ok=True)
    return DatasetSummary(quads, length, digest.hexdigest())
