"""The snapshots of all sets of a real cluster at once: the same as set by set, in a few requests."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator

import pytest
from tools.engines.engine import Engine

from headwater.catalog.cluster.catalog import ClusterCatalog
from headwater.catalog.cluster.schema import remove
from headwater.catalog.interface import Delete, Metadata, Rendered, SetSnapshot, UnknownSet, Upsert
from headwater.publish.status import set_statuses
from headwater.storage.cluster import Cluster
from tests.support.engines import LAYOUT, access, prefix

START = dt.datetime(2026, 11, 21, 12, tzinfo=dt.UTC)
SECOND = dt.timedelta(seconds=1)
NAMES = [f"s{number:02}" for number in range(24)]


@pytest.fixture(scope="module")
def catalog(opensearch: Engine) -> Iterator[ClusterCatalog]:
    """Sets that are empty, loading, open, changed, published."""
    catalog = ClusterCatalog(access(opensearch), prefix(), options=LAYOUT)
    for number, name in enumerate(NAMES):
        catalog.create(name)
        if number % 2:
            catalog.load(name, [Upsert(f"{n}", Metadata(length=n)) for n in range(number)])
        if number % 3:
            catalog.open(name, START)
            catalog.record(name, [Upsert("a", Metadata()), Delete("1")], START + number * SECOND)
        if number % 6 == 1:
            catalog.rendered(name, [Rendered(0, 1, START, START)])
            catalog.close_segment(name, START + 2 * number * SECOND)
            catalog.record(name, [Upsert("b", Metadata())], START + 3 * number * SECOND)
    yield catalog
    cluster = Cluster(access(opensearch))
    remove(cluster, catalog.prefix)
    cluster.close()
    catalog.close()


def test_books_are_those_of_each_set(catalog: ClusterCatalog) -> None:
    alone = [SetSnapshot(one, catalog.pages(one.name), catalog.segments(one.name)) for one in catalog.sets()]
    assert list(catalog.snapshots()) == alone
    assert [one.state.name for one in alone] == NAMES
    assert len({(len(one.pages), len(one.segments)) for one in alone}) > 3
    assert [catalog.snapshot_of(name) for name in NAMES] == alone
    with pytest.raises(UnknownSet):
        catalog.snapshot_of("nowhere")
    assert [one.state.name for one in catalog.snapshots(frozenset(["s03", "nowhere"]))] == ["s03"]


def test_times_are_those_of_the_changes(catalog: ClusterCatalog) -> None:
    for seq in (1, 2, 3, 9):
        alone = {name: catalog.changes(name, seq - 1, 1) for name in NAMES}
        assert catalog.times(dict.fromkeys(NAMES, seq)) == {
            name: changes[0].at for name, changes in alone.items() if changes
        }


def test_how_many_sets_stand_takes_a_few_requests(catalog: ClusterCatalog, monkeypatch: pytest.MonkeyPatch) -> None:
    paths: list[str] = []
    ask = Cluster.ask

    def counted(self: Cluster, method: str, path: str, *rest: object, **named: object) -> object:
        paths.append(path)
        return ask(self, method, path, *rest, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(Cluster, "ask", counted)
    found = set_statuses(catalog, START + 100 * SECOND)
    assert len(paths) == 3, paths  # a refresh, a search, and the oldest changes that wait
    assert [one.changes_lag_seconds for one in found] == [
        100.0 - number if number % 3 else 0.0 for number in range(len(NAMES))
    ]
