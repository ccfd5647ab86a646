"""`headwater rdf query`: what is in an embedded store, in each form, and what is told where there is none."""

from __future__ import annotations

from pathlib import Path

import pytest

from headwater.cli import run
from headwater.errors import Exit
from headwater.triplestores.embedded_store import EmbeddedStore
from headwater.triplestores.sparql_updates import POSITION_GRAPH
from tests.triplestores.test_embedded_store import position, written


@pytest.fixture
def store(tmp_path: Path) -> Path:
    dataset = written(tmp_path / "dataset", {b'<http://example.org/a> <http://example.org/p> "x" .\n'})
    EmbeddedStore(tmp_path / "store" / "oxigraph").load(dataset, position(1))
    return tmp_path / "store"


ROWS = [
    ("SELECT ?o { ?s ?p ?o }", [], '?o\n"x"\n'),
    ("SELECT ?o { ?s ?p ?o }", ["--as", "csv"], "o\r\nx\r\n"),
    ("ASK { ?s ?p 'y' }", ["--as", "json"], '{"head":{},"boolean":false}\n'),
    ("CONSTRUCT WHERE { ?s ?p ?o }", [], '<http://example.org/a> <http://example.org/p> "x" .\n'),
]


@pytest.mark.parametrize(("query", "options", "expected"), ROWS)
@pytest.mark.parametrize("below", ["", "oxigraph"])
def test_what_is_found_is_printed(
    store: Path, capfdbinary: pytest.CaptureFixture[bytes], query: str, options: list[str], expected: str, below: str
) -> None:
    assert run(["rdf", "query", str(store / below), query, *options]) == Exit.DONE
    assert capfdbinary.readouterr().out == expected.encode()


def test_the_query_of_a_file_and_what_is_none(store: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "q.rq").write_text("ASK { ?s ?p ?o }")
    assert run(["rdf", "query", str(store), f"@{tmp_path / 'q.rq'}"]) == Exit.DONE
    assert "true" in capfd.readouterr().out
    for query in ("DELETE WHERE { ?s ?p ?o }", "SELECT", "@missing"):
        assert run(["rdf", "query", str(store), query]) == Exit.USAGE
    capfd.readouterr()
    assert run(["rdf", "query", str(tmp_path), "ASK { ?s ?p ?o }"]) == Exit.USAGE
    told = capfd.readouterr().err
    assert "no store in this folder, but there are those of sets: store" in told
    assert "removed" not in told
    (tmp_path / "d" / "oxigraph").mkdir(parents=True)
    (tmp_path / "d" / "oxigraph" / "CURRENT").write_text("damaged")
    assert run(["rdf", "query", str(tmp_path / "d"), "ASK { ?s ?p ?o }"]) == Exit.STORE
    assert run(["rdf", "query", str(tmp_path / "none"), "ASK { ?s ?p ?o }"]) == Exit.USAGE


COUNTS = "SELECT (COUNT(*) AS ?n) "
NAMED = [
    (COUNTS + "{ GRAPH ?g { ?s ?p ?o } }", [], 1),
    (COUNTS + "{ GRAPH ?g { ?s ?p ?o } }", ["--positions"], 5),
    (COUNTS + "{ { GRAPH ?g { ?s ?p ?o } } UNION { ?s ?p ?o } }", [], 2),
    (COUNTS + "{ graph#\n?from{ ?s ?p ?o } FILTER('from <g>' = \"from <g>\") # FROM <http://example.org/g>\n}", [], 1),
    (COUNTS + f"FROM <http://example.org/g> FROM NAMED <{POSITION_GRAPH}> {{ GRAPH ?g {{ ?s ?p ?o }} }}", [], 4),
    (COUNTS + "FROM NAMED <http://example.org/none> { GRAPH ?g { ?s ?p ?o } }", [], 0),
    (COUNTS + "FROM <http://example.org/g> { ?s ?p ?o }", [], 1),
    (COUNTS + "{ GRAPH ?g { ?s ?p ?o } FILTER EXISTS { GRAPH ?g { ?s ?p 'y' } } }", [], 1),
]


@pytest.mark.parametrize(("query", "options", "count"), NAMED)
def test_the_graph_of_positions_is_none_of_the_dataset(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], query: str, options: list[str], count: int
) -> None:
    """Neither is it counted nor listed, unless it is asked for."""
    statements = b'<http://example.org/a> <http://example.org/p> "x" .\n'
    named = b'<http://example.org/a> <http://example.org/p> "y" <http://example.org/g> .\n'
    EmbeddedStore(tmp_path / "store" / "oxigraph").load(written(tmp_path / "dataset", {statements, named}), position(1))
    assert run(["rdf", "query", str(tmp_path / "store"), query, *options, "--as", "csv"]) == Exit.DONE
    assert capfd.readouterr().out.split() == ["n", str(count)]
