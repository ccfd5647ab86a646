"""Documents in syntaxes that are not lines, parsed by a process of their own: a document that takes for ever, or at
which the parser dies, ends that process and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import IntEnum
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

from pyoxigraph import parse

from headwater.processes.limited import JobEnded, do_limited, limit_memory
from headwater.rdf.faults import BadRdf, BlankNodesRefused, RdfBounds, RdfTooCostly
from headwater.rdf.lines.blank_nodes import relabelled
from headwater.rdf.lines.reading import OctetStream, octets
from headwater.rdf.lines.statements import canonical_quads, has_blanks, refuse_blanks, syntax_fault
from headwater.rdf.lines.xml_documents import bounded_entities, in_utf8, with_canonical_literals
from headwater.rdf.syntaxes import N3, NAMES, RDF_XML, RdfInput

_QUADS = 10_000
_BATCH = 500
_BATCH_OCTETS = 32 << 20
"""So many documents, of so many octets, are parsed by one process."""
_OCTETS_A_SECOND = 100_000
"""A document that is parsed more slowly is hostile: the parser is a hundred times as fast."""

_Document = tuple[str, str, str | None, str]
_Fault = tuple[int, int, str, int | None, str | None]
_FAULTS: tuple[type[BadRdf], ...] = (BadRdf, RdfTooCostly, BlankNodesRefused)


class DocumentNodes(IntEnum):
    """What the process does with blank nodes."""

    REFUSED = 0
    KEPT = 1
    """Their labels stay, of a document with labels. Each document has a file of its own."""
    APART = 2
    """They get labels that no other document has."""


def parsed_files(
    inputs: Iterable[RdfInput], folder: Path, bounds: RdfBounds, nodes: DocumentNodes = DocumentNodes.KEPT
) -> Iterator[tuple[RdfInput, Path]]:
    """Documents, with files below `folder` of their statements as canonical lines, in no order. A file may have those
    of many documents, and stands with the first of them.

    Raises BadRdf, RdfTooCostly, BlankNodesRefused.
    """
    number = 0
    for batch in _batches(inputs, 1 if nodes is DocumentNodes.KEPT else _BATCH):
        target = folder / f"parsed-{number}"
        try:
            _parse(batch, number, target, bounds, nodes)
        except JobEnded:
            for one in batch:  # which of them?
                try:
                    _parse([one], number, target, bounds, nodes)
                except JobEnded as error:
                    raise RdfTooCostly(f"the document cannot be parsed: {error}", where=one.where) from error
            raise RdfTooCostly("the documents cannot be parsed together in time", where=batch[0].where) from None
        number += len(batch)
        yield batch[0], target


def _batches(inputs: Iterable[RdfInput], most: int) -> Iterator[list[RdfInput]]:
    batch: list[RdfInput] = []
    length = 0
    for one in inputs:
        batch.append(one)
        length += one.path.stat().st_size
        if length >= _BATCH_OCTETS or len(batch) >= most:
            yield batch
            batch, length = [], 0
    if batch:
        yield batch


def _parse(batch: Sequence[RdfInput], first: int, target: Path, bounds: RdfBounds, nodes: DocumentNodes) -> None:
    documents = [(str(one.path), one.syntax.name, one.base, one.where) for one in batch]
    length = sum(one.path.stat().st_size for one in batch)
    fault: _Fault = do_limited(
        document_parser,
        (documents, first, str(target), bounds.octets, int(nodes)),
        seconds=bounds.parser_seconds + length / _OCTETS_A_SECOND,
        octets=bounds.parser_octets,
    )
    number, kind, what, line, rule = fault
    if number >= 0:
        raise _FAULTS[kind](what, where=batch[number].where, line=line, rule=rule)


def document_parser(memory: int) -> Callable[[Any], Any]:
    """What the process does: it writes the statements of documents to a file, up to the first fault."""
    limit_memory(memory)

    def parsed(job: tuple[list[_Document], int, str, int, int]) -> _Fault:
        documents, first, target, most, nodes = job
        with open(target, "wb") as file:
            for number, (path, syntax, base, where) in enumerate(documents):
                one = RdfInput(Path(path), NAMES[syntax], base, where)
                try:
                    with one.path.open("rb") as document:
                        for block in statements_of(one, document, RdfBounds(octets=most)):
                            file.write(_treated(block, DocumentNodes(nodes), first + number, where))
                except BadRdf as error:
                    what = error.what if error.line is None else error.what.partition(": ")[2]
                    return number, _FAULTS.index(type(error)), what, error.line, error.rule
        return -1, 0, "", None, None

    return parsed


def _treated(block: bytes, nodes: DocumentNodes, document: int, where: str) -> bytes:
    """Canonical lines, their blank nodes treated as told."""
    if nodes is DocumentNodes.KEPT or not has_blanks(block):
        return block
    if nodes is DocumentNodes.REFUSED:
        refuse_blanks(block, where, None)
    return b"".join(
        relabelled(line + b"\n", lambda label: b"_:d%dx%s" % (document, label[2:])) for line in block.split(b"\n")[:-1]
    )


def statements_of(one: RdfInput, file: BinaryIO, bounds: RdfBounds) -> Iterator[bytes]:
    """The statements of an open document as blocks of canonical lines. Raises BadRdf. There are documents at which the
    parser dies: for a limited process."""
    if one.syntax is N3:
        raise BadRdf("N3 is not read: write it in Turtle or TriG", where=one.where)
    try:
        parts = octets(file, one.where, bounds)
        if one.syntax is RDF_XML:
            parts = with_canonical_literals(bounded_entities(in_utf8(parts, one.where), one.where), one.where)
        stream = OctetStream(parts)
        quads = parse(stream, one.syntax.parser_format, base_iri=one.base)  # type: ignore[arg-type]
        while some := list(islice(quads, _QUADS)):
            yield canonical_quads(some, one.where)
    except SyntaxError as error:
        raise syntax_fault(error, one.where) from error
    except ValueError as error:
        raise BadRdf(str(error), where=one.where) from error
    except MemoryError as error:
        raise BadRdf("a token is too long", where=one.where) from error
