"""What the fast paths of a cluster catalog do is what the catalog does without them, on a real OpenSearch."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from msgspec.structs import replace
from tools.engines.engine import Engine

from headwater.catalog.cluster import catalog as cluster_batch
from headwater.catalog.cluster.catalog import ClusterCatalog
from headwater.catalog.cluster.indices import Indices
from headwater.catalog.cluster.schema import remove
from headwater.catalog.interface import Accepted, Delete, Event, StateRow, StateUpdate, Unacceptable
from headwater.catalog.verify import verify
from headwater.storage.cluster import Cluster
from tests.contract.catalog.cases import BIG, SMALL, at, opened, up
from tests.contract.catalog.model import observed
from tests.support.engines import LAYOUT, access, prefix

BATCHES: list[tuple[list[Event], StateUpdate]] = [
    ([up("new")], StateUpdate()),
    ([up("r1", BIG), Delete("r2"), up("r2"), Delete("r2")], StateUpdate([StateRow("k", "a", b"1", 3)])),
    ([Delete("nowhere")], StateUpdate()),
    ([Delete("nowhere"), Delete("r3")], StateUpdate([StateRow("k", "b")], [("k", "a")])),
    ([], StateUpdate([StateRow("k", "c", b"2", 1)])),
    ([up(f"many{number}", BIG) for number in range(9)], StateUpdate()),
]


@pytest.fixture
def handles(opensearch: Engine) -> Iterator[list[ClusterCatalog]]:
    """Two on one catalog."""
    name = prefix()
    made = [ClusterCatalog(access(opensearch), name, SMALL, options=LAYOUT) for _ in range(2)]
    yield made
    for one in made:
        one.close()
    cluster = Cluster(access(opensearch))
    remove(cluster, name)
    cluster.close()


@pytest.mark.parametrize("by_turns", [False, True])
def test_few_changes_in_the_head_are_what_the_lease_would_have_made_of_them(
    handles: list[ClusterCatalog], monkeypatch: pytest.MonkeyPatch, by_turns: bool
) -> None:
    said: dict[bool, list[Accepted]] = {True: [], False: []}
    for is_on in said:
        monkeypatch.setattr(cluster_batch, "MOST_EVENTS", 24 if is_on else -1)
        name = f"fast {is_on}"
        opened(handles[0], [up(f"r{number}") for number in range(5)], name)
        for number, (events, rows) in enumerate(BATCHES):
            catalog = handles[number % 2 if by_turns else 0]
            said[is_on].append(catalog.record(name, events, at(number), state=rows))
            with pytest.raises(Unacceptable):
                catalog.record(name, [up("a"), up("")], at(number))
        assert verify(handles[1], name) == []
    assert said[True] == said[False]
    assert _all(handles[1], "fast True") == _all(handles[1], "fast False")


def _all(catalog: ClusterCatalog, name: str) -> object:
    seen = observed(catalog, name)
    return seen | {"state": replace(seen["state"], name="s")}


def test_the_numbers_that_are_polled_are_those_of_all_heads(
    handles: list[ClusterCatalog], monkeypatch: pytest.MonkeyPatch
) -> None:
    writer, reader = handles
    for step in range(12):
        if step % 3 == 0:
            opened(writer, [up("r")], f"s{step}")
        if step % 2:
            writer.record(f"s{step - step % 3}", [up(f"n{step}")], at(step))
        polled = reader.newest()
        with monkeypatch.context() as off:
            off.setattr(Indices, "checkpoints", lambda _indices: "")
            assert polled == writer.newest(), f"step {step}"
    assert polled == {"s0": 1, "s3": 2, "s6": 1, "s9": 2}
