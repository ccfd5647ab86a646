"""Faults of the engine itself, in the middle of the work: nodes that stop, die and come back, queues that are full."""

from __future__ import annotations

import datetime as dt
import threading
from collections.abc import Callable, Iterator

import pytest
from tools.engines.cluster import QUICK_TO_NOTICE
from tools.engines.cluster import Cluster as Nodes
from tools.engines.engine import Engine

from headwater.catalog.interface import Catalog, Metadata, Upsert
from headwater.catalog.verify import verify
from headwater.storage.cluster import ClusterBusy
from tests.catalog.cluster_ground import Ground
from tests.catalog.cluster_writers import WritingProcess, judge, left_by
from tests.catalog.recorder import START
from tests.support.engines import demand
from tests.test_engines import call, closed, killed, names_itself, paused_and_resumed, stopped_in_order

pytestmark = pytest.mark.long(70)

BATCHES = 12
BETWEEN = "keep 12"
"""In the middle of the third batch of a load: some of its requests were answered, some were not sent."""


def loaded(catalog: Catalog) -> None:
    """The load of `BATCHES` batches is there, whole."""
    assert {resource.uri for resource in catalog.resources("s", limit=10**9)} == left_by("w", BATCHES)
    assert verify(catalog, "s") == []


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    """One whose queue for writing has one place."""
    demand("opensearch")
    settings = {"thread_pool.write.size": "1", "thread_pool.write.queue_size": "1", "node.processors": "1"}
    with Engine("opensearch", settings=settings) as engine:
        yield engine


def test_what_a_full_queue_rejects_is_sent_again(engine: Engine) -> None:
    ground = Ground(engine, options="shards=6&replicas=0")
    catalog = ground.open()
    names = ("s", "t")
    for name in names:
        catalog.create(name)

    def load(name: str) -> None:
        for number in range(3):
            events = [Upsert(f"{number}/{n}", Metadata(length=n)) for n in range(1_000)]
            catalog.load(name, events)
        catalog.open(name, START)
        catalog.record(name, [Upsert(f"0/{n}", Metadata()) for n in range(500)], START + dt.timedelta(seconds=1))

    threads = [threading.Thread(target=load, args=(name,)) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [notice for notice in ground.notices if notice.rule == ClusterBusy.code]  # the queue was full, really
    for name in names:
        assert catalog.state(name).count == 3_000
        assert catalog.state(name).last_seq == 500
        assert verify(catalog, name) == []
    catalog.close()
    ground.remove()


def test_an_engine_that_stops_and_comes_back_in_the_middle(engine: Engine) -> None:
    """It is the last that is done with this engine, so the promises of `Engine` itself are tried on it as well."""
    names_itself(engine)
    before = engine.url
    ground = Ground(engine)
    with WritingProcess(ground.place, "w", "load", end=BATCHES, hold=BETWEEN) as loading:
        loading.until("held")
        stopped_in_order(engine)
        loading.go_on()
        engine.start()
        loading.until("done")
    assert engine.url == before
    catalog = ground.open()
    loaded(catalog)
    catalog.close()
    paused_and_resumed(engine)
    killed(engine)
    closed(engine)


def test_a_cluster_that_loses_nodes_in_the_middle(make_cluster: Callable[..., Nodes]) -> None:
    nodes = make_cluster(3, settings=QUICK_TO_NOTICE)
    assert len(set(nodes.urls)) == 3
    names = {node.settings["node.name"]: node for node in nodes.nodes}
    ground = Ground(*nodes.nodes, options="shards=1&replicas=1")
    ground.open().close()
    nodes.wait(status="green")

    with WritingProcess(ground.place, "w", "load", end=BATCHES, hold=BETWEEN) as loading:
        loading.until("held")
        lost = names[ground.primary("resource")]
        lost.kill()
        loading.go_on()
        loading.until("done")
    nodes.wait()
    assert {call(f"{node.url}/_cluster/health")["number_of_nodes"] for node in nodes.nodes if node.running} == {2}
    catalog = ground.open()
    loaded(catalog)
    catalog.open("s", START)
    lost.start()
    nodes.wait(status="green")
    loaded(catalog)

    with WritingProcess(ground.place, "r", end=2 * BATCHES, hold="commit 3") as recording:
        recording.until("held")
        stopped = names[ground.primary("set")]  # the primary with the head, and with it the lease
        stopped.stop()
        recording.go_on()
        recording.until("done")
        judge(catalog, recording)
    catalog.close()
    for node in (one for one in nodes.nodes if one is not stopped):  # each tells the same
        alone = Ground(node)
        handle = alone.open(ground.place.replace(ground.place.split("/")[2], node.url.removeprefix("http://")))
        judge(handle, recording)
        handle.close()
