"""What holds of all datasets and patches, with rdflib as the other reader and writer (Hypothesis)."""

from __future__ import annotations

import io
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import rdflib
from hypothesis import given, settings
from hypothesis import strategies as st
from pyoxigraph import RdfFormat, parse, serialize
from rdflib.compare import isomorphic

from headwater.rdf import BadRdf, blank_nodes, parsing, statements
from headwater.rdf.canonical import BlankNodes, write_canonical
from headwater.rdf.statements import canonical_block
from headwater.rdf.syntaxes import SYNTAXES, RdfInput, Syntax
from headwater.rdf.unified_diff import merge_patches, write_composed
from tests.rdf.datasets import canonical, difference

pytestmark = pytest.mark.filterwarnings("ignore:Dataset:DeprecationWarning")  # of rdflib, by itself

XSD = "http://www.w3.org/2001/XMLSchema#"
NAMES = {"nquads": "nquads", "ntriples": "nt", "turtle": "turtle", "trig": "trig", "rdfxml": "xml", "jsonld": "json-ld"}

IRIS = st.sampled_from([f"http://example.org/{name}" for name in ("a", "b#c", "d?e=f", "é", "%41", "x/y", "ж")])
TEXTS = st.text(st.characters(exclude_categories=["Cs", "Cc", "Cn"]) | st.sampled_from("\n\t\"\\'"), max_size=8)
LITERALS = (
    TEXTS.map(rdflib.Literal)
    | st.tuples(TEXTS, st.sampled_from(["en", "EN-gb", "de-latn-at"])).map(
        lambda one: rdflib.Literal(one[0], lang=one[1])
    )
    | st.sampled_from(["1", "01", "+1"]).map(
        lambda text: rdflib.Literal(text, datatype=rdflib.URIRef(XSD + "gYear"), normalize=False)
    )
)
NODES = IRIS.map(rdflib.URIRef) | st.sampled_from("xyz").map(rdflib.BNode)
PREDICATES = st.sampled_from("pqr").map(lambda name: rdflib.URIRef(f"http://example.org/{name}"))
TRIPLES = st.lists(st.tuples(IRIS.map(rdflib.URIRef), PREDICATES, IRIS.map(rdflib.URIRef) | LITERALS), max_size=8)
TRIPLES_WITH_NODES = st.lists(st.tuples(NODES, PREDICATES, NODES | LITERALS), max_size=6)
STATES = st.sets(st.integers(0, 30), max_size=20)


def graph_of(triples: list[tuple[rdflib.term.Node, ...]]) -> rdflib.Graph:
    graph = rdflib.Graph()
    for triple in triples:
        graph.add(triple)  # type: ignore[arg-type]
    return graph


def lines_of(graph: rdflib.Graph) -> bytes:
    """The triples as N-Triples by rdflib."""
    return graph.serialize(format="nt", encoding="utf-8")


class _Here:
    """A process that is this one."""

    def __init__(self, function: Callable[[int], Callable[[Any], Any]], octets: int) -> None:
        self._do = function(octets)

    def do(self, job: Any, _seconds: float) -> Any:
        return self._do(job)

    def close(self) -> None:
        pass


@pytest.fixture(autouse=True, scope="module")
def _in_this_process() -> Iterator[None]:
    """What processes do of hostile input is done here: a start takes longer than all the rest."""
    with pytest.MonkeyPatch.context() as patched:
        for module in (blank_nodes, parsing):
            patched.setattr(module, "limit_memory", lambda octets: None)
            patched.setattr(module, "LimitedProcess", _Here)
        yield


@contextmanager
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


@pytest.mark.parametrize("syntax", SYNTAXES, ids=lambda one: one.name)
@settings(max_examples=8)
@given(triples=TRIPLES)
def test_every_syntax_gives_the_same_canonical_form(
    syntax: Syntax, triples: list[tuple[rdflib.term.Node, ...]]
) -> None:
    dataset = rdflib.Dataset()
    for triple in triples:
        dataset.add(triple)  # type: ignore[arg-type]
    graph = graph_of(triples)
    written = dataset if syntax.name in {"nquads", "trig"} else graph
    with folder() as place:
        expected = canonical(lines_of(graph), place)
        source, target = place / "in", place / "out"
        source.write_bytes(written.serialize(format=NAMES[syntax.name], encoding="utf-8"))
        write_canonical([RdfInput(source, syntax)], target, scratch=place, durable=False)
        assert target.read_bytes() == expected


@settings(max_examples=15)
@given(TRIPLES_WITH_NODES)
def test_what_is_canonical_is_the_same_graph_for_rdflib(triples: list[tuple[rdflib.term.Node, ...]]) -> None:
    graph = graph_of(triples)
    with folder() as place:
        text = lines_of(graph)
        for treated in (BlankNodes.KEPT, BlankNodes.CANONICAL):
            again = rdflib.Graph().parse(data=canonical(text, place, treated), format="nt")
            # both compare languages and plain literals as they are written
            assert isomorphic(rdflib.Graph().parse(data=canonical(text, place), format="nt"), again)
        replaced = canonical(text, place, BlankNodes.REPLACED)
        assert b"_:" not in replaced.replace(b'"', b"").replace(b"\\", b"") or b'"' in replaced
        assert replaced.count(b"\n") == len(graph_of(triples))


@settings(max_examples=12)
@given(TRIPLES_WITH_NODES, st.randoms(use_true_random=False))
def test_labels_and_order_do_not_matter(triples: list[tuple[rdflib.term.Node, ...]], chance: object) -> None:
    text = lines_of(graph_of(triples))
    names = {f"_:{one}".encode(): f"_:other{number}".encode() for number, one in enumerate("yzx")}
    lines = text.splitlines(keepends=True)
    chance.shuffle(lines)  # type: ignore[attr-defined]
    other = b"".join(b" ".join(names.get(word, word) for word in line.split(b" ")) for line in lines)
    if any(b'"' in line and b" _:" in line[line.index(b'"') :] for line in lines):
        return  # a label within a text
    with folder() as place:
        for treated in (BlankNodes.CANONICAL, BlankNodes.REPLACED):
            assert canonical(text, place, treated) == canonical(other, place, treated)


SEEDS = [
    b'<http://example.org/s> <http://example.org/p> "text"@en <http://example.org/g> .\n',
    b'_:b0 <https://example.org:80/p?q#f> "1"^^<http://www.w3.org/2001/XMLSchema#integer> .\n',
    b'<urn:x:y> <http://e.org/%41/\xc3\xa9> "\\"q\\n\xef\xbf\xbd"^^<http://www.w3.org/2001/XMLSchema#string> _:g .\n',
    b"<http://a/> <http://a> <http://a?> .\n",
]
PIECES = [
    b"",
    b" ",
    b"<",
    b">",
    b'"',
    b"\\",
    b"\\u00e9",
    b"@",
    b"@en",
    b"-Latn",
    b"--ltr",
    b"^^",
    b"_:",
    b".",
    b"#",
    b"%",
]
PIECES += [
    b"%4g",
    b":",
    b"://",
    b"[",
    b"]",
    b"\t",
    b"\r",
    b"\x00",
    b"\x7f",
    b"\xc2\x80",
    b"\xc2\xa0",
    b"\xef\xbf\xbf",
    b"\xee\x80\x80",
]
PIECES += [
    "�\u2028\u200e\ud7ff\U0001f600\U000e0001".encode(),
    b"string",
    b"http://www.w3.org/2001/XMLSchema#string",
    b"A",
    b"0",
    b"\xff",
]


@settings(max_examples=400)
@given(
    st.sampled_from(SEEDS),
    st.lists(st.tuples(st.integers(0, 150), st.integers(0, 3), st.sampled_from(PIECES)), max_size=3),
)
def test_what_the_pattern_accepts_the_parser_gives_back_unchanged(
    line: bytes, edits: list[tuple[int, int, bytes]]
) -> None:
    """Decision 057: the pattern decides about time, never about what is accepted or what comes of it."""
    for place, removed, piece in edits:
        line = line[:place] + piece + line[place + removed :]
    if not line.endswith(b"\n") or line.count(b"\n") != 1:
        return
    try:
        line.decode()
    except UnicodeDecodeError:
        return
    if statements._CANONICAL[0].fullmatch(line):
        assert serialize(parse(line, RdfFormat.N_QUADS), format=RdfFormat.N_QUADS) == line
    try:
        found = canonical_block(line, 1, "in")
    except BadRdf:
        return
    assert canonical_block(found, 1, "in") == found


def dataset_file(place: Path, name: str, numbers: set[int]) -> Path:
    path = place / name
    lines = [f'<http://e.org/s{one % 7}> <http://e.org/p> "{one}" <http://e.org/g{one % 3}> .\n' for one in numbers]
    path.write_text("".join(sorted(lines)))
    return path


def patched(place: Path, base: Path, *patches: bytes) -> bytes:
    paths = []
    for number, patch in enumerate(patches):
        paths.append(place / f"patch-{number}")
        paths[-1].write_bytes(patch)
    merge_patches(base, paths, place / "patched", scratch=place, strict=True)
    return (place / "patched").read_bytes()


def quads_of(text: bytes) -> set[tuple[str, ...]]:
    """As rdflib reads N-Quads."""
    dataset = rdflib.Dataset()
    dataset.parse(data=text, format="nquads")
    return {tuple(str(term) for term in quad) for quad in dataset.quads()}


@settings(max_examples=15)
@given(STATES, STATES, STATES)
def test_the_laws_of_patches(first: set[int], second: set[int], third: set[int]) -> None:
    with folder() as place:
        a, b, c = (dataset_file(place, name, some) for name, some in (("a", first), ("b", second), ("c", third)))
        ab, bc, ac = difference(a, b), difference(b, c), difference(a, c)
        assert patched(place, a, ab) == b.read_bytes()
        assert patched(place, a, ab, bc) == c.read_bytes()
        assert patched(place, b, ab) == b.read_bytes(), "to repeat is harmless"
        (place / "ab").write_bytes(ab)
        (place / "bc").write_bytes(bc)
        inverse, composed = io.BytesIO(), io.BytesIO()
        write_composed([place / "ab"], inverse, scratch=place, strict=True, inverse=True)
        assert inverse.getvalue() == difference(b, a)
        write_composed([place / "ab", place / "bc"], composed, scratch=place, strict=True)
        assert patched(place, a, composed.getvalue()) == c.read_bytes()
        assert set(ac.splitlines()) <= set(composed.getvalue().splitlines())
        old, new = quads_of(a.read_bytes()), quads_of(b.read_bytes())
        for sign, expected in ((b"-", old - new), (b"+", new - old)):
            lines = [line[1:] for line in ab.splitlines(keepends=True) if line.startswith(sign)]
            assert quads_of(b"".join(lines)) == expected
