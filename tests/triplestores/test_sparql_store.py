"""The copy of a dataset behind a SPARQL endpoint: batches that may be repeated, the position last, never mixed."""

from __future__ import annotations

import io
import itertools
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings

from headwater.errors import StoreFault
from headwater.transport.fetch import TransportOptions
from headwater.triplestores import sparql_store, sparql_updates
from headwater.triplestores.sparql_endpoint import (
    EndpointAddress,
    SparqlEndpoint,
    UpdateTooLarge,
)
from headwater.triplestores.sparql_store import SparqlStore
from headwater.triplestores.sparql_updates import POSITION_GRAPH, StoreState
from tests.support.examples import MANY
from tests.support.failing import failing
from tests.support.sparql_server import SparqlServer, sparql_server
from tests.triplestores.test_embedded_store import POOL, STATES, normalised, position, written

DATASET = "http://example.org/dataset.nq"
STATE = set(POOL[::7])
Answer = tuple[int, str, bytes]


@pytest.fixture(scope="module")
def served() -> Iterator[SparqlServer]:
    with sparql_server() as one:
        yield one


@pytest.fixture
def server(served: SparqlServer) -> SparqlServer:
    served.store.clear()
    served.fault = None
    served.resolves = frozenset()
    served.requests.clear()
    return served


@pytest.fixture
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sparql_updates, "MOST_STATEMENTS", 5)
    monkeypatch.setattr(sparql_store, "LARGE", 1)


ENDPOINTS: list[SparqlEndpoint] = []


@pytest.fixture(autouse=True)
def closed_endpoints() -> Iterator[None]:
    yield
    while ENDPOINTS:
        ENDPOINTS.pop().close()


def store_of(server: SparqlServer, dataset: str = DATASET) -> SparqlStore:
    address = EndpointAddress(update=server.update_url, query=server.query_url)
    ENDPOINTS.append(SparqlEndpoint(address, TransportOptions(first_backoff_seconds=1e-3)))
    return SparqlStore(ENDPOINTS[-1], dataset, server.update_url)


def held(store: SparqlStore) -> set[bytes]:
    """In the forms of the store: as in TSV, where \\uXXXX may be written otherwise."""
    target = io.BytesIO()
    store.write_statements(target)
    return normalised(set(target.getvalue().splitlines(keepends=True)))


@settings(max_examples=100 if MANY else 10, deadline=None)
@given(STATES)
def test_a_history_followed_by_batches_is_the_dataset_at_every_step(
    served: SparqlServer, tmp_path_factory: pytest.TempPathFactory, states: list[set[bytes]]
) -> None:
    """As for the embedded store; the server normalises literals (NQUD-A6, NQUD-A7, TIM-A16)."""
    dataset = tmp_path_factory.mktemp("sparql") / "dataset.nq"
    served.store.clear()
    served.fault = None
    store = store_of(served)
    store.load(written(dataset, states[0]), position(0, len(states[0])))
    assert held(store) == normalised(states[0])
    for number, (old, new) in enumerate(itertools.pairwise(states), 1):
        written(dataset, new)
        store.apply(sorted(old - new), sorted(new), position(number, len(new)))
        assert held(store) == normalised(new)
        assert store.state() == StoreState(position(number, len(new)))


def test_a_load_goes_on_where_it_broke_off(server: SparqlServer, tmp_path: Path, small_batches: None) -> None:
    """In the middle the endpoint fails: until then there is no position, and nothing is sent twice but one batch."""
    count = itertools.count()
    server.fault = lambda kind, _: (500, "text/plain", b"memory") if kind == "update" and next(count) > 3 else None
    dataset = written(tmp_path / "d", STATE)
    with failing("HW-SPQ-02"):
        store_of(server).load(dataset, position(1, len(STATE)))
    assert store_of(server).state().position is None
    server.fault = None
    server.requests.clear()
    store = store_of(server)
    store.load(dataset, position(1, len(STATE)))
    assert held(store) == normalised(STATE)
    assert not any("DROP" in text for text in server.updates)
    assert store.state() == StoreState(position(1, len(STATE)))


def test_a_load_goes_in_large_requests_where_the_endpoint_takes_them(
    server: SparqlServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that refuses a large request, by whatever status, gets it in small ones."""
    monkeypatch.setattr(sparql_updates, "MOST_STATEMENTS", 5)
    dataset = written(tmp_path / "d", set(POOL))
    store = store_of(server)
    store.load(dataset, position(1))
    large = [text for text in server.updates if len(text) > 2500]
    assert large
    for status in (400, 413, 500):
        server.requests.clear()
        refusal = (status, "text/plain", b"too large")
        server.fault = lambda kind, text, refusal=refusal: refusal if kind == "update" and len(text) > 2500 else None
        store.load(dataset, position(2))
        assert held(store) == normalised(set(POOL))
        assert store.state() == StoreState(position(2))
        refused = [text for text in server.updates if len(text) > 2500]
        assert len(refused) == (4 if status == 500 else 1)


def test_a_large_request_that_is_refused_for_another_cause_is_not_sent_in_parts(
    server: SparqlServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An update that is answered as done, and is not."""
    monkeypatch.setattr(sparql_updates, "MOST_STATEMENTS", 5)
    done = (200, "text/plain", b"done")
    server.fault = lambda kind, text: done if kind == "update" and "<http://example.org/p>" in text else None
    with failing("HW-SPQ-05"):
        store_of(server).load(written(tmp_path / "d", set(POOL)), position(1))
    assert len([text for text in server.updates if "<http://example.org/p>" in text]) == 1


@pytest.mark.parametrize("most", [1200, 500])
def test_a_proxy_that_takes_no_large_request_gets_small_ones(
    server: SparqlServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    """413 to a batch of the least size: nginx takes a MiB unless it is told otherwise."""
    monkeypatch.setattr(sparql_updates, "MOST_STATEMENTS", 50)
    large = (413, "text/html", b"<html>413 Request Entity Too Large</html>")
    short = {b'<http://example.org/s> <http://example.org/p> "%d" .\n' % number for number in range(200)}
    server.fault = lambda kind, text: large if kind == "update" and len(text) > 1200 + most else None
    store = store_of(server)
    store.load(written(tmp_path / "d", short), position(1))
    assert held(store) == short
    changed = {line.replace(b"/p>", b"/q>") if b"7" in line else line for line in short}
    store.apply(sorted(short - changed), sorted(changed - short), position(2))
    assert held(store) == changed
    assert store.state() == StoreState(position(2))
    server.fault = lambda kind, text: large if kind == "update" and "DATA {\nGRAPH" in text else None
    with pytest.raises(UpdateTooLarge, match="413"):
        store.load(written(tmp_path / "d", short), position(3))


def test_a_load_of_another_state_begins_anew(server: SparqlServer, tmp_path: Path, small_batches: None) -> None:
    count = itertools.count()
    server.fault = lambda kind, _: (403, "text/plain", b"no") if kind == "update" and next(count) > 3 else None
    with failing("HW-SPQ-03"):
        store_of(server).load(written(tmp_path / "d", STATE), position(1))
    server.fault = None
    store = store_of(server)
    store.load(written(tmp_path / "d", set(POOL[:3])), position(2))
    assert held(store) == normalised(set(POOL[:3]))


def test_a_patch_that_broke_off_is_done_again_without_harm(
    server: SparqlServer, tmp_path: Path, small_batches: None
) -> None:
    old, new = set(POOL[:40]), set(POOL[20:60])
    store = store_of(server)
    store.load(written(tmp_path / "d", old), position(1))
    count = itertools.count()
    server.fault = lambda kind, _: (500, "text/plain", b"no") if kind == "update" and next(count) > 3 else None

    def apply() -> None:
        store.apply(sorted(old - new), sorted(new), position(2))

    with failing("HW-SPQ-02"):
        apply()
    server.fault = None
    state = store.state()
    assert (state.position, state.under_way) == (position(1), position(2).sha256)
    apply()
    assert held(store) == normalised(new)
    assert store.state() == StoreState(position(2))


def test_an_endpoint_that_says_200_and_does_nothing_is_found_out(server: SparqlServer, tmp_path: Path) -> None:
    """Also where only some updates are dropped."""
    dataset = written(tmp_path / "d", STATE)
    server.fault = lambda kind, _: (200, "application/json", b'{"error": "disk full"}') if kind == "update" else None
    with failing("HW-SPQ-05"):
        store_of(server).load(dataset, position(1))
    server.fault = lambda kind, text: (200, "text/plain", b"Error 500") if "<http://example.org/p>" in text else None
    with failing("HW-SPQ-05"):
        store_of(server).load(dataset, position(1))
    assert store_of(server).state().position is None


@pytest.mark.parametrize("wrong", range(9))
def test_any_one_update_that_is_not_done_is_found_out(
    server: SparqlServer, tmp_path: Path, small_batches: None, wrong: int
) -> None:
    """Of a load over another state, and of a patch that brings a graph: told, or made good by the next batch."""
    graph = b'<http://example.org/a> <http://example.org/p> "of a graph" <http://example.org/new> .\n'
    states = [STATE, set(POOL[:12]), {*POOL[6:12], graph}]
    store = store_of(server)
    store.load(written(tmp_path / "d", states[0]), position(0))
    for number in (1, 2):
        dataset = written(tmp_path / "d", states[number])
        count = itertools.count()

        def fault(kind: str, _: str, count: Iterator[int] = count) -> Answer | None:
            return (200, "text/plain", b"done") if kind == "update" and next(count) == wrong else None

        def change(number: int = number, dataset: Path = dataset) -> None:
            if number == 1:
                store.load(dataset, position(1))
            else:
                store.apply(sorted(states[1] - states[2]), sorted(states[2]), position(2))

        server.fault = fault
        try:
            change()
        except StoreFault:
            server.fault = None
            change()
        server.fault = None
        assert held(store) == normalised(states[number])
        assert store.state() == StoreState(position(number))


def test_a_graph_that_is_still_there_after_its_drop_is_told(server: SparqlServer, tmp_path: Path) -> None:
    """DROP SILENT is answered as done where it may not be done: the store would hold two states."""
    store = store_of(server)
    store.load(written(tmp_path / "d", STATE), position(1))
    dataset = written(tmp_path / "d", set(POOL[:3]))
    server.fault = lambda _, text: (200, "text/plain", b"") if text.startswith("DROP SILENT") else None
    with failing("HW-SPQ-05", match="was dropped, and is still there"):
        store.load(dataset, position(2))
    server.fault = None
    store.load(dataset, position(2))
    assert held(store) == normalised(set(POOL[:3]))


def test_a_load_that_broke_off_counts_no_batch_of_an_earlier_one(
    server: SparqlServer, tmp_path: Path, small_batches: None
) -> None:
    """X broken off after some batches, Y after its graphs were dropped, then X again: nothing of it is there."""
    store = store_of(server)
    for state, batches in ((set(POOL), 2), (STATE, 0)):
        count = itertools.count()

        def fault(_: str, text: str, count: Iterator[int] = count, most: int = batches) -> Answer | None:
            is_batch = text.startswith("INSERT DATA {\nGRAPH <")
            return (403, "text/plain", b"no") if is_batch and next(count) >= most else None

        server.fault = fault
        with failing("HW-SPQ-03"):
            store.load(written(tmp_path / "d", state), position(batches))
    server.fault = None
    store.load(written(tmp_path / "d", set(POOL)), position(2))
    assert held(store) == normalised(set(POOL))


def test_a_read_only_endpoint_is_told_and_asked_once(server: SparqlServer, tmp_path: Path) -> None:
    server.fault = lambda kind, _: (405, "text/plain", b"read-only") if kind == "update" else None
    with failing("HW-SPQ-03", match="read-only"):
        store_of(server).load(written(tmp_path / "d", STATE), position(1))
    assert len(server.updates) == 1


def test_two_datasets_are_never_mixed(server: SparqlServer, tmp_path: Path) -> None:
    """A graph that another dataset has, or that holds something of others, is not touched, by loads or by patches."""
    mine, other = store_of(server), store_of(server, "http://example.org/other.nq")
    triple = b'<http://example.org/a> <http://example.org/p> "plain"'
    mine.load(written(tmp_path / "d", {triple + b" .\n", triple + b" <http://example.org/g> .\n"}), position(1))
    with failing("HW-TRI-01"):
        other.load(written(tmp_path / "e", {triple + b" <http://example.org/g> .\n"}), position(2))
    others = msgspec.structs.replace(position(2), dataset="http://example.org/other.nq")
    other.load(written(tmp_path / "e", {triple + b" .\n"}), others)
    with failing("HW-TRI-01"):
        other.apply([], [triple + b" <http://example.org/g> .\n"], position(3))
    server.store.update("INSERT DATA { GRAPH <http://example.org/f> { <urn:s> <urn:p> <urn:o> } }")
    with failing("HW-TRI-01"):
        other.apply([], [triple + b" <http://example.org/f> .\n"], position(3))
    with failing("HW-TRI-01"):
        other.apply([], [triple + f" <{POSITION_GRAPH}> .\n".encode()], position(3))
    assert held(mine) == {triple + b" .\n", triple + b" <http://example.org/g> .\n"}
    assert held(other) == {triple + b" .\n"}


def test_a_dataset_that_is_loaded_again_leaves_other_graphs_alone(server: SparqlServer, tmp_path: Path) -> None:
    server.store.update("INSERT DATA { GRAPH <urn:other> { <urn:s> <urn:p> <urn:o> } . <urn:s> <urn:p> <urn:o> }")
    store = store_of(server)
    store.load(written(tmp_path / "d", STATE), position(1))
    store.load(written(tmp_path / "d", set(POOL[:1])), position(2))
    assert held(store) == set(POOL[:1])
    named = {str(graph) for graph in server.store.named_graphs()}
    assert named == {"<urn:other>", f"<{POSITION_GRAPH}>", f"<{DATASET}>"}
    assert len(server.store) == 2 + 1 + 4 + 1


def test_the_uri_of_a_dataset_is_no_sparql(server: SparqlServer, tmp_path: Path) -> None:
    """Whatever a source calls its dataset, other graphs of the endpoint are left alone."""
    server.store.update("INSERT DATA { GRAPH <urn:other> { <urn:s> <urn:p> <urn:o> } }")
    hostile = "http://example.org/> { <urn:a> <urn:b> <urn:c> } } ; DROP ALL ; INSERT DATA { GRAPH <urn:x"
    store = store_of(server, hostile)
    told = msgspec.structs.replace(position(1, 1), dataset=hostile)
    with failing("HW-SPQ-05"):
        store.load(written(tmp_path / "d", set(POOL[:1])), told)  # a position never tells such a URI as it is
    assert "<urn:other>" in {str(graph) for graph in server.store.named_graphs()}
    assert not any("DROP ALL" in text for text in server.updates)


DOTTED = [
    b"<http://example.org/a/../b> <http://example.org/./p> <http://example.org/a/b/..> .\n",
    b"<http://example.org/b> <http://example.org/p> <http://example.org/a/> .\n",
    b'<http://example.org/..?x=/../y#/./z> <http://example.org/p> "<http://example.org/a/../b>" .\n',
    '<http://example.org/..%2E/é-~!$&\'()*+,;=:@> <http://example.org/p> "x" <http://example.org/./g> .\n'.encode(),
    b'<http://example.org/g> <http://example.org/p> "1"^^<http://example.org/./type> <http://example.org/g> .\n',
]


@pytest.mark.parametrize("resolved", [(), ("update",), ("update", "query")])
def test_dot_segments_of_iris_stay_whatever_the_endpoint_makes_of_them(
    server: SparqlServer, tmp_path: Path, resolved: tuple[str, ...]
) -> None:
    """Two IRIs to RDF are two there (NQUD-A7): in terms, in names of graphs, and in the URI of the dataset itself."""
    server.resolves = frozenset(resolved)
    name = "http://example.org/x/../dataset.nq"
    store = store_of(server, name)
    place = msgspec.structs.replace(position(1, 4), dataset=name)
    store.load(written(tmp_path / "d.nq", set(DOTTED[:4])), place)
    assert held(store) == set(DOTTED[:4])
    assert store.state() == StoreState(place)
    store.apply(DOTTED[1:4], DOTTED[4:], msgspec.structs.replace(place, quads=2))
    assert held(store) == {DOTTED[0], DOTTED[4]}
    assert len(list(server.store.quads_for_pattern(None, None, None, None))) == 2 + 7  # and what is noted
    store.leave(name)
    assert not len(server.store)


def test_an_iri_that_cannot_be_sent_as_it_is_is_refused(server: SparqlServer, tmp_path: Path) -> None:
    """NQUD-A7: some endpoint would resolve it, and no prefixed name has a `×`; what was there stays."""
    store = store_of(server)
    store.load(written(tmp_path / "d.nq", {DOTTED[0]}), position(1, 1))
    line = "<http://example.org/a/../×> <http://example.org/p> <urn:o> .\n".encode()
    with failing("HW-TRI-03"):
        store.load(written(tmp_path / "d.nq", {DOTTED[0], line}), position(2, 2))
    assert store.state() == StoreState(position(1, 1))
    assert held(store) == {DOTTED[0]}
