"""A dataset behind a SPARQL server of another house: Apache Jena Fuseki follows a history, and an audit agrees."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tools.engines import fuseki
from tools.engines.errors import EngineFailed, Unavailable

from tests.support.copying import DONE, check, go
from tests.support.fake_source import Site, Source
from tests.triplestores.test_embedded_store import POOL

pytestmark = pytest.mark.long(10)

DOTTED = [line.replace(b"example.org/", b"example.org/./x/../") for line in POOL]
STATES = [set(POOL[:90]), {*POOL[30:120], *DOTTED[::3]}, {*POOL[30:120:2], *DOTTED[::7]}, set(POOL), set(POOL[::5])]


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    try:
        with fuseki.running() as address:
            yield address
    except (Unavailable, EngineFailed) as error:
        if os.environ.get("HEADWATER_REQUIRE_ENGINES"):
            raise
        pytest.skip(f"no real SPARQL server: {error}")


def test_fuseki_follows_a_history(server: str, source: Source, dest: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Blank nodes, graphs, escapes, forms of literals: the dataset is there at every step (NQUD-A6, TIM-A16)."""
    monkeypatch.setattr("headwater.triplestores.sparql_updates.MOST_STATEMENTS", 20)
    options: dict[str, Any] = {"sparql": f"{server}/update", "sparql_query": f"{server}/query"}
    site = Site(source)
    for number, state in enumerate(STATES):
        site.put("dataset.nq", b"".join(sorted(state)))
        site.publish()
        ran = go(source.base, dest, **options)
        assert ran.status == DONE, ran.notices
        assert [one.done for one in ran.one.dataset.stores] == ["patched" if number else "loaded"]
        stores = check(source.base, dest, **options).sets[0].stores
        assert [one.verdict for one in stores] in (["same"], ["same after normalisation"])


def test_what_fuseki_refuses_is_told(server: str, source: Source, dest: Path) -> None:
    site = Site(source)
    site.put("dataset.nq", b"<urn:a> <urn:b> <urn:c> .\n")
    site.publish()
    ran = go(source.base, dest, sparql=f"{server}/query", sparql_query=f"{server}/query")  # not the one for updates
    assert ran.status != DONE
    assert [one.done for one in ran.one.dataset.stores] == ["failed"]
