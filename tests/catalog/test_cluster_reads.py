"""Readers of a cluster catalog see one committed state while others write, and wait for nobody."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import cast

import pytest
from tools.engines.engine import Engine

from headwater.catalog.cluster.catalog import ClusterCatalog
from headwater.catalog.cluster.head import SetHead
from headwater.catalog.cluster.writer import SetWriter
from headwater.catalog.interface import Catalog, Delete, Event, Metadata, Resource, Upsert
from headwater.storage.cluster import ClusterUnreachable
from tests.contract.catalog.cases import START, at
from tests.support.engines import ClusterBackend

pytestmark = pytest.mark.long(25)

URIS = [f"r{number:02}" for number in range(40)]
SECONDS = 3.0


@pytest.fixture(scope="module")
def on_opensearch(opensearch: Engine) -> Iterator[ClusterBackend]:
    backend = ClusterBackend(opensearch)
    yield backend
    backend.close()


def version(number: int) -> list[Event]:
    """The whole set in one version; every third one lacks some resources."""
    gone = set(URIS[::4]) if number % 3 == 2 else set()
    return [Delete(uri) if uri in gone else Upsert(uri, Metadata(length=number), b"%d" % number) for uri in URIS]


def state_of(found: list[Resource]) -> int:
    """The version that all of these are of; fails when there are two, or when one is not whole."""
    versions = {resource.metadata.length for resource in found}
    assert len(versions) == 1, f"a mixture of versions {versions}"
    (number,) = versions
    assert number is not None
    assert [resource.uri for resource in found] == [event.uri for event in version(number) if isinstance(event, Upsert)]
    assert len({resource.memo for resource in found}) == 1, "a mixture of memos"
    return number


def by_get(catalog: Catalog) -> list[Resource]:
    return sorted(catalog.get("s", URIS).values(), key=lambda resource: resource.uri)


def by_uri(catalog: Catalog) -> list[Resource]:
    return catalog.resources("s")


def by_page(catalog: Catalog) -> list[Resource]:
    return sorted(catalog.page("s", 0), key=lambda resource: resource.uri)


READS = [by_get, by_uri, by_page]


def read_while(catalog: Catalog, write: Callable[[int], None], read: Callable[[Catalog], list[Resource]]) -> list[int]:
    """What a reader sees while `write` writes one version after the other."""
    ended = threading.Event()
    failures: list[BaseException] = []

    def writer() -> None:
        try:
            number = 1
            while not ended.is_set():
                write(number)
                number += 1
        except BaseException as failure:
            failures.append(failure)
            raise

    thread = threading.Thread(target=writer)
    thread.start()
    seen: list[int] = []
    try:
        began = time.monotonic()
        while (took := time.monotonic() - began) < SECONDS or (len(set(seen)) <= 2 and took < 20 * SECONDS):
            seen.append(state_of(read(catalog)))
    finally:
        ended.set()
        thread.join()
    assert failures == []
    assert seen == sorted(seen), "a reader went back"
    assert len(set(seen)) > 2, "too little happened for the test to say anything"
    return seen


@pytest.mark.parametrize("read", READS)
def test_a_reader_sees_one_state_while_changes_are_recorded(
    on_opensearch: ClusterBackend,
    read: Callable[[Catalog], list[Resource]],
) -> None:
    catalog = on_opensearch.fresh()
    other = on_opensearch.again(catalog)
    catalog.create("s")
    catalog.load("s", version(0))
    catalog.open("s", START)
    read_while(catalog, lambda number: void(other.record("s", version(number), at(number))), read)
    on_opensearch.end()


@pytest.mark.parametrize("read", READS)
def test_a_reader_sees_one_state_while_a_set_is_loaded_again_and_again(
    on_opensearch: ClusterBackend, read: Callable[[Catalog], list[Resource]]
) -> None:
    catalog = on_opensearch.fresh()
    other = on_opensearch.again(catalog)
    catalog.create("s")
    catalog.load("s", version(0))
    read_while(catalog, lambda number: void(other.load("s", version(number))), read)
    on_opensearch.end()


@pytest.mark.parametrize("read", READS)
def test_a_reader_sees_one_state_while_memos_are_replaced(
    on_opensearch: ClusterBackend, read: Callable[[Catalog], list[Resource]]
) -> None:
    catalog = on_opensearch.fresh()
    other = on_opensearch.again(catalog)
    catalog.create("s")
    catalog.load("s", version(0))
    catalog.open("s", START)

    def write(number: int) -> None:
        other.record("s", version(number), at(number))
        other.remember("s", [(uri, b"memo %d" % number) for uri in URIS])

    read_while(catalog, write, read)
    on_opensearch.end()


def void(_: object) -> None:
    """What a write returns is not looked at."""


def test_what_a_killed_writer_left_in_the_log_is_not_taken_for_damage(
    on_opensearch: ClusterBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A search may still show it where the numbers have been given to other changes since."""
    catalog = on_opensearch.fresh()
    catalog.create("s")
    catalog.open("s", START)
    killed = on_opensearch.again(catalog)
    with monkeypatch.context() as patch:
        patch.setattr(SetWriter, "commit", killed_here)
        with pytest.raises(ClusterUnreachable):
            killed.record("s", [Upsert(f"void{number}", Metadata()) for number in range(1_200)], at(1))
    inner = cast("ClusterCatalog", vars(killed)["catalog"])
    inner.cluster.ask("POST", f"/{inner.prefix}-change/_refresh")
    killed.record("s", [Upsert(f"r{number}", Metadata()) for number in range(1_300)], at(2))
    assert [one.uri for one in catalog.changes("s")] == [f"r{number}" for number in range(1_300)]
    on_opensearch.end()


def killed_here(_turn: SetWriter, _head: SetHead) -> bool:
    """The writer ends, and keeps its lease."""
    raise ClusterUnreachable("killed")
