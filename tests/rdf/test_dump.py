"""`headwater rdf dump`: the RDF documents of a copy as one dataset."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.copying import go
from tests.support.fake_source import Site, Source
from tests.support.program import run_here

DOCUMENTS = {
    "a.ttl": b'<> <http://e.org/p> "a", [ <http://e.org/q> 1 ] .',
    "b.nt": b'<http://e.org/b> <http://e.org/p> _:x .\n_:x <http://e.org/q> "2" .\n',
    "c.jsonld": b'{"@id": "http://e.org/c", "http://e.org/p": "c"}',
    "notes.txt": b"<> is no Turtle",
}


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    with Source() as source:
        site = Site(source)
        for name, octets in DOCUMENTS.items():
            site.put(name, octets)
        site.publish()
        ran = go(source.base, tmp_path / "copy")
        assert ran.status == 0, ran.error
    return tmp_path / "copy"


def test_all_documents_are_one_dataset(copy: Path, tmp_path: Path) -> None:
    done = run_here("rdf", "dump", copy)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.decode().splitlines()
    assert len(lines) == 6
    assert any(line.endswith('/a.ttl> <http://e.org/p> "a" .') for line in lines)
    assert {word for line in lines for word in line.split() if word.startswith("_:")} == {"_:c14n0", "_:c14n1"}
    told = run_here("rdf", "dump", copy, "--json", "-o", tmp_path / "all.nq")
    assert json.loads(told.stdout)["documents"] == 3
    assert (tmp_path / "all.nq").read_bytes() == done.stdout


def test_a_document_that_is_broken_is_named(copy: Path) -> None:
    path = next(copy.rglob("a.ttl"))
    path.write_bytes(b"<> is broken")
    done = run_here("rdf", "dump", copy)
    assert (done.returncode, done.stdout) == (3, b"")
    assert b"a.ttl" in done.stderr


def test_what_there_is_not(copy: Path, tmp_path: Path) -> None:
    assert run_here("rdf", "dump", copy, "--set", "other").returncode == 2
    assert run_here("rdf", "dump", tmp_path / "nowhere").returncode == 6
