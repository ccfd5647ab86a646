"""The contract, on a real OpenSearch and on a real Elasticsearch."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test
from tools.engines.engine import Engine

from headwater.catalog.cluster import schema
from headwater.catalog.cluster.catalog import ClusterCatalog
from headwater.catalog.cluster.indices import Indices
from headwater.catalog.cluster.reads import done_by_all
from headwater.catalog.cluster.schema import remove
from headwater.catalog.interface import Delete, Metadata, Unacceptable
from headwater.errors import UsageFault
from headwater.storage.cluster import Answer, Cluster, ClusterDamaged
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
    assert catalog.record("s", [up("a")], START).last == 1  # the head says it …
    with pytest.raises(ClusterDamaged):
        catalog.record("s", [up("b")], START)  # … and no other before it is in its place
    remove(cluster, name)
    with pytest.raises(ClusterDamaged):
        catalog.state("s")
    catalog.close()


def test_a_set_has_a_name_that_can_be_sorted_by(on_opensearch: ClusterBackend) -> None:
    with pytest.raises(Unacceptable):
        on_opensearch.fresh().create("n" * 8_001)


def test_the_newest_changes_are_seen_by_looking_at_what_was_written(
    on_opensearch: ClusterBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Thousands of heads are read once; after that those alone that others have written to, hidden ones when shown."""
    looks: list[int] = []
    newest = Indices.newest

    def looking(indices: Indices, since: int = -1) -> dict[str, int]:
        looks.append(since)
        return newest(indices, since)

    monkeypatch.setattr(Indices, "newest", looking)
    catalog = on_opensearch.fresh()
    other = on_opensearch.again(catalog)
    names = [f"s{number}" for number in range(5)]
    for name in names:
        opened(other, name=name)
    expected = dict.fromkeys(names, 0)
    assert catalog.newest() == catalog.newest() == expected
    assert looks == [-1]
    for number in range(1, 7):
        name = names[number % 5]
        expected[name] = other.record(name, [up(f"r{number}")], START).last
        assert catalog.newest() == expected
    assert len(looks) == 7
    assert looks[1:] == sorted(looks[1:])
    assert looks[1] >= 0
    catalog.create("loading")
    assert catalog.newest() == expected
    catalog.open("loading", START)
    assert catalog.newest() == {**expected, "loading": 0}
    on_opensearch.end()


@pytest.mark.parametrize(
    ("stats", "done"),
    [
        ({"n1": 7}, 7),
        ({"n1": 7, "n2": 5}, 5),
        ({}, -1),
    ],
)
def test_what_not_every_copy_has_done_is_looked_at_again(stats: dict[str, int], done: int) -> None:
    """The number that an operation was given counts only once all before it are done, on every copy."""
    copies = [{"routing": {"node": node}, "seq_no": {"local_checkpoint": number}} for node, number in stats.items()]
    body = {"indices": {"p-set-v1": {"uuid": "u", "shards": {"0": copies}}}} if copies else {}

    class Told:
        def ask(self, _method: str, path: str, **_options: object) -> Answer:
            assert "local_checkpoint" in path
            return Answer(200, json.dumps(body, separators=(",", ":")))

    assert done_by_all(Indices(Told(), "p").checkpoints()) == done  # type: ignore[arg-type]


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
