"""RDF datasets: canonical N-Quads files of any size, N-Quads Unified Diff between them; what may be wrong with RDF."""

from dataclasses import dataclass

from headwater.errors import SourceFault

N_QUADS_DIFF = "application/vnd.timbuctoo-rdf.nquads_unified_diff"
"""The media type of N-Quads Unified Diff (NQUD-03, TIM-A13)."""
PREFIXES = {
    "bf": "http://id.loc.gov/ontologies/bibframe/",
    "crm": "http://www.cidoc-crm.org/cidoc-crm/",
    "dc": "http://purl.org/dc/elements/1.1/",
    "dcat": "http://www.w3.org/ns/dcat#",
    "dcterms": "http://purl.org/dc/terms/",
    "edm": "http://www.europeana.eu/schemas/edm/",
    "foaf": "http://xmlns.com/foaf/0.1/",
    "geo": "http://www.w3.org/2003/01/geo/wgs84_pos#",
    "ore": "http://www.openarchives.org/ore/terms/",
    "owl": "http://www.w3.org/2002/07/owl#",
    "prov": "http://www.w3.org/ns/prov#",
    "rdf": "http://www.w3.org/1999/02/22-rdf-syntax-ns#",
    "rdfs": "http://www.w3.org/2000/01/rdf-schema#",
    "schema": "http://schema.org/",
    "schemas": "https://schema.org/",
    "sd": "http://www.w3.org/ns/sparql-service-description#",
    "skos": "http://www.w3.org/2004/02/skos/core#",
    "spdx": "http://spdx.org/rdf/terms#",
    "void": "http://rdfs.org/ns/void#",
    "xsd": "http://www.w3.org/2001/XMLSchema#",
}
"""Prefixes that are usual for vocabularies; others are numbered."""


class BadRdf(SourceFault):
    """A file is not RDF in the syntax that it claims, or holds what a dataset of ours cannot have. `line` is where, if
    that is known, `said` what is wrong there. Nothing of the file is used."""

    code = "HW-RDF-01"

    def __init__(self, what: str, *, where: str | None = None, line: int | None = None, rule: str | None = None):
        super().__init__(what if line is None else f"line {line}: {what}", where=where, rule=rule)
        self.said, self.line = what, line


class BadRdfPatch(BadRdf):
    """An N-Quads Unified Diff is malformed (NQUD-A3). Nothing of it is applied."""

    code = "HW-RDF-02"


class RdfTooCostly(BadRdf):
    """RDF is beyond the bounds on octets, blank nodes or time: a graph whose blank nodes take for ever, a bomb."""

    code = "HW-RDF-03"


class BlankNodesRefused(BadRdf):
    """A dataset has blank nodes where they are refused: no patch can name them (NQUD-A6)."""

    code = "HW-RDF-04"


Fault = tuple[str, str, int | None, str | None]
"""What one process tells another of a `BadRdf`: its code, what is wrong, on which line, by which rule."""

_KINDS = {kind.code: kind for kind in (BadRdf, BadRdfPatch, RdfTooCostly, BlankNodesRefused)}


def fault_of(error: BadRdf) -> Fault:
    """An error as another process is told of it."""
    return error.code, error.said, error.line, error.rule


def bad_rdf(fault: Fault, where: str) -> BadRdf:
    """The error that another process has told of."""
    code, said, line, rule = fault
    return _KINDS[code](said, where=where, line=line, rule=rule)


@dataclass(frozen=True, slots=True)
class RdfBounds:
    """Bounds on what is read."""

    line_octets: int = 16 << 20  # of one line, as the parser has it for one statement
    octets: int = 1 << 42  # of one file, inflated
    gzip_members: int = 200_000
    """Of one file, where they have next to no content: no octet of empty ones comes out that would be counted."""
    run_octets: int = 12 << 20  # lines that are sorted in memory; more are sorted by sort(1)
    blank_statements: int = 1_000_000  # statements with blank nodes that are to be named: they are held in memory
    blank_seconds: float = 60.0  # time to name the blank nodes of a dataset; there are graphs that take for ever
    parser_seconds: float = 60.0  # time to parse a document, beside ten seconds for each million octets
    parser_octets: int = 2 << 30  # memory of a process that parses or names blank nodes


BOUNDS = RdfBounds()
