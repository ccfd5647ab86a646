"""Catalogs on real engines for the tests: many in the indices of one prefix, each seeing its own sets alone."""

from __future__ import annotations

import itertools
import os
from typing import Any, Protocol
from urllib.parse import urlsplit

from msgspec.structs import replace

from headwater.catalog.cluster.catalog import ClusterCatalog
from headwater.catalog.cluster.schema import Layout, remove
from headwater.catalog.interface import Catalog, Limits, SetState
from headwater.storage.cluster import Access, Cluster, Node

LAYOUT = Layout(replicas=0)
NUMBERS = itertools.count()


class Running(Protocol):
    """What of an engine a catalog wants to know."""

    @property
    def url(self) -> str: ...


def access(*engines: Running) -> Access:
    """The way to these nodes, as one cluster."""
    found = [urlsplit(engine.url) for engine in engines]
    return Access(nodes=tuple(Node(url.hostname or "", url.port or 0) for url in found))


def prefix() -> str:
    """A prefix that no other test has."""
    return f"test-{os.getpid()}-{next(NUMBERS)}"


class Scoped:
    """A catalog that is alone in its indices, as far as its caller can see: before every name stands its scope.

    New indices cost half a second of two cores, and the contract wants hundreds of catalogs.
    """

    def __init__(self, catalog: ClusterCatalog, scope: str) -> None:
        self.catalog = catalog
        self.scope = scope
        self.limits = catalog.limits

    def sets(self) -> list[SetState]:
        return [self._own(state) for state in self.catalog.sets() if state.name.startswith(self.scope)]

    def newest(self) -> dict[str, int]:
        found = self.catalog.newest().items()
        return {name.removeprefix(self.scope): seq for name, seq in found if name.startswith(self.scope)}

    def sets_with_rows(self, kind: str, until: int | None = None) -> dict[str, int]:
        found = self.catalog.sets_with_rows(kind, until).items()
        return {name.removeprefix(self.scope): count for name, count in found if name.startswith(self.scope)}

    def __getattr__(self, method: str) -> Any:
        inner = getattr(self.catalog, method)
        if method == "close":
            return inner

        def call(name: str, *arguments: Any, **named: Any) -> Any:
            result = inner(self.scope + name if name else name, *arguments, **named)
            return self._own(result) if isinstance(result, SetState) else result

        return call

    def _own(self, state: SetState) -> SetState:
        return replace(state, name=state.name.removeprefix(self.scope))


class ClusterBackend:
    """Catalogs of one engine; nothing is left in it when this is closed."""

    def __init__(self, engine: Running) -> None:
        self.access = access(engine)
        self.prefix = prefix()
        self._catalogs: list[ClusterCatalog] = []

    def fresh(self, limits: Limits | None = None) -> Catalog:
        return self._open(f"{next(NUMBERS)}/", limits)

    def again(self, catalog: Catalog, limits: Limits | None = None) -> Catalog:
        assert isinstance(catalog, Scoped)
        return self._open(catalog.scope, limits or catalog.limits)

    def end(self) -> None:
        """Give up the catalogs of one test."""
        while self._catalogs:
            self._catalogs.pop().close()

    def close(self) -> None:
        self.end()
        cluster = Cluster(self.access)
        remove(cluster, self.prefix)
        cluster.close()

    def _open(self, scope: str, limits: Limits | None) -> Catalog:
        catalog = ClusterCatalog(self.access, self.prefix, limits, layout=LAYOUT)
        self._catalogs.append(catalog)
        return Scoped(catalog, scope)
