"""The table of syntaxes: which one a file has, by its media type or its name."""

from __future__ import annotations

import pytest

from headwater.rdf.syntaxes import N3, N_QUADS, N_TRIPLES, RDF_XML, SYNTAXES, TRIG, TURTLE, Syntax, is_patch, syntax_of


@pytest.mark.parametrize(
    ("media_type", "name", "expected"),
    [
        (None, "dataset.nq", N_QUADS),
        (None, "http://example.org/dataset.nq.gz?v=1.2", N_QUADS),
        (None, "data.NT", N_TRIPLES),
        (None, "a/b.n3", N3),
        (None, "data.xml", RDF_XML),
        (None, "onto.owl", RDF_XML),
        (None, "data.rdf", RDF_XML),
        (None, "data.csv", None),
        (None, "nq", None),
        ("text/turtle; charset=utf-8", "data.nq", TURTLE),
        ("Application/TriG", "x", TRIG),
        ("text/csv", "data.nq", None),
        ("", "data.nq", N_QUADS),
    ],
)
def test_tim_11_the_type_wins_over_the_name(media_type: str | None, name: str, expected: Syntax | None) -> None:
    assert syntax_of(media_type, name) is expected


def test_tim_12_every_syntax_is_found_by_its_type_and_suffix() -> None:
    assert N3 not in SYNTAXES
    for one in SYNTAXES:
        assert syntax_of(one.media_type, "") is one
        assert one.parser_format.media_type == one.media_type
        for suffix in one.suffixes:
            assert syntax_of(None, f"dataset.{suffix}") is one


def test_nqud_03_a_patch_is_known_by_its_type_or_suffix() -> None:
    assert is_patch("application/vnd.timbuctoo-rdf.nquads_unified_diff", "x")
    assert is_patch(None, "changes1.nqud")
    assert is_patch("application/octet-stream", "changes1.nqud.gz")
    assert not is_patch(None, "dataset.nq")
