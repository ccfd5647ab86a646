"""`headwater rdf query`: what is in an embedded store, in each form, and what is told where there is none."""

from __future__ import annotations

from pathlib import Path

import pytest

from headwater.cli import run
from headwater.errors import Exit
from headwater.triplestores.embedded_store import load_store
from tests.triplestores.test_embedded_store import position, written


@pytest.fixture
def store(tmp_path: Path) -> Path:
    dataset = written(tmp_path / "dataset", {b'<http://example.org/a> <http://example.org/p> "x" .\n'})
    load_store(tmp_path / "store" / "oxigraph", dataset, position(1))
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
