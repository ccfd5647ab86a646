"""Fixtures for tests on real search engines, and a loud word about those that could not run.

tests/engines.md says what they need.

`opensearch` and `elasticsearch` are one node each for all workers of a run, in which a test uses names of its own and
which it leaves running: a start costs four to ten seconds of a processor. The process that started the workers starts
them, when a test first asks; without workers there is nobody to ask, and the process starts its own.
`secured_opensearch` and `secured_elasticsearch` have TLS and want to know who asks, and live as long as the tests of
one module. What stops, kills or pauses a node makes its own with `make_engine` or `make_cluster`.

Catalogs on them share the indices of one prefix, and each sees its own sets alone (`Scoped`).
"""

from __future__ import annotations

import itertools
import os
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from multiprocessing.connection import Client, Listener
from typing import Any, Protocol
from urllib.parse import urlsplit

import pytest
from msgspec.structs import replace
from tools.engines import artifacts, java
from tools.engines.cluster import Cluster
from tools.engines.engine import Engine, archive_classes
from tools.engines.errors import EngineFailed, Unavailable

from headwater.catalog.cluster.catalog import ClusterCatalog
from headwater.catalog.cluster.schema import remove
from headwater.catalog.interface import Catalog, ClusterOptions, Limits, SetState
from headwater.storage import cluster as client
from headwater.storage.cluster import Access, Node

REQUIRE = "HEADWATER_REQUIRE_ENGINES"
WORDS = "no real search engine: "
ADDRESS = "engines"
"""Under this name a worker is told where to ask."""
KEPT = pytest.StashKey["Engines"]()


class Engines:
    """The engines of a run, and a thread that tells workers the port of each."""

    def __init__(self) -> None:
        self._running = ExitStack()
        self._ports: dict[str, int] = {}
        self._folder = tempfile.TemporaryDirectory(prefix="engines-")
        self._listener = Listener(f"{self._folder.name}/socket")
        self.address = str(self._listener.address)
        self._thread = threading.Thread(target=self._answer, name="engines", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the engines; call it when no worker is left to ask."""
        ask(self.address, "")
        self._thread.join()
        self._listener.close()
        self._folder.cleanup()
        self._running.close()

    def _answer(self) -> None:
        name = "-"
        while name:
            with self._listener.accept() as asker:
                try:
                    name = asker.recv()
                    asker.send(self._port(name) if name else 0)
                except (EngineFailed, Unavailable) as error:
                    asker.send(str(error))
                except (EOFError, OSError):
                    continue  # the worker was killed

    def _port(self, name: str) -> int:
        if name not in self._ports:
            self._ports[name] = self._running.enter_context(Engine(name)).port
        return self._ports[name]


def ask(address: str, name: str) -> int:
    """The port of an engine, which runs; raises EngineFailed when it does not."""
    with Client(address) as connection:
        connection.send(name)
        answer = connection.recv()
    if isinstance(answer, str):
        raise EngineFailed(answer)
    return int(answer)


@contextmanager
def shared(name: str, config: pytest.Config) -> Iterator[Engine]:
    """The engine of this run; for tests that leave it running."""
    address = getattr(config, "workerinput", {}).get(ADDRESS)
    with Engine(name) if address is None else Engine(name, port=ask(address, name), start=False) as engine:
        yield engine


@pytest.fixture(scope="session")
def opensearch(pytestconfig: pytest.Config) -> Iterator[Engine]:
    demand("opensearch")
    with shared("opensearch", pytestconfig) as engine:
        yield engine


@pytest.fixture(scope="session")
def elasticsearch(pytestconfig: pytest.Config) -> Iterator[Engine]:
    demand("elasticsearch")
    with shared("elasticsearch", pytestconfig) as engine:
        yield engine


@pytest.fixture(scope="module")
def secured_opensearch() -> Iterator[Engine]:
    with _engine("opensearch", secured=True) as engine:
        yield engine


@pytest.fixture(scope="module")
def secured_elasticsearch() -> Iterator[Engine]:
    with _engine("elasticsearch", secured=True) as engine:
        yield engine


@pytest.fixture
def make_engine() -> Iterator[Callable[..., Engine]]:
    """Makes a node for one test: `make_engine("opensearch", settings=…)`, with what `Engine` takes."""
    with ExitStack() as stack:
        yield lambda name, **options: stack.enter_context(_engine(name, **options))


@pytest.fixture
def make_cluster() -> Iterator[Callable[..., Cluster]]:
    """Makes a cluster for one test: `make_cluster(3, settings=…)`, with what `Cluster` takes."""
    with ExitStack() as stack:

        def make(count: int, *, name: str = "opensearch", **options: Any) -> Cluster:
            demand(name)
            return stack.enter_context(Cluster(count, name=name, **options))

        yield make


def _engine(name: str, **options: Any) -> Engine:
    demand(f"{name}-secured" if options.get("secured") else name)
    return Engine(name, **options)


def demand(name: str) -> None:
    """Skip the test that needs what this machine lacks, or fail it where engines are required."""
    if (words := lacking(name)) is None:
        return
    if os.environ.get(REQUIRE) == "1":
        pytest.fail(f"{WORDS}{words}", pytrace=False)
    pytest.skip(f"{WORDS}{words}")


@cache
def lacking(name: str) -> str | None:
    """Why an engine cannot run here, found out once a process; None when it can, and then it is fetched."""
    artifact = artifacts.pinned()[name]
    try:
        java.find(artifact.java)
        artifacts.install(artifact)
        archive_classes(name)
    except Unavailable as error:
        return f"{name}: {error}"
    return None


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Name the tests that were skipped for want of an engine, and what would let them run."""
    skipped: dict[str, list[str]] = {}
    for report in terminalreporter.stats.get("skipped", []):
        reason = str(report.longrepr[2]) if isinstance(report.longrepr, tuple) else ""
        _, found, why = reason.partition(WORDS)
        if found:
            skipped.setdefault(why, []).append(report.nodeid)
    if not skipped:
        return
    count = sum(map(len, skipped.values()))
    terminalreporter.section(f"{count} TESTS DID NOT RUN: NO REAL SEARCH ENGINE", sep="!", red=True, bold=True)
    for why, tests in skipped.items():
        terminalreporter.line(why, red=True)
        for test in tests:
            terminalreporter.line(f"  not run: {test}")
    terminalreporter.line(f"See tests/engines.md; {REQUIRE}=1 makes this a failure.")


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Called where the workers are started, before each of them is."""
    engines = node.config.stash.setdefault(KEPT, None) or Engines()
    node.config.stash[KEPT] = engines
    node.workerinput[ADDRESS] = engines.address


def pytest_unconfigure(config: pytest.Config) -> None:
    engines = config.stash.get(KEPT, None)
    if engines is not None:
        engines.close()


LAYOUT = ClusterOptions(replicas=0)
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
        cluster = client.Cluster(self.access)
        remove(cluster, self.prefix)
        cluster.close()

    def _open(self, scope: str, limits: Limits | None) -> Catalog:
        catalog = ClusterCatalog(self.access, self.prefix, limits, options=LAYOUT)
        self._catalogs.append(catalog)
        return Scoped(catalog, scope)
