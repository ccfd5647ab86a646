"""The canonical labels of blank nodes (RDFC-1.0), against the algorithm written once more from its steps."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rdflib import Graph
from rdflib.compare import isomorphic

from headwater.rdf import RdfBounds, RdfTooCostly
from headwater.rdf.blank_nodes import canonical_form
from headwater.rdf.canonical import BlankNodes, RdfOptions, write_canonical
from headwater.rdf.syntaxes import N_QUADS, RdfInput
from tests.rdf import rdfc

P, Q = "<http://e.org/p>", "<http://e.org/q>"


def ring(size: int, name: str = "n") -> set[rdfc.Quad]:
    return {(f"_:{name}{one}", P, f"_:{name}{(one + 1) % size}", "") for one in range(size)}


DATASETS: dict[str, set[rdfc.Quad]] = {
    "nothing": set(),
    "no blank node": {("<http://e.org/a>", P, '"x"', "")},
    "one": {("_:z", P, '"x"', "")},
    "unique hashes": {("_:a", P, '"x"', ""), ("_:b", P, '"y"', ""), ("_:a", Q, "_:b", "")},
    "a node that names itself": {("_:a", P, "_:a", "_:a")},
    "shared hashes": {("<http://e.org/s>", P, f"_:{name}", "") for name in "abc"},
    "shared hashes, told apart by others": {
        ("_:a", P, "_:x", ""), ("_:b", P, "_:y", ""), ("_:x", Q, '"1"', ""), ("_:y", Q, '"2"', ""),
    },
    "ring of three": ring(3),
    "rings of two and three": ring(2, "a") | ring(3, "b"),
    "two equal rings": ring(3, "a") | ring(3, "b"),
    "double links in a ring": ring(3) | {(o, Q, s, "") for s, _p, o, _g in ring(3)},
    "a tree that is mirrored": {("_:r", P, f"_:{side}", "") for side in "ab"}
    | {(f"_:{side}", P, f"_:{side}{leaf}", "") for side in "ab" for leaf in "xy"},
    "blank graphs": {("<e:s>", P, '"x"', "_:g"), ("<e:s>", P, '"x"', "_:h"), ("_:g", Q, "_:h", "")},
    "the same node twice in a quad": {("_:a", P, "_:b", "_:b"), ("_:b", P, "_:a", "_:a")},
    "the same in two graphs": {("_:a", P, "_:b", graph) for graph in ("", "<http://e.org/g>")},
    "clique of four": {(f"_:{s}", P, f"_:{o}", "") for s in "abcd" for o in "abcd" if s != o},
}  # fmt: skip


def octets(quads: set[rdfc.Quad]) -> bytes:
    return "".join(rdfc.line(quad, {}) for quad in quads).encode()


@pytest.mark.parametrize("name", DATASETS)
def test_the_canonical_form_is_that_of_the_algorithm(name: str, tmp_path: Path) -> None:
    quads = DATASETS[name]
    (tmp_path / "in").write_bytes(octets(quads) * 2)  # duplicates count once
    write_canonical(
        [RdfInput(tmp_path / "in", N_QUADS)],
        tmp_path / "out",
        scratch=tmp_path,
        options=RdfOptions(BlankNodes.CANONICAL),
    )
    assert (tmp_path / "out").read_bytes() == rdfc.canonical_form(quads)


def test_a_form_worked_out_by_hand() -> None:
    """Both nodes have the same first hash; whichever comes first, the ring is the same one."""
    assert canonical_form(octets(ring(2))) == f"_:c14n0 {P} _:c14n1 .\n_:c14n1 {P} _:c14n0 .\n".encode()


NODES = st.sampled_from(["_:a", "_:b", "_:c", "_:d", "<http://e.org/s>"])
QUADS = st.sets(
    st.tuples(NODES, st.sampled_from([P, Q]), NODES | st.just('"x"'), st.sampled_from(["", "<e:g>"])), max_size=6
)


@settings(derandomize=True)
@given(QUADS, st.permutations("abcd"))
def test_any_small_dataset(quads: set[rdfc.Quad], names: list[str]) -> None:
    """As the algorithm has it, and the same whatever the labels were."""
    form = rdfc.canonical_form(quads)
    renamed = {f"_:{old}": f"_:{new}" for old, new in zip("abcd", names, strict=True)}
    again = {tuple(renamed.get(term, term) for term in quad) for quad in quads}
    with_blanks = b"".join(one for one in octets(quads).splitlines(keepends=True) if b"_:" in one)
    assert canonical_form(with_blanks) == b"".join(one for one in form.splitlines(keepends=True) if b"_:" in one)
    assert rdfc.canonical_form(again) == form  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["shared hashes", "two equal rings", "a tree that is mirrored", "clique of four"])
def test_what_is_labelled_anew_is_the_same_graph(name: str) -> None:
    before, after = Graph(), Graph()
    before.parse(data=octets(DATASETS[name]).decode(), format="nt")
    after.parse(data=canonical_form(octets(DATASETS[name])).decode(), format="nt")
    assert isomorphic(before, after)


@pytest.mark.parametrize(("seconds", "told"), [(0.02, "seconds"), (60.0, "share of memory")])
def test_a_poison_clique_is_given_up(seconds: float, told: str) -> None:
    """By time or by memory, which is that of an ordinary graph of its length."""
    nodes = [f"_:n{number}" for number in range(14)]
    with tempfile.TemporaryDirectory() as name:
        source = Path(name) / "in"
        source.write_bytes(octets({(s, P, o, "") for s in nodes for o in nodes if s != o}))
        with pytest.raises(RdfTooCostly, match=told):
            write_canonical(
                [RdfInput(source, N_QUADS)],
                Path(name) / "out",
                scratch=Path(name),
                options=RdfOptions(BlankNodes.CANONICAL, bounds=RdfBounds(blank_seconds=seconds)),
            )
