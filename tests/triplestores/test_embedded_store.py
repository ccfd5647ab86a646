"""The embedded store of a dataset: loaded whole, patched in one transaction, never without its position."""

from __future__ import annotations

import io
import itertools
from pathlib import Path

import pyoxigraph as ox
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.errors import StoreFault
from headwater.triplestores.embedded_store import EmbeddedStore
from headwater.triplestores.sparql_updates import (
    POSITION_GRAPH,
    StorePosition,
    as_data,
    batches,
    parts_of,
    position_of,
    with_blank_nodes,
    with_iris,
)
from tests.support.examples import MANY
from tests.support.failing import failing

XSD = "http://www.w3.org/2001/XMLSchema#"
SUBJECTS = ("<http://example.org/a>", "<http://example.org/é>", "_:a", "_:b1")
OBJECTS = (
    "<http://example.org/o>",
    "_:a",
    '"plain"',
    '"_:a ."',
    '" _:a <http://example.org/o>"',
    '"x"@en',
    '"\\\\u0041 \\\\\\\\u0041 \\\\U00000041 \\"\\n\\r\\t\\u0001"',
    *(f'"{form}"^^<{XSD}integer>' for form in ("1", "01", "+1", "one")),
    *(f'"{form}"^^<{XSD}boolean>' for form in ("true", "1")),
    *(f'"{form}"^^<{XSD}decimal>' for form in ("1.0", "1.00")),
    f'"2026-11-23T00:00:00Z"^^<{XSD}dateTime>',
    f'"2026-11-23T00:00:00.000Z"^^<{XSD}dateTime>',
)
GRAPHS = ("", " <http://example.org/g>", " _:g")
POOL = [f"{s} <http://example.org/p> {o}{g} .\n".encode() for s, o, g in itertools.product(SUBJECTS, OBJECTS, GRAPHS)]
STATES = st.lists(st.sets(st.sampled_from(POOL), max_size=12), min_size=2, max_size=4)


def position(number: int, quads: int = 0) -> StorePosition:
    return StorePosition("http://example.org/dataset.nq", f"{number:064x}", quads, "2026-11-23T00:00:00Z")


def written(path: Path, state: set[bytes]) -> Path:
    path.write_bytes(b"".join(sorted(state)))
    return path


def held(store: EmbeddedStore) -> set[bytes]:
    target = io.BytesIO()
    store.write_statements(target)
    return set(target.getvalue().splitlines(keepends=True))


def normalised(state: set[bytes]) -> set[bytes]:
    """What a store of its own makes of statements, blank nodes with their labels."""
    store = ox.Store()
    store.extend(ox.parse(b"".join(map(with_iris, state)), ox.RdfFormat.N_QUADS))
    return {with_blank_nodes(f"{quad} .\n".encode()) for quad in store}


@settings(max_examples=200 if MANY else 10, deadline=None)
@given(STATES)
def test_a_history_followed_by_patches_is_the_dataset_at_every_step(
    tmp_path_factory: pytest.TempPathFactory, states: list[set[bytes]]
) -> None:
    """Whatever forms of literals come and go, and whatever their escapes (NQUD-A6, NQUD-A7, TIM-A16)."""
    folder = tmp_path_factory.mktemp("store")
    dataset = folder / "dataset.nq"
    EmbeddedStore(folder / "oxigraph").load(written(dataset, states[0]), position(0, len(states[0])))
    store = EmbeddedStore(folder / "oxigraph")
    assert held(store) == normalised(states[0])
    for number, (old, new) in enumerate(itertools.pairwise(states), 1):
        store.apply(sorted(old - new), sorted(new), position(number, len(new)))
        assert held(store) == normalised(new)
        assert store.state().position == position(number, len(new))


def test_a_patch_that_fails_leaves_state_and_position(tmp_path: Path) -> None:
    """All or nothing (NQUD-A14)."""
    EmbeddedStore(tmp_path / "s").load(written(tmp_path / "d", set(POOL[:3])), position(1))
    store = EmbeddedStore(tmp_path / "s")
    with pytest.raises((ValueError, StoreFault)):
        store.apply(POOL[:1], [b"<http://example.org/a> <not an IRI> <http://example.org/a> .\n"], position(2))
    assert store.state().position == position(1)
    assert held(store) == normalised(set(POOL[:3]))


def test_a_store_that_is_loaded_again_holds_nothing_of_before(tmp_path: Path) -> None:
    EmbeddedStore(tmp_path / "s").load(written(tmp_path / "d", set(POOL[:9])), position(1))
    (tmp_path / "s.new").mkdir()  # of a run that was killed
    EmbeddedStore(tmp_path / "s").load(written(tmp_path / "d", set(POOL[20:22])), position(2))
    store = EmbeddedStore(tmp_path / "s")
    assert held(store) == normalised(set(POOL[20:22]))
    assert store.state().position == position(2)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["d", "s"]


def test_an_empty_dataset_has_a_position(tmp_path: Path) -> None:
    EmbeddedStore(tmp_path / "s").load(written(tmp_path / "d", set()), position(1))
    store = EmbeddedStore(tmp_path / "s")
    assert held(store) == set()
    assert store.state().position == position(1)
    store.apply(POOL[:2], [], position(2))
    assert store.state().position == position(2)


def test_a_store_in_use_or_absent_is_a_fault_of_ours(tmp_path: Path) -> None:
    with failing("HW-RDS-01"):
        EmbeddedStore(tmp_path / "none").count()
    EmbeddedStore(tmp_path / "s").load(written(tmp_path / "d", set()), position(1))
    held_by_another = ox.Store(str(tmp_path / "s"))
    with pytest.raises(StoreFault) as kept:
        EmbeddedStore(tmp_path / "s").apply([], POOL[:1], position(2))
    assert kept.value.code == "HW-RDS-01"
    del held_by_another
    EmbeddedStore(tmp_path / "s").apply([], POOL[:1], position(2))


def test_a_store_is_asked(tmp_path: Path) -> None:
    EmbeddedStore(tmp_path / "s").load(written(tmp_path / "d", {POOL[0]}), position(1))
    store = EmbeddedStore(tmp_path / "s")
    assert store.query("SELECT ?s WHERE { ?s ?p ?o }", "csv") == b"s\r\nhttp://example.org/a\r\n"
    assert store.query("ASK { ?s ?p ?o }", "json") == b'{"head":{},"boolean":true}'
    assert store.query("CONSTRUCT WHERE { ?s ?p ?o }", "") == POOL[0]
    for text in ("SELECT", "INSERT DATA { <urn:a> <urn:b> <urn:c> }", "SELECT * { SERVICE <http://127.0.0.1:1/> {} }"):
        with failing("HW-RDS-02"):
            store.query(text, "tsv")


@given(st.sets(st.sampled_from(POOL)))
def test_blank_nodes_come_back_as_they_were_published(state: set[bytes]) -> None:
    text = b"".join(sorted(state))
    assert b" _:" not in with_iris(text).replace(b'"_:a .', b"").replace(b'" _:a', b"")
    assert with_blank_nodes(with_iris(text)) == text


def test_statements_are_taken_apart() -> None:
    assert parts_of(b"<urn:s> <urn:p> <urn:o> .\n") == (b"<urn:s> <urn:p> <urn:o>", None)
    assert parts_of(b'<urn:s> <urn:p> "a . <urn:b> ." <urn:g> .') == (b'<urn:s> <urn:p> "a . <urn:b> ."', b"<urn:g>")
    assert parts_of(b'<urn:s> <urn:p> "a"@en-GB _:g .') == (b'<urn:s> <urn:p> "a"@en-GB', b"_:g")
    assert as_data("DELETE DATA", []) == b""
    with pytest.raises(ValueError):
        parts_of(b"<urn:s> <urn:p> .")


def test_batches_are_bounded() -> None:
    statements = [b"x" * 1000] * 12_000
    sizes = [len(batch) for batch in batches(statements)]
    assert sum(sizes) == 12_000
    assert max(sizes) <= 5_000
    assert [len(batch) for batch in batches([b"x" * (3 << 20)] * 3)] == [1, 1, 1]


def test_a_position_that_is_none() -> None:
    assert position_of({}) is None
    assert position_of({f"{POSITION_GRAPH.partition('#')[0]}#sha-256": "zz"}) is None
