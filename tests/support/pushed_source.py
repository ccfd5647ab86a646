"""A source of two push sets, with its catalog in a file or on a search cluster, and whoever records into them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from headwater.catalog.catalog_url import open_catalog
from headwater.catalog.cluster.catalog import ClusterCatalog
from headwater.catalog.cluster.schema import remove
from headwater.catalog.interface import Catalog, ClusterOptions, Metadata, Upsert
from headwater.progress import Notice, Progress
from headwater.source.config import SetConfig, SourceConfig
from headwater.source.configured_source import utc_now
from headwater.source.source import Source
from headwater.storage.cluster import Cluster
from tests.support.engines import access, prefix

HERE = "http://source.example"


class PushedSource:
    """A source of sets that are filled by push, and whoever records into them as another process does."""

    def __init__(self, folder: Path, catalog: str | None = None) -> None:
        self.folder = folder
        self.catalog = catalog
        self.heard: list[Notice | Progress] = []

    def config(self, base_url: str = HERE) -> SourceConfig:
        sets = tuple(SetConfig(name=name, feed="events", resource_base="http://f.example/") for name in "ab")
        return SourceConfig(state=str(self.folder / "state"), catalog=self.catalog, sets=sets, base_url=base_url)

    @contextmanager
    def running(self, base_url: str = HERE) -> Iterator[Source]:
        with Source(self.config(base_url), listener=self.heard.append) as source:
            source.start()
            for one in source.config.sets:
                source.push_sets.by_set[one.name].open()
            yield source

    @contextmanager
    def opened(self) -> Iterator[Catalog]:
        catalog = open_catalog(self.catalog or self.folder / "state" / "catalog.sqlite")
        yield catalog
        catalog.close()

    def record(self, name: str, *uris: str) -> None:
        with self.opened() as catalog:
            catalog.record(name, [Upsert(uri, Metadata(length=1)) for uri in uris], utc_now())


@pytest.fixture(params=["sqlite", "opensearch"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[PushedSource]:
    if request.param == "sqlite":
        yield PushedSource(tmp_path)
        return
    engine = request.getfixturevalue("opensearch")
    indices = prefix()
    ClusterCatalog(access(engine), indices, options=ClusterOptions(replicas=0)).close()
    yield PushedSource(tmp_path, f"opensearch://{engine.url.removeprefix('http://')}/{indices}?lease_seconds=2")
    cluster = Cluster(access(engine))
    remove(cluster, indices)
    cluster.close()


@pytest.fixture
def local(tmp_path: Path) -> PushedSource:
    return PushedSource(tmp_path)
