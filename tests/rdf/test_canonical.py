"""Canonical N-Quads: equal datasets are equal octets (NQUD-A7, NQUD-A9, NQUD-A10, NQUD-A16)."""

from __future__ import annotations

import gzip
import hashlib
from pathlib import Path

import pytest

from headwater.rdf import BlankNodesRefused, RdfBounds, RdfTooCostly
from headwater.rdf.canonical import LABELS_KEPT, BlankNodes, RdfOptions, write_canonical
from headwater.rdf.syntaxes import N_QUADS, TURTLE, RdfInput
from tests.rdf.datasets import GENID, canonical, statement

S = b"<http://example.org/s> <http://example.org/p> "
XSD = b"^^<http://www.w3.org/2001/XMLSchema#"


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        (b'"a"' + XSD + b"string>", b'"a"'),
        (b'"01"' + XSD + b"integer>", b'"01"' + XSD + b"integer>"),
        (b'"a"@EN-gb', b'"a"@en-gb'),
        (b'"\\u00e9\\U0001F600"', '"é😀"'.encode()),
        (b"<http://example.org/\\u00e9>", "<http://example.org/é>".encode()),
        (b'"a\tb\x01\x7f"', b'"a\\tb\\u0001\\u007F"'),
        (b'"\\u000A\\u0022\\\'"', b'"\\n\\"\'"'),
        (b'"\xef\xbf\xbf"', b'"\\uFFFF"'),
        (b"<HTTP://EXAMPLE.org/../a>", b"<HTTP://EXAMPLE.org/../a>"),
    ],
)
def test_nqud_a7_terms_have_one_form(written: bytes, expected: bytes, tmp_path: Path) -> None:
    assert canonical(S + written + b" .\n", tmp_path) == S + expected + b" .\n"


def test_nqud_a9_statements_are_sorted_and_stand_once(tmp_path: Path) -> None:
    lines = [statement(2), statement(1), statement(2), b"# a comment\r\n", b"\n", statement(10).replace(b" ", b"\t")]
    assert canonical(b"".join(lines), tmp_path) == statement(10) + statement(1) + statement(2)


def test_gzip_a_byte_order_mark_and_a_missing_last_line_end(tmp_path: Path) -> None:
    text = b"\xef\xbb\xbf" + statement(1) + statement(2)[:-1]
    expected = statement(1) + statement(2)
    assert canonical(text, tmp_path) == expected
    assert canonical(gzip.compress(text), tmp_path) == expected
    assert canonical(gzip.compress(text[:10]) + gzip.compress(text[10:]), tmp_path) == expected


def test_runs_are_merged_beyond_the_bound_of_memory(tmp_path: Path) -> None:
    lines = [statement(number * 7919 % 5000) for number in range(6000)]
    source, target = tmp_path / "in.nq", tmp_path / "out.nq"
    source.write_bytes(b"".join(lines))
    found = write_canonical(
        [RdfInput(source, N_QUADS)], target, scratch=tmp_path, options=RdfOptions(bounds=RdfBounds(run_octets=1000))
    )
    written = target.read_bytes()
    assert written == b"".join(sorted(set(lines)))
    assert (found.quads, found.octets) == (5000, len(written))
    assert found.sha256 == hashlib.sha256(written).hexdigest()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.nq", "out.nq"]


def test_files_in_several_syntaxes_are_one_dataset(tmp_path: Path) -> None:
    quads, turtle, target = tmp_path / "a.nq", tmp_path / "b.ttl", tmp_path / "out.nq"
    quads.write_bytes(statement(1))
    turtle.write_text('@prefix e: <http://example.org/> . e:s1 e:p "v" . <rel> e:p 01 .')
    inputs = [RdfInput(quads, N_QUADS), RdfInput(turtle, TURTLE, base="http://example.org/")]
    write_canonical(inputs, target, scratch=tmp_path)
    rel = b'<http://example.org/rel> <http://example.org/p> "01"' + XSD + b"integer> .\n"
    assert target.read_bytes() == rel + statement(1)


NODES = b"""<http://e.org/a> <http://e.org/p> _:x .
_:x <http://e.org/p> "1" .
_:q <http://e.org/p> _:r .
_:r <http://e.org/p> _:q _:g .
_:y <http://e.org/p> "2" .
_:z <http://e.org/p> "2" .
"""


def test_nqud_a6_blank_nodes_are_refused_unless_told_otherwise(tmp_path: Path) -> None:
    with pytest.raises(BlankNodesRefused) as error:
        canonical(NODES, tmp_path, BlankNodes.REFUSED)
    assert error.value.rule == "NQUD-A6"
    assert not (tmp_path / "out.nq").exists()


def test_nqud_a6_stable_iris_do_not_depend_on_labels_or_on_other_statements(tmp_path: Path) -> None:
    first = canonical(NODES, tmp_path, BlankNodes.REPLACED)
    other = NODES.replace(b"_:x", b"_:q9").replace(b"_:r", b"_:aa") + statement(1) + b"_:n <http://e.org/p> _:m .\n"
    lines = set(canonical(other, tmp_path, BlankNodes.REPLACED).splitlines())
    assert first.count(b"\n") == 6
    assert b"_:" not in first
    assert set(first.splitlines()) < lines
    assert all(GENID.encode() in line for line in first.splitlines())


def test_canonical_labels_are_the_same_for_the_same_dataset(tmp_path: Path) -> None:
    other = b"".join(sorted(NODES.replace(b"_:x", b"_:zz").splitlines(keepends=True)))
    first = canonical(NODES, tmp_path, BlankNodes.CANONICAL)
    assert first == canonical(other, tmp_path, BlankNodes.CANONICAL)
    assert b"_:c14n0" in first


def test_labels_of_two_files_are_different_nodes(tmp_path: Path) -> None:
    paths = [tmp_path / "a.nq", tmp_path / "b.nq"]
    for path in paths:
        path.write_bytes(b'_:x <http://e.org/p> "1" .\n_:x <http://e.org/q> "%s" .\n' % path.name.encode())
    inputs = [RdfInput(path, N_QUADS) for path in paths]
    target = tmp_path / "out.nq"
    write_canonical(inputs, target, scratch=tmp_path, options=RdfOptions(BlankNodes.REPLACED, GENID))
    assert len({line.split()[0] for line in target.read_bytes().splitlines()}) == 2
    with pytest.raises(BlankNodesRefused):
        write_canonical(inputs, target, scratch=tmp_path, options=LABELS_KEPT)


def test_a_poison_graph_is_given_up_in_time(tmp_path: Path) -> None:
    """Complete graphs of blank nodes: the canonical labels take factorially long (RDFC-1.0, section 7)."""
    nodes = range(14)
    lines = b"".join(b"_:n%d <http://e.org/p> _:n%d .\n" % (a, b) for a in nodes for b in nodes if a != b)
    source = tmp_path / "in.nq"
    source.write_bytes(lines)
    with pytest.raises(RdfTooCostly, match="cannot be named"):
        write_canonical(
            [RdfInput(source, N_QUADS)],
            tmp_path / "out.nq",
            scratch=tmp_path,
            options=RdfOptions(BlankNodes.CANONICAL, bounds=RdfBounds(blank_seconds=0.7)),
        )
    assert not (tmp_path / "out.nq").exists()
