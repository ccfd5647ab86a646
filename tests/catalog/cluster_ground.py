"""Where the fault tests put a catalog: one prefix of an engine or of several nodes, and what they ask of them."""

from __future__ import annotations

import json
import threading
import time
from collections import defaultdict
from types import SimpleNamespace

import pytest

from headwater.catalog.catalog_url import open_catalog
from headwater.catalog.cluster import writer
from headwater.catalog.cluster.catalog import ClusterCatalog
from headwater.catalog.cluster.schema import remove
from headwater.progress import Notice, Progress
from headwater.storage.cluster import Cluster
from tests.catalog.recorder import LIMITS
from tests.support.engines import Running, access, prefix

LEASE = 1.0


class Ground:
    """One prefix: its place, and handles on it, whose notices are kept."""

    def __init__(self, *engines: Running, options: str = "shards=1&replicas=0") -> None:
        nodes = ",".join(engine.url.removeprefix("http://") for engine in engines)
        self.prefix = prefix()
        self.place = f"opensearch://{nodes}/{self.prefix}?{options}&lease_seconds={LEASE}&patience_seconds=200"
        self.notices: list[Notice] = []
        self._engines = engines

    def open(self, place: str | None = None) -> ClusterCatalog:
        catalog = open_catalog(place or self.place, LIMITS, listener=self._listen)
        assert isinstance(catalog, ClusterCatalog)
        return catalog

    def ask(self, method: str, path: str, body: bytes | None = None) -> str:
        cluster = Cluster(access(*self._engines))
        try:
            return cluster.ask(method, path, body).body
        finally:
            cluster.close()

    def primary(self, kind: str) -> str:
        """The name of the node that holds the first primary of an index."""
        shards = json.loads(self.ask("GET", f"/_cat/shards/{self.prefix}-{kind}?format=json&h=prirep,node"))
        return next(str(shard["node"]) for shard in shards if shard["prirep"] == "p")

    def remove(self) -> None:
        cluster = Cluster(access(*self._engines))
        remove(cluster, self.prefix)
        cluster.close()

    def _listen(self, event: Notice | Progress) -> None:
        if isinstance(event, Notice):
            self.notices.append(event)


def count_pauses(monkeypatch: pytest.MonkeyPatch) -> dict[str, float]:
    """Seconds that each thread sleeps while it waits for a writer: no load of the machine makes them more."""
    slept: dict[str, float] = defaultdict(float)

    def sleep(seconds: float) -> None:
        slept[threading.current_thread().name] += seconds
        time.sleep(seconds)

    monkeypatch.setattr(writer, "time", SimpleNamespace(monotonic=time.monotonic, sleep=sleep))
    return slept
