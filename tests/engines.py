"""Fixtures for tests on real search engines, and a loud word about those that could not run (docs/engines.md).

`opensearch` and `elasticsearch` are one node each, started when a test first asks for it and shared by all tests of a
run, in all its workers (`tests.sharing`): a test uses names of its own in it and leaves it running.
`secured_opensearch` and `secured_elasticsearch` have TLS and want to know who asks, and live as long as the tests of
one module. What stops, kills or pauses a node makes its own with `make_engine` or `make_cluster`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache
from typing import Any

import pytest
from tools.engines import artifacts, java
from tools.engines.cluster import Cluster
from tools.engines.engine import Engine
from tools.engines.errors import Unavailable

from tests.sharing import shared

REQUIRE = "HEADWATER_REQUIRE_ENGINES"
WORDS = "no real search engine: "


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
    terminalreporter.line(f"See docs/engines.md; {REQUIRE}=1 makes this a failure.")
