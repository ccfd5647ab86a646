"""A dataset written in a syntax of choice, and proved: what was written is read again, and is the same dataset."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from xml.parsers.expat import ExpatError, ParserCreate

from pyoxigraph import Quad, RdfFormat, Triple, parse, serialize

from headwater.rdf.canonical import BlankNodes, DatasetSummary, RdfOptions, write_canonical
from headwater.rdf.faults import BOUNDS, BadRdf, RdfBounds
from headwater.rdf.syntaxes import RDF_XML, RdfInput, Syntax

_WITH_GRAPHS = ("nquads", "trig", "jsonld")


def write_syntax(
    inputs: Sequence[RdfInput], target: Path, syntax: Syntax, *, scratch: Path, bounds: RdfBounds = BOUNDS
) -> DatasetSummary:
    """Write the dataset of files in a syntax at `target`: the same octets for the same dataset. Gives the dataset.

    Raises BadRdf for what the syntax cannot say: named graphs in most, some predicates and characters in RDF/XML.
    """
    with tempfile.TemporaryDirectory(prefix="rdf-", dir=scratch) as name:
        folder = Path(name)
        dataset = _canonical(inputs, folder / "dataset", bounds)
        try:
            serialize(_statements(folder / "dataset", syntax), str(target), syntax.parser_format)
            if syntax is RDF_XML:
                _check_xml(target)  # the parser of RDF reads what is no XML
            again = _canonical([RdfInput(target, syntax, name="what was written")], folder / "again", bounds)
        except (BadRdf, OSError, ValueError, ExpatError) as error:
            raise _unsaid(inputs, syntax, str(error)[:300]) from error
        if again.sha256 != dataset.sha256:
            raise _unsaid(inputs, syntax, "it is another dataset when it is read again")
    return dataset


def _check_xml(path: Path) -> None:
    """Raise ExpatError where a file is not well-formed XML."""
    with path.open("rb") as file:
        ParserCreate(namespace_separator=" ").ParseFile(file)


def _canonical(inputs: Sequence[RdfInput], target: Path, bounds: RdfBounds) -> DatasetSummary:
    return write_canonical(
        inputs, target, scratch=target.parent, durable=False, options=RdfOptions(BlankNodes.CANONICAL, bounds=bounds)
    )


def _unsaid(inputs: Sequence[RdfInput], syntax: Syntax, why: str) -> BadRdf:
    return BadRdf(f"{syntax.title} cannot say this: {why}", where=", ".join(one.where for one in inputs[:3]))


def _statements(dataset: Path, syntax: Syntax) -> Iterator[Quad] | Iterator[Triple]:
    quads = parse(path=dataset, format=RdfFormat.N_QUADS)
    return iter(quads) if syntax.name in _WITH_GRAPHS else _triples(quads)


def _triples(quads: Iterator[Quad]) -> Iterator[Triple]:
    for quad in quads:
        if (graph := str(quad.graph_name)) != "DEFAULT":
            raise ValueError(f"it has no named graphs, and there is {graph}")
        yield quad.triple
