"""Documents in syntaxes that are not lines, parsed by a process of their own: a document that takes for ever, or at
which the parser dies, ends that process and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from pyoxigraph import parse

from headwater.processes.limited import JobEnded, do_limited, limit_memory
from headwater.rdf.faults import BadRdf, RdfBounds, RdfTooCostly
from headwater.rdf.lines.reading import OctetStream, octets
from headwater.rdf.lines.statements import canonical_quads, syntax_fault
from headwater.rdf.syntaxes import N3, NAMES, RdfInput

_QUADS = 10_000
_BATCH = 500
_BATCH_OCTETS = 32 << 20
"""So many documents, of so many octets, are parsed by one process."""
_OCTETS_A_SECOND = 100_000
"""A document that is parsed more slowly is hostile: the parser is a hundred times as fast."""

_Document = tuple[str, str, str | None, str]
_Fault = tuple[int, bool, str, int | None, str | None]


def parsed_files(inputs: Iterable[RdfInput], folder: Path, bounds: RdfBounds) -> Iterator[tuple[RdfInput, Path]]:
    """Each document, with a file below `folder` of its statements as canonical lines, in no order.

    Raises BadRdf, RdfTooCostly.
    """
    number = 0
    for batch in _batches(inputs):
        targets = [folder / f"parsed-{number + offset}" for offset in range(len(batch))]
        number += len(batch)
        try:
            _parse(batch, targets, bounds)
        except JobEnded:
            for one, target in zip(batch, targets, strict=True):  # which of them?
                try:
                    _parse([one], [target], bounds)
                except JobEnded as error:
                    raise RdfTooCostly(f"the document cannot be parsed: {error}", where=one.where) from error
        yield from zip(batch, targets, strict=True)


def _batches(inputs: Iterable[RdfInput]) -> Iterator[list[RdfInput]]:
    batch: list[RdfInput] = []
    length = 0
    for one in inputs:
        batch.append(one)
        length += one.path.stat().st_size
        if length >= _BATCH_OCTETS or len(batch) >= _BATCH:
            yield batch
            batch, length = [], 0
    if batch:
        yield batch


def _parse(batch: Sequence[RdfInput], targets: Sequence[Path], bounds: RdfBounds) -> None:
    documents = [(str(one.path), one.syntax.name, one.base, one.where) for one in batch]
    length = sum(one.path.stat().st_size for one in batch)
    fault: _Fault = do_limited(
        document_parser,
        (documents, [str(path) for path in targets], bounds.octets),
        seconds=bounds.parser_seconds + length / _OCTETS_A_SECOND,
        octets=bounds.parser_octets,
    )
    number, too_costly, what, line, rule = fault
    if number >= 0:
        raise (RdfTooCostly if too_costly else BadRdf)(what, where=batch[number].where, line=line, rule=rule)


def document_parser(memory: int) -> Callable[[Any], Any]:
    """What the process does: it writes the statements of each document to its file, up to the first fault."""
    limit_memory(memory)

    def parsed(job: tuple[list[_Document], list[str], int]) -> _Fault:
        documents, targets, most = job
        for number, ((path, syntax, base, where), target) in enumerate(zip(documents, targets, strict=True)):
            one = RdfInput(Path(path), NAMES[syntax], base, where)
            try:
                with open(target, "wb") as file:
                    file.writelines(_statements(one, RdfBounds(octets=most)))
            except BadRdf as error:
                what = error.what if error.line is None else error.what.partition(": ")[2]
                return number, isinstance(error, RdfTooCostly), what, error.line, error.rule
        return -1, False, "", None, None

    return parsed


def _statements(one: RdfInput, bounds: RdfBounds) -> Iterator[bytes]:
    try:
        with one.path.open("rb") as file:
            stream = OctetStream(octets(file, one.where, bounds))
            quads = parse(stream, one.syntax.parser_format, base_iri=one.base)  # type: ignore[arg-type]
            while some := list(islice(quads, _QUADS)):
                block = canonical_quads(some, one.where)
                if one.syntax is N3 and any(str(quad.graph_name).startswith("_:") for quad in some):
                    raise BadRdf("formulas of N3 are no RDF dataset", where=one.where)
                yield block
    except SyntaxError as error:
        raise syntax_fault(error, one.where) from error
    except ValueError as error:
        raise BadRdf(str(error), where=one.where) from error
    except MemoryError as error:
        raise BadRdf("a token is too long", where=one.where) from error
