"""`headwater rdf convert`: every syntax says the same, or it is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from headwater.rdf import BadRdf
from headwater.rdf.canonical import write_syntax
from headwater.rdf.syntaxes import N_QUADS, SYNTAXES, RdfInput, Syntax
from tests.support.program import run_here

TRIPLES = """<http://e.org/a> <http://e.org/p> "Über <&> 'x' \\"y\\"\\n"@de-at .
<http://e.org/a> <http://e.org/q> _:x .
_:x <http://e.org/q> "01"^^<http://www.w3.org/2001/XMLSchema#integer> .
_:x <http://e.org/q> " a\\tb" .
"""
GRAPH = '<http://e.org/a> <http://e.org/p> "in a graph" <http://e.org/g> .\n'


def written(folder: Path, text: str, syntax: Syntax, name: str = "out") -> bytes:
    (folder / "in.nq").write_text(text)
    write_syntax([RdfInput(folder / "in.nq", N_QUADS)], folder / name, syntax, scratch=folder)
    return (folder / name).read_bytes()


@pytest.mark.parametrize("syntax", SYNTAXES, ids=lambda one: one.name)
def test_every_syntax_says_the_same(syntax: Syntax, tmp_path: Path) -> None:
    first = written(tmp_path, TRIPLES, syntax)
    lines = TRIPLES.replace("_:x", "_:other").splitlines(keepends=True)
    assert written(tmp_path, "".join(reversed(lines)), syntax) == first
    if syntax.name in {"nquads", "trig", "jsonld"}:
        assert b"in a graph" in written(tmp_path, TRIPLES + GRAPH, syntax)
    else:
        with pytest.raises(BadRdf, match="named graphs"):
            written(tmp_path, TRIPLES + GRAPH, syntax)


NAMESPACES = """<http://x.org/s> <http://www.w3.org/1999/02/22-rdf-syntax-ns#type> <http://xmlns.com/foaf/0.1/Person> .
<http://x.org/s> <http://xmlns.com/foaf/0.1/name> "S" .
<http://x.org/s> <http://my.org/terms#born> "1950-01-01"^^<http://www.w3.org/2001/XMLSchema#date> .
<http://x.org/s> <http://other.org/no-name/1> "x" .
"""


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("turtle", (b"@prefix foaf: <http://xmlns.com/foaf/0.1/>", b"foaf:Person", b"ns1:born", b"^^xsd:date")),
        ("trig", (b"@prefix ns1: <http://my.org/terms#>", b"foaf:name")),
        ("rdfxml", (b'xmlns:foaf="http://xmlns.com/foaf/0.1/"', b"<foaf:name>", b"<ns1:born ")),
    ],
)
def test_namespaces_have_prefixes(name: str, said: tuple[bytes, ...], tmp_path: Path) -> None:
    """The usual one of a vocabulary; others are numbered in the order of their IRIs, so that octets stay the same."""
    text = NAMESPACES if name != "rdfxml" else NAMESPACES.replace("no-name/1", "no-name/p")
    syntax = next(one for one in SYNTAXES if one.name == name)
    first = written(tmp_path, text, syntax)
    assert all(one in first for one in said), first.decode()
    assert b"skos" not in first
    assert written(tmp_path, "".join(reversed(text.splitlines(keepends=True))), syntax) == first


@pytest.mark.parametrize(
    "line",
    ['<http://e.org/a> <http://e.org/1> "x" .\n', '<http://e.org/a> <http://e.org/p> "\\u0001" .\n'],
    ids=["a predicate without a name", "a character that XML has not"],
)
def test_what_rdf_xml_cannot_say_is_refused(line: str, tmp_path: Path) -> None:
    with pytest.raises(BadRdf, match="RDF/XML cannot say this"):
        written(tmp_path, line, next(one for one in SYNTAXES if one.name == "rdfxml"))


def test_the_suffix_says_the_syntax(tmp_path: Path) -> None:
    (tmp_path / "in.nq").write_text(TRIPLES)
    done = run_here("rdf", "convert", tmp_path / "in.nq", "-o", tmp_path / "out.ttl", "--json")
    told = json.loads(done.stdout)
    assert (told["media_type"], told["quads"]) == ("text/turtle", 4)
    assert told["sha256"] == run_here("rdf", "hash", tmp_path / "out.ttl").stdout.decode().strip()
    assert run_here("rdf", "convert", tmp_path / "in.nq", "--to", "jsonld").stdout.startswith(b"[")
    assert run_here("rdf", "convert", tmp_path / "in.nq").returncode == 2
