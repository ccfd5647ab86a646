"""The contract, on a real OpenSearch and on a real Elasticsearch."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test
from msgspec.structs import replace
from tools.engines.engine import Engine

from headwater.catalog.cluster import schema
from headwater.catalog.cluster.catalog import ClusterCatalog
from headwater.catalog.cluster.documents import change_documents
from headwater.catalog.cluster.head import Tail, fills_of, log_of, stamped, with_log, with_places, with_rows
from headwater.catalog.cluster.schema import remove
from headwater.catalog.interface import Delete, Metadata, StateRow, Unacceptable
from headwater.catalog.page_filling import Places, RowWrite, record
from headwater.catalog.verify import verify
from headwater.errors import UsageFault
from headwater.storage.cluster import Cluster, ClusterDamaged
from tests.contract.catalog import CatalogContract, machine_for
from tests.contract.catalog.cases import START, opened, up
from tests.support.engines import LAYOUT, ClusterBackend, access, prefix
from tests.support.failing import failing

pytestmark = pytest.mark.long(80)

RARELY = settings(
    max_examples=5, stateful_step_count=12, deadline=None, suppress_health_check=[HealthCheck.too_slow], database=None
)


@pytest.fixture(scope="module")
def on_opensearch(opensearch: Engine) -> Iterator[ClusterBackend]:
    backend = ClusterBackend(opensearch)
    yield backend
    backend.close()


@pytest.fixture(scope="module")
def on_elasticsearch(elasticsearch: Engine) -> Iterator[ClusterBackend]:
    backend = ClusterBackend(elasticsearch)
    yield backend
    backend.close()


class TestOpenSearch(CatalogContract):
    @pytest.fixture
    def backend(self, on_opensearch: ClusterBackend) -> Iterator[ClusterBackend]:
        yield on_opensearch
        on_opensearch.end()


class TestElasticsearch(CatalogContract):
    @pytest.fixture
    def backend(self, on_elasticsearch: ClusterBackend) -> Iterator[ClusterBackend]:
        yield on_elasticsearch
        on_elasticsearch.end()


def test_any_calls_on_opensearch(on_opensearch: ClusterBackend) -> None:
    run_machine(on_opensearch)


def test_any_calls_on_elasticsearch(on_elasticsearch: ClusterBackend) -> None:
    run_machine(on_elasticsearch)


def run_machine(backend: ClusterBackend) -> None:
    run_state_machine_as_test(machine_for(lambda: backend), settings=RARELY)
    backend.end()


@pytest.fixture
def cluster(opensearch: Engine) -> Iterator[Cluster]:
    cluster = Cluster(access(opensearch))
    yield cluster
    cluster.close()


def test_a_catalog_of_a_newer_version_is_left_alone(opensearch: Engine, cluster: Cluster) -> None:
    name = prefix()
    ClusterCatalog(access(opensearch), name, options=LAYOUT).close()
    cluster.ask("PUT", f"/{name}-set-v1/_mapping", b'{"_meta": {"headwater": {"schema": 2}}}')
    with failing("HW-CAT-03"):
        ClusterCatalog(access(opensearch), name)
    remove(cluster, name)


def test_indices_of_an_older_version_learn_the_fields_that_came_later(
    opensearch: Engine, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = prefix()
    with monkeypatch.context() as before:
        for kind in (schema.RESOURCE, schema.CHANGE):
            known = {field: one for field, one in schema._MAPPINGS[kind]["properties"].items() if field != "extra"}
            before.setitem(schema._MAPPINGS, kind, {**schema._MAPPINGS[kind], "properties": known})
        before.setattr(schema, "_LATER", ())
        ClusterCatalog(access(opensearch), name, options=LAYOUT).close()
    catalog = ClusterCatalog(access(opensearch), name)
    stated = Metadata(extra=(("{urn:x}y", "1"),))
    opened(catalog, [up("a", stated)])
    catalog.record("s", [up("b", stated)], START)
    assert [one.metadata for one in catalog.resources("s")] == [stated, stated]
    assert catalog.changes("s")[0].metadata == stated
    catalog.close()
    remove(cluster, name)


def test_an_index_of_another_program_is_left_alone(opensearch: Engine, cluster: Cluster) -> None:
    name = prefix()
    cluster.ask("PUT", f"/{name}-set-v1")
    with pytest.raises(ClusterDamaged, match="not made by Headwater"):
        ClusterCatalog(access(opensearch), name)
    remove(cluster, name)


@pytest.mark.parametrize("kind", [schema.SET, schema.RESOURCE, schema.CHANGE])
def test_no_new_index_takes_the_place_of_one_that_was_lost(opensearch: Engine, cluster: Cluster, kind: str) -> None:
    """The catalog would look sound without its log; or new, with rows that keep out what is written anew."""
    name = prefix()
    catalog = ClusterCatalog(access(opensearch), name, options=LAYOUT)
    opened(catalog, [up("a", Metadata())])
    catalog.record("s", [up(f"b{number}", Metadata()) for number in range(200)], START)
    catalog.close()
    cluster.ask("DELETE", f"/{name}-{kind}-v1")
    with pytest.raises(ClusterDamaged, match="not there any more") as raised:
        ClusterCatalog(access(opensearch), name)
    assert raised.value.where == f"{name}-{kind}-v1"
    assert "begin anew" in raised.value.todo
    remove(cluster, name)
    catalog = ClusterCatalog(access(opensearch), name, options=LAYOUT)
    opened(catalog, [up("a", Metadata())])
    assert [one.uri for one in catalog.resources("s")] == ["a"]
    catalog.close()
    remove(cluster, name)


@pytest.mark.parametrize("name", ["", "Upper", "a*", "_a", "a,b", "é", "a/b"])
def test_a_prefix_is_a_name_for_indices(opensearch: Engine, name: str) -> None:
    with pytest.raises(UsageFault, match="prefix"):
        ClusterCatalog(access(opensearch), name)


def test_what_was_half_made_is_made_whole(opensearch: Engine, cluster: Cluster) -> None:
    name = prefix()
    ClusterCatalog(access(opensearch), name, options=LAYOUT).close()
    cluster.ask("DELETE", f"/{name}-change-v1")
    catalog = ClusterCatalog(access(opensearch), name, options=LAYOUT)
    opened(catalog)
    assert catalog.record("s", [up("a")], START).last == 1
    assert [state.name for state in catalog.sets()] == ["s"]
    catalog.close()
    remove(cluster, name)


def test_nothing_is_created_by_itself(opensearch: Engine, cluster: Cluster) -> None:
    name = prefix()
    catalog = ClusterCatalog(access(opensearch), name, options=LAYOUT)
    opened(catalog)
    cluster.ask("DELETE", f"/{name}-change-v1")
    with pytest.raises(ClusterDamaged):
        catalog.record("s", [up("a")], START)
    remove(cluster, name)
    with pytest.raises(ClusterDamaged):
        catalog.state("s")
    catalog.close()


def test_a_set_has_a_name_that_can_be_sorted_by(on_opensearch: ClusterBackend) -> None:
    with pytest.raises(Unacceptable):
        on_opensearch.fresh().create("n" * 8_001)


@pytest.mark.parametrize("engine", ["opensearch", "elasticsearch"])
@pytest.mark.parametrize("priority", [500, 1_000])
def test_templates_of_others_do_not_change_our_indices(
    engine: str, priority: int, request: pytest.FixtureRequest
) -> None:
    """One for all indices, of the same priority as ours or before it, with other mappings and a pipeline of its own."""
    running: Engine = request.getfixturevalue(engine)
    name = prefix()
    cluster = Cluster(access(running))
    foreign = {
        "settings": {"index.final_pipeline": name, "index.refresh_interval": "7s"},
        "mappings": {"dynamic": True, "properties": {"rev": {"type": "text"}, "resource_set": {"type": "text"}}},
    }
    template = {"index_patterns": [f"{name}-*"], "priority": priority, "template": foreign}
    step = [{"set": {"field": "seen", "value": "now"}}] if engine == "opensearch" else []  # the other is bare of them
    cluster.ask("PUT", f"/_ingest/pipeline/{name}", json.dumps({"processors": step}).encode())
    cluster.ask("PUT", f"/_index_template/{name}", json.dumps(template).encode())
    catalog = ClusterCatalog(access(running), name, options=LAYOUT)
    opened(catalog, [up("a")])
    assert catalog.record("s", [up("b"), Delete("a")], START).last == 2
    assert [one.uri for one in catalog.resources("s")] == ["b"]
    assert catalog.newest() == {"s": 2}
    catalog.close()
    ClusterCatalog(access(running), name, options=LAYOUT).close()  # it knows its own indices again
    remove(cluster, name)
    cluster.ask("DELETE", f"/_index_template/{name}")
    cluster.ask("DELETE", f"/_ingest/pipeline/{name}")
    cluster.close()


READS: list[tuple[Callable[[ClusterCatalog], object], object]] = [
    (lambda catalog: [one.uri for one in catalog.changes("s")], ["new"]),
    (lambda catalog: [one.uri for one in catalog.resources("s")], ["a", "new"]),
    (lambda catalog: catalog.get("s", ["new"]).keys(), {"new"}),
    (lambda catalog: catalog.rows("s", [("k", "r")]), {("k", "r"): StateRow("k", "r", b"1", 3)}),
    (lambda catalog: catalog.record("s", [Delete("new")], START).last, 2),
]


@pytest.mark.parametrize(("call", "found"), READS)
def test_what_an_older_version_has_left_in_a_head_alone_is_put_into_its_place(
    opensearch: Engine, call: Callable[[ClusterCatalog], object], found: object
) -> None:
    """It wrote a small batch with the head that committed it, and nowhere else before that."""
    name = prefix()
    catalog = ClusterCatalog(access(opensearch), name, options=LAYOUT)
    opened(catalog, [up("a")])
    known = catalog._indices.head("s")
    head, log = known.source, log_of(known.source, catalog.limits)
    places = Places(catalog.limits, {}, fills_of(head, set()), head.next_slot)
    record(places, log, [up("new")], 0)
    changes = tuple(change_documents("s", log.changes, places.outcome(), head.rev + 1))
    tail = Tail(head.rev + 1, 1, log.last_seq, journal=False, changes=changes)
    after = replace(with_log(with_places(head, places), log), rev=head.rev + 1, tail=tail)
    left = with_rows(after, (RowWrite("k", "r", b"1", 3),))
    assert catalog._indices.put_head(stamped(left, "older.1"), known.version)
    heir = ClusterCatalog(access(opensearch), name, options=LAYOUT)
    assert call(heir) == found
    assert verify(heir, "s") == []
    remove(heir.cluster, name)
    heir.close()
    catalog.close()
