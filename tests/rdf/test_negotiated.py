"""One RDF document in several syntaxes: served by what a client accepts, each with a hash of its own."""

from __future__ import annotations

import hashlib
from pathlib import Path

from headwater.rdf.canonical import BlankNodes, RdfOptions, write_canonical
from headwater.rdf.syntaxes import SYNTAXES, RdfInput
from tests.support.program import run_here
from tests.support.serving import face as serve
from tests.support.waiting import settle

WRITTEN = ("ttl", "jsonld", "rdf", "nt")


def test_a_document_is_served_in_the_syntax_that_is_asked_for(tmp_path: Path) -> None:
    files = tmp_path / "files"
    files.mkdir()
    source = tmp_path / "person.nq"
    source.write_text('<http://e.org/a> <http://e.org/p> "é" .\n<http://e.org/a> <http://e.org/q> _:x .\n')
    for suffix in WRITTEN:
        assert run_here("rdf", "convert", source, "-o", files / f"person.{suffix}").returncode == 0
    settle()
    hashes = set()
    with serve(files, tmp_path / "state", variants=WRITTEN, watch=False) as running:
        for syntax in SYNTAXES:
            answer = running.get("/files/resources/person", accept=syntax.media_type)
            suffix = syntax.suffixes[0]
            if suffix not in WRITTEN:
                assert answer.status == 406
                continue
            assert answer.status == 200
            assert answer.body == (files / f"person.{suffix}").read_bytes()
            hashes.add(hashlib.sha256(answer.body).hexdigest())
            (tmp_path / "got").write_bytes(answer.body)
            found = write_canonical(
                [RdfInput(tmp_path / "got", syntax)],
                tmp_path / "canonical",
                scratch=tmp_path,
                options=RdfOptions(BlankNodes.CANONICAL),
            )
            assert found.quads == 2
        listed = running.get("/files/resourcelist.xml").body.decode()
    assert len(hashes) == len(WRITTEN)
    assert all(f"sha-256:{one}" in listed for one in hashes)
