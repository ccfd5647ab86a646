"""Canonical N-Quads: one form for each dataset, sorted bytewise, each statement once, whatever it was written in."""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from itertools import islice
from pathlib import Path

from pyoxigraph import parse

from headwater.rdf.faults import BOUNDS, BadRdf, BlankNodesRefused, RdfBounds
from headwater.rdf.lines.blank_nodes import NamedLines
from headwater.rdf.lines.reading import OctetStream, line_blocks, octets
from headwater.rdf.lines.sorting import LineSorter
from headwater.rdf.lines.statements import HAS_BLANK, canonical_block, canonical_quads, refuse_blanks, syntax_fault
from headwater.rdf.syntaxes import N3, Syntax

_QUADS = 10_000


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
class RdfInput:
    """A file of a dataset. `base` is the IRI against which relative ones are resolved; without it they are refused."""

    path: Path
    syntax: Syntax
    base: str | None = None
    name: str | None = None
    """What messages call it, where that is not its path."""

    @property
    def where(self) -> str:
        """What messages call it."""
        return self.name or str(self.path)


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
    blank_nodes: BlankNodes = BlankNodes.REFUSED,
    genid: str | None = None,
    bounds: RdfBounds = BOUNDS,
) -> DatasetSummary:
    """Write the union of files as canonical N-Quads at `target`, which is replaced as a whole or not touched.

    Runs are kept in a folder of its own below `scratch`. `genid` is the prefix of the IRIs by which blank nodes are
    replaced (`https://…/.well-known/genid/`). Raises BadRdf and its kinds.
    """
    with tempfile.TemporaryDirectory(prefix="rdf-", dir=scratch) as folder:
        sorter = LineSorter(Path(folder), bounds)
        named = NamedLines(bounds, genid if blank_nodes is BlankNodes.REPLACED else None)
        first_with_blanks: RdfInput | None = None
        for number, one in enumerate(inputs):
            for block in statements(one, bounds):
                if b"_:" not in block or HAS_BLANK.search(block) is None:
                    sorter.add(block)
                    continue
                if blank_nodes is BlankNodes.REFUSED:
                    refuse_blanks(block, one.where, None)
                if blank_nodes is BlankNodes.KEPT:
                    first_with_blanks = first_with_blanks or one
                    if first_with_blanks is not one:
                        raise BlankNodesRefused(
                            "labels of blank nodes cannot be kept of two files", where=one.where, rule="NQUD-A6"
                        )
                    sorter.add(block)
                else:
                    sorter.add(named.take(block, number, one.where))
        for block in named.blocks():
            sorter.add(block)
        return write_sorted(sorter.lines(), target)


def statements(one: RdfInput, bounds: RdfBounds = BOUNDS) -> Iterator[bytes]:
    """The statements of a file as blocks of canonical lines, in the order of the file. Raises BadRdf."""
    try:
        with one.path.open("rb") as file:
            pieces = octets(file, one.where, bounds)
            if one.syntax.is_lines:
                line = 1
                for block in line_blocks(pieces, one.where, bounds):
                    yield canonical_block(block, line, one.where, one.syntax.parser_format)
                    line += block.count(b"\n")
            else:
                yield from _parsed(pieces, one)
    except SyntaxError as error:
        raise syntax_fault(error, one.where) from error
    except MemoryError as error:
        raise BadRdf("a token is too long", where=one.where) from error


def _parsed(pieces: Iterator[bytes], one: RdfInput) -> Iterator[bytes]:
    quads = parse(OctetStream(pieces), one.syntax.parser_format, base_iri=one.base)  # type: ignore[arg-type]
    while some := list(islice(quads, _QUADS)):
        block = canonical_quads(some, one.where)
        if one.syntax is N3 and any(str(quad.graph_name).startswith("_:") for quad in some):
            raise BadRdf("formulas of N3 are no RDF dataset", where=one.where)
        yield block


def write_sorted(lines: Iterable[bytes], target: Path) -> DatasetSummary:
    """Write lines that are in order to a file, which gets its name when it is complete."""
    digest = hashlib.sha256()
    quads = length = 0
    source = iter(lines)
    aside = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        with aside.open("wb") as file:
            while some := list(islice(source, _QUADS)):
                block = b"".join(some)
                digest.update(block)
                file.write(block)
                quads += len(some)
                length += len(block)
            file.flush()
            os.fsync(file.fileno())
        aside.replace(target)
    finally:
        aside.unlink(missing_ok=True)
    return DatasetSummary(quads, length, digest.hexdigest())
