"""Syntaxes of RDF, by media type and suffix (TIM-11, TIM-12, TIM-A8)."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pyoxigraph import RdfFormat

from headwater.rdf import N_QUADS_DIFF

NQUD_SUFFIX: Final = "nqud"


@dataclass(frozen=True, slots=True)
class Syntax:
    """A syntax of RDF. `name` is what options call it; the first media type and suffix are those that we write."""

    name: str
    title: str
    media_types: tuple[str, ...]
    suffixes: tuple[str, ...]
    is_lines: bool = False  # a statement a line: N-Quads and N-Triples

    @property
    def media_type(self) -> str:
        """The media type that we write."""
        return self.media_types[0]

    @property
    def parser_format(self) -> RdfFormat:
        """What the parser calls it."""
        found = RdfFormat.from_media_type(self.media_type)
        assert found is not None
        return found


N_QUADS: Final = Syntax("nquads", "N-Quads", ("application/n-quads",), ("nq",), is_lines=True)
N_TRIPLES: Final = Syntax("ntriples", "N-Triples", ("application/n-triples",), ("nt",), is_lines=True)
TURTLE: Final = Syntax("turtle", "Turtle", ("text/turtle", "application/x-turtle"), ("ttl",))
TRIG: Final = Syntax("trig", "TriG", ("application/trig", "application/x-trig"), ("trig",))
RDF_XML: Final = Syntax("rdfxml", "RDF/XML", ("application/rdf+xml",), ("rdf", "xml", "owl"))
JSON_LD: Final = Syntax("jsonld", "JSON-LD", ("application/ld+json",), ("jsonld",))
N3: Final = Syntax("n3", "N3", ("text/n3", "text/rdf+n3"), ("n3",))
"""Known in order to be refused: a file that is left out in silence would be missing from a dataset."""


@dataclass(frozen=True, slots=True)
class RdfInput:
    """A file of a dataset. `base` is the IRI against which relative ones are resolved; without it they are refused."""

    path: Path
    syntax: Syntax
    base: str | None = None
    name: str | None = None  # what messages call it, where that is not its path

    @property
    def where(self) -> str:
        """What messages call it."""
        return self.name or str(self.path)


SYNTAXES: Final = (N_QUADS, N_TRIPLES, TURTLE, TRIG, RDF_XML, JSON_LD)
NAMES: Final = {one.name: one for one in (*SYNTAXES, N3)}
_BY_TYPE: Final = {media_type: one for one in NAMES.values() for media_type in one.media_types}
_BY_SUFFIX: Final = {suffix: one for one in NAMES.values() for suffix in one.suffixes}


def syntax_of(media_type: str | None, name: str) -> Syntax | None:
    """The syntax of a file: by its media type if one is given, else by the suffix of its name or path (TIM-11).

    A media type that is given and none of RDF gives None: the type wins. `.gz` at the end of a name is passed over.
    """
    if media_type is not None and (essence := _essence(media_type)):
        return _BY_TYPE.get(essence)
    return _BY_SUFFIX.get(_suffix(name))


def is_patch(media_type: str | None, name: str) -> bool:
    """Whether a file is N-Quads Unified Diff, by its media type or the suffix of its name (TIM-A1, NQUD-03)."""
    return _essence(media_type or "") == N_QUADS_DIFF or _suffix(name) == NQUD_SUFFIX


def _essence(media_type: str) -> str:
    return media_type.partition(";")[0].strip().lower()


def _suffix(name: str) -> str:
    last = name.replace("\\", "/").rpartition("/")[2].partition("?")[0].partition("#")[0].lower()
    _stem, dot, suffix = last.removesuffix(".gz").rpartition(".")
    return suffix if dot else ""
